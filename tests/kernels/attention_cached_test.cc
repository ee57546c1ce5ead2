// KvAppend and CachedAttention: pieces and single rows give the bits of one prefill, alone or
// beside others, in whatever pages; what lies beyond a row's position is never read into it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "attention_fixture.h"
#include "kernels/cpu/element.h"

namespace volta::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float read_element(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) return *reinterpret_cast<const float*>(at);
  const auto bits = *reinterpret_cast<const std::uint16_t*>(at);
  return dtype == DType::kBF16 ? cpu::to_f32(cpu::BF16{bits}) : cpu::to_f32(cpu::F16{bits});
}

// The caches of some sequences for so many positions or a few more, all NaN to begin with. Pages
// are given out from the last one on, block by block, so that no sequence has neighbours; page 0
// stays.
struct Caches {
  Caches(const AttentionCase& c, std::int64_t sequences, std::int64_t positions, DType type)
      : dtype(type),
        blocks(whole_key_blocks(positions) / kAttentionKeyBlock),
        shape_k(key_cache_shape(sequences * blocks + 1, c.kv_heads, c.head_dim)),
        shape_v(value_cache_shape(sequences * blocks + 1, c.kv_heads, c.head_dim)),
        table_shape(sequences, blocks) {
    const auto bytes = static_cast<std::size_t>(shape_v.elements() * dtype_size(dtype));
    k.assign(bytes, std::byte{0xFF});
    v.assign(bytes, std::byte{0xFF});
    for (std::int64_t s = 0; s < sequences; ++s) {
      for (std::int64_t block = 0; block < blocks; ++block) {
        table.push_back(static_cast<std::int32_t>(sequences * (blocks - block) - s));
      }
    }
  }
  View view_k() { return {k.data(), {dtype, shape_k}}; }
  View view_v() { return {v.data(), {dtype, shape_v}}; }
  View view_table() { return view_of(table, table_shape); }

  DType dtype;
  std::int64_t blocks;
  Shape shape_k, shape_v, table_shape;
  std::vector<std::byte> k, v;
  std::vector<std::int32_t> table;
};

// Rows [first, first + count) of every batch entry of `x`, one after another.
std::vector<float> step_rows(const AttentionCase& c, const std::vector<float>& x,
                             std::int64_t width, std::int64_t first, std::int64_t count) {
  std::vector<float> step;
  for (std::int64_t s = 0; s < c.batch; ++s) {
    const auto begin = x.begin() + (s * c.time + first) * width;
    step.insert(step.end(), begin, begin + count * width);
  }
  return step;
}

