// What the matrix product's tests share: random operands of any layout and type, a run with guarded
// memory, and two references: matmul_scalar with a bound on rounding, and the exact chain of
// multiply-adds that the "same bits" rule promises.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/matmul_parameters.h"
#include "kernels/cpu/matmul_plan.h"
#include "matmul_scalar.h"
#include "operand.h"

namespace volta::test {

struct MatMulCase {
  std::int64_t m = 1, k = 1, n = 1;
  MatMul op = {};
  DType a_type = DType::kF32, b_type = DType::kF32;
  std::int64_t batch = 1;  ///< More than one only when op.batched.

  Shape a_shape() const { return matrix(op.transpose_a ? k : m, op.transpose_a ? m : k); }
  Shape b_shape() const { return matrix(op.transpose_b ? n : k, op.transpose_b ? k : n); }
  Shape c_shape() const { return matrix(m, n); }
  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n) +
           (op.transpose_a ? " ta" : "") + (op.transpose_b ? " tb" : "") +
           (op.batched ? " batch " + std::to_string(batch) : "") + (op.has_bias ? " bias" : "") +
           (op.has_residual ? " residual" : "") + " activation " +
           std::to_string(static_cast<int>(op.activation)) + " " + std::string(dtype_name(a_type)) +
           " " + std::string(dtype_name(b_type));
  }

 private:
  Shape matrix(std::int64_t rows, std::int64_t columns) const {
    return op.batched ? Shape(batch, rows, columns) : Shape(rows, columns);
  }
};

inline std::size_t count_of(const Shape& shape) {
  return static_cast<std::size_t>(shape.elements());
}

/// The operands of a case.
struct MatMulData {
  explicit MatMulData(const MatMulCase& c)
      : a(c.a_shape(), random_values(count_of(c.a_shape()), 1), c.a_type),
        b(c.b_shape(), random_values(count_of(c.b_shape()), 2), c.b_type),
        bias(Shape(c.n), random_values(static_cast<std::size_t>(c.n), 3)),
        residual(c.c_shape(), random_values(count_of(c.c_shape()), 4)) {}

  /// Prepares b as a weight, in the panels of an instruction set's kernels.
  void pack(const MatMulCase& c, cpu::Simd simd, ThreadPool& pool) {
    const Encoding panels = cpu::panel_encoding(c.b_type, c.op.transpose_b, simd);
    const auto bytes = static_cast<std::size_t>(encoded_bytes(c.b_type, c.b_shape(), panels));
    packed.assign((bytes + 7) / 8, ~std::uint64_t{0});
    packed_b = View(packed.data(), {c.b_type, c.b_shape(), panels});
    const std::array from = {b.view()}, to = {packed_b};
    cpu::run(Encode{panels}, {from, to, {}}, {simd, &pool, nullptr});
  }

  std::vector<View> inputs(const MatMul& op) {
    std::vector<View> views = {a.view(), packed.empty() ? b.view() : packed_b};
    if (op.has_bias) views.push_back(bias.view());
    if (op.has_residual) views.push_back(residual.view());
    return views;
  }

  Operand a, b, bias, residual;
  std::vector<std::uint64_t> packed;  ///< Of 8 bytes, for alignment; empty: b as it is.
  View packed_b{};
};

/// Runs the kernel with a workspace of exactly its bytes, filled with NaN, and checks that nothing
/// behind it changes.
inline std::vector<float> run_matmul(const MatMulCase& c, MatMulData& data, cpu::Simd simd,
                                     ThreadPool& pool, const cpu::MatMulTuning* tuning = nullptr) {
  constexpr std::size_t kGuard = 4096;
  const cpu::Context context{simd, &pool, nullptr, tuning};
  Operand result(c.c_shape());
  const std::vector<View> inputs = data.inputs(c.op);
  const std::vector<View> outputs = {result.view()};
  const auto bytes =
      static_cast<std::size_t>(cpu::workspace_bytes(c.op, {inputs, outputs}, context));
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory((bytes + 63) / 64 + kGuard / 64);
  for (Line& line : memory) std::fill_n(line.bytes, 64, std::byte{0xFF});
  const std::span<std::byte> raw = std::as_writable_bytes(std::span(memory));
  cpu::run(c.op, {inputs, outputs, raw.first(bytes)}, context);
  EXPECT_TRUE(
      std::ranges::all_of(raw.subspan(bytes), [](std::byte b) { return b == std::byte{0xFF}; }))
      << c.name() << " wrote past its workspace";
  return result.values();
}

/// Runs on `threads` threads of an own pool.
inline std::vector<float> run_matmul(const MatMulCase& c, MatMulData& data, cpu::Simd simd,
                                     int threads) {
  ThreadPool pool = make_pool(threads);
  return run_matmul(c, data, simd, pool);
}

