// The loss curve of a run as an SVG picture, readable on light and dark pages. Pure: numbers in,
// text out.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "train/metrics.h"

namespace volta {

/// Training loss (smoothed) and validation loss over the steps, with axes, ticks and a legend.
/// `title` is drawn above. Records without finite loss are left out; none at all gives an empty
/// picture that says so.
std::string loss_plot_svg(std::span<const MetricsRecord> records, std::string_view title);

}  // namespace volta