// One step: append, then attend. Returns the `count` rows of each that count, [batch, count,
// width]. The step has a row for `rows` of each, sequence after sequence; those past the counted
// ones of all sequences do not count.
std::vector<float> run_step(const AttentionCase& c, const Qkv& qkv, Caches& caches,
                            std::int64_t first, std::int64_t count, std::int64_t rows,
                            const cpu::Context& context) {
  const std::int64_t q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  const std::int64_t all = c.batch * rows, valid = c.batch * count;
  const auto padded = [&](std::vector<float> x, std::int64_t width) {
    x.resize(static_cast<std::size_t>(all * width), kNan);
    return x;
  };
  Qkv in = {padded(step_rows(c, qkv.q, q_width, first, count), q_width),
            padded(step_rows(c, qkv.k, kv_width, first, count), kv_width),
            padded(step_rows(c, qkv.v, kv_width, first, count), kv_width)};
  AttentionCase step = c;
  step.batch = 1;
  step.time = all;
  std::vector<float> packed = pack_qkv(step, in);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(all), -1), sequences(positions);
  for (std::int64_t row = 0; row < valid; ++row) {
    positions[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(first + row % count);
    sequences[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(row / count);
  }
  std::vector<std::int32_t> counted = {static_cast<std::int32_t>(valid)};
  const std::vector<View> rest = {caches.view_k(),
                                  caches.view_v(),
                                  view_of(positions, Shape(all)),
                                  view_of(sequences, Shape(all)),
                                  view_of(counted, Shape(1)),
                                  caches.view_table()};
  const Shape q_shape(all, q_width), kv_shape(all, kv_width);
  std::vector<View> append, attend;
  if (c.packed) {
    append = attend = {view_of(packed, Shape(all, q_width + 2 * kv_width))};
  } else {
    append = {view_of(in.k, kv_shape), view_of(in.v, kv_shape)};
    attend = {view_of(in.q, q_shape)};
  }
  append.insert(append.end(), rest.begin(), rest.end());
  attend.insert(attend.end(), rest.begin(), rest.end());
  run_op(KvAppend{c.shape()}, append, {}, context);
  std::vector<float> y(in.q.size(), kNan);
  run_op(CachedAttention{c.shape()}, attend, {view_of(y, q_shape)}, context);
  const auto end = y.begin() + valid * q_width;
  EXPECT_TRUE(std::all_of(end, y.end(), [](float value) { return value == 0.0f; }));
  return {y.begin(), end};
}

// All of a case's rows in steps of the given sizes (the last repeats); rows a step: `rows`.
std::vector<float> run_in_steps(const AttentionCase& c, const Qkv& qkv, std::int64_t capacity,
                                DType dtype, std::vector<std::int64_t> sizes,
                                const cpu::Context& context) {
  Caches caches(c, c.batch, capacity, dtype);
  const std::int64_t width = c.heads * c.head_dim;
  std::vector<float> y(qkv.q.size());
  std::size_t step = 0;
  for (std::int64_t first = 0; first < c.time; ++step) {
    const std::int64_t rows = sizes[std::min(step, sizes.size() - 1)];
    const std::int64_t count = std::min(rows, c.time - first);
    const std::vector<float> part = run_step(c, qkv, caches, first, count, rows, context);
    for (std::int64_t s = 0; s < c.batch; ++s) {
      std::copy_n(part.begin() + s * count * width, count * width,
                  y.begin() + (s * c.time + first) * width);
    }
    first += count;
  }
  return y;
}

std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all;
  for (const std::int32_t dim : {1, 3, 16, 32, 48, 64, 128}) {
    all.push_back({.batch = 2, .time = 70, .heads = 2, .kv_heads = 2, .head_dim = dim});
  }
  all.push_back({.time = 140, .heads = 6, .kv_heads = 2, .head_dim = 16, .packed = true});
  all.push_back({.time = 150, .heads = 4, .kv_heads = 1, .head_dim = 32, .window = 33});
  all.push_back(
      {.time = 131, .heads = 1, .kv_heads = 1, .head_dim = 24, .window = 1, .packed = true});
  return all;
}

TEST(CachedAttention, EqualsTheReferenceForEveryTypeOfCache) {
  ThreadPool pool = make_pool(2);
  for (const AttentionCase& c : cases()) {
    const Qkv qkv = random_qkv(c);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      Qkv stored = qkv;  // As the cache rounds it.
      for (std::vector<float>* values : {&stored.k, &stored.v}) {
        for (float& x : *values) {
          if (dtype == DType::kBF16) x = cpu::to_f32(cpu::from_f32<cpu::BF16>(x));
          if (dtype == DType::kF16) x = cpu::to_f32(cpu::from_f32<cpu::F16>(x));
        }
      }
      const ReferenceResult expected = reference_attention(c, stored);
      for (const cpu::Simd simd : available_simd()) {
        SCOPED_TRACE(c.name() + " " + std::string(dtype_name(dtype)) + " " + cpu::simd_name(simd));
        expect_near(run_in_steps(c, qkv, c.time, dtype, {50}, {simd, &pool, nullptr}), expected.y,
                    "y");
      }
    }
  }
}

