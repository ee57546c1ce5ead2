// The tables, JSON and CSV of tune_report.h.
#include "tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace volta::cli {
namespace {

using tuner::TuningEntry;

std::string describe(const cpu::MatMulParameters& p) {
  const auto block = [](std::int32_t size) {
    return size >= 1 << 20 ? std::string("all") : std::to_string(size);
  };
  const bool next_block = p.prefetch == cpu::Prefetch::kNextBlock;
  return fmt::format("tile {}x{}, blocks K {} M {} N {}, prefetch {}", p.tile.rows, p.tile.columns,
                     block(p.k_block), block(p.m_block), block(p.n_block),
                     next_block ? "the next block" : std::to_string(p.prefetch_bytes));
}

constexpr std::string_view kShapeColumns =
    "a_dtype,dtype,packed,transpose_a,transpose_b,threads,m,n,k";
constexpr std::string_view kParameterColumns =
    "k_block,m_block,n_block,tile_rows,tile_columns,prefetch,prefetch_bytes";
std::string csv_cells(const TuningEntry& e) {
  const cpu::MatMulParameters& p = e.parameters;
  const cpu::MatMulShape& s = e.shape;
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", dtype_name(s.a_type),
                     dtype_name(s.b_type), s.packed, s.transpose_a, s.transpose_b, s.threads, s.m,
                     s.n, s.k, e.default_gflops, e.tuned_gflops, p.k_block, p.m_block, p.n_block,
                     p.tile.rows, p.tile.columns, cpu::prefetch_name(p.prefetch), p.prefetch_bytes);
}

// Measurements of an idle machine vary by a few per cent.
constexpr double kLargeSpread = 0.25;

double median_spread(const TuneReport& report) {
  std::vector<double> spreads;
  for (const TunedShape& t : report.shapes) spreads.push_back(t.result.after.spread);
  if (spreads.empty()) return 0.0;
  const auto middle = spreads.begin() + static_cast<std::ptrdiff_t>(spreads.size() / 2);
  std::ranges::nth_element(spreads, middle);
  return *middle;
}

}  // namespace

double TuneReport::mean_gain() const {
  double sum = 0;
  for (const TunedShape& tuned : shapes) sum += std::log(tuned.result.gain);
  return shapes.empty() ? 1.0 : std::exp(sum / static_cast<double>(shapes.size()));
}

std::string name_of(const cpu::MatMulShape& s) {
  const std::string rows =
      s.a_type == DType::kF32 ? "" : fmt::format("{} * ", dtype_name(s.a_type));
  return fmt::format("{} x {} x {} {}{}{}{}{}", s.m, s.n, s.k, rows, dtype_name(s.b_type),
                     s.packed ? "" : " plain", s.transpose_a ? " a^T" : "",
                     s.transpose_b ? " b^T" : "");
}

std::string to_text(const TuneReport& report) {
  std::string text = fmt::format(
      "GFLOP/s: the lower quartile, and how far above it the upper one is (no gain);\n"
      "gain: the median ratio of measurements next to each other\n"
      "{:<38} {:>15} {:>15} "
      "{:>6}\n",
      "m x n x k", "before", "after", "gain");
  const auto speed = [](double figure, double spread) {
    return fmt::format("{:.1f} +{:.1f}%", figure, 100 * spread);
  };
  for (const TunedShape& t : report.shapes) {
    text += fmt::format("{:<38} {:>15} {:>15} {:>5.2f}x\n  {}{}\n", name_of(t.entry.shape),
                        speed(t.entry.default_gflops, t.result.before.spread),
                        speed(t.entry.tuned_gflops, t.result.after.spread), t.result.gain,
                        describe(t.entry.parameters), t.result.default_kept ? " (default)" : "");
  }
  if (const double spread = median_spread(report); spread > kLargeSpread) {
    text += fmt::format(
        "measurements vary by {:.0f}%: other programs use this CPU; tune when it is idle\n",
        100 * spread);
  }
  return text + fmt::format("geometric mean {:.3f}x; {}, {} threads; {}\n", report.mean_gain(),
                            report.isa, report.threads,
                            report.file.empty() ? "not all of it is kept"
                                                : fmt::format("kept in {}", report.file));
}

std::string to_json(const TuneReport& report) {
  JsonWriter json;
  json.begin_object().field("cpu", tuner::to_string(tuner::cpu_signature()));
  json.field("isa", report.isa).field("threads", report.threads).field("file", report.file);
  json.field("mean_gain", report.mean_gain()).key("shapes").begin_array();
  for (const TunedShape& t : report.shapes) {
    json.begin_object();
    tuner::write_shape(json, t.entry.shape);
    json.field("gain", t.result.gain).field("default_kept", t.result.default_kept);
    json.field("default_s", t.result.before.seconds)
        .field("default_spread", t.result.before.spread);
    json.field("tuned_s", t.result.after.seconds).field("tuned_spread", t.result.after.spread);
    json.field("default_gflops", t.entry.default_gflops);
    json.field("tuned_gflops", t.entry.tuned_gflops);
    tuner::write_parameters(json, t.entry.parameters);
    json.field("candidates", t.result.candidates).field("tried", t.result.tried);
    json.field("measurements", t.result.measurements).field("search_s", t.result.seconds);
    json.end_object();
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

std::string to_csv(const TuneReport& report) {
  std::string text = fmt::format(
      "{},default_gflops,tuned_gflops,{},gain,default_spread,tuned_spread,default_kept\n",
      kShapeColumns, kParameterColumns);
  for (const TunedShape& t : report.shapes) {
    text += fmt::format("{},{},{},{},{}\n", csv_cells(t.entry), t.result.gain,
                        t.result.before.spread, t.result.after.spread, t.result.default_kept);
  }
  return text;
}

std::string to_text(const std::vector<TuningEntry>& entries, const std::string& path) {
  if (entries.empty()) return fmt::format("nothing is tuned yet ({})\n", path);
  std::string text = fmt::format("{}\nGFLOP/s\n{:<13} {:>7} {:<38} {:>8} {:>8}\n", path, "isa",
                                 "threads", "m x n x k", "default", "tuned");
  for (const TuningEntry& e : entries) {
    text += fmt::format("{:<13} {:>7} {:<38} {:>8.1f} {:>8.1f}\n  {}\n", cpu::simd_name(e.simd),
                        e.shape.threads, name_of(e.shape), e.default_gflops, e.tuned_gflops,
                        describe(e.parameters));
  }
  return text;
}

std::string to_csv(const std::vector<TuningEntry>& entries) {
  std::string text =
      fmt::format("isa,{},default_gflops,tuned_gflops,{}\n", kShapeColumns, kParameterColumns);
  for (const TuningEntry& e : entries) {
    text += fmt::format("{},{}\n", cpu::simd_name(e.simd), csv_cells(e));
  }
  return text;
}

}  // namespace volta::cli
