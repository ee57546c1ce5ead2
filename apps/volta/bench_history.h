// The history of measurements that scripts/bench-guard writes: reading it, and its picture.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace volta::cli {

/// One measurement of one revision.
struct HistoryPoint {
  std::string date;
  std::string commit;
  double value = 0.0;  ///< A rate: more is better.
};

/// What was measured of the same job on machines of one kind, in the order of the file.
struct HistorySeries {
  std::string machine;  ///< The kind of CPU, e.g. genuineintel-6-143-8-2-cores.
  std::string isa;
  std::string figure;  ///< The job, e.g. "train, 1 threads".
  std::vector<HistoryPoint> points;
};

/// The decimals with which values of a series are written: none for counts, one for other rates.
int decimals_of(const HistorySeries& series);

/// The series of a history: JSON lines, each with date, commit, machine, isa and an object of
/// figures. `name` is its name in messages. Series come sorted by machine, instruction set and
/// figure. kInvalidFile, naming the line.
Result<std::vector<HistorySeries>> parse_history(std::string_view text, std::string_view name);

/// The series as an SVG picture: each value in per cent of its series' first one.
std::string history_plot_svg(std::span<const HistorySeries> series);

}  // namespace volta::cli