TEST(CachedAttention, ChunksAndSingleRowsGiveTheBitsOfOnePrefill) {
  ThreadPool one = make_pool(1), three = make_pool(3);
  for (const AttentionCase& c : cases()) {
    const Qkv qkv = random_qkv(c);
    for (const cpu::Simd simd : available_simd()) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        SCOPED_TRACE(c.name() + " " + std::string(dtype_name(dtype)) + " " + cpu::simd_name(simd));
        const std::vector<float> expected =
            run_in_steps(c, qkv, c.time, dtype, {c.time}, {simd, &one, nullptr});
        EXPECT_EQ(run_in_steps(c, qkv, 256, dtype, {64, 7, 1}, {simd, &three, nullptr}), expected);
        EXPECT_EQ(run_in_steps(c, qkv, 151, dtype, {256}, {simd, &three, nullptr}), expected);
        EXPECT_EQ(run_in_steps(c, qkv, c.time, dtype, {1}, {simd, &one, nullptr}), expected);
        if (dtype == DType::kF32) {
          EXPECT_EQ(run_attention(c, qkv, {simd, &three, nullptr}).y, expected);
        }
      }
    }
  }
}

// Windows smaller and larger than a block and than a step. Pages that no row sees any more go to
// whoever needs one next, from the front to the back: a few serve a sequence of any length. One
// that came too early, or a row that looked too far back, would show.
TEST(CachedAttention, AFewPagesServeAWindow) {
  ThreadPool pool = make_pool(3);
  const cpu::Context context{cpu::best_simd(), &pool, nullptr};
  for (const std::int32_t window : {1, 2, 17, 63, 64, 65, 130, 200}) {
    for (const std::int64_t rows : {1, 16, 70}) {
      const AttentionCase c{
          .batch = 1, .time = 450, .heads = 4, .kv_heads = 2, .head_dim = 20, .window = window};
      const Qkv qkv = random_qkv(c);
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(c.name() + " " + std::to_string(rows) + std::string(dtype_name(dtype)));
        const std::vector<float> whole = run_in_steps(c, qkv, c.time, dtype, {rows}, context);
        Caches few(c, 1, c.time, dtype);
        const std::int32_t pages = (window - 1 + static_cast<std::int32_t>(rows) - 2) / 64 + 2;
        std::vector<float> y;
        for (std::int64_t first = 0; first < c.time;) {
          const std::int64_t count = std::min(rows, c.time - first);
          const std::int64_t seen = std::max<std::int64_t>(0, first - window + 1) / 64;
          for (std::int64_t block = 0; block < few.blocks; ++block) {
            const bool needed = block >= seen && block * 64 < first + count;
            few.table[static_cast<std::size_t>(block)] =
                needed ? static_cast<std::int32_t>(block) % pages : -1;
          }
          const std::vector<float> part = run_step(c, qkv, few, first, count, rows, context);
          y.insert(y.end(), part.begin(), part.end());
          first += count;
        }
        EXPECT_EQ(y, whole);
      }
    }
  }
}

// A piece of a prompt, tokens that are decoded, and another piece, in one step: what each gives
// alone.
TEST(CachedAttention, PromptsAndDecodingInOneStepGiveTheBitsOfEachAlone) {
  ThreadPool pool = make_pool(3);
  const cpu::Context context{cpu::best_simd(), &pool, nullptr};
  const AttentionCase c{.batch = 4, .time = 200, .heads = 4, .kv_heads = 2, .head_dim = 32};
  const Qkv qkv = random_qkv(c);
  const std::vector<float> whole = run_in_steps(c, qkv, c.time, DType::kF32, {c.time}, context);
  Caches caches(c, c.batch, c.time, DType::kF32);
  run_step(c, qkv, caches, 0, 130, 130, context);  // Rows 130 to 199 are still to come.
  const std::int64_t q_width = 128, kv_width = 64;
  std::vector<std::int32_t> positions, sequences;
  for (std::int32_t t = 130; t < 185; ++t) positions.push_back(t), sequences.push_back(2);
  for (const std::int32_t s : {3, 0}) positions.push_back(130), sequences.push_back(s);
  for (std::int32_t t = 130; t < 150; ++t) positions.push_back(t), sequences.push_back(1);
  const auto n = static_cast<std::int64_t>(positions.size());
  const auto gather = [&](const std::vector<float>& x, std::int64_t width) {
    std::vector<float> rows;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto row = x.begin() + (sequences[i] * c.time + positions[i]) * width;
      rows.insert(rows.end(), row, row + width);
    }
    return rows;
  };
  std::vector<float> q = gather(qkv.q, q_width), k = gather(qkv.k, kv_width),
                     v = gather(qkv.v, kv_width), y(q.size(), kNan);
  std::vector<std::int32_t> count = {static_cast<std::int32_t>(n)};
  const View keys = caches.view_k(), values = caches.view_v(), table = caches.view_table(),
             at = view_of(positions, Shape(n)), of = view_of(sequences, Shape(n)),
             rows = view_of(count, Shape(1));
  run_op(KvAppend{c.shape()},
         {view_of(k, Shape(n, kv_width)), view_of(v, Shape(n, kv_width)), keys, values, at, of,
          rows, table},
         {}, context);
  run_op(CachedAttention{c.shape()},
         {view_of(q, Shape(n, q_width)), keys, values, at, of, rows, table},
         {view_of(y, Shape(n, q_width))}, context);
  EXPECT_EQ(y, gather(whole, q_width));
}

