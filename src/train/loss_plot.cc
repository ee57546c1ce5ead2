#include "train/loss_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace volta {
namespace {

constexpr double kWidth = 860, kHeight = 480;
constexpr double kLeft = 64, kRight = 20, kTop = 44, kBottom = 52;
constexpr std::size_t kMaxPoints = 400;  // More would not be visible and would make the file large.

struct Point {
  double step = 0;
  double loss = 0;
};

// Means over runs of neighbouring steps, so that at most kMaxPoints points are left.
std::vector<Point> smooth(std::span<const Point> points) {
  const std::size_t buckets = std::min(points.size(), kMaxPoints);
  std::vector<Point> out;
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t begin = points.size() * b / buckets;
    const std::size_t end = points.size() * (b + 1) / buckets;
    Point mean;
    for (const Point& point : points.subspan(begin, end - begin)) {
      mean.step += point.step;
      mean.loss += point.loss;
    }
    const auto count = static_cast<double>(end - begin);
    out.push_back({mean.step / count, mean.loss / count});
  }
  return out;
}

// A range of values on an axis of the picture.
struct Scale {
  double low = 0, high = 1;   // Values.
  double begin = 0, end = 1;  // Pixels.
  double operator()(double value) const {
    return begin + (value - low) / (high - low) * (end - begin);
  }
};

// The step of 1, 2 or 5 times a power of ten that gives at most `count` ticks.
double tick_step(double range, int count) {
  const double raw = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10.0 * power;
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

void begin_svg(std::string& svg, std::string_view title) {
  svg += fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">
<style>
text {{ font: 13px system-ui, sans-serif; fill: #333 }}
.title {{ font-size: 16px; font-weight: 600 }}
.back {{ fill: #fff }} .grid {{ stroke: #ddd }} .axis {{ stroke: #888 }}
.train {{ fill: none; stroke: #2563eb; stroke-width: 1.6; stroke-linejoin: round }}
.val {{ fill: none; stroke: #d97706; stroke-width: 1.6 }} .dot {{ fill: #d97706 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #ddd }} .back {{ fill: #16181d }} .grid {{ stroke: #333 }} .axis {{ stroke: #777 }}
.train {{ stroke: #7aa2ff }} .val {{ stroke: #ffb454 }} .dot {{ fill: #ffb454 }}
}}
</style>
<rect class="back" width="{0}" height="{1}"/>
<text class="title" x="{3}" y="26">{2}</text>
)",
      kWidth, kHeight, escape(title), kLeft);
}

void draw_axes(std::string& svg, const Scale& x, const Scale& y) {
  const double y_step = tick_step(y.high - y.low, 7);
  for (double v = std::ceil(y.low / y_step) * y_step; v <= y.high + 1e-9 * y_step; v += y_step) {
    svg += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)",
                       x.begin, x.end, y(v), y(v));
    svg += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{:.6g}</text>)",
                       x.begin - 8, y(v) + 4, std::abs(v) < 1e-12 ? 0.0 : v);
    svg += "\n";
  }
  const double x_step = std::max(1.0, tick_step(x.high - x.low, 8));
  for (double v = std::ceil(x.low / x_step) * x_step; v <= x.high + 1e-9 * x_step; v += x_step) {
    svg +=
        fmt::format(R"(<line class="axis" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>)",
                    x(v), y.begin, y.begin + 5);
    svg += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x(v),
                       y.begin + 20, static_cast<std::int64_t>(std::llround(v)));
    svg += "\n";
  }
  svg += fmt::format(R"(<path class="axis" fill="none" d="M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}"/>)",
                     x.begin, y.end, y.begin, x.end);
  svg += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">step</text>)",
                     (x.begin + x.end) / 2, kHeight - 10);
  svg += fmt::format(
      R"svg(<text transform="translate(16 {:.1f}) rotate(-90)" text-anchor="middle">loss (nats a token)</text>)svg",
      (y.begin + y.end) / 2);
  svg += "\n";
}

void draw_curve(std::string& svg, std::span<const Point> points, const Scale& x, const Scale& y,
                std::string_view style) {
  if (points.empty()) return;
  svg += fmt::format(R"(<polyline class="{}" points=")", style);
  for (const Point& p : points) svg += fmt::format("{:.1f},{:.1f} ", x(p.step), y(p.loss));
  svg += "\"/>\n";
}

// `steps` is the number of steps whose mean is the last point of the training curve.
void draw_legend(std::string& svg, std::span<const Point> train, std::span<const Point> val,
                 std::size_t steps) {
  double right = kWidth - kRight;
  const auto entry = [&](std::string_view style, const std::string& text) {
    right -= 8.0 + 7.0 * static_cast<double>(text.size());
    svg += fmt::format(R"(<text x="{:.1f}" y="26">{}</text>)", right, text);
    svg += fmt::format(R"(<path class="{}" d="M{:.1f} 22h22"/>)", style, right - 28);
    svg += "\n";
    right -= 40.0;
  };
  if (!val.empty()) entry("val", fmt::format("validation {:.3f}", val.back().loss));
  const std::string what =
      steps > 1 ? fmt::format("mean of the last {} steps", steps) : std::string("last step");
  entry("train", fmt::format("training {:.3f} ({})", train.back().loss, what));
}

}  // namespace

std::string loss_plot_svg(std::span<const MetricsRecord> records, std::string_view title) {
  std::vector<Point> raw;
  std::vector<Point> val;
  for (const MetricsRecord& r : records) {
    const auto step = static_cast<double>(r.step);
    if (std::isfinite(r.loss)) raw.push_back({step, r.loss});
    if (r.val_loss && std::isfinite(*r.val_loss)) val.push_back({step, *r.val_loss});
  }
  std::string svg;
  begin_svg(svg, title);
  if (raw.empty()) {
    return svg +
           fmt::format("<text x=\"{}\" y=\"{}\">no steps yet</text>\n</svg>\n", kLeft, kHeight / 2);
  }
  const std::vector<Point> train = smooth(raw);
  Scale x{0.0, std::max(1.0, raw.back().step), kLeft, kWidth - kRight};
  Scale y{train.front().loss, train.front().loss, kHeight - kBottom, kTop};
  for (const std::vector<Point>& points : {train, val}) {
    for (const Point& p : points) {
      y.low = std::min(y.low, p.loss);
      y.high = std::max(y.high, p.loss);
    }
  }
  const double margin = std::max(0.05 * (y.high - y.low), 1e-3 * std::max(1.0, std::abs(y.high)));
  y.low -= margin;
  y.high += margin;
  draw_axes(svg, x, y);
  draw_curve(svg, train, x, y, "train");
  draw_curve(svg, val, x, y, "val");
  for (const Point& p : val) {
    svg +=
        fmt::format(R"(<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="3"/>)", x(p.step), y(p.loss));
  }
  svg += "\n";
  draw_legend(svg, train, val, raw.size() - raw.size() * (train.size() - 1) / train.size());
  return svg + "</svg>\n";
}

}  // namespace volta
