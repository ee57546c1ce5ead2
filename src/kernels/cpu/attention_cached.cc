// CachedAttention: attention of new tokens to the keys and values in their sequences' pages. Rows
// that follow each other in a sequence share tiles, so that prompts and decoding use the same code:
// see attention_tile-inl.h. Keys and values after the last position that a row sees, up to the end
// of its page, may be read but are not used.
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
  PagedRows rows;
  std::int64_t kv_heads, group;
};

// Groups the rows of a call into tiles, writes them to `tiles` and returns their number. Padding
// rows and rows with a missing page get results of 0; a missing page is also reported.
std::int64_t find_tiles(const AttentionShape& shape, const Cached& call, std::int64_t tile_rows,
                        CachedTile* tiles, std::int64_t& work, const Context& context) {
  const PagedRows& rows = call.rows;
  const auto clear = [&](std::int64_t row) {
    std::fill_n(call.y.at(0, row, 0), call.y.stride, 0.0f);
  };
  const auto readable = [&](std::int64_t row) {
    if (!rows.placed(row)) return false;
    const std::int64_t position = rows.positions[row];
    std::int64_t block = first_visible_block(position, shape.window) / kKeyBlock;
    for (; block <= position / kKeyBlock; ++block) {
      if (!rows.has_page(row, block)) return false;
    }
    return true;
  };
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows.count;) {
    if (!readable(row)) {
      report_bad_index(context, row);
      clear(row++);
      continue;
    }
    const std::int64_t first = row++;
    // Apart from its own page, a row sees only pages that the row before it sees, too.
    while (row < rows.count && rows.follows(row) && rows.placed(row) &&
           rows.has_page(row, rows.positions[row] / kKeyBlock)) {
      ++row;
    }
    const std::int64_t keys = rows.positions[row - 1] + std::int64_t{1};
    const std::int64_t seen = shape.window > 0 ? shape.window + row - first : keys;
    work += (row - first) * std::min(keys, seen) * shape.heads * shape.head_dim;
    const std::int64_t queries = (row - first) * call.group;
    for (std::int64_t query = 0; query < queries; query += tile_rows) {
      tiles[count++] = {first, query, std::min(tile_rows, queries - query)};
    }
  }
  for (std::int64_t row = rows.count; row < call.y.time; ++row) clear(row);
  return count;
}

template <typename T>
void run_tile(const AttentionShape& shape, const Cached& call, const CachedTile& part,
              std::int64_t kv_head, const TileScratch& scratch) {
  const std::int64_t dim = padded(shape.head_dim);
  QueryRow at(kv_head, call.group, part.first_query);
  for (std::int64_t r = 0; r < part.queries; ++r, at.next()) {
    copy_rows(call.q.at(0, part.first_row + at.t, at.head()), 0, 1, shape.head_dim, shape.scale,
              scratch.q + r * dim);
  }
  const std::int64_t head = kKeyBlock * std::int64_t{shape.head_dim};
  const Tile<T> tile = {.keys = call.cache_k.as<const T>() + kv_head * head,
                        .values = call.cache_v.as<const T>() + kv_head * head,
                        .stride = shape.head_dim,
                        .head_dim = shape.head_dim,
                        .rows = part.queries,
                        .first_row = part.first_query,
                        .first_position = call.rows.positions[part.first_row],
                        .group = call.group,
                        .window = shape.window,
                        .softcap = shape.softcap,
                        .pages = call.rows.table_of(part.first_row),
                        .page_stride = call.kv_heads * head};
  attend(tile, scratch, KeepAll());
  at = QueryRow(kv_head, call.group, part.first_query);
  for (std::int64_t r = 0; r < part.queries; ++r, at.next()) {
    store_rows(scratch.out + r * dim, 1, shape.head_dim, 1.0f / scratch.sum[r],
               call.y.at(0, part.first_row + at.t, at.head()), 0);
  }
}

template <typename T>
void cached_items(const CachedAttention& op, const Args& args, const Context& context) {
  const AttentionShape& shape = op.shape;
  const View& y = args.outputs[0];
  const auto rest = args.inputs.subspan(1);  // After q, or qkv.
  const std::int64_t time = y.shape[0];
  const Cached call = {
      .q = {args.inputs[0].as<const float>(), time, args.inputs[0].shape[1], shape.head_dim},
      .y = {y.as<float>(), time, y.shape[1], shape.head_dim},
      .cache_k = rest[0],
      .cache_v = rest[1],
      .rows = paged_rows(context, rest),
      .kv_heads = shape.kv_heads,
      .group = group_size(shape)};
  const std::int64_t tile_rows = rows_per_tile(context, call.kv_heads, time * call.group);
  const std::int64_t floats = tile_floats(shape.head_dim, tile_rows);
  // SAFETY: the workspace holds most_tiles() of them behind the workers' scratch, whose size is a
  // multiple of 64 bytes; trivial objects are implicitly created in it.
  auto* const tiles =
      reinterpret_cast<CachedTile*>(args.workspace.data() + scratch_bytes(context, floats));
  std::int64_t work = 0;
  const std::int64_t count = find_tiles(shape, call, tile_rows, tiles, work, context);
  share_items(
      context, count * call.kv_heads, 2 * work, [&](std::int64_t worker, std::int64_t item) {
        // From the last tile on, because the later tiles of a prompt see more keys and take longer.
        const CachedTile& part = tiles[count - 1 - item / call.kv_heads];
        const TileScratch scratch(worker_scratch(args, worker, floats), shape.head_dim, tile_rows);
        run_tile<T>(shape, call, part, item % call.kv_heads, scratch);
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
  const std::int64_t time = shapes.outputs[0].shape[0];
  const std::int64_t queries = time * attention::group_size(op.shape);
  const std::int64_t tile_rows = attention::rows_per_tile(context, op.shape.kv_heads, queries);
  return attention::scratch_bytes(context, attention::tile_floats(op.shape.head_dim, tile_rows)) +
         attention::most_tiles(time, queries, tile_rows) *
             static_cast<std::int64_t>(sizeof(attention::CachedTile));
}

}  // namespace volta::cpu
#endif
