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
#include "base/text.h"

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
                     next_block ? "the next block" : fmt::format("{} bytes", p.prefetch_bytes));
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

double spread_of(const TunedShape& t) {
  return std::max(t.result.before.spread, t.result.after.spread);
}

// What the words of the tables mean, in lines of at most 80 characters.
constexpr std::string_view kTerms =
    "plain: b is no prepared weight (training); a^T, b^T: stored transposed;\n"
    "tile: of c, in registers; blocks: at most K steps, M rows, N columns at a time\n";
constexpr std::string_view kFigures =
    "before, after: GFLOP/s; spread: between the quartiles of these, not a gain;\n"
    "gain: median ratio of pairs measured in turn; (default): it was within noise\n";

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
  // Long names of products leave no room for a long use, but those of training have a short one.
  const auto first_cell = [](const std::string& name, std::string_view use) {
    constexpr std::size_t kWidth = 50;
    const std::size_t space = kWidth - std::min(kWidth, name.size() + 1);
    return fmt::format("{} {:>{}}", name, use, space);
  };
  const bool uses = std::ranges::any_of(report.shapes, [](auto& t) { return !t.use.empty(); });
  std::string text =
      fmt::format("{} {:>7} {:>7} {:>6} {:>6}\n", first_cell("m x n x k", uses ? "use" : ""),
                  "before", "after", "spread", "gain");
  for (const TunedShape& t : report.shapes) {
    text += fmt::format("{} {:>7.1f} {:>7.1f} {:>5.0f}% {:>5.2f}x\n  {}{}\n",
                        first_cell(name_of(t.entry.shape), t.use), t.entry.default_gflops,
                        t.entry.tuned_gflops, 100 * spread_of(t), t.result.gain,
                        describe(t.entry.parameters), t.result.default_kept ? " (default)" : "");
  }
  text.append("\n").append(kFigures).append(kTerms);
  const auto varying = std::ranges::count_if(
      report.shapes, [](const TunedShape& t) { return spread_of(t) > kLargeSpread; });
  if (varying > 0) {
    text += fmt::format(
        "spread above {:.0f}% in {} of {}: tune again when no other program uses this CPU\n",
        100 * kLargeSpread, varying, report.shapes.size());
  }
  return text + fmt::format("geometric mean of the gains {:.3f}x; {}, {}\n{}\n", report.mean_gain(),
                            report.isa, counted(report.threads, "thread"),
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
    if (!t.use.empty()) json.field("use", t.use);
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
      "{},default_gflops,tuned_gflops,{},gain,default_spread,tuned_spread,default_kept,use\n",
      kShapeColumns, kParameterColumns);
  for (const TunedShape& t : report.shapes) {
    text +=
        fmt::format("{},{},{},{},{},{}\n", csv_cells(t.entry), t.result.gain,
                    t.result.before.spread, t.result.after.spread, t.result.default_kept, t.use);
  }
  return text;
}

std::string entries_to_text(const std::vector<TuningEntry>& entries, const std::string& path) {
  if (entries.empty()) return fmt::format("nothing is tuned yet ({})\n", path);
  std::string text = fmt::format("{}\n{:<13} {:>7} {:<38} {:>8} {:>8}\n", path, "isa", "threads",
                                 "m x n x k", "default", "tuned");
  for (const TuningEntry& e : entries) {
    text += fmt::format("{:<13} {:>7} {:<38} {:>8.1f} {:>8.1f}\n  {}\n", cpu::simd_name(e.simd),
                        e.shape.threads, name_of(e.shape), e.default_gflops, e.tuned_gflops,
                        describe(e.parameters));
  }
  text += "\ndefault, tuned: GFLOP/s, as measured when the product was tuned\n";
  return text.append(kTerms);
}

std::string entries_to_csv(const std::vector<TuningEntry>& entries) {
  std::string text =
      fmt::format("isa,{},default_gflops,tuned_gflops,{}\n", kShapeColumns, kParameterColumns);
  for (const TuningEntry& e : entries) {
    text += fmt::format("{},{}\n", cpu::simd_name(e.simd), csv_cells(e));
  }
  return text;
}

}  // namespace volta::cli