TEST(CachedAttention, ABatchGivesTheBitsOfEachSequenceAlone) {
  ThreadPool pool = make_pool(3);
  const AttentionCase c{.batch = 3, .time = 90, .heads = 4, .kv_heads = 2, .head_dim = 32};
  const Qkv qkv = random_qkv(c);
  const cpu::Context context{cpu::best_simd(), &pool, nullptr};
  const std::vector<float> together = run_in_steps(c, qkv, 128, DType::kF32, {64, 1}, context);
  for (std::int64_t s = 0; s < c.batch; ++s) {
    AttentionCase alone = c;
    alone.batch = 1;
    const auto entry = [&](const std::vector<float>& x) {
      const auto size = static_cast<std::ptrdiff_t>(x.size()) / c.batch;
      return std::vector<float>(x.begin() + s * size, x.begin() + (s + 1) * size);
    };
    EXPECT_EQ(run_in_steps(alone, {entry(qkv.q), entry(qkv.k), entry(qkv.v)}, 90, DType::kF32,
                           {33, 2}, context),
              entry(together));
  }
}

// A step of sequences that have one page each, of one head of one element; page 0 is nobody's.
struct TinyStep {
  TinyStep() { pool = std::make_unique<ThreadPool>(make_pool(2)); }

  // Appends value i + 1 for row i, then attends with it.
  void run(std::vector<std::int32_t> positions, std::vector<std::int32_t> sequences,
           std::int32_t rows, std::vector<std::int32_t> table = {1, 2}) {
    const auto n = static_cast<std::int64_t>(positions.size());
    const auto tables = static_cast<std::int64_t>(table.size());
    std::vector<float> x;
    for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(i + 1));
    cache_k.assign(static_cast<std::size_t>(64 * (tables + 1)), 0.0f);
    cache_v.assign(cache_k.size(), 0.0f);
    y.assign(x.size(), kNan);
    std::vector<std::int32_t> count = {rows};
    const cpu::Context context{cpu::best_simd(), pool.get(), &bad};
    const View xs = view_of(x, Shape(n, 1)),
               k = view_of(cache_k, key_cache_shape(tables + 1, 1, 1)),
               v = view_of(cache_v, value_cache_shape(tables + 1, 1, 1)),
               at = view_of(positions, Shape(n)), of = view_of(sequences, Shape(n)),
               counted = view_of(count, Shape(1)), pages = view_of(table, Shape(tables, 1));
    bad = 0;
    run_op(KvAppend{{.head_dim = 1}}, {xs, xs, k, v, at, of, counted, pages}, {}, context);
    bad_append = bad.exchange(0);
    run_op(CachedAttention{{.head_dim = 1, .scale = 0.0f}}, {xs, k, v, at, of, counted, pages},
           {view_of(y, Shape(n, 1))}, context);
  }

  // What is not zero in the caches of keys and of values, which agree: (place, value).
  std::vector<std::pair<std::size_t, float>> written() const {
    EXPECT_EQ(cache_k, cache_v);  // Keys of one element lie like values.
    std::vector<std::pair<std::size_t, float>> all;
    for (std::size_t i = 0; i < cache_k.size(); ++i) {
      if (cache_k[i] != 0.0f) all.emplace_back(i, cache_k[i]);
    }
    return all;
  }

  std::unique_ptr<ThreadPool> pool;
  std::vector<float> cache_k, cache_v, y;
  std::atomic<std::int64_t> bad{0};
  std::int64_t bad_append = 0;
};

