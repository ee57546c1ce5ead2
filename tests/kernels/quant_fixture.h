// What the tests of products with a b of integers share: weights in blocks, and a run of the kernel
// in guarded memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/matmul_quant.h"
#include "kernels/cpu/quant.h"
#include "matmul_fixture.h"
#include "support/rounded_block.h"

namespace volta::test {

struct QuantCase {
  std::int64_t m, k, n;
  Quant quant = Quant::kInt8;
  std::int32_t block = 32;
  bool transposed = true;
  MatMul op = {};
  DType a_type = DType::kF32;
};

/// A matrix in some encoding.
struct Weight {
  Encoding encoding;
  Shape shape;
  std::vector<std::uint64_t> memory;  // Of 8 bytes, for alignment.
  View view() { return {memory.data(), {DType::kF32, shape, encoding}}; }
};

inline Weight empty_weight(const Shape& shape, const Encoding& encoding) {
  const auto bytes = static_cast<std::size_t>(encoded_bytes(DType::kF32, shape, encoding));
  return {encoding, shape, std::vector<std::uint64_t>((bytes + 7) / 8, ~std::uint64_t{0})};
}

inline Weight encode(View from, const Encoding& to, ThreadPool& pool) {
  Weight out = empty_weight(from.shape, to);
  const std::array inputs = {from}, outputs = {out.view()};
  cpu::run(Encode{to}, {inputs, outputs, {}}, {cpu::Simd::kSse4, &pool, nullptr});
  return out;
}

inline std::vector<float> decode(Weight& weight, ThreadPool& pool) {
  Weight plain = encode(weight.view(), {}, pool);
  std::vector<float> values(static_cast<std::size_t>(weight.shape.elements()));
  std::memcpy(values.data(), plain.memory.data(), values.size() * sizeof(float));
  return values;
}

inline Encoding in_rows(const QuantCase& c) {
  return {.transposed = c.transposed, .quant = c.quant, .block = c.block};
}
inline Shape b_shape(const QuantCase& c) {
  return c.transposed ? Shape(c.n, c.k) : Shape(c.k, c.n);
}

inline std::vector<float> multiply(const QuantCase& c, const std::vector<float>& a, Weight& panels,
                                   cpu::Simd simd, ThreadPool& pool,
                                   const std::vector<float>& bias = {},
                                   const std::vector<float>& residual = {}) {
  Operand in(Shape(c.m, c.k), a, c.a_type), out(Shape(c.m, c.n));
  cpu::MatMulProblem problem{.m = c.m, .n = c.n, .k = c.k};
  problem.a_type = c.a_type;
  problem.b_encoding = panels.encoding;
  cpu::MatMulOperands operands;
  operands.a = in.view().data;
  operands.b = panels.memory.data();
  operands.c = out.view().as<float>();
  if (!bias.empty()) operands.bias = bias.data();
  if (!residual.empty()) operands.residual = residual.data();
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const std::int64_t bytes = cpu::matmul_quant_workspace(problem);
  std::vector<Line> workspace(static_cast<std::size_t>(bytes / 64 + 1));
  for (Line& line : workspace) std::fill_n(line.bytes, 64, std::byte{0xFF});
  cpu::matmul_quant(c.op, problem, cpu::plan_matmul_quant(problem, simd, workspace[0].bytes),
                    operands, {simd, &pool, nullptr});
  EXPECT_EQ(workspace.back().bytes[0], std::byte{0xFF}) << "wrote past the workspace";
  return out.values();
}

/// Rows of random values, two in three of them with elements tens of times larger than the rest.
inline std::vector<float> spiky_values(std::int64_t rows, std::int64_t k) {
  auto x = random_values(static_cast<std::size_t>(rows * k), 1);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 5 + i; i % 3 != 2 && j < k; j += 37 + 13 * i) {
      x[static_cast<std::size_t>(i * k + j)] *= 40.0f;
    }
  }
  return x;
}

}  // namespace volta::test
