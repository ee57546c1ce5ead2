// KvAppend and CachedAttention: chunks and single rows give the bits of one prefill, alone or in a
// batch, whatever the capacity; what lies beyond a row's position is never read into it.
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

// The caches of some sequences for so many positions or a few more, all NaN to begin with.
struct Caches {
  Caches(const AttentionCase& c, std::int64_t sequences, std::int64_t positions, DType type)
      : dtype(type),
        shape_k(key_cache_shape(sequences, c.kv_heads, whole_key_blocks(positions), c.head_dim)),
        shape_v(value_cache_shape(sequences, c.kv_heads, whole_key_blocks(positions), c.head_dim)) {
    const auto bytes = static_cast<std::size_t>(shape_v.elements() * dtype_size(dtype));
    k.assign(bytes, std::byte{0xFF});
    v.assign(bytes, std::byte{0xFF});
  }
  View view_k() { return {k.data(), {dtype, shape_k}}; }
  View view_v() { return {v.data(), {dtype, shape_v}}; }

  DType dtype;
  Shape shape_k, shape_v;
  bool ring = false;
  std::vector<std::byte> k, v;
};

// Rows [first, first + count) of every batch entry of `x`, in a step of `rows` rows (NaN after the
// ones that count).
std::vector<float> step_rows(const AttentionCase& c, const std::vector<float>& x,
                             std::int64_t width, std::int64_t first, std::int64_t count,
                             std::int64_t rows) {
  std::vector<float> step(static_cast<std::size_t>(c.batch * rows * width), kNan);
  for (std::int64_t s = 0; s < c.batch; ++s) {
    std::copy_n(x.begin() + (s * c.time + first) * width, count * width,
                step.begin() + s * rows * width);
  }
  return step;
}

// One step: append, then attend. Returns the `count` rows that count, [batch, count, width].
std::vector<float> run_step(const AttentionCase& c, const Qkv& qkv, Caches& caches,
                            std::int64_t first, std::int64_t count, std::int64_t rows,
                            const cpu::Context& context) {
  AttentionCase step = c;
  step.time = rows;
  const std::int64_t q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  Qkv in = {step_rows(c, qkv.q, q_width, first, count, rows),
            step_rows(c, qkv.k, kv_width, first, count, rows),
            step_rows(c, qkv.v, kv_width, first, count, rows)};
  std::vector<float> packed = pack_qkv(step, in);
  std::vector<std::int32_t> start(static_cast<std::size_t>(c.batch),
                                  static_cast<std::int32_t>(first));
  std::vector<std::int32_t> counts(start.size(), static_cast<std::int32_t>(count));
  const std::vector<View> rest = {caches.view_k(), caches.view_v(), view_of(start, Shape(c.batch)),
                                  view_of(counts, Shape(c.batch))};
  const Shape q_shape(c.batch, rows, q_width), kv_shape(c.batch, rows, kv_width);
  std::vector<View> append, attend;
  if (c.packed) {
    append = attend = {view_of(packed, Shape(c.batch, rows, q_width + 2 * kv_width))};
  } else {
    append = {view_of(in.k, kv_shape), view_of(in.v, kv_shape)};
    attend = {view_of(in.q, q_shape)};
  }
  append.insert(append.end(), rest.begin(), rest.end());
  attend.insert(attend.end(), rest.begin(), rest.end());
  AttentionShape shape = c.shape();
  shape.ring = caches.ring;
  run_op(KvAppend{shape}, append, {}, context);
  std::vector<float> y(in.q.size(), kNan), out;
  run_op(CachedAttention{shape}, attend, {view_of(y, q_shape)}, context);
  for (std::int64_t s = 0; s < c.batch; ++s) {
    const auto row = y.begin() + s * rows * q_width;
    out.insert(out.end(), row, row + count * q_width);
    EXPECT_TRUE(std::all_of(row + count * q_width, row + rows * q_width,
                            [](float value) { return value == 0.0f; }));
  }
  return out;
}