/// The product and how far f32 may be away from it: any order of K multiply-adds errs by at most
/// (K + 1) u sum |a b| (Higham 2002, section 3.1), bias and residual by u a time of what is added,
/// and the activations' slopes are below 1.2 and their own errors below 16 u.
struct MatMulBounds {
  std::vector<float> value;
  std::vector<double> bound;
};

inline MatMulBounds matmul_bounds(const MatMulCase& c, MatMulData& data) {
  constexpr double kU = 0x1p-24;
  Operand value(c.c_shape()), linear(c.c_shape()), size(c.c_shape());
  const auto scalar = [](const MatMul& op, const std::vector<View>& inputs, Operand& out) {
    const std::vector<View> outputs = {out.view()};
    matmul_scalar(op, {inputs, outputs, {}});
  };
  const auto absolute = [](const Operand& x, const Shape& shape, DType dtype) {
    std::vector<float> values(x.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::abs(x[i]);
    return Operand(shape, values, dtype);
  };
  scalar(c.op, data.inputs(c.op), value);
  MatMul plain = c.op;
  plain.activation = Activation::kNone;
  plain.has_residual = false;
  scalar(plain, data.inputs(plain), linear);
  plain.has_bias = false;
  Operand a = absolute(data.a, c.a_shape(), c.a_type), b = absolute(data.b, c.b_shape(), c.b_type);
  scalar(plain, {a.view(), b.view()}, size);
  MatMulBounds bounds{value.values(), {}};
  for (std::size_t i = 0; i < value.size(); ++i) {
    const double sum_error = static_cast<double>(c.k + 1) * kU * size[i];
    const double others = std::abs(linear[i]) + std::abs(value[i]) +
                          (c.op.has_residual ? std::abs(data.residual[i]) : 0.0);
    bounds.bound.push_back(1.2 * sum_error + 20 * kU * others);
  }
  return bounds;
}

inline void expect_within(const std::vector<float>& actual, const MatMulBounds& expected) {
  ASSERT_EQ(actual.size(), expected.value.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(actual[i]) - expected.value[i]), expected.bound[i])
        << "element " << i << ": " << actual[i] << " instead of " << expected.value[i];
  }
}

/// What the kernels promise bit for bit, without an epilogue: a chain of multiply-adds from zero,
/// in order of k.
inline std::vector<float> chained(const MatMulCase& c, const MatMulData& data, cpu::Simd simd) {
  std::vector<float> all;
  for (std::int64_t batch = 0; batch < c.batch; ++batch) {
    for (std::int64_t i = 0; i < c.m; ++i) {
      for (std::int64_t j = 0; j < c.n; ++j) {
        float sum = 0;
        for (std::int64_t k = 0; k < c.k; ++k) {
          const std::int64_t ai = c.op.transpose_a ? k * c.m + i : i * c.k + k;
          const std::int64_t bi = c.op.transpose_b ? j * c.k + k : k * c.n + j;
          const float x = data.a[static_cast<std::size_t>(batch * c.m * c.k + ai)];
          const float y = data.b[static_cast<std::size_t>(batch * c.k * c.n + bi)];
          sum = simd == cpu::Simd::kSse4 ? sum + x * y : std::fma(x, y, sum);
        }
        all.push_back(sum);
      }
    }
  }
  return all;
}

/// The same of a product of bf16 by AMX: over 32 steps of K at a time, a chain of the even steps
/// and one of the odd steps, each from zero. Subnormal numbers count as zero.
inline std::vector<float> tiled(const MatMulCase& c, const MatMulData& data) {
  const auto flushed = [](float x) {
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
  };
  std::vector<float> all;
  for (std::int64_t batch = 0; batch < c.batch; ++batch) {
    for (std::int64_t i = 0; i < c.m; ++i) {
      for (std::int64_t j = 0; j < c.n; ++j) {
        float sum = 0;
        for (std::int64_t begin = 0; begin < c.k; begin += 32) {
          std::array<float, 2> part = {};
          for (std::int64_t k = begin; k < std::min(c.k, begin + 32); ++k) {
            const std::int64_t ai = c.op.transpose_a ? k * c.m + i : i * c.k + k;
            const std::int64_t bi = c.op.transpose_b ? j * c.k + k : k * c.n + j;
            const float x = flushed(data.a[static_cast<std::size_t>(batch * c.m * c.k + ai)]);
            const float y = flushed(data.b[static_cast<std::size_t>(batch * c.k * c.n + bi)]);
            float& to = part[static_cast<std::size_t>(k % 2)];
            to = flushed(std::fma(x, y, to));
          }
          sum = flushed(sum + flushed(part[0] + part[1]));
        }
        all.push_back(sum);
      }
    }
  }
  return all;
}

inline bool same_bits(std::span<const float> x, std::span<const float> y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

}  // namespace volta::test
