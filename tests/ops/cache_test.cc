// Cases of KvAppend and CachedAttention: empty and full caches, rows that do not count, types.
#include <gtest/gtest.h>

#include "ops/op_case.h"
#include "ops/runner.h"

namespace volta::op_test {

namespace {

struct Sizes {
  std::string name;
  std::int64_t rows, capacity;
  AttentionShape shape;
  DType cache = DType::kF32;
  std::vector<double> start, count;
};

// Three sequences each.
std::vector<Sizes> all_sizes() {
  std::vector<Sizes> all;
  for (const bool packed : {false, true}) {
    const std::string p = packed ? "_packed" : "";
    const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t capacity,
                         int heads, int kv, int dim, int window, DType cache,
                         std::vector<double> start, std::vector<double> count, bool ring = false) {
      all.push_back({name + p,
                     rows,
                     capacity,
                     {heads, kv, dim, window, 0.4f, packed, ring},
                     cache,
                     start,
                     count});
    };
    constexpr DType kF32 = DType::kF32;
    add("decode", 1, 64, 4, 2, 6, 0, kF32, {0, 5, 63}, {1, 1, 1});
    add("prefill", 7, 64, 2, 2, 5, 0, kF32, {0, 0, 57}, {7, 3, 7});
    add("nothing", 3, 64, 2, 1, 5, 0, kF32, {0, 4, 61}, {0, 2, 3});
    add("window", 5, 64, 2, 1, 5, 4, kF32, {0, 4, 59}, {5, 2, 5});
    add("bf16", 3, 64, 4, 2, 9, 0, DType::kBF16, {0, 4, 61}, {1, 2, 3});
    add("f16", 3, 64, 4, 2, 9, 0, DType::kF16, {0, 4, 61}, {1, 2, 3});
    add("bf16_vectors", 2, 128, 8, 2, 32, 0, DType::kBF16, {0, 70, 126}, {2, 1, 2});
    add("f16_vectors", 9, 128, 4, 2, 16, 0, DType::kF16, {0, 70, 119}, {1, 2, 9});
    add("blocks", 9, 256, 2, 1, 33, 0, kF32, {55, 64, 247}, {9, 9, 9});
    // Rings: before, at and long after the first turn; the rows wrap within a step.
    add("ring", 3, 64, 4, 2, 9, 60, kF32, {0, 62, 1000}, {3, 3, 3}, true);
    add("ring_blocks", 40, 128, 2, 1, 16, 70, kF32, {0, 100, 12345}, {40, 39, 40}, true);
    add("ring_f16", 1, 128, 2, 1, 8, 128, DType::kF16, {127, 128, 191}, {1, 1, 1}, true);
    add("long", 40, 320, 4, 2, 64, 0, kF32, {0, 100, 280}, {40, 40, 40});
  }
  return all;
}

OpCase with_caches(OpCase c, const Sizes& s) {
  const AttentionShape& shape = s.shape;
  const TensorSpec k = {s.cache, key_cache_shape(3, shape.kv_heads, s.capacity, shape.head_dim)};
  const TensorSpec v = {s.cache, value_cache_shape(3, shape.kv_heads, s.capacity, shape.head_dim)};
  c = std::move(c).in(k).in(v).in(i32({3}), list(s.start)).in(i32({3}), list(s.count));
  for (std::size_t i = 0; i < c.specs.size(); ++i) c.rows.push_back(i);
  return c;
}

TensorSpec rows_of(const Sizes& s, std::int64_t heads) {
  return f32({3, s.rows, heads * s.shape.head_dim});
}

}  // namespace

std::vector<OpCase> cases(const KvAppend&) {
  std::vector<OpCase> all;
  for (const Sizes& s : all_sizes()) {
    OpCase c(s.name, KvAppend{s.shape});
    if (s.shape.packed) {
      c = std::move(c).in(rows_of(s, s.shape.heads + 2 * s.shape.kv_heads));
    } else {
      c = std::move(c).in(rows_of(s, s.shape.kv_heads)).in(rows_of(s, s.shape.kv_heads));
    }
    all.push_back(with_caches(std::move(c), s));
  }
  return all;
}

std::vector<OpCase> cases(const CachedAttention&) {
  std::vector<OpCase> all;
  for (const Sizes& s : all_sizes()) {
    OpCase c(s.name, CachedAttention{s.shape});
    const std::int64_t heads = s.shape.heads + (s.shape.packed ? 2 * s.shape.kv_heads : 0);
    all.push_back(with_caches(std::move(c).in(rows_of(s, heads)), s));
  }
  return all;
}

// A prompt in one call, row by row, and with more capacity: the same bits.
TEST(CachedAttention, RowsAloneAndTogetherHaveTheSameBits) {
  const AttentionShape shape = {.heads = 2, .kv_heads = 1, .head_dim = 20, .scale = 0.3f};
  const OpCase c = OpCase("alone", CachedAttention{shape})
                       .in(f32({1, 9, 40}))
                       .in(f32(key_cache_shape(1, 1, 192, 20)))
                       .in(f32(value_cache_shape(1, 1, 192, 20)))
                       .in(i32({1}), list({120}))
                       .in(i32({1}), list({9}));
  const std::vector<Array> inputs = make_inputs(c);
  for (const cpu::Simd simd : available_simd()) {
    const OpRun whole = run_op(device(simd, 2), c.op, inputs);
    const auto together = bytes_of(whole.outputs[0]);
    for (std::int64_t t = 0; t < 9; ++t) {
      std::vector<Array> one = inputs;
      one[0] = Array(f32({1, 1, 40}));
      for (std::int64_t i = 0; i < 40; ++i) one[0][i] = inputs[0][t * 40 + i];
      one[3][0] += static_cast<double>(t);
      one[4][0] = 1;
      for (const std::size_t cache : {1, 2}) {  // Room for 64 positions more.
        one[cache] = Array(
            f32(cache == 1 ? key_cache_shape(1, 1, 256, 20) : value_cache_shape(1, 1, 256, 20)));
        std::ranges::copy(inputs[cache].data, one[cache].data.begin());
      }
      const OpRun alone = run_op(device(simd, 1), c.op, one);
      EXPECT_TRUE(std::ranges::equal(bytes_of(alone.outputs[0]),
                                     together.subspan(static_cast<std::size_t>(t) * 160, 160)))
          << cpu::simd_name(simd) << " row " << t;
    }
  }
}

}  // namespace volta::op_test
