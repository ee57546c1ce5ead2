// What the attention kernels share that is not vector code: the layout of operands in memory, the
// keys that a row sees, the scratch of a worker, and the distribution of work. It must not know
// instruction sets.
//
// All of them follow one scheme (Dao et al. 2022; online softmax of Milakov & Gimelshein 2018).
// Keys are taken in order, in blocks of kKeyBlock counted from position 0 of the sequence. A query
// row carries its running maximum, its running sum and its unnormalised output from block to block.
// Within a block a score is summed over head_dim one product after another, and the output over
// keys one after another, in vector lanes that never mix. So a row's bits do not depend on which
// rows are computed with it, and prefill, decode and training agree.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/arithmetic.h"
#include "base/parallel.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

namespace volta::cpu::attention {

/// The number of keys between two corrections of the running maximum. It is part of what defines a
/// row's bits.
inline constexpr std::int64_t kKeyBlock = kAttentionKeyBlock;
/// Query rows of one work item: enough to pay for the transposition of each key block.
inline constexpr std::int64_t kTileRows = 128;
/// Query rows whose scores against one key block are held at once (4 KiB).
inline constexpr std::int64_t kScoreRows = 16;
/// Rows in scratch are padded to this many floats: a whole number of vectors on every ISA.
inline constexpr std::int64_t kPad = 16;
/// With fewer multiply-adds a second thread costs more than it saves.
inline constexpr std::int64_t kInlineWork = 64 * 1024;

constexpr std::int64_t padded(std::int64_t n) { return round_up(n, kPad); }

/// Heads in rows of [batch, time, stride]; T is float or const float.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t time = 0;      ///< Rows per batch entry.
  std::int64_t stride = 0;    ///< Elements from one row to the next.
  std::int64_t head_dim = 0;  ///< Elements of a head.

  T* at(std::int64_t batch, std::int64_t t, std::int64_t head) const {
    return data + (batch * time + t) * stride + head * head_dim;
  }
};

template <typename T>
struct QkvRows {
  HeadRows<T> q, k, v;
};

/// The q, k and v (or dq, dk and dv) that `views` begins with: one packed view, or three.
template <typename T>
QkvRows<T> qkv_rows(const AttentionShape& shape, std::span<const View> views) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t time = views[0].shape[1];
  const std::int64_t q_width = shape.heads * dim;
  const std::int64_t kv_width = shape.kv_heads * dim;
  if (shape.packed) {
    const std::int64_t stride = q_width + 2 * kv_width;
    T* data = views[0].as<T>();
    return {{data, time, stride, dim},
            {data + q_width, time, stride, dim},
            {data + q_width + kv_width, time, stride, dim}};
  }
  return {{views[0].as<T>(), time, q_width, dim},
          {views[1].as<T>(), time, kv_width, dim},
          {views[2].as<T>(), time, kv_width, dim}};
}

/// Rows of one sequence, with its heads side by side, that are copied to a page of T.
template <typename T>
struct AppendedRows {
  const float* from;
  std::int64_t stride;  ///< From a row to the next.
  std::int64_t count, heads, head_dim;
  T* to;                   ///< The place of the first row of the first head.
  std::int64_t to_stride;  ///< From a head to the next.
};

/// The number of views that q, k and v take together.
constexpr std::size_t qkv_views(const AttentionShape& shape) { return shape.packed ? 1 : 3; }

/// Query heads that share one key/value head.
constexpr std::int64_t group_size(const AttentionShape& shape) {
  return shape.heads / shape.kv_heads;
}

/// Walks over the query rows of a key/value head, in the order (time, head of the group).
struct QueryRow {
  QueryRow(std::int64_t kv_head, std::int64_t group_size, std::int64_t row)
      : first_head(kv_head * group_size), group(group_size), t(row / group), g(row % group) {}
  std::int64_t head() const { return first_head + g; }
  void next() {
    if (++g == group) g = 0, ++t;
  }
  std::int64_t first_head, group, t, g;
};

/// Keys [begin, end) of a block that a row sees, counted from the block's first key.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The keys that the row at `position` sees in the block that begins at key `first`; `window` as in
/// AttentionShape.
constexpr KeyRange visible_keys(std::int64_t position, std::int64_t window, std::int64_t first) {
  const std::int64_t begin = window > 0 ? position - window + 1 - first : 0;
  return {std::clamp<std::int64_t>(begin, 0, kKeyBlock),
          std::clamp<std::int64_t>(position + 1 - first, 0, kKeyBlock)};
}

/// The first key of the first block in which the row at `position` sees any key.
constexpr std::int64_t first_visible_block(std::int64_t position, std::int64_t window) {
  const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, position - window + 1) : 0;
  return first / kKeyBlock * kKeyBlock;
}

/// The new rows of a step, and the pages of their sequences: the inputs that KvAppend and
/// CachedAttention take after the caches.
struct PagedRows {
  const std::int32_t* positions;
  const std::int32_t* sequences;
  const std::int32_t* table;    ///< [tables, blocks]
  std::int64_t count;           ///< How many rows count; they are the first ones.
  std::int64_t tables, blocks;  ///< The number of tables, and the length of a table.
  std::int64_t pages;           ///< Of the caches.