TEST(KvAppend, WritesRowsThatCountAtTheirPositions) {
  TinyStep step;
  step.run({0, 1, 2, 9}, {0, 0, 1, 0}, 3);
  EXPECT_THAT(step.written(), ElementsAre(Pair(64, 1), Pair(65, 2), Pair(130, 3)));
  EXPECT_EQ(step.bad_append, 0);
  EXPECT_EQ(step.bad, 0);
  // A scale of 0 weighs all alike: means over the positions up to each row's.
  EXPECT_EQ(step.y, (std::vector<float>{1, 1.5f, 1, 0}));
}

// Nothing is ever written to a page, or read from one, that is not the row's own.
TEST(KvAppend, SkipsAndReportsRowsWithoutAPlace) {
  TinyStep step;
  step.run({0, 64, -1}, {0, 1, 1}, 3);  // Past the table, and before it.
  EXPECT_THAT(step.written(), ElementsAre(Pair(64, 1)));
  EXPECT_EQ(step.bad_append, 2);  // Row 1, the first offender.
  EXPECT_EQ(step.bad, 2);
  EXPECT_EQ(step.y, (std::vector<float>{1, 0, 0}));

  step.run({0, 0, 0}, {2, -1, 1}, 3);  // Sequences that are none.
  EXPECT_THAT(step.written(), ElementsAre(Pair(128, 3)));
  EXPECT_EQ(step.bad_append, 1);
  EXPECT_EQ(step.y, (std::vector<float>{0, 0, 3}));

  for (const std::int32_t page : {-1, 3, std::numeric_limits<std::int32_t>::max()}) {
    step.run({0, 0}, {0, 1}, 2, {page, 2});
    EXPECT_THAT(step.written(), ElementsAre(Pair(128, 2)));
    EXPECT_EQ(step.bad_append, 1);
    EXPECT_EQ(step.y, (std::vector<float>{0, 2}));
  }
  constexpr std::int32_t kLimits[] = {std::numeric_limits<std::int32_t>::min(),
                                      std::numeric_limits<std::int32_t>::max()};
  for (const std::int32_t position : kLimits) {
    for (const std::int32_t sequence : kLimits) {
      step.run({position}, {sequence}, 1);
      EXPECT_THAT(step.written(), IsEmpty());
      EXPECT_EQ(step.y, (std::vector<float>{0}));
      EXPECT_EQ(step.bad_append, 1);
    }
  }
  step.run({0, 1}, {0, 0}, -3);  // Fewer rows than none, and more than there are.
  EXPECT_THAT(step.written(), IsEmpty());
  EXPECT_EQ(step.bad_append, 1);
  step.run({0, 1}, {0, 0}, 3);
  EXPECT_THAT(step.written(), ElementsAre(Pair(64, 1), Pair(65, 2)));
  EXPECT_EQ(step.bad, 1);
}

