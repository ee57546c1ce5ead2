// Operands, one run, and the comparison behind matmul_measure.h.
#include "tuner/matmul_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "base/text.h"
#include "kernels/cpu/matmul_plan.h"

namespace volta::tuner {
namespace {

/// Products with more rows than kMostRows, which is in the last class of rows, are measured with
/// kMostRows. Products with more than kManyRows rows are measured with at most kMostColumns
/// columns, which are several slices of any size. The result holds for the larger products, and
/// takes a fraction of the time.
constexpr std::int64_t kMostRows = 768;
constexpr std::int64_t kManyRows = 64;
constexpr std::int64_t kMostColumns = 2048;

/// In a shorter measurement the clock takes too large a part of the time.
constexpr double kShortest = 300e-6;
constexpr int kMostTimes = 100'000;

/// kBeginShare is the part of a budget that making the operands and the first two products may
/// take. A sample of a and b shows how long they will take: it has about kSampleElements elements,
/// and at least kSampleSize steps of K and columns if there are that many.
constexpr double kBeginShare = 0.5;
constexpr std::int64_t kSampleElements = 1 << 22;
constexpr std::int64_t kSampleSize = 1 << 11;
constexpr double kNoBudget = std::numeric_limits<double>::infinity();

/// Operands are made in pieces of about this many elements, with a check after each piece whether
/// to continue. In panels, a piece is at least one panel.
constexpr std::int64_t kPieceElements = 1 << 20;
constexpr std::int64_t kWidestPanel = 32;

double flops_of(const cpu::MatMulShape& s) {
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

std::string describe(const cpu::MatMulShape& s) {
  return fmt::format("m {}, n {}, k {}", s.m, s.n, s.k);
}

Status check_shape(const cpu::MatMulShape& s) {
  for (const std::int64_t size : {s.m, s.n, s.k}) {
    if (size >= 1 && size <= kMostDim) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a product of {}: sizes go from 1 to {}", describe(s), kMostDim));
  }
  for (const DType type : {s.a_type, s.b_type}) {
    if (is_float(type)) continue;
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("products of {} are not tuned: use f32, bf16 or f16", dtype_name(type)));
  }
  if (s.packed && (s.transpose_a || s.transpose_b)) {
    return fail(ErrorCode::kInvalidArgument,
                "a prepared weight's product has no transposed operand: its b must be plain");
  }
  // Two copies of c, a, b in whole panels, and one piece of the operand that is being made. Sizes
  // are at most 2^24, so that nothing overflows.
  const std::int64_t width = s.packed ? kWidestPanel : 1;
  const std::int64_t b_bytes = round_up(s.n, width) * s.k * dtype_size(s.b_type);
  const std::int64_t a_bytes = s.m * s.k * dtype_size(s.a_type);
  const std::int64_t piece_bytes = 8 * std::max({kPieceElements, width * s.k, s.n});
  const std::int64_t bytes = 8 * s.m * s.n + a_bytes + b_bytes + piece_bytes;
  if (bytes <= usable_memory_bytes()) return {};
  return fail(ErrorCode::kOutOfMemory,
              fmt::format("measuring a product of {} takes {}, and this process may use {}: choose "
                          "smaller sizes",
                          describe(s), format_bytes(bytes), format_bytes(usable_memory_bytes())));
}

// Values from -1 to 1 that are multiples of 2^-7, so that they are the same in every type. They
// repeat after a prime number of values, which no size of a product divides. Drawing all of them
// would take longer than everything else that a large product needs.
class OperandValues {
 public:
  explicit OperandValues(std::uint64_t seed) : drawn_(kPeriod) {
    std::uint64_t block = 0;
    Random4 bits = {};
    for (std::size_t i = 0; i < kPeriod; ++i) {
      if (i % 16 == 0) bits = random_bits(seed, 0, 0, block++);
      const std::uint32_t word = bits.lane(static_cast<std::uint32_t>(i / 4 % 4));
      drawn_[i] = static_cast<float>(static_cast<int>(word >> (8 * (i % 4)) & 0xFFu) - 128) / 128;
    }
  }
  /// Fills a tensor with the next values.
  Status fill(Tensor& tensor) {
    VOLTA_TRY(auto values, tensor.mutable_values<float>());
    while (!values.empty()) {
      const auto rest = std::span<const float>(drawn_).subspan(next_);
      const std::size_t count = std::min(rest.size(), values.size());
      std::ranges::copy(rest.first(count), values.begin());
      values = values.subspan(count);
      next_ = (next_ + count) % kPeriod;
    }
    return {};
  }

