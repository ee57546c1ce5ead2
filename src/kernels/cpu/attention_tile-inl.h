// attend(): one tile of query rows over all keys that they see, for both Attention and
// CachedAttention. Compiled once per instruction set (see simd.h). It must not know ops or batches.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef VOLTA_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define VOLTA_KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/arithmetic.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_blocks-inl.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace attention {

using namespace volta::cpu::attention;  // NOLINT(google-build-using-namespace): the plain half.

/// The keys and values of one head in one sequence, and the rows that read them. Row r belongs to
/// position first_position + r / group, so that the query heads of a group share each key block.
/// Rows of keys and values are `stride` apart and begin at position 0. In a cache, block b is in
/// page pages[b], and pages are `page_stride` elements apart; its keys are [head_dim, kKeyBlock],
/// its values are contiguous rows.
template <typename T>
struct Tile {
  const T* keys;
  const T* values;
  std::int64_t stride;
  std::int64_t head_dim;
  std::int64_t rows;
  std::int64_t first_row;  ///< This tile's first row among the rows (time, query head of the
                           ///< group).
  std::int64_t first_position;
  std::int64_t group;
  std::int64_t window;
  float softcap = 0.0f;                 ///< As in AttentionShape.
  const std::int32_t* pages = nullptr;  ///< Null if this is no cache.
  std::int64_t page_stride = 0;
  std::int64_t all_keys = 0;  ///< Above 0, the attention is not causal: every row sees keys [0,
                              ///< all_keys). Not for a cache.

  /// The offset of the block that begins at key `block`, from `keys` and from `values`.
  std::int64_t place(std::int64_t block) const {
    return pages == nullptr ? block * stride : pages[block / kKeyBlock] * page_stride;
  }
  std::int64_t position(std::int64_t r) const { return first_position + (first_row + r) / group; }
  /// The first row at `position` or after it, or `rows`.
  std::int64_t first_row_at(std::int64_t position) const {
    return std::clamp<std::int64_t>((position - first_position) * group - first_row, 0, rows);
  }
  /// The last key that the tile's last row sees.
  std::int64_t last_key() const { return all_keys > 0 ? all_keys - 1 : position(rows - 1); }
  /// The first row that sees the key at `block`.
  std::int64_t first_row_that_sees(std::int64_t block) const {
    return all_keys > 0 ? 0 : first_row_at(block);
  }
  /// The keys that rows [r, r + count) see in the block that begins at key `block`.
  void visible(std::int64_t r, std::int64_t count, std::int64_t block, KeyRange* ranges) const {
    if (all_keys > 0) {
      std::fill_n(ranges, count, visible_keys(all_keys - 1, 0, block));
      return;
    }
    std::int64_t at = position(r);
    std::int64_t left = group - (first_row + r) % group;  // Rows that are still at that position.
    for (std::int64_t i = 0; i < count; ++i) {
      ranges[i] = visible_keys(at, window, block);
      if (--left == 0) left = group, ++at;
    }
  }
};

/// Does not change attention weights.
struct KeepAll {
  void operator()(std::int64_t, std::int64_t, std::int64_t, const KeyRange*, float*) const {}
};

// Turns the scores s of a few rows against a block into softcap * tanh(s / softcap).
HWY_INLINE void cap_scores(const KeyRange* ranges, std::int64_t rows, float softcap,
                           float* scores) {
  const F32 d;
  const V32 cap = hn::Set(d, softcap), inverse = hn::Set(d, 1.0f / softcap);
  for (std::int64_t i = 0; i < rows; ++i, scores += kKeyBlock) {
    for (std::int64_t n = floor_lanes(ranges[i].begin); n < ranges[i].end; n += kLanes) {
      const V32 s = hn::Mul(hn::LoadU(d, scores + n), inverse);
      hn::StoreU(hn::Mul(tanh(d, s), cap), d, scores + n);
    }
  }
}