// All of a case's rows in steps of the given sizes (the last repeats); rows a step: `rows`.
std::vector<float> run_in_steps(const AttentionCase& c, const Qkv& qkv, std::int64_t capacity,
                                DType dtype, std::vector<std::int64_t> sizes,
                                const cpu::Context& context, bool ring = false) {
  Caches caches(c, c.batch, capacity, dtype);
  caches.ring = ring;
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

// Windows smaller and larger than a block and than a step; sequences of many turns. A ring that
// lost a key still to be seen, or read one that took its place, would show.
TEST(CachedAttention, ARingGivesTheBitsOfTheWholeCache) {
  ThreadPool pool = make_pool(3);
  for (const std::int32_t window : {1, 2, 17, 63, 64, 65, 130, 200}) {
    for (const std::int64_t rows : {1, 16, 70}) {
      for (const bool packed : {false, true}) {
        const AttentionCase c{.batch = 2,
                              .time = 450,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_dim = 20,
                              .window = window,
                              .packed = packed};
        const Qkv qkv = random_qkv(c);
        const std::int64_t ring = whole_key_blocks(window - 1 + rows);
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          SCOPED_TRACE(c.name() + " " + std::to_string(rows) + std::string(dtype_name(dtype)));
          const cpu::Context context{cpu::best_simd(), &pool, nullptr};
          const std::vector<float> whole = run_in_steps(c, qkv, c.time, dtype, {rows}, context);
          EXPECT_EQ(run_in_steps(c, qkv, ring, dtype, {rows}, context, true), whole);
          EXPECT_EQ(run_in_steps(c, qkv, ring + 64, dtype, {rows, rows, 1}, context, true), whole);
        }
      }
    }
  }
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

// The cache of a step: 64 positions a sequence, one head of one element.
struct TinyStep {
  TinyStep() { pool = std::make_unique<ThreadPool>(make_pool(2)); }

  // Appends value 10 t + s for row t of sequence s, then attends with it.
  void run(std::vector<std::int32_t> start, std::vector<std::int32_t> count, std::int64_t rows) {
    const auto sequences = static_cast<std::int64_t>(start.size());
    const Shape x_shape(sequences, rows, 1), s_shape(sequences);
    std::vector<float> x;
    for (std::int64_t s = 0; s < sequences; ++s) {
      for (std::int64_t t = 0; t < rows; ++t) x.push_back(static_cast<float>(10 * t + s + 1));
    }
    cache_k.assign(static_cast<std::size_t>(64 * sequences), 0.0f);
    cache_v.assign(cache_k.size(), 0.0f);
    y.assign(x.size(), kNan);
    bad = 0;
    const cpu::Context context{cpu::best_simd(), pool.get(), &bad};
    const View xs = view_of(x, x_shape), k = view_of(cache_k, key_cache_shape(sequences, 1, 64, 1)),
               v = view_of(cache_v, value_cache_shape(sequences, 1, 64, 1)),
               starts = view_of(start, s_shape), counts = view_of(count, s_shape);
    run_op(KvAppend{{.head_dim = 1}}, {xs, xs, k, v, starts, counts}, {}, context);
    bad_append = bad.exchange(0);
    run_op(CachedAttention{{.head_dim = 1, .scale = 0.0f}}, {xs, k, v, starts, counts},
           {view_of(y, x_shape)}, context);
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
  step.run({0, 2}, {2, 1}, 3);
  EXPECT_THAT(step.written(), ElementsAre(Pair(0, 1), Pair(1, 11), Pair(66, 2)));
  EXPECT_EQ(step.bad_append, 0);
  EXPECT_EQ(step.bad, 0);
  // A scale of 0 weighs all alike: means over the positions up to each row's.
  EXPECT_EQ(step.y, (std::vector<float>{1, 6, 0, 2.0f / 3, 0, 0}));
}

TEST(KvAppend, SkipsAndReportsRowsOutsideTheCache) {
  TinyStep step;
  step.run({0, 63}, {1, 3}, 3);  // Positions 63, 64, 65 of 64.
  EXPECT_THAT(step.written(), ElementsAre(Pair(0, 1), Pair(127, 2)));
  EXPECT_EQ(step.bad_append, 2);
  EXPECT_EQ(step.bad, 2);
  EXPECT_EQ(step.y, (std::vector<float>{1, 0, 0, 0.03125f, 0, 0}));

  step.run({-1}, {2}, 2);  // Positions -1, 0.
  EXPECT_THAT(step.written(), ElementsAre(Pair(0, 11)));
  EXPECT_EQ(step.y, (std::vector<float>{0, 11}));
  EXPECT_EQ(step.bad_append, 1);
  EXPECT_EQ(step.bad, 1);

  step.run({0, 0, 99, 0}, {0, -5, 1, 7}, 2);  // None, fewer than none, far away, more than rows.
  EXPECT_THAT(step.written(), ElementsAre(Pair(192, 4), Pair(193, 14)));
  EXPECT_EQ(step.y, (std::vector<float>{0, 0, 0, 0, 0, 0, 4, 9}));
  EXPECT_EQ(step.bad_append, 2);  // The first offender.
  constexpr std::int32_t kLimits[] = {std::numeric_limits<std::int32_t>::min(),
                                      std::numeric_limits<std::int32_t>::max()};
  for (const std::int32_t start : kLimits) {
    for (const std::int32_t count : kLimits) {
      step.run({start}, {count}, 2);
      EXPECT_THAT(step.written(), IsEmpty());
      EXPECT_EQ(step.y, (std::vector<float>{0, 0}));
      EXPECT_EQ(step.bad_append, 1);
    }
  }
}

// Element d of the key at position p lies at [p / 64, d, p % 64], of the value at [p, d]; nothing
// else is written. Steps begin and end anywhere in a block, and in a ring wrap.
TEST(KvAppend, KeysLieInBlocksAndOthersStay) {
  ThreadPool pool = make_pool(2);
  const std::int64_t positions = 192;
  for (const std::int32_t dim : {1, 5, 16, 36}) {
    const AttentionCase c{.heads = 2, .kv_heads = 2, .head_dim = dim};
    for (const auto& [first, rows] : {std::pair{0, 1}, {63, 2}, {5, 40}, {60, 130}, {180, 33}}) {
      std::vector<float> x(static_cast<std::size_t>(rows * 2 * dim));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
      std::vector<std::int32_t> start = {first}, count = {rows};
      const View xs = view_of(x, Shape(1, rows, 2 * dim));
      for (const cpu::Simd simd : available_simd()) {
        SCOPED_TRACE(fmt::format("{} x {} at {} {}", rows, dim, first, cpu::simd_name(simd)));
        Caches caches(c, 1, positions, DType::kF32);
        AttentionShape shape = c.shape();
        shape.window = 60;
        shape.ring = true;
        run_op(KvAppend{shape},
               {xs, xs, caches.view_k(), caches.view_v(), view_of(start, Shape(1)),
                view_of(count, Shape(1))},
               {}, {simd, &pool, nullptr});
        for (std::int64_t head = 0; head < 2; ++head) {
          for (std::int64_t p = 0; p < positions; ++p) {
            const std::int64_t row = (p - first + positions) % positions;
            for (std::int64_t d = 0; d < dim; ++d) {
              const std::int64_t k = ((head * 3 + p / 64) * dim + d) * 64 + p % 64;
              const std::int64_t v = (head * positions + p) * dim + d;
              const float key =
                  read_element(DType::kF32, &caches.k[static_cast<std::size_t>(4 * k)]);
              const float value =
                  read_element(DType::kF32, &caches.v[static_cast<std::size_t>(4 * v)]);
              if (row >= rows) {
                ASSERT_TRUE(std::isnan(key) && std::isnan(value)) << p << " " << d;
                continue;
              }
              const auto expected = static_cast<float>((row * 2 + head) * dim + d + 1);
              ASSERT_EQ(key, expected) << p << " " << d;
              ASSERT_EQ(value, expected) << p << " " << d;
            }
          }
        }
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
    std::vector<std::int32_t> start = {0}, count = {1};
    const View xs = view_of(x, Shape(1, 1, 4));
    run_op(KvAppend{{.head_dim = 4}},
           {xs, xs, caches.view_k(), caches.view_v(), view_of(start, Shape(1)),
            view_of(count, Shape(1))},
           {}, {cpu::best_simd(), &pool, nullptr});
    const std::size_t step = 64;  // From one element of a key to the next.
    for (const auto& [cache, distance] :
         {std::pair{&caches.k, step}, {&caches.v, std::size_t{1}}}) {
      const auto element = [&](std::size_t i) {
        return read_element(dtype, &(*cache)[2 * i * distance]);
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