  /// The table of a row's sequence. The row must be placed().
  const std::int32_t* table_of(std::int64_t row) const { return table + sequences[row] * blocks; }
  /// Whether a row's sequence has a table, and its position is in the table.
  bool placed(std::int64_t row) const {
    return sequences[row] >= 0 && sequences[row] < tables && positions[row] >= 0 &&
           positions[row] < blocks * kKeyBlock;
  }
  /// Whether block `block` of a placed row's sequence has a page.
  bool has_page(std::int64_t row, std::int64_t block) const {
    const std::int32_t page = table_of(row)[block];
    return page >= 0 && page < pages;
  }
  /// Whether a row directly follows the one before it, in the same sequence.
  bool follows(std::int64_t row) const {
    return sequences[row] == sequences[row - 1] &&
           std::int64_t{positions[row]} == std::int64_t{positions[row - 1]} + 1;
  }
};

/// `views` are cache_k, cache_v, positions, sequences, rows and table. A number of rows that is out
/// of range is reported and clamped.
inline PagedRows paged_rows(const Context& context, std::span<const View> views) {
  const std::int64_t all = views[2].shape[0], rows = *views[4].as<const std::int32_t>();
  if (rows < 0 || rows > all) report_bad_index(context, 0);
  return {.positions = views[2].as<const std::int32_t>(),
          .sequences = views[3].as<const std::int32_t>(),
          .table = views[5].as<const std::int32_t>(),
          .count = std::clamp<std::int64_t>(rows, 0, all),
          .tables = views[5].shape[0],
          .blocks = views[5].shape[1],
          .pages = views[0].shape[0]};
}

/// Hands out pieces of one worker's scratch. Each piece begins on a cache line.
class Scratch {
 public:
  explicit Scratch(float* at) : at_(at) {}
  float* take(std::int64_t floats) {
    float* piece = at_;
    at_ += padded(floats);
    return piece;
  }

 private:
  float* at_;
};

/// Scratch of a worker that runs attend() on tiles of at most `rows` rows: see TileScratch.
constexpr std::int64_t tile_floats(std::int64_t head_dim, std::int64_t rows) {
  const std::int64_t dim = padded(head_dim);
  return 2 * rows * dim + 2 * padded(rows + kScoreRows) + kScoreRows * kKeyBlock +
         2 * kKeyBlock * dim;
}

/// The arrays of one tile in a worker's scratch. Rows of q and out are padded(head_dim) long.
struct TileScratch {
  TileScratch(float* at, std::int64_t head_dim, std::int64_t rows) {
    Scratch scratch(at);
    const std::int64_t dim = padded(head_dim);
    q = scratch.take(rows * dim);
    out = scratch.take(rows * dim);
    max = scratch.take(rows + kScoreRows);
    sum = scratch.take(rows + kScoreRows);
    scores = scratch.take(kScoreRows * kKeyBlock);
    keys = scratch.take(kKeyBlock * dim);
    values = scratch.take(kKeyBlock * dim);
  }
  float* q;       ///< [rows, dim]
  float* out;     ///< [rows, dim], not yet divided by sum
  float* max;     ///< [rows + kScoreRows], of the scaled scores so far
  float* sum;     ///< [rows + kScoreRows], of exp(score - max)
  float* scores;  ///< [kScoreRows, kKeyBlock]
  float* keys;    ///< [head_dim, kKeyBlock]: one block, transposed
  float* values;  ///< [kKeyBlock, dim]: one block
};

/// Rows per work item if each of `pairs` (batch entry, key/value head) has `rows` query rows. They
/// are few enough that every worker gets several items. This does not change the result.
inline std::int64_t rows_per_tile(const Context& context, std::int64_t pairs, std::int64_t rows) {
  const std::int64_t workers = context.pool->threads();
  std::int64_t tile = std::min(rows, kTileRows);
  while (workers > 1 && tile > 2 * kScoreRows && pairs * ceil_div(rows, tile) < 3 * workers) {
    tile = padded(tile / 2);
  }
  return tile;
}

/// A piece of CachedAttention's work: query rows [first_query, first_query + queries) of the
/// consecutive rows of a sequence that begin with row `first_row`; see QueryRow.
struct CachedTile {
  std::int64_t first_row;
  std::int64_t first_query;
  std::int64_t queries;
};

/// The most tiles that `rows` rows can make, which are `queries` query rows per key/value head.
/// Each run of rows that follow each other ends with a tile that may not be full.
constexpr std::int64_t most_tiles(std::int64_t rows, std::int64_t queries, std::int64_t tile_rows) {
  return rows + (tile_rows > 0 ? queries / tile_rows : 0);
}

/// Runs fn(worker, item) once for every item. Workers are numbered below the pool's number of
/// threads. Each takes the next item when it has finished one, so items may differ in cost. `work`
/// is the number of multiply-adds of all items; little work stays on this thread.
template <typename Fn>
void share_items(const Context& context, std::int64_t items, std::int64_t work, const Fn& fn) {
  const std::int64_t threads = work <= kInlineWork ? 1 : context.pool->threads();
  const std::int64_t workers = std::min(threads, items);
  std::atomic<std::int64_t> next = 0;
  parallel_chunks(*context.pool, workers, [&](std::int64_t worker) {
    for (;;) {
      const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= items) return;
      fn(worker, item);
    }
  });
}

/// Scratch bytes for every worker of the pool.
inline std::int64_t scratch_bytes(const Context& context, std::int64_t floats_per_worker) {
  return context.pool->threads() * padded(floats_per_worker) *
         static_cast<std::int64_t>(sizeof(float));
}

/// The scratch of one worker, in a workspace of scratch_bytes().
inline float* worker_scratch(const Args& args, std::int64_t worker,
                             std::int64_t floats_per_worker) {
  // SAFETY: the workspace is 64-byte aligned raw storage of scratch_bytes(); floats are implicitly
  // created in it, and no two workers have the same number.
  return reinterpret_cast<float*>(args.workspace.data()) + worker * padded(floats_per_worker);
}

}  // namespace volta::cpu::attention