// Turns the scores of a few rows against a block into weights exp(s - max), with zeros outside each
// row's range, and updates the rows' maxima, sums and outputs (of `dim` floats). Each pass is over
// all rows, because each step of one row waits for the step before. Lanes are summed in a fixed
// order; masked ones add zero.
HWY_INLINE void softmax_block(const KeyRange* ranges, std::int64_t rows, float* scores, float* max,
                              float* sum, float* out, std::int64_t dim) {
  const F32 d;
  const V32 lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  alignas(64) float block_max[kScoreRows];
  std::fill_n(block_max, kScoreRows, -std::numeric_limits<float>::infinity());
  alignas(64) float correction[kScoreRows];
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* s = scores + i * kKeyBlock;
    V32 largest = lowest;
    for (std::int64_t n = floor_lanes(ranges[i].begin); n < ranges[i].end; n += kLanes) {
      V32 v = hn::LoadU(d, s + n);
      if (!whole(n, ranges[i])) v = hn::IfThenElse(in_range(n, ranges[i]), v, lowest);
      largest = hn::Max(largest, v);
    }
    block_max[i] = hn::GetLane(hn::MaxOfLanes(d, largest));
  }
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    const V32 before = hn::LoadU(d, max + i), now = hn::LoadU(d, block_max + i);
    const auto grows = hn::Gt(now, before);
    const V32 c = hn::IfThenElse(grows, exp_weight(hn::Sub(before, now)), hn::Set(d, 1.0f));
    hn::StoreU(hn::IfThenElse(grows, now, before), d, max + i);
    hn::StoreU(hn::Mul(hn::LoadU(d, sum + i), c), d, sum + i);
    hn::StoreU(c, d, correction + i);
  }
  for (std::int64_t i = 0; i < rows; ++i, out += dim) {
    if (correction[i] == 1.0f) continue;
    const V32 c = hn::Set(d, correction[i]);
    for (std::int64_t n = 0; n < dim; n += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, out + n), c), d, out + n);
    }
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    float* s = scores + i * kKeyBlock;
    const V32 shift = hn::Set(d, max[i]);
    V32 total = hn::Zero(d);
    for (std::int64_t n = floor_lanes(ranges[i].begin); n < ranges[i].end; n += kLanes) {
      V32 p = exp_weight(hn::Sub(hn::LoadU(d, s + n), shift));
      if (!whole(n, ranges[i])) p = hn::IfThenElseZero(in_range(n, ranges[i]), p);
      total = hn::Add(total, p);
      hn::StoreU(p, d, s + n);
    }
    sum[i] += hn::GetLane(hn::SumOfLanes(d, total));
  }
}

// Adds weights [kRows, kKeyBlock] times values to the outputs. A row reads only the values of its
// own keys, in ascending order. (Zero weights for the others would not do, because those values may
// be NaN.) The ranges of later rows begin and end at the same key or later.
template <int kRows, typename V>
HWY_INLINE void add_values(const Product<V>& p, std::int64_t columns, const KeyRange* ranges) {
  const auto part = [&](int i, std::int64_t first, std::int64_t last) HWY_ATTR {
    if (first >= last) return;
    Product<V> q = p;
    q.a += i * p.a_row + first;
    q.b += first * p.b_stride;
    q.c += i * p.c_stride;
    product_rows<1>(q, columns, {last - first}, true);
  };
  const std::int64_t common = ranges[kRows - 1].begin;
  const std::int64_t end = ranges[0].end;
  if (kRows == 1 || common >= end) {
    for (int i = 0; i < kRows; ++i) part(i, ranges[i].begin, ranges[i].end);
    return;
  }
  std::int64_t more[kRows];
  for (int i = 0; i < kRows; ++i) {
    part(i, ranges[i].begin, common);
    more[i] = ranges[i].end - end;
  }
  Product<V> q = p;
  q.a += common;
  q.b += common * p.b_stride;
  product_rows<kRows>(q, columns, {end - common, more}, true);
}

// A block of keys and values, in place or copied to scratch.
template <typename B>
struct Block {
  const B* keys;    // [head_dim, kKeyBlock]
  const B* values;  // [kKeyBlock, head_dim], rows `stride` apart
  std::int64_t stride;
  std::int64_t first;  // Position of its first key.
};

// The prefetches for the block that follows.
struct NextBlock {
  Ahead keys, values;
};

// Runs rows [r, r + rows) of a tile, at most kScoreRows, against one block of keys.
template <typename T, typename B, typename Drop>
HWY_INLINE void attend_block(const Tile<T>& tile, const TileScratch& scratch, std::int64_t r,
                             std::int64_t rows, const Block<B>& block, NextBlock& next,
                             const Drop& drop) {
  const std::int64_t dim = padded(tile.head_dim);
  KeyRange ranges[kScoreRows];
  tile.visible(r, rows, block.first, ranges);
  const Product<B> scores = {scratch.q + r * dim, dim,       1,         block.keys, kKeyBlock,
                             scratch.scores,      kKeyBlock, &next.keys};
  product(scores, rows, false, [&](std::int64_t i, std::int64_t n) {
    return Part{floor_lanes(ranges[i].begin), ceil_lanes(ranges[i + n - 1].end), 0, tile.head_dim};
  });
  if (tile.softcap > 0.0f) cap_scores(ranges, rows, tile.softcap, scratch.scores);
  softmax_block(ranges, rows, scratch.scores, scratch.max + r, scratch.sum + r,
                scratch.out + r * dim, dim);
  drop(r, rows, block.first, ranges, scratch.scores);
  const std::int64_t columns = ceil_lanes(tile.head_dim);
  const auto add = [&](std::int64_t i, auto count) HWY_ATTR {
    const Product<B> p = {
        scratch.scores + i * kKeyBlock, kKeyBlock, 1,           block.values, block.stride,
        scratch.out + (r + i) * dim,    dim,       &next.values};
    add_values<decltype(count)::value>(p, columns, ranges + i);
  };
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) add(i, std::integral_constant<int, 4>());
  for (; i < rows; ++i) add(i, std::integral_constant<int, 1>());
}

