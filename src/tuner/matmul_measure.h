// Measures one matrix product with the real kernels on this machine, for search.h.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/parallel.h"
#include "base/result.h"
#include "kernels/cpu/matmul_parameters.h"
#include "ops/op.h"
#include "tensor/tensor.h"

namespace volta::tuner {

/// Larger sizes are an error, before anything is computed from them.
inline constexpr std::int64_t kMostDim = std::int64_t{1} << 24;

/// Called again and again while operands are made. If it returns false, making them ends.
using GoOnFunction = FunctionRef<bool()>;

/// The product that is measured for `shape`. It has at most as many rows as the largest class of
/// rows needs. With many rows, it also has at most as many columns as are needed to know how wider
/// products behave.
cpu::MatMulShape measured_shape(const cpu::MatMulShape& shape);

/// One product a[m, k] b[k, n] on random operands of the shape's types. b is a prepared weight in
/// panels, or plain. If b is plain, a and b may each be transposed. The operands stay in the caches
/// as far as they fit. Move-only.
class MatMulMeasure {
 public:
  /// Makes the operands, a pool of shape.threads threads and the result with the default
  /// parameters. kInvalidArgument for invalid sizes, types or layouts, and if seconds_to_begin() is
  /// more than half of `budget_seconds`. kOutOfMemory if the operands do not fit. Both are found
  /// before anything of full size is made. kUnsupported if this machine lacks `simd`. kInterrupted
  /// if `go_on` returns false.
  static Result<MatMulMeasure> create(
      const cpu::MatMulShape& shape, cpu::Simd simd,
      double budget_seconds = std::numeric_limits<double>::infinity(),
      GoOnFunction go_on = [] { return true; });

  /// Estimates how long create() takes from the time that a small part takes; 0 if create() is fast
  /// anyway. Fails as create() does.
  static Result<double> seconds_to_begin(
      const cpu::MatMulShape& shape, cpu::Simd simd, GoOnFunction go_on = [] { return true; });

  /// Seconds per product: the mean over as many products as take about a third of a millisecond or
  /// more. The first call with given parameters compares the result with that of the default.
  /// kMismatch if a bit differs, because no parameter may change a result.
  Result<double> operator()(const cpu::MatMulParameters& parameters);

  const cpu::MatMulShape& shape() const { return shape_; }
  /// Floating-point operations of one product.
  double flops() const;

 private:
  MatMulMeasure(const cpu::MatMulShape& shape, cpu::Simd simd, ThreadPool pool)
      : shape_(shape),
        simd_(simd),
        pool_(std::move(pool)),
        op_{.transpose_a = shape.transpose_a, .transpose_b = shape.transpose_b} {}
  Status make_operands(GoOnFunction go_on);
  /// Computes the default's result, and how often to run a product per measurement.
  Status begin(GoOnFunction go_on);
  /// Seconds that `times` products take.
  Result<double> run(const cpu::MatMulParameters& parameters, int times);

  cpu::MatMulShape shape_;
  cpu::Simd simd_;
  ThreadPool pool_;
  MatMul op_;
  Tensor a_, b_, c_, expected_, workspace_;
  std::vector<cpu::MatMulParameters> checked_;
  int times_ = 1;
};

}  // namespace volta::tuner
