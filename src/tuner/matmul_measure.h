// Measures one matrix product with the real kernels: what search.h asks, answered by this machine.
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

namespace [[gnu::visibility("default")]] volta {
namespace tuner {

/// Sizes beyond this are refused before anything is computed from them.
inline constexpr std::int64_t kMostDim = std::int64_t{1} << 24;

/// Asked again and again while operands are made: false ends that.
using GoOnFunction = FunctionRef<bool()>;

/// A product as it is measured: `shape`, but with no more rows than the largest class needs, and
/// with many rows no more columns than tell what more would.
cpu::MatMulShape measured_shape(const cpu::MatMulShape& shape);

/// One product a[m, k] b[k, n] on random operands of the shape's types: b as a prepared weight in
/// panels, or plain; a plain one may lie transposed, and so may a beside it. Its operands stay in
/// the caches as far as they fit. Move-only.
class MatMulMeasure {
 public:
  /// Makes the operands, a pool of shape.threads threads and the default's result. kInvalidArgument
  /// for sizes, types or a layout that cannot be, and where seconds_to_begin() is more than half of
  /// `budget_seconds`; kOutOfMemory when the operands do not fit (both told before any of full size
  /// is made); kUnsupported where this machine lacks `simd`; kInterrupted where `go_on` says so.
  static Result<MatMulMeasure> create(
      const cpu::MatMulShape& shape, cpu::Simd simd,
      double budget_seconds = std::numeric_limits<double>::infinity(),
      GoOnFunction go_on = [] { return true; });

  /// About how long create() takes, by that of a small part; 0 where it is soon done anyway. The
  /// errors of create().
  static Result<double> seconds_to_begin(
      const cpu::MatMulShape& shape, cpu::Simd simd, GoOnFunction go_on = [] { return true; });

  /// Seconds of one product, the mean over as many as take a third of a millisecond or more. The
  /// first time with given parameters the result is compared with the default's: kMismatch when a
  /// bit differs, which no parameter may change.
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
  /// The result of the default, and how often a product is to run.
  Status begin(GoOnFunction go_on);
  /// Seconds of `times` products.
  Result<double> run(const cpu::MatMulParameters& parameters, int times);

  cpu::MatMulShape shape_;
  cpu::Simd simd_;
  ThreadPool pool_;
  MatMul op_;
  Tensor a_, b_, c_, expected_, workspace_;
  std::vector<cpu::MatMulParameters> checked_;
  int times_ = 1;
};

}  // namespace tuner
}  // namespace volta