// The prefetches of `count` elements, spread over `steps` steps.
template <typename T>
HWY_INLINE Ahead ahead(const T* first, std::int64_t count, std::int64_t steps) {
  const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
  // SAFETY: elements of a cache seen as bytes, which are prefetched, not read.
  const auto* const at = reinterpret_cast<const std::byte*>(first);
  return {at, at + bytes, ceil_div(bytes, 64 * steps) * 64};
}

// The prefetches of the block that begins at key `block`, for a tile that sees keys up to `last`.
// They are spread over the work of `rows` rows on the block before it. Only blocks of a cache are
// contiguous. A block with fewer than half of its keys is not prefetched, because the few keys are
// spread over all of it.
template <typename T>
HWY_INLINE NextBlock next_block(const Tile<T>& tile, std::int64_t block, std::int64_t last,
                                std::int64_t rows) {
  const std::int64_t keys = std::min(kKeyBlock, last + 1 - block);
  if (tile.pages == nullptr || 2 * keys < kKeyBlock) return {};
  const std::int64_t at = tile.place(block);
  const std::int64_t groups = ceil_div(rows, 4);  // About the groups of product().
  return {ahead(tile.keys + at, kKeyBlock * tile.head_dim, tile.head_dim * groups),
          ahead(tile.values + at, keys * tile.head_dim, kKeyBlock * groups)};
}

/// With at most this many rows in a tile, each row widens 16-bit keys and values itself. A copy in
/// f32 would cost more, because the product reads twice as much from it.
inline constexpr std::int64_t kWideningRows = 8;

/// Runs the tile's rows, whose queries are in scratch.q, over all keys that they see. The results
/// are scratch.out, max and sum. drop(row, rows, block, ranges, weights) may change the weights of
/// a few rows against one block.
template <typename T, typename Drop>
HWY_INLINE void attend(const Tile<T>& tile, const TileScratch& scratch, const Drop& drop) {
  constexpr bool kIsF32 = std::is_same_v<T, float>;
  const std::int64_t dim = tile.head_dim;
  zero(scratch.out, tile.rows * padded(dim));
  std::fill_n(scratch.max, tile.rows + kScoreRows, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch.sum, tile.rows + kScoreRows, 0.0f);
  const std::int64_t last = tile.last_key();
  for (std::int64_t first = first_visible_block(tile.position(0), tile.window); first <= last;
       first += kKeyBlock) {
    const std::int64_t begin = tile.first_row_that_sees(first);
    const std::int64_t end =
        tile.window > 0 ? tile.first_row_at(first + kKeyBlock - 1 + tile.window) : tile.rows;
    NextBlock next = next_block(tile, first + kKeyBlock, last, end - begin);
    const auto run = [&](const auto& block) HWY_ATTR {
      for (std::int64_t r = begin; r < end; r += kScoreRows) {
        attend_block(tile, scratch, r, std::min(kScoreRows, end - r), block, next, drop);
      }
    };
    const std::int64_t at = tile.place(first);
    const T* const keys = tile.keys + at;
    const T* const values = tile.values + at;
    // A cache is read in place if that costs no more than a copy. In decoding a copy would cost as
    // much as the products.
    const bool whole_vectors = dim % kLanes == 0;
    if (tile.pages != nullptr && whole_vectors && (kIsF32 || end - begin <= kWideningRows)) {
      run(Block<T>{keys, values, dim, first});
      continue;
    }
    const std::int64_t count = std::min(kKeyBlock, last + 1 - first);
    if (tile.pages != nullptr) {
      copy_rows(keys, kKeyBlock, dim, kKeyBlock, 1.0f, scratch.keys);
    } else if constexpr (kIsF32) {
      copy_transposed(keys, tile.stride, count, dim, scratch.keys);
    }
    copy_rows(values, tile.stride, count, dim, 1.0f, scratch.values);
    run(Block<float>{scratch.keys, scratch.values, padded(dim), first});
  }
}

}  // namespace attention
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_ATTENTION_TILE_INL_H_