 private:
  static constexpr std::size_t kPeriod = 65521;
  std::vector<float> drawn_;
  std::size_t next_ = 0;
};

template <typename Op>
void apply(const Op& op, const Tensor& from, const Tensor& to, const cpu::Context& context) {
  const std::array inputs = {from.view()};
  const std::array outputs = {to.view()};
  cpu::run(op, {inputs, outputs, {}}, context);
}

std::unexpected<Error> interrupted() { return fail(ErrorCode::kInterrupted, "interrupted"); }

// Fills a row-major tensor of any type with the next numbers.
Status draw(OperandValues& numbers, Tensor& to, const cpu::Context& context) {
  if (to.dtype() == DType::kF32) return numbers.fill(to);
  VOLTA_TRY(Tensor wide, Tensor::empty({DType::kF32, to.shape()}));
  VOLTA_TRY(numbers.fill(wide));
  apply(Cast{to.dtype()}, wide, to, context);
  return {};
}

// A row-major matrix.
Result<Tensor> make_rows(std::int64_t rows, std::int64_t columns, DType type, std::uint64_t seed,
                         const cpu::Context& context, GoOnFunction go_on) {
  VOLTA_TRY(Tensor matrix, Tensor::empty({type, Shape(rows, columns)}));
  OperandValues numbers(seed);
  const std::int64_t step = std::max<std::int64_t>(1, kPieceElements / columns);
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    if (!go_on()) return interrupted();
    VOLTA_TRY(Tensor piece, matrix.slice(begin, std::min(rows, begin + step)));
    VOLTA_TRY(draw(numbers, piece, context));
  }
  return matrix;
}

// A prepared weight b[k, n]. Panels follow each other, so that a piece has all rows of a few
// columns.
Result<Tensor> make_panels(std::int64_t k, std::int64_t n, DType type, std::uint64_t seed,
                           const cpu::Context& context, GoOnFunction go_on) {
  const Encoding panels = cpu::panel_encoding(type, false, context.simd);
  VOLTA_TRY(Tensor weight, Tensor::empty({type, Shape(k, n), panels}));
  OperandValues numbers(seed);
  const std::int64_t step =
      panels.width * std::max<std::int64_t>(1, kPieceElements / k / panels.width);
  std::int64_t offset = 0;
  for (std::int64_t begin = 0; begin < n; begin += step) {
    if (!go_on()) return interrupted();
    const TensorSpec spec = {type, Shape(k, std::min(step, n - begin)), panels};
    VOLTA_TRY(Tensor piece, Tensor::empty({type, spec.shape}));
    VOLTA_TRY(draw(numbers, piece, context));
    VOLTA_TRY(const Tensor place, Tensor::from_buffer(weight.buffer(), offset, spec));
    apply(Encode{panels}, piece, place, context);
    offset += spec.bytes();
  }
  return weight;
}

}  // namespace

cpu::MatMulShape measured_shape(const cpu::MatMulShape& shape) {
  cpu::MatMulShape measured = shape;
  measured.m = std::min(measured.m, kMostRows);
  if (measured.m > kManyRows) measured.n = std::min(measured.n, kMostColumns);
  return measured;
}

Result<double> MatMulMeasure::seconds_to_begin(const cpu::MatMulShape& shape, cpu::Simd simd,
                                               GoOnFunction go_on) {
  // Smaller operands, with about the same number of elements for any shape.
  cpu::MatMulShape small = measured_shape(shape);
  VOLTA_TRY(check_shape(small));
  const double whole = flops_of(small);
  const std::int64_t n = small.n, k = small.k, both = small.m + n;
  if (both * k <= kSampleElements) return 0.0;
  small.n = std::min(n, std::max(kSampleSize, kSampleElements / k));
  small.k = std::min(k, std::max(kSampleSize, kSampleElements / both));
  const double before = monotonic_seconds();
  VOLTA_TRY(const MatMulMeasure sample, create(small, simd, kNoBudget, go_on));
  return (monotonic_seconds() - before) * whole / sample.flops();
}

