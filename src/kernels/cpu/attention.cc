// Attention over whole sequences, causal or not, for training. Threads share the tiles of query
// rows; attention_tile-inl.h describes how one tile is computed. [T, T] is never stored.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_blocks-inl.h"
#include "kernels/cpu/attention_tile-inl.h"
#include "kernels/cpu/dropout-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace attention {
namespace {

// The operands of one call.
struct Forward {
  QkvRows<const float> in;
  HeadRows<float> y;
  float* lse;  // [batch, heads, time]
  DropoutRule dropout;
  std::int64_t heads, kv_heads, group, time;
};

// Multiplies a row's weights by their dropout factors.
struct DropWeights {
  const Forward& call;
  std::int64_t batch, kv_head, first_row;

  void operator()(std::int64_t r, std::int64_t rows, std::int64_t block, const KeyRange* ranges,
                  float* weights) const {
    if (!call.dropout.on) return;
    const F32 d;
    float buffer[kKeyBlock + kDropoutSlack];
    QueryRow at(kv_head, call.group, first_row + r);
    for (std::int64_t i = 0; i < rows; ++i, weights += kKeyBlock, at.next()) {
      const std::int64_t row = (batch * call.heads + at.head()) * call.time + at.t;
      const auto element = static_cast<std::uint64_t>(row * call.time + block);
      const float* factors = dropout_factors(call.dropout, element, ranges[i].end, buffer);
      for (std::int64_t n = 0; n < ranges[i].end; n += kLanes) {
        hn::StoreU(hn::Mul(hn::LoadU(d, weights + n), hn::LoadU(d, factors + n)), d, weights + n);
      }
    }
  }
};

// Rows [first, first + rows) of one (batch entry, key/value head).
void forward_tile(const AttentionShape& shape, const Forward& call, std::int64_t batch,
                  std::int64_t kv_head, std::int64_t first, std::int64_t rows,
                  const TileScratch& scratch) {
  const std::int64_t dim = padded(shape.head_dim);
  QueryRow at(kv_head, call.group, first);
  for (std::int64_t r = 0; r < rows; ++r, at.next()) {
    copy_rows(call.in.q.at(batch, at.t, at.head()), 0, 1, shape.head_dim, shape.scale,
              scratch.q + r * dim);
  }
  const Tile<float> tile = {.keys = call.in.k.at(batch, 0, kv_head),
                            .values = call.in.v.at(batch, 0, kv_head),
                            .stride = call.in.k.stride,
                            .head_dim = shape.head_dim,
                            .rows = rows,
                            .first_row = first,
                            .first_position = 0,
                            .group = call.group,
                            .window = shape.window,
                            .softcap = shape.softcap,
                            .all_keys = shape.causal ? 0 : call.time};
  attend(tile, scratch, DropWeights{call, batch, kv_head, first});
  at = QueryRow(kv_head, call.group, first);
  for (std::int64_t r = 0; r < rows; ++r, at.next()) {
    store_rows(scratch.out + r * dim, 1, shape.head_dim, 1.0f / scratch.sum[r],
               call.y.at(batch, at.t, at.head()), 0);
    call.lse[(batch * call.heads + at.head()) * call.time + at.t] =
        scratch.max[r] + std::log(scratch.sum[r]);
  }
}

}  // namespace

void forward(const Attention& op, const Args& args, const Context& context) {
  const AttentionShape& shape = op.shape;
  const View& y = args.outputs[0];
  Forward call;
  call.in = qkv_rows<const float>(shape, args.inputs);
  call.heads = shape.heads;
  call.kv_heads = shape.kv_heads;
  call.group = group_size(shape);
  call.time = y.shape[1];
  call.y = {y.as<float>(), call.time, call.heads * shape.head_dim, shape.head_dim};
  call.lse = args.outputs[1].as<float>();
  call.dropout = dropout_rule(op.dropout, op.stream, args.inputs.back());
  const std::int64_t pairs = y.shape[0] * call.kv_heads;
  const std::int64_t rows = call.time * call.group;
  const std::int64_t tile_rows = rows_per_tile(context, pairs, rows);
  const std::int64_t tiles = ceil_div(rows, tile_rows);
  const std::int64_t floats = tile_floats(shape.head_dim, tile_rows);
  share_items(context, pairs * tiles, pairs * rows * call.time * shape.head_dim,
              [&](std::int64_t worker, std::int64_t item) {
                const std::int64_t pair = item / tiles;
                // The longest tiles come first, so that no worker begins a long one at the end.
                const std::int64_t first = (tiles - 1 - item % tiles) * tile_rows;
                const TileScratch scratch(worker_scratch(args, worker, floats), shape.head_dim,
                                          tile_rows);
                forward_tile(shape, call, pair / call.kv_heads, pair % call.kv_heads, first,
                             std::min(tile_rows, rows - first), scratch);
              });
}

}  // namespace attention
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

void run(const Attention& op, const Args& args, const Context& context) noexcept {
  if (args.outputs[0].shape.elements() == 0) return;
  VOLTA_SIMD_CALL(context.simd, attention::forward, op, args, context);
}

std::int64_t workspace_bytes(const Attention& op, const ArgShapes& shapes, const Context& context) {
  const Shape& y = shapes.outputs[0].shape;
  const std::int64_t rows = y[1] * attention::group_size(op.shape);
  return attention::scratch_bytes(
      context,
      attention::tile_floats(op.shape.head_dim,
                             attention::rows_per_tile(context, y[0] * op.shape.kv_heads, rows)));
}

}  // namespace volta::cpu
#endif
