// volta bench history: what was measured of earlier revisions, as a table and as a picture.
#include "bench_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "bench.h"
#include "command.h"

namespace volta::cli {
namespace {

constexpr std::int64_t kMaxHistoryBytes = std::int64_t{64} << 20;
constexpr JsonLimits kLineLimits{.max_bytes = 1 << 16, .max_values = 1024, .max_depth = 4};

struct BenchHistoryOptions {
  std::string file = "bench/history.jsonl";
  std::string svg;  ///< Empty: no picture.
};

using SeriesKey = std::tuple<std::string, std::string, std::string>;
using SeriesMap = std::map<SeriesKey, std::vector<HistoryPoint>>;

// Adds the figures of one line.
Status add_line(std::string_view line, const std::string& name, SeriesMap& series) {
  VOLTA_TRY(const JsonValue json, parse_json(line, name, kLineLimits));
  const JsonRef root(json, name);
  VOLTA_TRY(const std::string date, root.get_string("date"));
  VOLTA_TRY(const std::string commit, root.get_string("commit"));
  VOLTA_TRY(const std::string machine, root.get_string("machine"));
  VOLTA_TRY(const std::string isa, root.get_string("isa"));
  VOLTA_TRY(const JsonRef figures, root.member("figures"));
  const JsonValue::Object* members = figures.node().if_object();
  if (members == nullptr) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected an object", figures.path()));
  }
  for (const auto& [figure, value] : *members) {
    constexpr double kLeast = 1e-6, kMost = 1e15;  // So that every ratio of two is finite.
    VOLTA_TRY(const double rate, root.at(value).as_float(kLeast, kMost));
    series[{machine, isa, figure}].push_back({.date = date, .commit = commit, .value = rate});
  }
  return {};
}

std::string to_text(std::span<const HistorySeries> all) {
  if (all.empty()) return "the history has no figures yet\n";
  std::string text;
  const HistorySeries* previous = nullptr;
  for (const HistorySeries& series : all) {
    if (previous == nullptr || previous->machine != series.machine || previous->isa != series.isa) {
      text +=
          fmt::format("{}{}, {}\n", previous == nullptr ? "" : "\n", series.machine, series.isa);
      text += fmt::format("{:<33} {:<10} {:<12} {:>12} {:>8}\n", "figure", "date", "commit",
                          "value", "change");
    }
    const int decimals = decimals_of(series);
    double before = 0.0;
    for (const HistoryPoint& point : series.points) {
      const std::string change =
          before > 0.0 ? fmt::format("{:+.1f}%", 100.0 * (point.value / before - 1.0)) : "";
      text += fmt::format("{:<33} {:<10.10} {:<12.12} {:>12.{}f} {:>8}\n",
                          before > 0.0 ? "" : series.figure, point.date, point.commit, point.value,
                          decimals, change);
      before = point.value;
    }
    previous = &series;
  }
  return text;
}

std::string to_json(std::span<const HistorySeries> all) {
  JsonWriter json;
  json.begin_object().key("series").begin_array();
  for (const HistorySeries& series : all) {
    json.begin_object().field("machine", series.machine).field("isa", series.isa);
    json.field("figure", series.figure).key("points").begin_array();
    for (const HistoryPoint& point : series.points) {
      json.begin_object().field("date", point.date).field("commit", point.commit);
      json.field("value", point.value).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

Status bench_history(const Globals& globals, const BenchHistoryOptions& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  if (!options.svg.empty()) {
    VOLTA_TRY(check_result_file(globals, options.svg, "--svg"));
  } else if (globals.force) {
    return fail(ErrorCode::kInvalidArgument, "--force goes with --svg");
  }
  VOLTA_TRY(const std::string text, read_input(options.file, kMaxHistoryBytes));
  VOLTA_TRY(const auto series, parse_history(text, input_name(options.file)));
  if (!options.svg.empty()) {
    VOLTA_TRY(make_folder_of(options.svg, "--svg"));
    VOLTA_TRY(write_file_atomic(options.svg, history_plot_svg(series), existing_file(globals)));
  }
  return print(output == Output::kJson ? to_json(series) : to_text(series));
}

}  // namespace

int decimals_of(const HistorySeries& series) {
  const auto whole = [](const HistoryPoint& p) { return p.value == std::round(p.value); };
  return std::ranges::all_of(series.points, whole) ? 0 : 1;
}

Result<std::vector<HistorySeries>> parse_history(std::string_view text, std::string_view name) {
  SeriesMap found;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    VOLTA_TRY(add_line(line, fmt::format("{}: line {}", name, number), found));
  }
  std::vector<HistorySeries> series;
  for (auto& [key, points] : found) {
    series.push_back({.machine = std::get<0>(key),
                      .isa = std::get<1>(key),
                      .figure = std::get<2>(key),
                      .points = std::move(points)});
  }
  return series;
}

void add_bench_history(Command& bench, Globals& globals, Action& action) {
  Command* command = bench.add_subcommand("history", "what earlier revisions reached");
  auto options = std::make_shared<BenchHistoryOptions>();
  command->add_option("file", options->file,
                      "lines that scripts/bench-guard has written, - for standard input (default "
                      "bench/history.jsonl)");
  command->add_option("--svg", options->svg, "also draw the figures into this file")
      ->check(refuse_empty)
      ->not_a_stream();
  command->add_flag("--force", globals.force, "replace the file of --svg");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return bench_history(globals, *options); };
  });
}

}  // namespace volta::cli
