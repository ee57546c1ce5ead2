// AttentionGrad: the gradients of q, k and v. The weights P = exp(scale q k^T - lse) are computed
// again, block by block (Dao et al. 2022, algorithm 4):
//   dV = P'^T dY,  dP = dY V^T,  dS = P (dP' - delta),  dQ = dS (scale K),  dK = dS^T (scale Q)
// With a soft cap c a score is c tanh(s / c) where s = scale q k^T, and dS is also multiplied by
// the slope 1 - tanh(s / c)^2. P' and dP' are P and dP times their dropout factors, and delta =
// rowsum(dY Y). One thread computes each sum, in a fixed order: dQ over key blocks, dK and dV over
// the group's heads, then over blocks of rows.
#include "kernels/cpu/attention_grad.h"

#include <algorithm>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_grad.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_blocks-inl.h"
#include "kernels/cpu/dropout-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace attention {
namespace {

// The operands of one call.
struct Backward {
  AttentionShape shape;
  QkvRows<const float> in;
  QkvRows<float> out;
  HeadRows<const float> y, dy;
  const float* lse;  // [batch, heads, time]
  DropoutRule dropout;
  std::int64_t group, time;
};

// The keys that row `t` sees in the block that begins at key `first`.
KeyRange keys_of(const Backward& call, std::int64_t t, std::int64_t first) {
  return visible_keys(call.shape.causal ? t : call.time - 1, call.shape.window, first);
}

// One block of keys of one key/value head, and one block of rows of one query head.
struct BlockPair {
  std::int64_t batch, kv_head, head;
  std::int64_t keys_at, keys;
  std::int64_t rows_at, rows;
};

// sum(a b) in a fixed order of lanes.
float dot(const float* a, const float* b, std::int64_t n) {
  const F32 d;
  V32 sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  }
  if (i < n) sum = hn::MulAdd(load_n(d, a + i, n - i), load_n(d, b + i, n - i), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// For one row: turns its scores into weights times dropout, and its dP into dS; zeros outside
// `range`.
template <bool kCapped>
void score_gradients(float lse, float delta, float softcap, KeyRange range, const float* factors,
                     float* weights, float* dscores) {
  const F32 d;
  const V32 shift = hn::Set(d, lse), deltas = hn::Set(d, delta), one = hn::Set(d, 1.0f);
  const V32 cap = hn::Set(d, softcap), inverse = hn::Set(d, kCapped ? 1.0f / softcap : 1.0f);
  for (std::int64_t n = 0; n < kKeyBlock; n += kLanes) {
    if (n + kLanes <= range.begin || n >= range.end) {
      hn::StoreU(hn::Zero(d), d, weights + n);
      hn::StoreU(hn::Zero(d), d, dscores + n);
      continue;
    }
    V32 score = hn::LoadU(d, weights + n), slope = one;
    if constexpr (kCapped) {
      const V32 t = tanh(d, hn::Mul(score, inverse));
      slope = hn::NegMulAdd(t, t, one);
      score = hn::Mul(t, cap);
    }
    V32 p = exp_weight(hn::Sub(score, shift));
    V32 dp = hn::LoadU(d, dscores + n);
    V32 kept = p;
    if (factors != nullptr) {
      const V32 factor = hn::LoadU(d, factors + n);
      kept = hn::Mul(p, factor);
      dp = hn::Mul(dp, factor);
    }
    V32 ds = hn::Mul(p, hn::Sub(dp, deltas));
    if constexpr (kCapped) ds = hn::Mul(ds, slope);
    if (!whole(n, range)) {
      const auto inside = in_range(n, range);
      kept = hn::IfThenElseZero(inside, kept);
      ds = hn::IfThenElseZero(inside, ds);
    }
    hn::StoreU(kept, d, weights + n);
    hn::StoreU(ds, d, dscores + n);
  }
}

// Fills weights and dscores for one pair of blocks. q, dy, k_columns and v_columns are in scratch.
void block_scores(const Backward& call, const BlockPair& pair, const GradScratch& scratch) {
  const AttentionShape& shape = call.shape;
  const std::int64_t dim = padded(shape.head_dim);
  const auto range_of = [&](std::int64_t i) {
    return keys_of(call, pair.rows_at + i, pair.keys_at);
  };
  const auto part = [&](std::int64_t i, std::int64_t n) {
    return Part{floor_lanes(range_of(i).begin), ceil_lanes(range_of(i + n - 1).end), 0,
                shape.head_dim};
  };
  product<float>({scratch.q, dim, 1, scratch.k_columns, kKeyBlock, scratch.weights, kKeyBlock},
                 pair.rows, false, part);
  product<float>({scratch.dy, dim, 1, scratch.v_columns, kKeyBlock, scratch.dscores, kKeyBlock},
                 pair.rows, false, part);
  float buffer[kKeyBlock + kDropoutSlack];
  for (std::int64_t i = 0; i < pair.rows; ++i) {
    const std::int64_t t = pair.rows_at + i;
    const std::int64_t row = (pair.batch * shape.heads + pair.head) * call.time + t;
    const float* factors = nullptr;
    if (call.dropout.on) {
      const auto element = static_cast<std::uint64_t>(row * call.time + pair.keys_at);
      factors = dropout_factors(call.dropout, element, range_of(i).end, buffer);
    }
    const float delta = dot(call.dy.at(pair.batch, t, pair.head),
                            call.y.at(pair.batch, t, pair.head), shape.head_dim);
    float* weights = scratch.weights + i * kKeyBlock;
    float* dscores = scratch.dscores + i * kKeyBlock;
    const float lse = call.lse[row];
    if (shape.softcap > 0.0f) {
      score_gradients<true>(lse, delta, shape.softcap, range_of(i), factors, weights, dscores);
    } else {
      score_gradients<false>(lse, delta, 0.0f, range_of(i), factors, weights, dscores);
    }
  }
}

// Adds one block of rows to the dK and dV of the key block, which are in scratch.
void add_key_values(const Backward& call, const BlockPair& pair, const GradScratch& scratch) {
  const std::int64_t dim = padded(call.shape.head_dim);
  const std::int64_t columns = ceil_lanes(call.shape.head_dim);
  const std::int64_t lag = pair.keys_at - pair.rows_at;
  const auto part = [&](std::int64_t i, std::int64_t n) {
    // From the first row that sees key i (its own, if causal) to the last row that sees key
    // i + n - 1.
    const std::int64_t first = call.shape.causal ? std::max<std::int64_t>(0, i + lag) : 0;
    const std::int64_t last = call.shape.window > 0
                                  ? std::min(pair.rows, i + n - 1 + lag + call.shape.window)
                                  : pair.rows;
    return Part{0, columns, first, last};
  };
  product<float>({scratch.weights, 1, kKeyBlock, scratch.dy, dim, scratch.dv, dim}, pair.keys, true,
                 part);
  product<float>({scratch.dscores, 1, kKeyBlock, scratch.q, dim, scratch.dk, dim}, pair.keys, true,
                 part);
}

// Adds the key block to the dQ of the block of rows, which is in scratch.
void add_queries(const Backward& call, const BlockPair& pair, const GradScratch& scratch) {
  const std::int64_t dim = padded(call.shape.head_dim);
  product<float>({scratch.dscores, kKeyBlock, 1, scratch.k, dim, scratch.dq, dim}, pair.rows, true,
                 [&](std::int64_t i, std::int64_t n) {
                   return Part{0, ceil_lanes(call.shape.head_dim),
                               keys_of(call, pair.rows_at + i, pair.keys_at).begin,
                               keys_of(call, pair.rows_at + i + n - 1, pair.keys_at).end};
                 });
}

void load_key_block(const Backward& call, const BlockPair& pair, const GradScratch& scratch) {
  const std::int64_t dim = call.shape.head_dim;
  const float* k = call.in.k.at(pair.batch, pair.keys_at, pair.kv_head);
  const float* v = call.in.v.at(pair.batch, pair.keys_at, pair.kv_head);
  copy_rows(k, call.in.k.stride, pair.keys, dim, call.shape.scale, scratch.k);
  copy_transposed(k, call.in.k.stride, pair.keys, dim, scratch.k_columns);
  copy_transposed(v, call.in.v.stride, pair.keys, dim, scratch.v_columns);
}

void load_row_block(const Backward& call, const BlockPair& pair, const GradScratch& scratch) {
  const std::int64_t dim = call.shape.head_dim;
  copy_rows(call.in.q.at(pair.batch, pair.rows_at, pair.head), call.in.q.stride, pair.rows, dim,
            call.shape.scale, scratch.q);
  copy_rows(call.dy.at(pair.batch, pair.rows_at, pair.head), call.dy.stride, pair.rows, dim, 1.0f,
            scratch.dy);
}

// dK and dV of one key block and, with `queries`, its part of the dQ of all rows that see it. Key
// blocks must then come in order, because the first one that a row block sees initialises its dQ.
void key_block_gradients(const Backward& call, BlockPair pair, bool queries,
                         const GradScratch& scratch) {
  const AttentionShape& shape = call.shape;
  const std::int64_t block = kKeyBlock * padded(shape.head_dim);
  load_key_block(call, pair, scratch);
  zero(scratch.dk, block);
  zero(scratch.dv, block);
  const std::int64_t seen_until =
      shape.window > 0 ? std::min(call.time, pair.keys_at + pair.keys - 1 + shape.window)
                       : call.time;
  for (std::int64_t g = 0; g < call.group; ++g) {
    pair.head = pair.kv_head * call.group + g;
    pair.rows_at = shape.causal ? pair.keys_at : 0;
    for (; pair.rows_at < seen_until; pair.rows_at += kRowBlock) {
      pair.rows = std::min(kRowBlock, call.time - pair.rows_at);
      load_row_block(call, pair, scratch);
      block_scores(call, pair, scratch);
      add_key_values(call, pair, scratch);
      if (!queries) continue;
      float* dq = call.out.q.at(pair.batch, pair.rows_at, pair.head);
      if (first_visible_block(pair.rows_at, shape.window) == pair.keys_at) {
        zero(scratch.dq, block);
      } else {
        copy_rows<float>(dq, call.out.q.stride, pair.rows, shape.head_dim, 1.0f, scratch.dq);
      }
      add_queries(call, pair, scratch);
      store_rows(scratch.dq, pair.rows, shape.head_dim, 1.0f, dq, call.out.q.stride);
    }
  }
  store_rows(scratch.dk, pair.keys, shape.head_dim, 1.0f,
             call.out.k.at(pair.batch, pair.keys_at, pair.kv_head), call.out.k.stride);
  store_rows(scratch.dv, pair.keys, shape.head_dim, 1.0f,
             call.out.v.at(pair.batch, pair.keys_at, pair.kv_head), call.out.v.stride);
}

// dQ of one block of rows of one head, over all key blocks that it sees. The bits are the same as
// above.
void row_block_gradients(const Backward& call, BlockPair pair, const GradScratch& scratch) {
  const AttentionShape& shape = call.shape;
  load_row_block(call, pair, scratch);
  zero(scratch.dq, kRowBlock * padded(shape.head_dim));
  const std::int64_t keys_end = shape.causal ? pair.rows_at + pair.rows : call.time;
  for (pair.keys_at = first_visible_block(pair.rows_at, shape.window); pair.keys_at < keys_end;
       pair.keys_at += kKeyBlock) {
    pair.keys = std::min(kKeyBlock, call.time - pair.keys_at);
    load_key_block(call, pair, scratch);
    block_scores(call, pair, scratch);
    add_queries(call, pair, scratch);
  }
  store_rows(scratch.dq, pair.rows, shape.head_dim, 1.0f,
             call.out.q.at(pair.batch, pair.rows_at, pair.head), call.out.q.stride);
}

// A whole (batch entry, key/value head).
void pair_gradients(const Backward& call, BlockPair pair, const GradScratch& scratch) {
  for (pair.keys_at = 0; pair.keys_at < call.time; pair.keys_at += kKeyBlock) {
    pair.keys = std::min(kKeyBlock, call.time - pair.keys_at);
    key_block_gradients(call, pair, true, scratch);
  }
}

// Item `item` of one (batch entry, key/value head) that is split: first its key blocks, then the
// row blocks of its query heads.
void split_gradients(const Backward& call, BlockPair pair, std::int64_t item,
                     const GradScratch& scratch) {
  const std::int64_t blocks = ceil_div(call.time, kKeyBlock);
  if (item < blocks) {
    pair.keys_at = item * kKeyBlock;
    pair.keys = std::min(kKeyBlock, call.time - pair.keys_at);
    key_block_gradients(call, pair, false, scratch);
    return;
  }
  pair.head = pair.kv_head * call.group + (item - blocks) / blocks;
  pair.rows_at = (item - blocks) % blocks * kRowBlock;
  pair.rows = std::min(kRowBlock, call.time - pair.rows_at);
  row_block_gradients(call, pair, scratch);
}

Backward backward_operands(const AttentionGrad& op, const Args& args) {
  const AttentionShape& shape = op.shape;
  const auto rest = args.inputs.subspan(qkv_views(shape));  // y, lse, dy, rng.
  Backward call;
  call.shape = shape;
  call.in = qkv_rows<const float>(shape, args.inputs);
  call.out = qkv_rows<float>(shape, args.outputs);
  call.time = rest[0].shape[1];
  const std::int64_t stride = std::int64_t{shape.heads} * shape.head_dim;
  call.y = {rest[0].as<const float>(), call.time, stride, shape.head_dim};
  call.lse = rest[1].as<const float>();
  call.dy = {rest[2].as<const float>(), call.time, stride, shape.head_dim};
  call.dropout = dropout_rule(op.dropout, op.stream, args.inputs.back());
  call.group = group_size(shape);
  return call;
}

}  // namespace

void backward(const AttentionGrad& op, const Args& args, const Context& context) {
  const AttentionShape& shape = op.shape;
  const Backward call = backward_operands(op, args);
  const std::int64_t pairs = args.inputs[0].shape[0] * shape.kv_heads;
  const bool split = should_split(pairs, context.pool->threads());
  const std::int64_t blocks = ceil_div(call.time, kKeyBlock);
  const std::int64_t items = split ? blocks * (1 + call.group) : 1;
  const std::int64_t floats = grad_floats(shape.head_dim);
  const std::int64_t work = pairs * call.group * call.time * call.time * shape.head_dim * 5 / 2;
  share_items(context, pairs * items, work, [&](std::int64_t worker, std::int64_t item) {
    const GradScratch scratch(worker_scratch(args, worker, floats), shape.head_dim);
    const std::int64_t pair = item / items;
    BlockPair at = {};
    at.batch = pair / shape.kv_heads;
    at.kv_head = pair % shape.kv_heads;
    if (split) {
      split_gradients(call, at, item % items, scratch);
    } else {
      pair_gradients(call, at, scratch);
    }
  });
}

}  // namespace attention
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

void run(const AttentionGrad& op, const Args& args, const Context& context) noexcept {
  if (args.inputs[0].shape.elements() == 0) return;
  VOLTA_SIMD_CALL(context.simd, attention::backward, op, args, context);
}

std::int64_t workspace_bytes(const AttentionGrad& op, const ArgShapes&, const Context& context) {
  return attention::scratch_bytes(context, attention::grad_floats(op.shape.head_dim));
}

}  // namespace volta::cpu
#endif
