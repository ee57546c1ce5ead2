// The picture of bench_history.h: one line for each series, readable on light and dark pages.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "bench_history.h"

namespace volta::cli {
namespace {

constexpr double kWidth = 860, kPlotHeight = 320;
constexpr double kLeft = 64, kRight = 20, kTop = 44, kLegendLine = 18;
// Readable on white and on black; further series begin with the first one again.
constexpr std::array<std::string_view, 6> kColours = {"#2f7ed8", "#d9730d", "#2e9e5b",
                                                      "#c2405a", "#8a5fd6", "#8c8c3a"};

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;  // XML has no control characters.
    }
  }
  return out;
}

// The value of a point in per cent of its series' first one.
double relative(const HistorySeries& series, std::size_t at) {
  return 100.0 * series.points[at].value / series.points.front().value;
}

void draw_grid(std::string& svg, double low, double high) {
  const double step = std::max(1.0, std::ceil((high - low) / 6.0));
  for (double level = std::ceil(low / step) * step; level <= high; level += step) {
    const double y = kTop + (high - level) / (high - low) * kPlotHeight;
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.0f}%</text>\n",
        kLeft, kWidth - kRight, y, kLeft - 8, y + 4, level);
  }
}

}  // namespace

std::string history_plot_svg(std::span<const HistorySeries> series) {
  double low = 95.0, high = 105.0;
  std::size_t longest = 1;
  for (const HistorySeries& line : series) {
    longest = std::max(longest, line.points.size());
    for (std::size_t i = 0; i < line.points.size(); ++i) {
      low = std::min(low, relative(line, i) - 1.0);
      high = std::max(high, relative(line, i) + 1.0);
    }
  }
  const double height =
      kTop + kPlotHeight + 30 + kLegendLine * static_cast<double>(series.size()) + 10;
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="Figures of earlier revisions">
<style>
text {{ font: 13px system-ui, sans-serif; fill: #333 }} .title {{ font-size: 16px; font-weight: 600 }}
.back {{ fill: #fff }} .grid {{ stroke: #ddd }} polyline {{ fill: none; stroke-width: 1.6 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} .back {{ fill: #16181d }} .grid {{ stroke: #333 }} }}
</style>
<rect class="back" width="{0}" height="{1}"/>
<text class="title" x="{2}" y="26">Speed of each revision, in per cent of the first one</text>
)",
      kWidth, height, kLeft);
  draw_grid(svg, low, high);
  const double step =
      longest > 1 ? (kWidth - kLeft - kRight) / static_cast<double>(longest - 1) : 0.0;
  for (std::size_t at = 0; at < series.size(); ++at) {
    const std::string_view colour = kColours[at % kColours.size()];
    svg += fmt::format("<polyline stroke=\"{}\" points=\"", colour);
    for (std::size_t i = 0; i < series[at].points.size(); ++i) {
      svg += fmt::format("{:.1f},{:.1f} ", kLeft + step * static_cast<double>(i),
                         kTop + (high - relative(series[at], i)) / (high - low) * kPlotHeight);
    }
    const double y = kTop + kPlotHeight + 30 + kLegendLine * static_cast<double>(at);
    svg += fmt::format(
        "\"/>\n<rect x=\"{0}\" y=\"{1:.1f}\" width=\"14\" height=\"4\" fill=\"{2}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\">{5}: {6:.{9}f} ({7}, {8})</text>\n",
        kLeft, y - 6, colour, kLeft + 22, y, escape(series[at].figure),
        series[at].points.back().value, escape(series[at].machine), escape(series[at].isa),
        decimals_of(series[at]));
  }
  return svg + "</svg>\n";
}

}  // namespace volta::cli
