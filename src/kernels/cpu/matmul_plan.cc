// The arithmetic behind matmul_plan.h: how a product is cut, and which part computes what.
#include "kernels/cpu/matmul_plan.h"

#include <algorithm>
#include <bit>

#include "base/arithmetic.h"
#include "kernels/cpu/matmul_tile.h"
#include "kernels/cpu/split.h"

namespace volta::cpu {
namespace {

/// With few rows a part packs this much of a plain b at a time. Only few tiles use a packed panel,
/// and it should still be in L1 then.
constexpr std::int64_t kFewRowsFloats = 16 * 1024;

/// The workspace of all parts together stays below this, unless one panel per part is more.
constexpr std::int64_t kWorkspaceFloats = 2 * 1024 * 1024;

/// Below this many nanoseconds of estimated work the caller computes alone. A fork and join costs
/// about one microsecond, or thirty if the workers sleep.
constexpr double kForkNanoseconds = 8000;

/// Rough cost of the whole product on one core.
double estimated_nanoseconds(const MatMulProblem& p, Simd simd) {
  const double flops_per_ns = multiplier(p.a_type, p.b_type, simd) == Multiplier::kAmx ? 1000.0
                              : has_avx512(simd)                                       ? 200.0
                              : simd == Simd::kAvx2                                    ? 100.0
                                                                                       : 25.0;
  constexpr double kBytesPerNs = 60.0;  // Weights that are in L2 or L3.
  const double elements = static_cast<double>(p.batch) * static_cast<double>(p.k * p.n);
  return std::max(2.0 * elements * static_cast<double>(p.m) / flops_per_ns,
                  elements * static_cast<double>(dtype_size(p.b_type)) / kBytesPerNs);
}

PanelSource panel_source(const MatMul& op, const MatMulProblem& problem, Simd simd) {
  if (!problem.b_encoding.plain()) {
    const bool widens = widens_panels(problem.a_type, problem.b_type, problem.m, simd);
    return widens ? PanelSource::kPack : PanelSource::kEncoded;
  }
  const bool in_place =
      !op.transpose_b && reads_rows_in_place(problem.b_type, problem.m, problem.n);
  return in_place ? PanelSource::kInRows : PanelSource::kPack;
}

/// The cost of reading and packing one panel of b and one tile of rows of a, where the product of
/// one tile and one panel costs 1. A part of a product reads all its panels and all its tiles once,
/// so of the parts of equal area those that are about square cost the least.
struct PartCosts {
  double panel = 0, tile = 0;
};
PartCosts part_costs(const MatMulPlan& plan) {
  // With AMX, the products of a tile and a panel take a quarter of the time in which L3 delivers
  // either of them (Sapphire Rapids, 16 threads: 1.8 times as fast at 256 cubed as parts that are
  // two panels wide and all rows high, 1.1 times at 1024).
  if (plan.multiplier == Multiplier::kAmx) return {.panel = 4.0, .tile = 4.0};
  // Packing a panel costs about as much as one tile of it; reading it in place, half of that.
  return {.panel = plan.source == PanelSource::kPack ? 1.0 : 0.5, .tile = plan.pack_a ? 0.6 : 0.4};
}

/// Splits one product into m_parts x n_parts for `threads`. It minimises the cost of the largest
/// part.
void split_product(MatMulPlan& plan, std::int64_t threads) {
  const std::int64_t tiles = std::max<std::int64_t>(1, ceil_div(plan.problem.m, plan.tile_rows));
  const std::int64_t panels = plan.panels();
  const PartCosts costs = part_costs(plan);
  double best = 0;
  for (std::int64_t n_parts = 1; n_parts <= std::min(threads, panels); ++n_parts) {
    const std::int64_t m_parts = std::min(threads / n_parts, tiles);
    const auto wide = static_cast<double>(ceil_div(panels, n_parts));
    const auto high = static_cast<double>(ceil_div(tiles, m_parts));
    const double cost = wide * high + wide * costs.panel + high * costs.tile;
    if (best == 0 || cost < best) {
      best = cost;
      plan.m_parts = m_parts;
      plan.n_parts = n_parts;
    }
  }
}

}  // namespace

std::int64_t most_tile_columns(bool transpose_a, Simd simd) {
  return transpose_a ? panel_width(simd) : kMostVectors * panel_width(simd) / kPanelVectors;
}

std::int64_t panel_width(Simd simd) { return has_avx512(simd) ? 32 : simd == Simd::kAvx2 ? 16 : 8; }

Encoding panel_encoding(DType dtype, bool transposed, Simd simd, const Encoding& stored) {
  return {.packing = Packing::kPanels,
          .transposed = transposed,
          .width = static_cast<std::int32_t>(panel_width(simd)),
          .group = stored.quantized()      ? 4
                   : dtype == DType::kBF16 ? 2
                                           : 1,
          .quant = stored.quant,
          .block = stored.block};
}

bool reads_rows_in_place(DType b_type, std::int64_t m, std::int64_t n) {
  constexpr std::int64_t kFewRows = 64;
  // Steps of b that are further apart than a page cost a lookup in the page table each.
  constexpr std::int64_t kPageBytes = 4096;
  return b_type == DType::kF32 && (m <= kFewRows || n * dtype_size(b_type) < kPageBytes);
}

bool widens_panels(DType a_type, DType b_type, std::int64_t m, Simd simd) {
  const std::int64_t many_rows = has_avx512(simd) ? 256 : 64;
  return b_type == DType::kBF16 && multiplier(a_type, b_type, simd) == Multiplier::kFma &&
         m >= many_rows;
}

PanelLayout panel_layout(std::int64_t k, std::int64_t k_block, Simd simd) {
  return {panel_width(simd), even_block(std::max<std::int64_t>(1, k), k_block, 8)};
}

MatMulProblem matmul_problem(const MatMul& op, const ArgShapes& shapes) {
  const View& a = shapes.inputs[0];
  const View& b = shapes.inputs[1];
  MatMulProblem p;
  p.a_type = a.dtype;
  p.b_type = b.dtype;
  p.b_encoding = b.encoding;
  if (!shapes.outputs.empty()) p.c_type = shapes.outputs[0].dtype;
  if (op.batched) {
    p.batch = a.shape.product(0, a.shape.rank() - 2);
    p.m = op.transpose_a ? a.shape[-1] : a.shape[-2];
    p.n = op.transpose_b ? b.shape[-2] : b.shape[-1];
    p.k = op.transpose_b ? b.shape[-1] : b.shape[-2];
    return p;
  }
  p.m = op.transpose_a ? a.shape.columns() : a.shape.rows();
  p.n = op.transpose_b ? b.shape.rows() : b.shape.columns();
  p.k = op.transpose_b ? b.shape.columns() : b.shape.rows();
  return p;
}

namespace {

MatMulShape product_shape(const MatMul& op, const MatMulProblem& p, int threads) {
  const bool packed = !p.b_encoding.plain();
  return MatMulShape{.a_type = p.a_type,
                     .b_type = p.b_type,
                     .packed = packed,
                     .transpose_a = op.transpose_a,
                     .transpose_b = op.transpose_b && !packed,
                     .threads = threads,
                     .m = p.m,
                     .n = p.n,
                     .k = p.k};
}

}  // namespace

std::optional<MatMulShape> tuned_shape(const MatMul& op, const MatMulProblem& p, int threads) {
  if (p.batch != 1 || p.b_encoding.quantized()) return std::nullopt;
  return product_shape(op, p, threads);
}

Multiplier multiplier(DType a_type, DType b_type, Simd simd) {
  if (a_type != DType::kBF16 || b_type != DType::kBF16) return Multiplier::kFma;
  return simd == Simd::kAmx          ? Multiplier::kAmx
         : simd == Simd::kAvx512Bf16 ? Multiplier::kBf16Dot
                                     : Multiplier::kFma;
}

namespace {

/// Whether a tile of this plan prefetches at all. What was just packed is in a cache already. One
/// row is faster without prefetches, and so are a few rows with AVX-512 that read b in place: see
/// kPrefetches. Tiles of AMX read b fast enough without.
bool prefetches(const MatMulPlan& plan) {
  if (plan.multiplier == Multiplier::kAmx) return false;
  if (plan.source == PanelSource::kPack || plan.op.transpose_a) return false;
  const bool left_to_hardware = plan.source == PanelSource::kInRows && has_avx512(plan.simd);
  return std::min(plan.problem.m, plan.tile_rows) > (left_to_hardware ? kHardwarePrefetchRows : 1);
}

/// The tuned choice for this product, or the default.
MatMulParameters choose_parameters(const MatMul& op, const MatMulProblem& p, Simd simd, int threads,
                                   const MatMulTuning* tuning) {
  if (tuning != nullptr) {
    const auto shape = tuned_shape(op, p, threads);
    const auto tuned = shape ? tuning->find(*shape) : std::nullopt;
    if (tuned) return *tuned;
  }
  return default_parameters(simd, product_shape(op, p, threads));
}

/// How many panels of b a task takes at a time, and the workspace that it needs for them.
void size_slices(MatMulPlan& plan, const MatMulParameters& parameters) {
  const std::int64_t panel_floats = plan.layout.width * plan.layout.k_block;
  const std::int64_t task_panels = ceil_div(plan.panels(), plan.n_parts);
  std::int64_t slice = parameters.n_block / plan.layout.width;
  switch (plan.source) {
    case PanelSource::kPack: {
      const std::int64_t floats =
          plan.problem.m <= plan.tile_rows ? kFewRowsFloats : kWorkspaceFloats / plan.parts;
      slice = std::min(slice, floats / panel_floats);
      break;
    }
    case PanelSource::kInRows:
      // A single tile of rows uses every column once, so that slices would only interrupt its
      // streams.
      if (plan.problem.m <= plan.tile_rows && !plan.prefetch_next_block) slice = task_panels;
      break;
    case PanelSource::kEncoded:
      break;
  }
  // Slices are made about equally long, like blocks of K and M.
  const std::int64_t wanted_panels = std::max<std::int64_t>(1, task_panels);
  slice = std::clamp<std::int64_t>(slice, 1, wanted_panels);
  plan.slice_panels = even_block(wanted_panels, slice);
  const bool ragged = plan.problem.n % plan.layout.width != 0;
  plan.packed_b_floats = plan.source == PanelSource::kPack ? plan.slice_panels * panel_floats
                         : plan.source == PanelSource::kInRows && ragged
                             ? panel_floats  // The last panel is packed.
                             : 0;
}

/// The workspace of one part for the sums of a slice, if c has 16 bits: a block of rows by a slice
/// of panels, or all rows by the last panel, as multiply_task() takes them.
std::int64_t sums_floats(const MatMulPlan& plan) {
  if (!plan.narrow()) return 0;
  const std::int64_t rows = ceil_div(plan.problem.m, plan.m_parts);
  const std::int64_t width = plan.layout.width;
  if (plan.source == PanelSource::kPack) return rows * packed_row(plan.slice_panels * width);
  // Parts have a different number of rows, hence of blocks, so that any block may be the longest.
  const std::int64_t block = std::min(rows, plan.m_block) * packed_row(plan.slice_panels * width);
  return plan.source == PanelSource::kInRows ? std::max(block, rows * packed_row(width)) : block;
}

}  // namespace

MatMulPlan plan_matmul(const MatMul& op, const MatMulProblem& problem, Simd simd, int threads,
                       const MatMulTuning* tuning) {
  return plan_matmul(op, problem, simd, threads,
                     choose_parameters(op, problem, simd, threads, tuning));
}

MatMulPlan plan_matmul(const MatMul& op, const MatMulProblem& problem, Simd simd, int threads,
                       const MatMulParameters& parameters) {
  MatMulPlan plan;
  plan.op = op;
  plan.problem = problem;
  plan.simd = simd;
  plan.multiplier = multiplier(problem.a_type, problem.b_type, simd);
  const bool amx = plan.multiplier == Multiplier::kAmx;
  plan.layout = panel_layout(problem.k, parameters.k_block, simd);
  if (amx) plan.layout.k_block = round_up(plan.layout.k_block, kAmxSteps);
  if (!problem.b_encoding.plain()) plan.layout.width = problem.b_encoding.width;
  plan.tile_rows = parameters.tile.rows;
  plan.tile_vectors =
      std::min<std::int64_t>(parameters.tile.columns, most_tile_columns(op.transpose_a, simd)) *
      kPanelVectors / panel_width(simd);
  if (amx) {
    plan.tile_rows = kMostAmxRows;
    plan.tile_vectors = problem.m <= kMostAmxRows / 2 ? 2 * kPanelVectors : kPanelVectors;
  }
  plan.m_block = std::max<std::int64_t>(parameters.m_block, plan.tile_rows);
  plan.source = panel_source(op, problem, simd);
  // Rows that are a multiple of 4 KiB apart share one set of L1, which has fewer ways than a tile
  // has rows. Packed rows are not that far apart, see packed_row().
  const bool aliased = problem.k * dtype_size(problem.a_type) % 4096 == 0 && problem.m > 4;
  const bool as_it_lies = plan.pairs() ? problem.k % 2 == 0 : problem.a_type == DType::kF32;
  plan.pack_a = op.transpose_a || !as_it_lies || aliased;

  const bool alone = threads == 1 || estimated_nanoseconds(problem, simd) < kForkNanoseconds;
  const std::int64_t wanted = alone ? 1 : threads;
  if (problem.batch < wanted)
    split_product(plan, wanted / std::max<std::int64_t>(1, problem.batch));
  plan.parts = std::clamp<std::int64_t>(plan.tasks(), 1, wanted);
  if (prefetches(plan)) {
    plan.prefetch_next_block =
        plan.source == PanelSource::kInRows && parameters.prefetch == Prefetch::kNextBlock;
    plan.prefetch_bytes = parameters.prefetch_bytes;
  }
  size_slices(plan, parameters);
  // One extra vector, because packing a stores whole vectors.
  plan.packed_a_floats =
      plan.pack_a ? round_up(plan.tile_rows * packed_row(plan.layout.k_block) + 16, 16) : 0;
  plan.packed_b_floats = round_up(plan.packed_b_floats, 16);
  plan.region_floats = plan.packed_b_floats + plan.packed_a_floats + sums_floats(plan);
  return plan;
}

MatMulCut cut_of(const MatMulPlan& plan) {
  const std::int64_t lanes = plan.layout.width / kPanelVectors;
  const auto vectors = static_cast<std::uint64_t>(ceil_div(plan.problem.n, lanes));
  const auto used = static_cast<std::int64_t>(std::bit_ceil(vectors));
  // If b is packed, it is packed once for all rows: see multiply_task().
  const std::int64_t rows = ceil_div(plan.problem.m, plan.m_parts);
  MatMulCut cut;
  cut.m_parts = plan.m_parts;
  cut.n_parts = plan.n_parts;
  cut.k_block = plan.layout.k_block;
  cut.m_block = plan.source == PanelSource::kPack ? rows : even_block(rows, plan.m_block);
  cut.slices = ceil_div(ceil_div(plan.panels(), plan.n_parts), plan.slice_panels);
  cut.row_tiles = ceil_div(cut.m_block, plan.tile_rows);
  cut.tile_columns = std::min(plan.tile_vectors, used) * lanes;
  cut.prefetch_bytes = plan.prefetch_bytes;
  cut.prefetch_next_block = plan.prefetch_next_block;
  return cut;
}

}  // namespace volta::cpu
