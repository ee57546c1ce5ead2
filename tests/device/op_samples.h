// Small calls of many ops with valid inputs, for tests of devices that do not depend on the op.
// What must hold for every op is tested with the op cases (tests/ops/op_case.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "device/helpers.h"

namespace volta::test {

struct OpSample {
  Op op;
  std::vector<Tensor> inputs;
};

/// f32 values in (-1, 1) that look random and are the same everywhere.
inline Tensor wave(const Shape& shape, float phase = 0.0f) {
  std::vector<float> out(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::sin(1.7f * static_cast<float>(i) + phase) * 0.9f;
  }
  return floats(shape, out);
}
inline Tensor positive_wave(const Shape& shape) {
  std::vector<float> out = values(wave(shape));
  for (float& value : out) value = 1.0f + value * value;
  return floats(shape, out);
}
inline Tensor rng_key() {
  return *Tensor::from_values<std::int64_t>(Shape(2), std::vector<std::int64_t>{42, 3});
}

// Reads are shared, writes happen to a fresh copy: each call of op_samples() makes new tensors.
inline std::vector<OpSample> op_samples() {
  const AttentionShape heads = {.heads = 4, .kv_heads = 2, .head_dim = 8, .scale = 0.35f};
  AttentionShape packed = heads;
  packed.packed = true;
  const Shape rows(2, 3);     // B, T
  const Shape q(2, 3, 32);    // B, T, heads head_dim
  const Shape kv(2, 3, 16);   // B, T, kv_heads head_dim
  const Shape all(2, 3, 64);  // B, T, (heads + 2 kv_heads) head_dim
  // Five new tokens of two sequences, which have a page each.
  const Shape new_q(6, 32), new_kv(6, 16);
  const Shape keys = key_cache_shape(3, 2, 8), values = value_cache_shape(3, 2, 8);
  const Tensor positions = ints(Shape(6), {0, 1, 2, 5, 6, 0});
  const Tensor sequences = ints(Shape(6), {0, 0, 0, 1, 1, 0});
  const Tensor valid = ints(Shape(1), {5});
  const Tensor table = ints(Shape(2, 1), {2, 0});
  const Tensor stats = floats(Shape(3), {1.0f, 0.5f, 1.0f});
  const Tensor schedule = floats(Shape(3), {0.01f, 0.1f, 0.001f});
  const Tensor targets = ints(Shape(4), {0, 8, -1, 3});
  return {
      {MatMul{}, {wave(Shape(5, 40)), wave(Shape(40, 33), 1)}},
      {MatMul{.transpose_b = true,
              .has_bias = true,
              .has_residual = true,
              .activation = Activation::kGelu},
       {wave(Shape(5, 40)), wave(Shape(33, 40), 1), wave(Shape(33), 2), wave(Shape(5, 33), 3)}},
      {MatMul{.transpose_a = true}, {wave(Shape(7, 5)), wave(Shape(7, 6), 1)}},
      {MatMul{.batched = true}, {wave(Shape(2, 4, 9)), wave(Shape(2, 9, 5), 1)}},
      {Unary{UnaryKind::kGeluTanh}, {wave(Shape(3, 19))}},
      {UnaryGrad{UnaryKind::kSilu}, {wave(Shape(3, 19)), wave(Shape(3, 19), 1)}},
      {Binary{BinaryKind::kDiv}, {wave(Shape(3, 19)), positive_wave(Shape(19))}},
      {Reduce{ReduceKind::kSum, 1, 2}, {wave(Shape(3, 19, 5))}},
      {Expand{Shape(3, 4, 5), 1, 0.5f}, {wave(Shape(3, 5))}},
      {Reshape{Shape(4, 6)}, {wave(Shape(2, 12))}},
      {Permute{{1, 2, 0}}, {wave(Shape(2, 3, 4))}},
      {Slice{1, 2, 3}, {wave(Shape(4, 7))}},
      {Pad{1, 2, 1}, {wave(Shape(4, 3))}},
      {Cast{DType::kF16}, {wave(Shape(21))}},
      {Encode{}, {wave(Shape(21, 5))}},
      {Embedding{}, {wave(Shape(9, 12)), ints(Shape(5), {8, 0, 3, 3, 1})}},
      {EmbeddingGrad{9}, {ints(Shape(5), {8, 0, 3, 3, 1}), wave(Shape(5, 12))}},
      {Norm{NormKind::kLayer, true}, {wave(Shape(4, 24)), wave(Shape(24), 1), wave(Shape(24), 2)}},
      {NormGrad{NormKind::kRms},
       {wave(Shape(4, 24)), wave(Shape(24), 1), positive_wave(Shape(4, 2)), wave(Shape(4, 24), 2)}},
      {GatedUnit{}, {wave(Shape(4, 10)), wave(Shape(4, 10), 1)}},
      {GatedUnitGrad{}, {wave(Shape(4, 10)), wave(Shape(4, 10), 1), wave(Shape(4, 10), 2)}},
      {Softmax{2.0f}, {wave(Shape(4, 21))}},
      {SoftmaxGrad{2.0f}, {positive_wave(Shape(4, 21)), wave(Shape(4, 21), 1)}},
      {Rope{.heads = 4, .head_dim = 8},
       {wave(q), ints(rows, {0, 1, 2, 1, 2, 3}), wave(Shape(6, 8), 1)}},
      {Attention{.shape = packed, .dropout = 0.25f, .stream = 7}, {wave(all), rng_key()}},
      {Attention{.shape = heads}, {wave(q), wave(kv, 1), wave(kv, 2)}},
      {AttentionGrad{.shape = heads},
       {wave(q), wave(kv, 1), wave(kv, 2), wave(q, 3), positive_wave(Shape(2, 4, 3)), wave(q, 4)}},
      {KvAppend{heads},
       {wave(new_kv), wave(new_kv, 1), wave(keys, 2), wave(values, 3), positions, sequences, valid,
        table}},
      {CachedAttention{heads},
       {wave(new_q), wave(keys, 1), wave(values, 2), positions, sequences, valid, table}},
      {CrossEntropy{}, {wave(Shape(4, 9)), targets}},
      {CrossEntropyGrad{},
       {wave(Shape(4, 9)), targets, positive_wave(Shape(4)), wave(Shape(4), 1)}},
      {CrossEntropyGrad{.with_loss = true}, {wave(Shape(4, 9)), targets, wave(Shape(4), 1)}},
      {Dropout{0.5f, 3}, {wave(Shape(5, 17)), rng_key()}},
      {GlobalNorm{1.0f}, {wave(Shape()), wave(Shape(40)), wave(Shape(3, 5), 1)}},
      {AdamW{.weight_decay = 0.1f},
       {wave(Shape(40)), wave(Shape(40), 1), wave(Shape(40), 2), positive_wave(Shape(40)), schedule,
        stats}},
      {Sgd{.momentum = 0.9f},
       {wave(Shape(40)), wave(Shape(40), 1), wave(Shape(40), 2), schedule, stats}},
      {Accumulate{0.5f}, {wave(Shape(40)), wave(Shape(40), 1)}},
      {Fill{2.5f}, {wave(Shape(40))}},
      {Argmax{}, {wave(Shape(4, 21))}},
      {Sample{3},
       {wave(Shape(2, 21)),
        floats(Shape(2, kSampleParams),
               {0, 0, 1, 0, 1, 0.2f, 0.1f, 0.8f, 5, 0.9f, 0.05f, 1.1f, 0, 0.5f}),
        *Tensor::from_values<std::int64_t>(Shape(2, 2), std::vector<std::int64_t>{1, 0, 2, 5}),
        ints(Shape(2, 2, 21), std::vector<std::int32_t>(84, 0)), ints(Shape(2), {1, 0})}},
  };
}

}  // namespace volta::test