// Element d of the key at place p of a page lies at [d, p], of the value at [p, d]; nothing else is
// written. Steps begin and end anywhere in a block.
TEST(KvAppend, KeysLieInBlocksAndOthersStay) {
  ThreadPool pool = make_pool(2);
  const std::int64_t positions = 192;
  for (const std::int32_t dim : {1, 5, 16, 36}) {
    const AttentionCase c{.heads = 2, .kv_heads = 2, .head_dim = dim};
    for (const auto& [first, rows] : {std::pair{0, 1}, {63, 2}, {5, 40}, {60, 130}, {159, 33}}) {
      std::vector<float> x(static_cast<std::size_t>(rows * 2 * dim));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
      std::vector<std::int32_t> at, of(static_cast<std::size_t>(rows), 0), count = {rows};
      for (std::int32_t i = 0; i < rows; ++i) at.push_back(first + i);
      const View xs = view_of(x, Shape(rows, 2 * dim));
      for (const cpu::Simd simd : available_simd()) {
        SCOPED_TRACE(fmt::format("{} x {} at {} {}", rows, dim, first, cpu::simd_name(simd)));
        Caches caches(c, 1, positions, DType::kF32);
        run_op(KvAppend{c.shape()},
               {xs, xs, caches.view_k(), caches.view_v(), view_of(at, Shape(rows)),
                view_of(of, Shape(rows)), view_of(count, Shape(1)), caches.view_table()},
               {}, {simd, &pool, nullptr});
        for (std::int64_t head = 0; head < 2; ++head) {
          for (std::int64_t p = 0; p < positions; ++p) {
            const std::int64_t row = p - first;
            const std::int64_t page = caches.table[static_cast<std::size_t>(p / 64)];
            for (std::int64_t d = 0; d < dim; ++d) {
              const std::int64_t k = ((page * 2 + head) * dim + d) * 64 + p % 64;
              const std::int64_t v = ((page * 2 + head) * 64 + p % 64) * dim + d;
              const float key =
                  read_element(DType::kF32, &caches.k[static_cast<std::size_t>(4 * k)]);
              const float value =
                  read_element(DType::kF32, &caches.v[static_cast<std::size_t>(4 * v)]);
              if (row < 0 || row >= rows) {
                ASSERT_TRUE(std::isnan(key) && std::isnan(value)) << p << " " << d;
                continue;
              }
              const auto expected = static_cast<float>((row * 2 + head) * dim + d + 1);
              ASSERT_EQ(key, expected) << p << " " << d;
              ASSERT_EQ(value, expected) << p << " " << d;
            }
          }
        }
        const std::size_t page_bytes = static_cast<std::size_t>(4 * 2 * 64 * dim);
        EXPECT_TRUE(std::all_of(caches.v.begin(),
                                caches.v.begin() + static_cast<std::ptrdiff_t>(page_bytes),
                                [](std::byte b) { return b == std::byte{0xFF}; }));
      }
    }
  }
}

TEST(KvAppend, RoundsToNearestEven) {
  ThreadPool pool = make_pool(1);
  // One above 1 by half a unit of bf16 (2^-8) and of f16 (2^-11); and by three halves.
  for (const auto& [dtype, half] : {std::pair{DType::kBF16, 0x1p-8f}, {DType::kF16, 0x1p-11f}}) {
    std::vector<float> x = {1 + half, 1 + 3 * half, -INFINITY, kNan};
    Caches caches({.head_dim = 4}, 1, 1, dtype);
    std::vector<std::int32_t> zero = {0}, count = {1};
    const View xs = view_of(x, Shape(1, 4)), first = view_of(zero, Shape(1));
    run_op(KvAppend{{.head_dim = 4}},
           {xs, xs, caches.view_k(), caches.view_v(), first, first, view_of(count, Shape(1)),
            caches.view_table()},
           {}, {cpu::best_simd(), &pool, nullptr});
    const std::size_t step = 64;          // From one element of a key to the next.
    const std::size_t page = 64 * 4 * 2;  // Bytes: the page of the sequence is the second.
    for (const auto& [cache, distance] :
         {std::pair{&caches.k, step}, {&caches.v, std::size_t{1}}}) {
      const auto element = [&](std::size_t i) {
        return read_element(dtype, &(*cache)[page + 2 * i * distance]);
      };
      EXPECT_EQ(element(0), 1.0f);
      EXPECT_EQ(element(1), 1 + 4 * half);
      EXPECT_EQ(element(2), -INFINITY);
      EXPECT_TRUE(std::isnan(element(3)));
    }
  }
}

}  // namespace
}  // namespace volta::test
