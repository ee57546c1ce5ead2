// Cases of KvAppend and CachedAttention: sequences that begin, go on and fill their tables, pages
// in no order, rows that do not count, types.
#include <gtest/gtest.h>

#include "ops/op_case.h"
#include "ops/runner.h"

namespace volta::op_test {

namespace {

constexpr std::int64_t kSequences = 3;

struct Sizes {
  std::string name;
  std::int64_t blocks;
  AttentionShape shape;
  DType cache = DType::kF32;
  std::vector<std::int64_t> start, count;  // Of each sequence's new rows.
};

std::vector<Sizes> all_sizes() {
  std::vector<Sizes> all;
  for (const bool packed : {false, true}) {
    const std::string p = packed ? "_packed" : "";
    const auto add = [&](const std::string& name, std::int64_t blocks, int heads, int kv, int dim,
                         int window, DType cache, std::vector<std::int64_t> start,
                         std::vector<std::int64_t> count) {
      all.push_back(
          {name + p, blocks, {heads, kv, dim, window, 0.4f, packed}, cache, start, count});
    };
    constexpr DType kF32 = DType::kF32;
    add("decode", 1, 4, 2, 6, 0, kF32, {0, 5, 63}, {1, 1, 1});
    add("prefill", 1, 2, 2, 5, 0, kF32, {0, 0, 57}, {7, 3, 7});
    add("mixed", 3, 2, 2, 5, 0, kF32, {0, 130, 60}, {40, 1, 1});
    add("nothing", 1, 2, 1, 5, 0, kF32, {0, 4, 61}, {0, 0, 0});
    add("window", 1, 2, 1, 5, 4, kF32, {0, 4, 59}, {5, 2, 5});
    add("long_window", 5, 2, 1, 9, 70, kF32, {0, 150, 300}, {30, 1, 20});
    add("bf16", 1, 4, 2, 9, 0, DType::kBF16, {0, 4, 61}, {1, 2, 3});
    add("f16", 1, 4, 2, 9, 0, DType::kF16, {0, 4, 61}, {1, 2, 3});
    add("bf16_vectors", 2, 8, 2, 32, 0, DType::kBF16, {0, 70, 126}, {2, 1, 2});
    add("f16_vectors", 2, 4, 2, 16, 0, DType::kF16, {0, 70, 119}, {1, 2, 9});
    add("blocks", 4, 2, 1, 33, 0, kF32, {55, 64, 247}, {9, 9, 9});
    add("long", 5, 4, 2, 64, 0, kF32, {0, 100, 280}, {40, 40, 40});
    // What tensor cores compute, if q has the cache's type.
    add("bf16_64", 3, 4, 2, 64, 0, DType::kBF16, {0, 70, 126}, {20, 1, 3});
    add("f16_64", 2, 3, 1, 64, 0, DType::kF16, {0, 70, 119}, {1, 1, 9});
    add("bf16_128", 2, 2, 2, 128, 0, DType::kBF16, {0, 63, 100}, {3, 2, 1});
    add("bf16_many", 3, 2, 1, 64, 0, DType::kBF16, {0, 100, 64}, {50, 10, 33});
    add("f16_many_128", 3, 4, 1, 128, 0, DType::kF16, {64, 0, 2}, {40, 30, 1});
    add("bf16_many_window", 6, 4, 2, 64, 70, DType::kBF16, {0, 150, 300}, {50, 1, 40});
    add("bf16_64_window", 6, 4, 2, 64, 70, DType::kBF16, {0, 150, 300}, {5, 1, 4});
    add("capped", 3, 2, 1, 9, 0, kF32, {0, 130, 60}, {40, 1, 1});
    all.back().shape.softcap = 0.75f;
    add("capped_bf16_64", 3, 2, 1, 64, 0, DType::kBF16, {0, 130, 60}, {40, 1, 30});
    all.back().shape.softcap = 0.75f;
    add("capped_window_bf16", 5, 4, 2, 16, 70, DType::kBF16, {0, 150, 300}, {30, 1, 20});
    all.back().shape.softcap = 0.75f;
  }
  return all;
}

// Every third page from the last one on; page 0 belongs to nobody.
std::int64_t page_of(const Sizes& s, std::int64_t sequence, std::int64_t block) {
  return kSequences * (s.blocks - block) - sequence;
}

std::int64_t counted(const Sizes& s) {
  std::int64_t rows = 0;
  for (const std::int64_t count : s.count) rows += count;
  return rows;
}

// All rows, of which the last two do not count.
TensorSpec rows_of(const Sizes& s, std::int64_t heads) {
  return f32({counted(s) + 2, heads * s.shape.head_dim});
}

OpCase with_caches(OpCase c, const Sizes& s) {
  const AttentionShape& shape = s.shape;
  std::vector<double> positions, sequences, table;
  for (std::int64_t i = 0; i < kSequences; ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::int64_t t = 0; t < s.count[at]; ++t) {
      positions.push_back(static_cast<double>(s.start[at] + t));
      sequences.push_back(static_cast<double>(i));
    }
    const std::int64_t end = s.start[at] + s.count[at];
    const std::int64_t seen = shape.window > 0 ? s.start[at] - shape.window + 1 : 0;
    for (std::int64_t block = 0; block < s.blocks; ++block) {
      // What nobody sees need not be there.
      const bool needed = block * 64 < end && (block + 1) * 64 > seen;
      table.push_back(needed ? static_cast<double>(page_of(s, i, block)) : -1.0);
    }
  }
  for (int i = 0; i < 2; ++i) {  // Never looked at.
    positions.push_back(-7);
    sequences.push_back(99);
  }
  const std::int64_t pages = kSequences * s.blocks + 1, n = counted(s) + 2;
  return std::move(c)
      .in({s.cache, key_cache_shape(pages, shape.kv_heads, shape.head_dim)})
      .in({s.cache, value_cache_shape(pages, shape.kv_heads, shape.head_dim)})
      .in(i32({n}), list(positions))
      .in(i32({n}), list(sequences))
      .in(i32({1}), list({static_cast<double>(counted(s))}))
      .in(i32({kSequences, s.blocks}), list(table));
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

// All rows of a step in one call and each by itself: the same bits.
TEST(CachedAttention, RowsAloneAndTogetherHaveTheSameBits) {
  for (const Sizes& s : all_sizes()) {
    if (s.shape.packed) continue;
    const OpCase c =
        with_caches(OpCase(s.name, CachedAttention{s.shape}).in(rows_of(s, s.shape.heads)), s);
    const std::vector<Array> inputs = make_inputs(c);
    const std::int64_t width = std::int64_t{s.shape.heads} * s.shape.head_dim;
    for (const cpu::Simd simd : available_simd()) {
      const OpRun whole = run_op(device(simd, 2), c.op, inputs);
      const auto together = bytes_of(whole.outputs[0]);
      for (std::int64_t row = 0; row < counted(s); ++row) {
        std::vector<Array> one = inputs;
        one[0] = Array(f32({1, width}));
        for (std::int64_t i = 0; i < width; ++i) one[0][i] = inputs[0][row * width + i];
        for (const std::size_t each : {3, 4}) {
          one[each] = Array(i32({1}));
          one[each][0] = inputs[each][row];
        }
        one[5][0] = 1;
        const OpRun alone = run_op(device(simd, 1), c.op, one);
        const auto bytes = static_cast<std::size_t>(4 * width);
        EXPECT_TRUE(
            std::ranges::equal(bytes_of(alone.outputs[0]),
                               together.subspan(static_cast<std::size_t>(row) * bytes, bytes)))
            << s.name << " " << cpu::simd_name(simd) << " row " << row;
      }
    }
  }
}

// The same keys and values in other pages: the same bits.
TEST(CachedAttention, PageTablesChangeNoBit) {
  for (const Sizes& s : all_sizes()) {
    const std::int64_t heads = s.shape.heads + (s.shape.packed ? 2 * s.shape.kv_heads : 0);
    const OpCase c = with_caches(OpCase(s.name, CachedAttention{s.shape}).in(rows_of(s, heads)), s);
    const std::vector<Array> inputs = make_inputs(c);
    std::vector<Array> moved = inputs;
    const std::int64_t pages = inputs[1].spec.shape[0];
    const auto elsewhere = [&](std::int64_t page) { return (page + 5) % pages; };
    for (const std::size_t cache : {1, 2}) {
      const std::int64_t size = inputs[cache].size() / pages;
      for (std::int64_t i = 0; i < inputs[cache].size(); ++i) {
        moved[cache][elsewhere(i / size) * size + i % size] = inputs[cache][i];
      }
    }
    for (std::int64_t i = 0; i < inputs[6].size(); ++i) {
      const auto page = static_cast<std::int64_t>(inputs[6][i]);
      if (page >= 0) moved[6][i] = static_cast<double>(elsewhere(page));
    }
    for (const cpu::Simd simd : available_simd()) {
      const OpRun before = run_op(device(simd, 2), c.op, inputs);
      const OpRun after = run_op(device(simd, 2), c.op, moved);
      EXPECT_TRUE(std::ranges::equal(bytes_of(before.outputs[0]), bytes_of(after.outputs[0])))
          << s.name << " " << cpu::simd_name(simd);
    }
  }
}

}  // namespace volta::op_test