Result<MatMulMeasure> MatMulMeasure::create(const cpu::MatMulShape& shape, cpu::Simd simd,
                                            double budget_seconds, GoOnFunction go_on) {
  if (!cpu::simd_available(simd)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("this machine cannot run {}", cpu::simd_name(simd)));
  }
  const cpu::MatMulShape measured = measured_shape(shape);
  VOLTA_TRY(check_shape(measured));
  if (std::isfinite(budget_seconds)) {
    VOLTA_TRY(double seconds, seconds_to_begin(measured, simd, go_on));
    if (seconds > kBeginShare * budget_seconds) {
      // Measure again, because another program may have been busy.
      VOLTA_TRY(const double again, seconds_to_begin(measured, simd, go_on));
      seconds = std::min(seconds, again);
    }
    if (seconds > kBeginShare * budget_seconds) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("a product of {}: making its operands and multiplying them once takes "
                      "about {:.{}f} s, more than half of the budget of {:.4g} s: choose "
                      "smaller sizes or a larger budget",
                      describe(measured), seconds, seconds < 1 ? 3 : 1, budget_seconds));
    }
  }
  VOLTA_TRY(ThreadPool pool, ThreadPool::create(shape.threads));
  MatMulMeasure measure(measured, simd, std::move(pool));
  VOLTA_TRY(measure.make_operands(go_on));
  VOLTA_TRY(measure.begin(go_on));
  return measure;
}

Status MatMulMeasure::make_operands(GoOnFunction go_on) {
  const cpu::Context context{.simd = simd_, .pool = &pool_};
  const auto [m, n, k] = std::array{shape_.m, shape_.n, shape_.k};
  VOLTA_TRY(c_, Tensor::zeros({DType::kF32, Shape(m, n)}));
  VOLTA_TRY(a_, make_rows(op_.transpose_a ? k : m, op_.transpose_a ? m : k, shape_.a_type, 1,
                          context, go_on));
  VOLTA_TRY(b_, shape_.packed ? make_panels(k, n, shape_.b_type, 2, context, go_on)
                              : make_rows(op_.transpose_b ? n : k, op_.transpose_b ? k : n,
                                          shape_.b_type, 2, context, go_on));
  return {};
}

Status MatMulMeasure::begin(GoOnFunction go_on) {
  const cpu::MatMulParameters first = cpu::default_parameters(simd_, shape_);
  if (!go_on()) return interrupted();
  VOLTA_TRY(run(first, 1));
  VOLTA_TRY(expected_, c_.clone_to());
  checked_.push_back(first);
  if (!go_on()) return interrupted();
  VOLTA_TRY(const double seconds, run(first, 1));
  times_ = static_cast<int>(
      std::clamp(std::ceil(kShortest / std::max(seconds, 1e-9)), 1.0, double{kMostTimes}));
  return {};
}

double MatMulMeasure::flops() const { return flops_of(shape_); }

Result<double> MatMulMeasure::run(const cpu::MatMulParameters& parameters, int times) {
  cpu::MatMulTuning tuning;
  tuning.set(shape_, parameters);
  const cpu::Context context{.simd = simd_, .pool = &pool_, .tuning = &tuning};
  const std::array inputs = {a_.view(), b_.view()};
  const std::array outputs = {c_.view()};
  const std::int64_t bytes = cpu::workspace_bytes(op_, {inputs, outputs}, context);
  if (bytes > workspace_.bytes()) {
    VOLTA_TRY(workspace_, Tensor::empty({DType::kU8, Shape(bytes)}));
  }
  VOLTA_TRY(const auto workspace, workspace_.host_bytes());
  const double before = monotonic_seconds();
  for (int i = 0; i < times; ++i) cpu::run(op_, {inputs, outputs, workspace}, context);
  return monotonic_seconds() - before;
}

Result<double> MatMulMeasure::operator()(const cpu::MatMulParameters& parameters) {
  if (!cpu::valid_parameters(parameters, simd_)) {
    return fail(ErrorCode::kInvalidArgument, "these parameters fit no kernel");
  }
  const bool known = std::ranges::find(checked_, parameters) != checked_.end();
  if (!known) {
    // Elements that the kernel does not write must not look right.
    VOLTA_TRY(const auto old, c_.host_bytes());
    std::ranges::fill(old, std::byte{0xFF});
  }
  VOLTA_TRY(const double seconds, run(parameters, times_));
  if (!known) {
    VOLTA_TRY(const auto result, c_.host_bytes());
    VOLTA_TRY(const auto wanted, expected_.host_bytes());
    if (!std::ranges::equal(result, wanted)) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("a product of {} in {} has other bits with a tile of {} x {}, blocks "
                              "of K {}, M {}, N {}: please report it",
                              describe(shape_), cpu::simd_name(simd_), parameters.tile.rows,
                              parameters.tile.columns, parameters.k_block, parameters.m_block,
                              parameters.n_block));
    }
    checked_.push_back(parameters);
  }
  return std::max(seconds / times_, 1e-12);
}

}  // namespace volta::tuner
