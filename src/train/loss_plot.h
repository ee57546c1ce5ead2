// The loss curve of a run as an SVG picture, readable on light and dark pages. A pure function of
// the records.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "train/metrics.h"

namespace volta {

/// A plot of training loss and validation loss over the steps, with axes, ticks and a legend. In a
/// long run each point of the training loss is the mean over several steps; the legend says how
/// many.
/// `title` is drawn above them. Records without a finite loss are left out. Without any other
/// record, the picture only says that there are no steps yet.
std::string loss_plot_svg(std::span<const MetricsRecord> records, std::string_view title);

}  // namespace volta
