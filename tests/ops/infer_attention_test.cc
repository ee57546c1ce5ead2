// infer of rotations, attention and its caches: what they accept, and every refusal.
#include <gtest/gtest.h>

#include <limits>

#include "ops/infer_fixture.h"
#include "ops/op_texts.h"
#include "ops/rules.h"

namespace volta {
namespace {

using test::kInf;
using test::kNan;
using test::Specs;

class InferAttention : public test::Infer {};

TEST_F(InferAttention, Rope) {
  const Rope op = {.heads = 2, .head_dim = 4};
  accepts({
      {op, {f32({3, 5, 8}), i32({3, 5}), f32({16, 4})}, {f32({3, 5, 8})}},
      {op, {f32({3, 5, 12}), i32({5}), f32({16, 2})}, {f32({3, 5, 12})}},
      {op, {f32({8}), i32(Shape()), f32({16, 2})}, {f32({8})}},
      {op, {bf16({5, 8}), i32({5}), f32({16, 4})}, {bf16({5, 8})}},
  });
  refuses({
      {op, {f32({5, 8}), i32({5})}, "expected 3 inputs"},
      {op, {i32({5, 8}), i32({5}), f32({16, 4})}, "x of type f32"},
      {op, {f32({5, 8}), i64({5}), f32({16, 4})}, "positions of type i32"},
      {op, {f32({5, 8}), i32({5}), bf16({16, 4})}, "table of type f32"},
      {Rope{.heads = 0, .head_dim = 4},
       {f32({5, 8}), i32({5}), f32({16, 4})},
       "heads and head_dim of at least 1"},
      {Rope{.heads = 1, .head_dim = 0},
       {f32({5, 8}), i32({5}), f32({16, 4})},
       "heads and head_dim of at least 1"},
      {op, {f32({5, 10}), i32({5}), f32({16, 4})}, "whole heads"},
      {Rope{.heads = 3, .head_dim = 4}, {f32({5, 8}), i32({5}), f32({16, 4})}, "whole heads"},
      {op, {f32({5, 8}), i32({4}), f32({16, 4})}, "positions like x"},
      {op, {f32({5, 8}), i32({2, 5}), f32({16, 4})}, "positions like x"},
      {op, {f32({5, 8}), i32({5}), f32({16, 3})}, "an even rotary"},
      {op, {f32({5, 8}), i32({5}), f32({16, 6})}, "an even rotary"},
      {op, {f32({5, 8}), i32({5}), f32({4})}, "an even rotary"},
  });
}

TEST_F(InferAttention, AttentionAccepts) {
  const AttentionShape split = {.heads = 4, .kv_heads = 2, .head_dim = 3};
  AttentionShape packed = split;
  packed.packed = true;
  const TensorSpec q = f32({2, 5, 12}), kv = f32({2, 5, 6}), qkv = f32({2, 5, 24});
  const TensorSpec lse = f32({2, 4, 5});
  accepts({
      {Attention{split}, {q, kv, kv}, {q, lse}},
      {Attention{packed}, {qkv}, {q, lse}},
      {Attention{packed, 0.1f}, {qkv, rng_spec()}, {q, lse}},
      {Attention{split, 0.1f}, {q, kv, kv, rng_spec()}, {q, lse}},
      {AttentionGrad{split}, {q, kv, kv, q, lse, q}, {q, kv, kv}},
      {AttentionGrad{packed, 0.5f}, {qkv, q, lse, q, rng_spec()}, {qkv}},
      {Attention{packed}, {bf16({2, 5, 24})}, {bf16({2, 5, 12}), lse}},
      {AttentionGrad{packed},
       {bf16({2, 5, 24}), bf16({2, 5, 12}), lse, bf16({2, 5, 12})},
       {bf16({2, 5, 24})}},
  });
}

TEST_F(InferAttention, AttentionRefuses) {
  const AttentionShape split = {.heads = 4, .kv_heads = 2, .head_dim = 3};
  AttentionShape packed = split;
  packed.packed = true;
  const auto with = [&](auto change) {
    AttentionShape shape = split;
    change(shape);
    return Attention{shape};
  };
  const TensorSpec q = f32({2, 5, 12}), kv = f32({2, 5, 6}), qkv = f32({2, 5, 24});
  const TensorSpec lse = f32({2, 4, 5});
  const Specs good = {q, kv, kv};
  refuses({
      {with([](auto& s) { s.heads = 0; }), good, "from 1 to 2^20"},
      {with([](auto& s) { s.kv_heads = -1; }), good, "from 1 to 2^20"},
      {with([](auto& s) { s.head_dim = std::numeric_limits<std::int32_t>::max(); }), good,
       "from 1 to 2^20"},
      {with([](auto& s) { s.kv_heads = 3; }), good, "heads to be a multiple of kv_heads"},
      {with([](auto& s) { s.window = -1; }), good, "a window of at least 0"},
      {with([](auto& s) { s.causal = false, s.window = 3; }), good,
       "causal attention if there is a window"},
      {with([](auto& s) { s.softcap = -1.0f; }), good, "a finite softcap of at least 0"},
      {with([](auto& s) { s.softcap = kInf; }), good, "a finite softcap of at least 0"},
      {with([](auto& s) { s.scale = kNan; }), good, "a finite scale"},
      {Attention{split, 1.0f}, {q, kv, kv, rng_spec()}, "dropout in [0, 1)"},
      {Attention{split}, {q, kv}, "expected 3 inputs"},
      {Attention{packed}, good, "expected 1 inputs"},
      {Attention{split, 0.5f}, good, "expected 4 inputs"},
      {Attention{split}, {i32({2, 5, 12}), kv, kv}, "q of type f32, bf16 or f16"},
      {Attention{packed}, {i32({2, 5, 24})}, "qkv of type f32, bf16 or f16"},
      {Attention{split}, {bf16({2, 5, 12}), kv, kv}, "k bf16[2, 5, 6]"},
      {AttentionGrad{packed}, {bf16({2, 5, 24}), bf16({2, 5, 12}), lse, q}, "dy bf16[2, 5, 12]"},
      {AttentionGrad{packed},
       {bf16({2, 5, 24}), bf16({2, 5, 12}), bf16({2, 4, 5}), bf16({2, 5, 12})},
       "lse f32[2, 4, 5]"},
      {Attention{packed}, {f32({5, 24})}, "inputs [batch, time, width]"},
      {Attention{packed}, {f32({2, 5, 23})}, "qkv f32[2, 5, 24]"},
      {Attention{split}, {f32({2, 5, 13}), kv, kv}, "q f32[2, 5, 12]"},
      {Attention{split}, {q, f32({2, 4, 6}), kv}, "k f32[2, 5, 6]"},
      {Attention{split}, {q, kv, q}, "v f32[2, 5, 6]"},
      {Attention{packed, 0.5f}, {qkv, i32({2})}, "rng i64[2]"},
      {AttentionGrad{with([](auto& s) { s.heads = 0; }).shape}, {q}, "from 1 to 2^20"},
      {AttentionGrad{split, -1.0f}, {q}, "dropout in [0, 1)"},
      {AttentionGrad{split}, {q, kv, kv}, "expected 6 inputs"},
      {AttentionGrad{packed}, {f32({2, 5, 23}), q, lse, q}, "qkv f32[2, 5, 24]"},
      {AttentionGrad{packed}, {qkv, kv, lse, q}, "y f32[2, 5, 12]"},
      {AttentionGrad{packed}, {qkv, q, f32({2, 5, 4}), q}, "lse f32[2, 4, 5]"},
      {AttentionGrad{packed}, {qkv, q, lse, kv}, "dy f32[2, 5, 12]"},
      {AttentionGrad{packed, 0.5f}, {qkv, q, lse, q, i64({3})}, "rng i64[2]"},
  });
}

TEST_F(InferAttention, Caches) {
  const AttentionShape split = {.heads = 4, .kv_heads = 2, .head_dim = 3};
  AttentionShape packed = split;
  packed.packed = true;
  AttentionShape broken = split;
  broken.kv_heads = 3;
  AttentionShape both_ways = split;
  both_ways.causal = false;
  const TensorSpec q = f32({5, 12}), kv = f32({5, 6}), qkv = f32({5, 24});
  const TensorSpec k = bf16({7, 2, 3, 64}), v = bf16({7, 2, 64, 3});
  const TensorSpec n = i32({5}), r = i32({1}), t = i32({2, 4});
  accepts({
      {KvAppend{packed}, {qkv, k, v, n, n, r, t}, {}},
      {KvAppend{split}, {kv, kv, k, v, n, n, r, t}, {}},
      {CachedAttention{packed}, {qkv, k, v, n, n, r, t}, {q}},
      {CachedAttention{split}, {q, k, v, n, n, r, t}, {q}},
      {KvAppend{split}, {bf16({5, 6}), bf16({5, 6}), k, v, n, n, r, t}, {}},
      {CachedAttention{split}, {bf16({5, 12}), k, v, n, n, r, t}, {bf16({5, 12})}},
  });
  refuses({
      {KvAppend{broken}, {kv, kv, k, v, n, n, r, t}, "a multiple of kv_heads"},
      {KvAppend{both_ways}, {kv, kv, k, v, n, n, r, t}, "a cache has no later keys"},
      {CachedAttention{both_ways}, {q, k, v, n, n, r, t}, "a cache has no later keys"},
      {KvAppend{packed}, {kv, kv, k, v, n, n, r, t}, "expected 7 inputs"},
      {KvAppend{split}, {f32({6}), kv, k, v, n, n, r, t}, "rows [tokens, width]"},
      {KvAppend{split}, {q, kv, k, v, n, n, r, t}, "k f32[5, 6]"},
      {KvAppend{split}, {kv, bf16({5, 6}), k, v, n, n, r, t}, "v f32[5, 6]"},
      {KvAppend{split}, {n, kv, k, v, n, n, r, t}, "rows of type f32, bf16 or f16"},
      {KvAppend{split}, {kv, q, k, v, n, n, r, t}, "v f32[5, 6]"},
      {KvAppend{packed}, {q, k, v, n, n, r, t}, "qkv f32[5, 24]"},
      {KvAppend{packed}, {qkv, n, v, n, n, r, t}, "cache_k of type f32, bf16 or f16"},
      {KvAppend{packed}, {qkv, f32({7, 3, 3, 64}), v, n, n, r, t}, "cache_k [pages, kv_heads"},
      {KvAppend{packed}, {qkv, v, v, n, n, r, t}, "cache_k [pages, kv_heads, head_dim, 64]"},
      {KvAppend{packed}, {qkv, bf16({7, 2, 3, 32}), v, n, n, r, t}, "cache_k [pages"},
      {KvAppend{packed}, {qkv, k, f32({7, 2, 64, 3}), n, n, r, t}, "cache_v bf16[7, 2, 64, 3]"},
      {KvAppend{packed}, {qkv, k, bf16({8, 2, 64, 3}), n, n, r, t}, "cache_v bf16[7, 2, 64, 3]"},
      {KvAppend{packed}, {qkv, k, v, i32({3}), n, r, t}, "positions i32[5]"},
      {KvAppend{packed}, {qkv, k, v, n, i64({5}), r, t}, "sequences i32[5]"},
      {KvAppend{packed}, {qkv, k, v, n, n, n, t}, "rows i32[1]"},
      {KvAppend{packed}, {qkv, k, v, n, n, r, r}, "table [sequences, blocks]"},
      {KvAppend{packed}, {qkv, k, v, n, n, r, f32({2, 4})}, "table of type i32"},
      {CachedAttention{broken}, {q, k, v, n, n, r, t}, "a multiple of kv_heads"},
      {CachedAttention{split}, {q, k, v, n, n, r}, "expected 7 inputs"},
      {CachedAttention{split}, {qkv, k, v, n, n, r, t}, "q f32[5, 12]"},
      {CachedAttention{packed}, {q, k, v, n, n, r, t}, "qkv f32[5, 24]"},
      {CachedAttention{split}, {q, k, v, n, i32({1}), r, t}, "sequences i32[5]"},
  });
}

}  // namespace
}  // namespace volta
