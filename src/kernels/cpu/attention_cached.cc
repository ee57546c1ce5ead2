// CachedAttention: rows of new tokens against the keys and values cached so far. One path for
// prefill (many rows) and decode (one row): see attention_tile-inl.h. What lies behind the last
// position that a row sees, to the end of its block at most, is read but not used.
#include <algorithm>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_cached.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_tile-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace attention {
namespace {

// The operands of one call.
struct Cached {
  HeadRows<const float> q;
  HeadRows<float> y;
  View cache_k, cache_v;  // See KvAppend.
  std::int64_t kv_heads, group, capacity;
  std::int64_t positions;  // That the caches serve: more than the capacity with a ring.
};

// Rows [first, first + rows) of one (sequence, key/value head); those of times outside `times` are
// set to zero.
template <typename T>
void cached_tile(const AttentionShape& shape, const Cached& call, std::int64_t sequence,
                 std::int64_t kv_head, CachedTimes times, std::int64_t first, std::int64_t rows,
                 const TileScratch& scratch) {
  const std::int64_t dim = padded(shape.head_dim);
  const std::int64_t begin = std::clamp(times.begin * call.group, first, first + rows);
  const std::int64_t end = std::clamp(times.end * call.group, begin, first + rows);
  QueryRow at(kv_head, call.group, first);
  for (std::int64_t row = first; row < first + rows; ++row, at.next()) {
    if (row >= begin && row < end) {
      copy_rows(call.q.at(sequence, at.t, at.head()), 0, 1, shape.head_dim, shape.scale,
                scratch.q + (row - begin) * dim);
    } else {
      std::fill_n(call.y.at(sequence, at.t, at.head()), shape.head_dim, 0.0f);
    }
  }
  if (begin == end) return;
  const std::int64_t offset = (sequence * call.kv_heads + kv_head) * call.capacity * shape.head_dim;
  const Tile<T> tile = {.keys = call.cache_k.as<const T>() + offset,
                        .values = call.cache_v.as<const T>() + offset,
                        .stride = shape.head_dim,
                        .head_dim = shape.head_dim,
                        .rows = end - begin,
                        .first_row = begin,
                        .first_position = times.start,
                        .group = call.group,
                        .window = shape.window,
                        .cache = true,
                        .ring = shape.ring ? call.capacity : 0};
  attend(tile, scratch, KeepAll());
  at = QueryRow(kv_head, call.group, begin);
  for (std::int64_t r = 0; r < end - begin; ++r, at.next()) {
    store_rows(scratch.out + r * dim, 1, shape.head_dim, 1.0f / scratch.sum[r],
               call.y.at(sequence, at.t, at.head()), 0);
  }
}

template <typename T>
void cached_items(const CachedAttention& op, const Args& args, const Context& context) {
  const AttentionShape& shape = op.shape;
  const View* const rest = args.inputs.data() + 1;  // After q, or qkv: caches, start, count.
  const View& y = args.outputs[0];
  const std::int64_t sequences = y.shape[0], time = y.shape[1];
  Cached call;
  const std::int64_t q_width = args.inputs[0].shape[2];
  call.q = {args.inputs[0].as<const float>(), time, q_width, shape.head_dim};
  call.y = {y.as<float>(), time, std::int64_t{shape.heads} * shape.head_dim, shape.head_dim};
  call.cache_k = rest[0];
  call.cache_v = rest[1];
  call.kv_heads = shape.kv_heads;
  call.group = group_size(shape);
  call.capacity = call.cache_v.shape[2];
  call.positions = cached_positions(shape, call.capacity);
  const std::int32_t* start = rest[2].as<const std::int32_t>();
  const std::int32_t* count = rest[3].as<const std::int32_t>();
  std::int64_t work = 0;
  for (std::int64_t s = 0; s < sequences; ++s) {
    const CachedTimes times = cached_times(context, start, count, s, time, call.positions);
    const std::int64_t keys = std::min(times.start + times.end, call.capacity);
    work += (times.end - times.begin) * keys * shape.heads * shape.head_dim;
  }
  const std::int64_t rows = time * call.group;
  const std::int64_t pairs = sequences * call.kv_heads;
  const std::int64_t tile_rows = rows_per_tile(context, pairs, rows);
  const std::int64_t tiles = ceil_div(rows, tile_rows);
  const std::int64_t floats = tile_floats(shape.head_dim, tile_rows);
  share_items(context, pairs * tiles, 2 * work, [&](std::int64_t worker, std::int64_t item) {
    const std::int64_t pair = item / tiles;
    const std::int64_t sequence = pair / call.kv_heads;
    const std::int64_t first = (tiles - 1 - item % tiles) * tile_rows;  // The longest first.
    const TileScratch scratch(worker_scratch(args, worker, floats), shape.head_dim, tile_rows);
    cached_tile<T>(shape, call, sequence, pair % call.kv_heads,
                   cached_times(context, start, count, sequence, time, call.positions), first,
                   std::min(tile_rows, rows - first), scratch);
  });
}

}  // namespace

void cached(const CachedAttention& op, const Args& args, const Context& context) {
  visit_float(args.inputs[1].dtype,
              [&](auto element) { cached_items<decltype(element)>(op, args, context); });
}

}  // namespace attention
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

void run(const CachedAttention& op, const Args& args, const Context& context) noexcept {
  if (args.outputs[0].shape.elements() == 0) return;
  VOLTA_SIMD_CALL(context.simd, attention::cached, op, args, context);
}

std::int64_t workspace_bytes(const CachedAttention& op, const ArgShapes& shapes,
                             const Context& context) {
  const Shape& y = shapes.outputs[0].shape;
  const std::int64_t rows = y[1] * attention::group_size(op.shape);
  return attention::scratch_bytes(
      context,
      attention::tile_floats(op.shape.head_dim,
                             attention::rows_per_tile(context, y[0] * op.shape.kv_heads, rows)));
}

}  // namespace volta::cpu
#endif
