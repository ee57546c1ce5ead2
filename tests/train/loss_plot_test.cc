#include "train/loss_plot.h"

#include <cmath>
#include <limits>

#include "train/helpers.h"

namespace volta {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<MetricsRecord> curve(std::int64_t steps) {
  std::vector<MetricsRecord> records;
  for (std::int64_t step = 1; step <= steps; ++step) {
    MetricsRecord r{
        .step = step, .loss = 4.0 / std::sqrt(static_cast<double>(step)), .val_loss = {}};
    if (step % 50 == 0) r.val_loss = r.loss + 0.1;
    records.push_back(r);
  }
  return records;
}

std::size_t count(const std::string& text, std::string_view word) {
  std::size_t n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// Every tag that opens also closes; enough to notice a broken writer.
void expect_well_formed(const std::string& svg) {
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_EQ(count(svg, "<"), count(svg, ">"));
  EXPECT_EQ(count(svg, "\"") % 2, 0u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LossPlot, DrawsBothCurvesWithAxesAndLegend) {
  const std::string svg = loss_plot_svg(curve(200), "a <title> & more");
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("a &lt;title&gt; &amp; more"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_EQ(count(svg, "<polyline class=\"train\""), 1u);
  EXPECT_EQ(count(svg, "<polyline class=\"val\""), 1u);
  EXPECT_EQ(count(svg, "<circle"), 4u);
  EXPECT_THAT(svg, HasSubstr(">step</text>"));
  EXPECT_THAT(svg, HasSubstr("loss (nats a token)"));
  EXPECT_THAT(svg, HasSubstr("validation 0.383"));
  EXPECT_THAT(svg, HasSubstr("training 0.283 (last step)</text>"));
  EXPECT_GE(count(svg, "class=\"grid\""), 4u);
}

TEST(LossPlot, StaysSmallHoweverLongTheRun) {
  const std::string svg = loss_plot_svg(curve(100000), "long");
  EXPECT_THAT(svg, HasSubstr(" (mean of the last 250 steps)</text>"));
  expect_well_formed(svg);
  const std::string train = svg.substr(svg.find("<polyline class=\"train\""));
  EXPECT_LE(count(train.substr(0, train.find("/>")), ","), 400u);
}

TEST(LossPlot, CopesWithLittleAndWithNothing) {
  expect_well_formed(loss_plot_svg({}, "empty"));
  EXPECT_THAT(loss_plot_svg({}, "empty"), HasSubstr("no steps yet"));
  expect_well_formed(loss_plot_svg(curve(1), "one"));
  EXPECT_THAT(loss_plot_svg(curve(1), "one"), Not(HasSubstr("validation")));
  std::vector<MetricsRecord> flat(3, {.step = 1, .loss = 0.0, .val_loss = 0.0});
  expect_well_formed(loss_plot_svg(flat, "flat"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<MetricsRecord> bad(3, {.step = 1, .loss = nan, .val_loss = nan});
  EXPECT_THAT(loss_plot_svg(bad, "bad"), HasSubstr("no steps yet"));
}

}  // namespace
}  // namespace volta
