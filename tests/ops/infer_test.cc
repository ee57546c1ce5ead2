// infer: what every op accepts and gives, and every refusal with its message. Attention and its
// caches: infer_attention_test.cc.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <vector>

#include "ops/infer_fixture.h"
#include "ops/op_texts.h"
#include "ops/rules.h"

namespace volta {
namespace {

using test::Infer;
using test::kInf;
using test::kNan;
using test::Specs;
TEST_F(Infer, RefusalsReadWell) {
  const auto result = infer(MatMul{.transpose_b = true}, Specs{f32({2, 3}), bf16({5, 4})});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(),
            "MatMul{transpose_b} of (f32[2, 3], bf16[5, 4]): expected equal inner sizes, not 3 in "
            "a and 4 in b");
}

TEST_F(Infer, SizesAreCheckedBeforeAnythingElse) {
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  refuses({
      {Unary{}, {f32(Shape(kHuge, kHuge))}, "larger than the largest tensor"},
      {Unary{}, {f32(Shape(-1))}, "negative dimension"},
      {Unary{}, {f32(Shape(3, 0))}, "is empty"},
      {EmbeddingGrad{std::int64_t{1} << 50}, {i32({2}), f32({2, 4})}, "a result of a sane size"},
      {MatMul{.transpose_a = true},
       {f32({1, std::int64_t{1} << 40}), f32({1, std::int64_t{1} << 40})},
       "a result of a sane size"},
      {Expand{Shape(4, 0), 1}, {f32({4})}, "a result of a sane size"},
  });
}

TEST_F(Infer, MatMulAccepts) {
  accepts({
      {MatMul{}, {f32({2, 3}), f32({3, 5})}, {f32({2, 5})}},
      {MatMul{}, {f32({4, 2, 3}), bf16({3, 5})}, {f32({4, 2, 5})}},
      {MatMul{.transpose_b = true}, {bf16({2, 3}), bf16({5, 3})}, {f32({2, 5})}},
      {MatMul{.transpose_a = true}, {f32({4, 2, 3}), f32({8, 5})}, {f32({3, 5})}},
      {MatMul{.transpose_a = true}, {f32({4, 2, 3}), f32({4, 2, 5})}, {f32({3, 5})}},
      {MatMul{.transpose_a = true, .transpose_b = true}, {f32({3, 2}), f32({5, 3})}, {f32({2, 5})}},
      {MatMul{.batched = true}, {f32({7, 2, 3}), f32({7, 3, 5})}, {f32({7, 2, 5})}},
      {MatMul{.transpose_a = true, .transpose_b = true, .batched = true},
       {f32({6, 7, 3, 2}), f32({6, 7, 5, 3})},
       {f32({6, 7, 2, 5})}},
      {MatMul{.has_bias = true, .has_residual = true, .activation = Activation::kGelu},
       {f32({4, 2, 3}), f32({3, 5}), f32({5}), f32({4, 2, 5})},
       {f32({4, 2, 5})}},
      {MatMul{.has_residual = true}, {f32({2, 3}), f32({3, 5}), f32({2, 5})}, {f32({2, 5})}},
      {MatMul{.has_bias = true, .has_residual = true, .out = DType::kBF16},
       {bf16({2, 3}), bf16({3, 5}), f32({5}), bf16({2, 5})},
       {bf16({2, 5})}},
      {MatMul{.out = DType::kF16}, {f32({2, 3}), bf16({3, 5})}, {f16({2, 5})}},
  });
}

TEST_F(Infer, MatMulRefuses) {
  refuses({
      {MatMul{}, {f32({2, 3})}, "expected 2 inputs"},
      {MatMul{.has_bias = true}, {f32({2, 3}), f32({3, 5})}, "expected 3 inputs"},
      {MatMul{}, {i32({2, 3}), f32({3, 5})}, "a of type f32, bf16 or f16"},
      {MatMul{}, {f32({2, 3}), i32({3, 5})}, "b of type f32, bf16 or f16"},
      {MatMul{}, {f32({3}), f32({3, 5})}, "a of rank 2 or more"},
      {MatMul{}, {f32({2, 3}), f32({1, 3, 5})}, "b of rank 2"},
      {MatMul{.transpose_a = true}, {f32({3, 2}), f32({3})}, "b of rank 2 or more"},
      {MatMul{}, {f32({2, 3}), f32({4, 5})}, "not 3 in a and 4 in b"},
      {MatMul{.transpose_a = true}, {f32({2, 3}), f32({3, 5})}, "not 2 in a and 3 in b"},
      {MatMul{.has_bias = true}, {f32({2, 3}), f32({3, 5}), f32({2})}, "expected bias f32[5]"},
      {MatMul{.has_bias = true}, {f32({2, 3}), f32({3, 5}), bf16({5})}, "expected bias f32[5]"},
      {MatMul{.has_residual = true},
       {f32({2, 3}), f32({3, 5}), f32({5})},
       "expected residual f32[2, 5]"},
      {MatMul{.has_residual = true, .out = DType::kBF16},
       {bf16({2, 3}), bf16({3, 5}), f32({2, 5})},
       "expected residual bf16[2, 5]"},
      {MatMul{.out = DType::kI32}, {f32({2, 3}), f32({3, 5})}, "a result of type f32, bf16 or f16"},
      {MatMul{.batched = true}, {f32({2, 3}), f32({3, 5})}, "same rank, at least 3"},
      {MatMul{.batched = true}, {f32({7, 2, 3}), f32({3, 5})}, "same rank, at least 3"},
      {MatMul{.batched = true}, {f32({7, 2, 3}), f32({6, 3, 5})}, "same leading axes"},
      {MatMul{.batched = true, .has_bias = true},
       {f32({7, 2, 3}), f32({7, 3, 5}), f32({5})},
       "no bias, activation or residual"},
      {MatMul{.batched = true, .activation = Activation::kRelu},
       {f32({7, 2, 3}), f32({7, 3, 5})},
       "no bias, activation or residual"},
      {MatMul{.activation = UnaryKind::kExp},
       {f32({2, 3}), f32({3, 5})},
       "an activation: none, relu, gelu, gelu_tanh or silu"},
  });
}

TEST_F(Infer, Pointwise) {
  accepts({
      {Unary{UnaryKind::kGelu}, {f32({2, 3})}, {f32({2, 3})}},
      {Unary{UnaryKind::kScale, 2.0f}, {f32({})}, {f32({})}},
      {UnaryGrad{UnaryKind::kTanh}, {f32({4}), f32({4})}, {f32({4})}},
      {Binary{}, {f32({2, 3, 4}), f32({3, 4})}, {f32({2, 3, 4})}},
      {Binary{}, {f32({2, 3}), f32({})}, {f32({2, 3})}},
      {Binary{}, {f32({2, 3}), f32({1, 1, 1})}, {f32({2, 3})}},
      {GatedUnit{}, {f32({2, 3}), f32({2, 3})}, {f32({2, 3})}},
      {GatedUnitGrad{}, {f32({2}), f32({2}), f32({2})}, {f32({2}), f32({2})}},
      {Dropout{0.5f, 1}, {f32({2}), rng_spec()}, {f32({2})}},
      {Cast{DType::kBF16}, {f32({2})}, {bf16({2})}},
      {Cast{DType::kF16}, {bf16({2})}, {{DType::kF16, Shape(2)}}},
      {Cast{DType::kF32}, {i32({2})}, {f32({2})}},
      {Cast{DType::kI64}, {f32({2})}, {i64({2})}},
      {Unary{UnaryKind::kGelu}, {bf16({2, 3})}, {bf16({2, 3})}},
      {UnaryGrad{UnaryKind::kTanh}, {f16({4}), f16({4})}, {f16({4})}},
      {Binary{}, {bf16({2, 3, 4}), bf16({3, 4})}, {bf16({2, 3, 4})}},
      {GatedUnit{}, {bf16({2, 3}), bf16({2, 3})}, {bf16({2, 3})}},
      {GatedUnitGrad{}, {f16({2}), f16({2}), f16({2})}, {f16({2}), f16({2})}},
      {Dropout{0.5f, 1}, {bf16({2}), rng_spec()}, {bf16({2})}},
  });
  refuses({
      {Unary{}, {}, "expected 1 inputs (x), not 0"},
      {Unary{}, {i32({2})}, "x of type f32, bf16 or f16"},
      {UnaryGrad{}, {bf16({2}), f32({2})}, "dy like x: bf16[2]"},
      {Binary{}, {bf16({2}), f32({2})}, "y of type bf16"},
      {Binary{}, {f32({2}), bf16({2})}, "y of type f32"},
      {GatedUnit{}, {bf16({2}), f32({2})}, "up bf16[2]"},
      {GatedUnitGrad{}, {bf16({2}), bf16({2}), f32({2})}, "dy bf16[2]"},
      {Unary{UnaryKind::kScale, kNan}, {f32({2})}, "a finite alpha"},
      {UnaryGrad{}, {f32({2})}, "expected 2 inputs"},
      {UnaryGrad{}, {i32({2}), f32({2})}, "x of type f32"},
      {UnaryGrad{}, {f32({2}), f32({3})}, "dy like x: f32[2]"},
      {UnaryGrad{UnaryKind::kScale, kInf}, {f32({2}), f32({2})}, "a finite alpha"},
      {Binary{}, {f32({2})}, "expected 2 inputs"},
      {Binary{}, {i32({2}), f32({2})}, "x of type f32"},
      {Binary{}, {f32({2}), i32({2})}, "y of type f32"},
      {Binary{}, {f32({2, 3}), f32({2})}, "the last axes of x"},
      {Binary{}, {f32({3}), f32({2, 3})}, "the last axes of x"},
      {GatedUnit{}, {f32({2})}, "expected 2 inputs"},
      {GatedUnit{}, {i32({2}), f32({2})}, "gate of type f32"},
      {GatedUnit{}, {f32({2}), f32({3})}, "up f32[2]"},
      {GatedUnit{UnaryKind::kScale}, {f32({2}), f32({2})}, "an activation: none, relu"},
      {GatedUnitGrad{UnaryKind::kLog}, {f32({2}), f32({2}), f32({2})}, "an activation: none, relu"},
      {GatedUnitGrad{}, {f32({2}), f32({2})}, "expected 3 inputs"},
      {GatedUnitGrad{}, {i32({2}), f32({2}), f32({2})}, "gate of type f32"},
      {GatedUnitGrad{}, {f32({2}), f32({3}), f32({2})}, "up f32[2]"},
      {GatedUnitGrad{}, {f32({2}), f32({2}), f32({1})}, "dy f32[2]"},
      {Dropout{}, {f32({2})}, "expected 2 inputs"},
      {Dropout{}, {i32({2}), rng_spec()}, "x of type f32"},
      {Dropout{}, {f32({2}), i32({2})}, "rng i64[2]"},
      {Dropout{1.0f}, {f32({2}), rng_spec()}, "p in [0, 1)"},
      {Dropout{-0.1f}, {f32({2}), rng_spec()}, "p in [0, 1)"},
      {Dropout{kNan}, {f32({2}), rng_spec()}, "p in [0, 1)"},
      {Encode{}, {}, "expected 1 inputs"},
      {Encode{}, {i32({2, 3})}, "x"},
      {Encode{}, {f32({2})}, "a matrix"},
      {Encode{{Packing::kPanels, true, 0}}, {f32({2, 3})}, "panels, of 1 to"},
      {Encode{{.quant = Quant::kQ4K, .block = 256}}, {f32({256, 3})}, "that Volta rounds to"},
      {Encode{{.quant = Quant::kQ6K, .block = 128}}, {f32({256, 3})}, "that Volta rounds to"},
      {Cast{}, {}, "expected 1 inputs"},
      {Cast{DType::kI32}, {bf16({2})}, "between an integer and f32"},
      {Cast{DType::kI32}, {i64({2})}, "between an integer and f32"},
  });
}

TEST_F(Infer, ReduceAndExpand) {
  accepts({
      {Reduce{ReduceKind::kSum, 0, 1}, {f32({2, 3, 4})}, {f32({3, 4})}},
      {Reduce{ReduceKind::kMean, 1, 3}, {f32({2, 3, 4})}, {f32({2})}},
      {Reduce{ReduceKind::kMax, 0, 3}, {f32({2, 3, 4})}, {f32(Shape())}},
      {Expand{Shape(2, 3, 4), 0}, {f32({3, 4})}, {f32({2, 3, 4})}},
      {Expand{Shape(2, 3, 4), 1}, {f32({2})}, {f32({2, 3, 4})}},
      {Expand{Shape(5), 0, 2.0f}, {f32(Shape())}, {f32({5})}},
      {Expand{Shape(5), 1}, {f32({5})}, {f32({5})}},
      {Reduce{ReduceKind::kSum, 0, 1}, {bf16({2, 3})}, {f32({3})}},
      {Expand{Shape(2, 3, 4), 0}, {bf16({3, 4})}, {bf16({2, 3, 4})}},
  });
  refuses({
      {Reduce{}, {}, "expected 1 inputs"},
      {Reduce{ReduceKind::kSum, 0, 1}, {i32({2})}, "x of type f32"},
      {Reduce{ReduceKind::kSum, 0, 0}, {f32({2})}, "axes 0 <= begin < end"},
      {Reduce{ReduceKind::kSum, -1, 1}, {f32({2})}, "axes 0 <= begin < end"},
      {Reduce{ReduceKind::kSum, 0, 2}, {f32({2})}, "axes 0 <= begin < end"},
      {Reduce{ReduceKind::kSum, 0, 1}, {f32(Shape())}, "axes 0 <= begin < end"},
      {Expand{}, {}, "expected 1 inputs"},
      {Expand{Shape(2)}, {i32({2})}, "x of type f32"},
      {Expand{Shape(2), 0, kInf}, {f32({2})}, "a finite scale"},
      {Expand{Shape(2), 0}, {f32({2, 2})}, "without the added axes"},
      {Expand{Shape(2, 3), -1}, {f32({3})}, "without the added axes"},
      {Expand{Shape(2, 3), 2}, {f32({3})}, "without the added axes"},
      {Expand{Shape(2, 3), 1}, {f32({3})}, "without the added axes"},
  });
}

TEST_F(Infer, Layout) {
  accepts({
      {Reshape{Shape(6)}, {i32({2, 3})}, {i32({6})}},
      {Reshape{Shape()}, {f32({1, 1})}, {f32(Shape())}},
      {Permute{{1, 2, 0}}, {bf16({2, 3, 4})}, {bf16({3, 4, 2})}},
      {Permute{}, {f32(Shape())}, {f32(Shape())}},
      {Slice{1, 2, 3}, {f32({2, 5})}, {f32({2, 3})}},
      {Slice{0, 1, 1}, {i64({2})}, {i64({1})}},
      {Pad{1, 2, 0}, {f32({2, 5})}, {f32({2, 7})}},
  });
  refuses({
      {Reshape{Shape(6)}, {}, "expected 1 inputs"},
      {Reshape{Shape(5)}, {f32({2, 3})}, "as many elements as x"},
      {Reshape{Shape(-2, -3)}, {f32({2, 3})}, "as many elements as x"},
      {Permute{}, {}, "expected 1 inputs"},
      {Permute{{0, 0}}, {f32({2, 3})}, "a permutation"},
      {Permute{{0, 2}}, {f32({2, 3})}, "a permutation"},
      {Permute{{-1, 0}}, {f32({2, 3})}, "a permutation"},
      {Slice{}, {}, "expected 1 inputs"},
      {Slice{2, 0, 1}, {f32({2, 3})}, "an axis of x"},
      {Slice{-1, 0, 1}, {f32({2, 3})}, "an axis of x"},
      {Slice{0, 0, 0}, {f32({2, 3})}, "inside the axis"},
      {Slice{0, -1, 1}, {f32({2, 3})}, "inside the axis"},
      {Slice{0, 1, 2}, {f32({2, 3})}, "inside the axis"},
      {Slice{0, std::numeric_limits<std::int64_t>::max(), 1}, {f32({2, 3})}, "inside the axis"},
      {Pad{}, {}, "expected 1 inputs"},
      {Pad{1, 0, 0}, {f32({2})}, "an axis of x"},
      {Pad{0, -1, 0}, {f32({2})}, "sane numbers of zeros"},
      {Pad{0, 0, -1}, {f32({2})}, "sane numbers of zeros"},
      {Pad{0, std::numeric_limits<std::int64_t>::max(), 0}, {f32({2})}, "sane numbers of zeros"},
      {Pad{0, 0, std::numeric_limits<std::int64_t>::max()}, {f32({2})}, "sane numbers of zeros"},
  });
}

TEST_F(Infer, Lookups) {
  accepts({
      {Embedding{}, {bf16({10, 4}), i32({2, 3})}, {f32({2, 3, 4})}},
      {Embedding{}, {f32({10, 4}), i32(Shape())}, {f32({4})}},
      {EmbeddingGrad{10}, {i32({2, 3}), f32({2, 3, 4})}, {f32({10, 4})}},
      {Embedding{DType::kBF16}, {f32({10, 4}), i32({2, 3})}, {bf16({2, 3, 4})}},
      {EmbeddingGrad{10}, {i32({2, 3}), bf16({2, 3, 4})}, {f32({10, 4})}},
  });
  refuses({
      {Embedding{}, {f32({10, 4})}, "expected 2 inputs"},
      {Embedding{DType::kI8}, {f32({10, 4}), i32({2})}, "a result of type f32, bf16 or f16"},
      {Embedding{}, {i32({10, 4}), i32({2})}, "table of type f32, bf16 or f16"},
      {Embedding{}, {f32({10}), i32({2})}, "table [rows, columns]"},
      {Embedding{}, {f32({10, 4}), i64({2})}, "ids of type i32"},
      {Embedding{}, {f32({10, 4}), i32({1, 1, 1, 1, 1, 1})}, "ids of rank 5"},
      {EmbeddingGrad{2}, {i32({2})}, "expected 2 inputs"},
      {EmbeddingGrad{2}, {f32({2}), f32({2, 4})}, "ids of type i32"},
      {EmbeddingGrad{2}, {i32({2}), i32({2, 4})}, "dy of type f32"},
      {EmbeddingGrad{2}, {i32({2}), f32(Shape())}, "dy with at least one axis"},
      {EmbeddingGrad{2}, {i32({2}), f32({3, 4})}, "dy with one row an id"},
      {EmbeddingGrad{0}, {i32({2}), f32({2, 4})}, "at least one row"},
  });
}

TEST_F(Infer, Norms) {
  const Norm layer = {NormKind::kLayer, true};
  const Norm rms = {NormKind::kRms, false};
  accepts({
      {layer, {f32({2, 3, 4}), f32({4}), bf16({4})}, {f32({2, 3, 4}), f32({6, 2})}},
      {rms, {f32({4}), bf16({4})}, {f32({4}), f32({1, 2})}},
      {NormGrad{NormKind::kLayer, true},
       {f32({2, 4}), f32({4}), f32({2, 2}), f32({2, 4})},
       {f32({2, 4}), f32({4}), f32({4})}},
      {NormGrad{NormKind::kRms, false},
       {f32({2, 4}), bf16({4}), f32({2, 2}), f32({2, 4})},
       {f32({2, 4}), f32({4})}},
      {Softmax{}, {f32({2, 4})}, {f32({2, 4})}},
      {SoftmaxGrad{}, {f32({2, 4}), f32({2, 4})}, {f32({2, 4})}},
      {rms, {bf16({2, 4}), f32({4})}, {bf16({2, 4}), f32({2, 2})}},
      {NormGrad{NormKind::kLayer, true},
       {bf16({2, 4}), f32({4}), f32({2, 2}), bf16({2, 4})},
       {bf16({2, 4}), f32({4}), f32({4})}},
      {Softmax{}, {bf16({2, 4})}, {bf16({2, 4})}},
      {SoftmaxGrad{}, {f16({2, 4}), f16({2, 4})}, {f16({2, 4})}},
  });
  refuses({
      {Norm{NormKind::kRms, true}, {f32({2, 4}), f32({4}), f32({4})}, "no bias in an RMS norm"},
      {Norm{NormKind::kLayer, false, 1e-5f, true},
       {f32({2, 4}), f32({4})},
       "plus_one in an RMS norm only"},
      {NormGrad{NormKind::kLayer, false, true},
       {f32({2, 4}), f32({4}), f32({2, 2}), f32({2, 4})},
       "plus_one in an RMS norm only"},
      {Norm{NormKind::kRms, false, 0.0f}, {f32({2, 4}), f32({4})}, "a finite eps above 0"},
      {Norm{NormKind::kRms, false, kInf}, {f32({2, 4}), f32({4})}, "a finite eps above 0"},
      {layer, {f32({2, 4}), f32({4})}, "expected 3 inputs"},
      {rms, {f32({2, 4})}, "expected 2 inputs"},
      {rms, {i32({2, 4}), f32({4})}, "x of type f32, bf16 or f16"},
      {NormGrad{NormKind::kRms, false},
       {bf16({2, 4}), f32({4}), bf16({2, 2}), bf16({2, 4})},
       "stats f32[2, 2]"},
      {NormGrad{NormKind::kRms, false},
       {bf16({2, 4}), f32({4}), f32({2, 2}), f32({2, 4})},
       "dy bf16[2, 4]"},
      {SoftmaxGrad{}, {bf16({2, 3}), f32({2, 3})}, "dy bf16[2, 3]"},
      {rms, {f32(Shape()), f32({1})}, "x with at least one axis"},
      {rms, {f32({2, 4}), i32({4})}, "weight of type f32, bf16 or f16"},
      {rms, {f32({2, 4}), f32({2})}, "weight [4]"},
      {layer, {f32({2, 4}), f32({4}), i32({4})}, "bias of type f32, bf16 or f16"},
      {layer, {f32({2, 4}), f32({4}), f32({1, 4})}, "bias shaped like weight"},
      {NormGrad{NormKind::kRms, true},
       {f32({2, 4}), f32({4}), f32({2, 2}), f32({2, 4})},
       "no bias in an RMS norm"},
      {NormGrad{}, {f32({2, 4}), f32({4})}, "expected 4 inputs"},
      {NormGrad{}, {f32({2, 4}), f32({3}), f32({2, 2}), f32({2, 4})}, "weight [4]"},
      {NormGrad{}, {f32({2, 4}), f32({4}), f32({2}), f32({2, 4})}, "stats f32[2, 2]"},
      {NormGrad{}, {f32({2, 4}), f32({4}), f32({2, 2}), f32({4})}, "dy f32[2, 4]"},
      {Softmax{}, {}, "expected 1 inputs"},
      {Softmax{}, {f32(Shape())}, "x with at least one axis"},
      {Softmax{kNan}, {f32({2})}, "a finite scale"},
      {SoftmaxGrad{}, {f32({2})}, "expected 2 inputs"},
      {SoftmaxGrad{}, {i32({2}), f32({2})}, "y of type f32"},
      {SoftmaxGrad{}, {f32({2}), f32({3})}, "dy f32[2]"},
      {SoftmaxGrad{kInf}, {f32({2}), f32({2})}, "a finite scale"},
  });
}

TEST_F(Infer, Losses) {
  accepts({
      {CrossEntropy{}, {f32({2, 3, 7}), i32({2, 3})}, {f32({2, 3}), f32({2, 3})}},
      {CrossEntropy{}, {f32({7}), i32(Shape())}, {f32(Shape()), f32(Shape())}},
      {CrossEntropyGrad{}, {f32({3, 7}), i32({3}), f32({3}), f32({3})}, {f32({3, 7})}},
      {CrossEntropy{}, {bf16({3, 7}), i32({3})}, {f32({3}), f32({3})}},
      {CrossEntropyGrad{}, {bf16({3, 7}), i32({3}), f32({3}), f32({3})}, {bf16({3, 7})}},
      {CrossEntropyGrad{.with_loss = true},
       {bf16({3, 7}), i32({3}), f32({3})},
       {bf16({3, 7}), f32({3})}},
  });
  refuses({
      {CrossEntropy{}, {f32({3, 7})}, "expected 2 inputs"},
      {CrossEntropy{}, {i32({3, 7}), i32({3})}, "logits of type f32, bf16 or f16"},
      {CrossEntropyGrad{}, {bf16({3, 7}), i32({3}), bf16({3}), f32({3})}, "lse f32[3]"},
      {CrossEntropy{}, {f32({3, 7}), i32({4})}, "targets i32[3]"},
      {CrossEntropyGrad{}, {f32({3, 7}), i32({3})}, "expected 4 inputs"},
      {CrossEntropyGrad{.with_loss = true},
       {f32({3, 7}), i32({3}), f32({3}), f32({3})},
       "expected 3 inputs"},
      {CrossEntropyGrad{.with_loss = true}, {f32({3, 7}), i32({3}), f32({7})}, "dloss f32[3]"},
      {CrossEntropyGrad{}, {f32({3, 7}), i64({3}), f32({3}), f32({3})}, "targets i32[3]"},
      {CrossEntropyGrad{}, {f32({3, 7}), i32({3}), f32({4}), f32({3})}, "lse f32[3]"},
      {CrossEntropyGrad{}, {f32({3, 7}), i32({3}), f32({3}), f32(Shape())}, "dloss f32[3]"},
  });
}

TEST_F(Infer, Optimizers) {
  const TensorSpec p = f32({4, 2}), three = f32({3});
  accepts({
      {GlobalNorm{1.0f}, {f32(Shape()), p, f32({9})}, {three}},
      {GlobalNorm{}, {f32({1})}, {three}},
      {AdamW{}, {p, p, p, p, three, three}, {}},
      {Sgd{}, {p, p, three, three}, {}},
      {Sgd{0.9f, 0.1f}, {p, p, p, three, three}, {}},
      {Accumulate{0.5f}, {p, p}, {}},
      {Fill{3.0f}, {p}, {}},
  });
  refuses({
      {GlobalNorm{}, {}, "a loss, then gradients"},
      {GlobalNorm{-1.0f}, {f32({1})}, "max_norm of at least 0"},
      {GlobalNorm{}, {bf16({1})}, "loss of type f32"},
      {GlobalNorm{}, {f32({1}), bf16({1})}, "gradients of type f32"},
      {GlobalNorm{}, {f32({2})}, "loss f32[] or f32[1]"},
      {AdamW{.beta1 = 1.0f}, {p, p, p, p, three, three}, "beta1 in [0, 1)"},
      {AdamW{.beta2 = -0.1f}, {p, p, p, p, three, three}, "beta2 in [0, 1)"},
      {AdamW{.eps = 0.0f}, {p, p, p, p, three, three}, "a finite eps above 0"},
      {AdamW{.weight_decay = kInf}, {p, p, p, p, three, three}, "weight_decay of at least 0"},
      {AdamW{}, {p, p, p, three, three}, "expected 6 inputs"},
      {AdamW{}, {bf16({4, 2}), p, p, p, three, three}, "param of type f32"},
      {AdamW{}, {p, p, f32({8}), p, three, three}, "like param: f32[4, 2]"},
      {AdamW{}, {p, p, p, p, p, three}, "schedule f32[3]"},
      {AdamW{}, {p, p, p, p, three, p}, "stats f32[3]"},
      {Sgd{1.0f}, {p, p, p, three, three}, "momentum in [0, 1)"},
      {Sgd{0.0f, kNan}, {p, p, three, three}, "weight_decay of at least 0"},
      {Sgd{}, {p, p, p, three, three}, "expected 4 inputs"},
      {Sgd{0.5f}, {p, p, three, three}, "expected 5 inputs"},
      {Accumulate{}, {p}, "expected 2 inputs"},
      {Accumulate{}, {bf16({2}), p}, "target of type f32"},
      {Accumulate{}, {p, three}, "x f32[4, 2]"},
      {Accumulate{kNan}, {p, p}, "a finite scale"},
      {Fill{}, {}, "expected 1 inputs"},
      {Fill{}, {i32({2})}, "target of type f32"},
  });
}

TEST_F(Infer, Choices) {
  accepts({
      {Argmax{}, {f32({2, 3, 7})}, {i32({2, 3})}},
      {Argmax{}, {f32({7})}, {i32(Shape())}},
      {Argmax{}, {bf16({2, 7})}, {i32({2})}},
      {Sample{},
       {f32({2, 7}), f32({2, 7}), i64({2, 2}), i32({3, 2, 7}), i32({2})},
       {i32({2}), f32({2})}},
      {Sample{3},
       {f32({2, 7}), f32({2, 7}), i64({2, 2}), i32({3, 2, 7}), i32({2})},
       {i32({2}), f32({2}), i32({2, 3}), f32({2, 3})}},
  });
  refuses({
      {Argmax{}, {}, "expected 1 inputs"},
      {Argmax{}, {i32({7})}, "x of type f32, bf16 or f16"},
      {Argmax{}, {f32(Shape())}, "x with at least one axis"},
      {Argmax{}, {f32({std::int64_t{1} << 31})}, "that an i32 can index"},
      {Sample{}, {f32({2, 7})}, "expected 5 inputs"},
      {Sample{8},
       {f32({2, 7}), f32({2, 7}), i64({2, 2}), i32({3, 2, 7}), i32({2})},
       "top from 0 to"},
      {Sample{-1},
       {f32({2, 7}), f32({2, 7}), i64({2, 2}), i32({3, 2, 7}), i32({2})},
       "top from 0 to"},
      {Sample{},
       {i32({2, 7}), f32({2, 7}), i64({2, 2}), i32({3, 2, 7}), i32({2})},
       "logits of type f32"},
      {Sample{},
       {f32({7}), f32({2, 7}), i64({2, 2}), i32({3, 2, 7}), i32({2})},
       "logits [rows, vocabulary]"},
      {Sample{},
       {f32({2, 7}), f32({2, 5}), i64({2, 2}), i32({3, 2, 7}), i32({2})},
       "params f32[2, 7]"},
      {Sample{}, {f32({2, 7}), f32({2, 7}), i64({2}), i32({3, 2, 7}), i32({2})}, "rng i64[2, 2]"},
      {Sample{},
       {f32({2, 7}), f32({2, 7}), i64({2, 2}), i32({2, 7}), i32({2})},
       "counts [sequences, 2, vocabulary]"},
      {Sample{},
       {f32({2, 7}), f32({2, 7}), i64({2, 2}), i32({3, 2, 8}), i32({2})},
       "counts i32[3, 2, 7]"},
      {Sample{},
       {f32({2, 7}), f32({2, 7}), i64({2, 2}), i32({3, 2, 7}), i32({3})},
       "sequences i32[2]"},
  });
}

// Reduce and Expand undo each other's shapes, Permute and its inverse too, Pad and Slice too.
RC_GTEST_PROP(InferProperty, ShapesRoundTrip, ()) {
  const int rank = *rc::gen::inRange(1, kMaxRank + 1);
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(*rc::gen::inRange(1, 9));
  const int begin = *rc::gen::inRange(0, rank);
  const int end = *rc::gen::inRange(begin + 1, rank + 1);
  const auto reduced = infer(Reduce{ReduceKind::kSum, begin, end}, Specs{f32(shape)});
  RC_ASSERT(reduced.has_value());
  const auto expanded = infer(Expand{shape, static_cast<std::int16_t>(begin)}, *reduced);
  RC_ASSERT(expanded.has_value());
  RC_ASSERT(expanded->front() == f32(shape));

  const auto before = *rc::gen::inRange<std::int64_t>(0, 5);
  const auto after = *rc::gen::inRange<std::int64_t>(0, 5);
  const auto padded = infer(Pad{begin, before, after}, Specs{f32(shape)});
  RC_ASSERT(padded.has_value());
  const auto sliced = infer(Slice{begin, before, shape[begin]}, *padded);
  RC_ASSERT(sliced.has_value());
  RC_ASSERT(sliced->front() == f32(shape));
}

// For any transposes, and leading axes split in any way, c has M rows in all and N columns.
RC_GTEST_PROP(InferProperty, MatMulSizes, ()) {
  const auto dim = [] { return *rc::gen::inRange<std::int64_t>(1, 50); };
  const std::int64_t m1 = dim(), m2 = dim(), k = dim(), n = dim();
  const MatMul op = {.transpose_a = *rc::gen::arbitrary<bool>(),
                     .transpose_b = *rc::gen::arbitrary<bool>()};
  const Shape a = op.transpose_a ? Shape(k, m1) : Shape(m1, m2, k);
  const Shape b = op.transpose_b ? Shape(n, k) : Shape(k, n);
  const auto c = infer(op, Specs{f32(a), f32(b)});
  RC_ASSERT(c.has_value());
  RC_ASSERT(c->front() == f32(op.transpose_a ? Shape(m1, n) : Shape(m1, m2, n)));
  const Shape wrong = op.transpose_b ? Shape(n, k + 1) : Shape(k + 1, n);
  RC_ASSERT(!infer(op, Specs{f32(a), f32(wrong)}).has_value());
}

// No op with default attributes crashes on whatever specs it gets; what it accepts is sane.
RC_GTEST_PROP(InferProperty, AnythingGivesAnAnswer, ()) {
  static const std::vector<Op> ops = [] {
    std::vector<Op> all;
#define VOLTA_DEFAULT_OP(Name) all.push_back(Name{});
    VOLTA_OPS(VOLTA_DEFAULT_OP)
#undef VOLTA_DEFAULT_OP
    return all;
  }();
  const Op op = ops[*rc::gen::inRange<std::size_t>(0, ops.size())];
  Specs specs;
  const int count = *rc::gen::inRange(0, 7);
  for (int i = 0; i < count; ++i) {
    const int rank = *rc::gen::inRange(0, kMaxRank + 1);
    Shape shape;
    for (int j = 0; j < rank; ++j) {
      shape.push_back(*rc::gen::element<std::int64_t>(-1, 0, 1, 2, 3, std::int64_t{1} << 40));
    }
    specs.push_back(
        {*rc::gen::element(DType::kF32, DType::kBF16, DType::kI32, DType::kI64), shape});
  }
  const auto outputs = infer(op, specs);
  if (!outputs) {
    RC_ASSERT(outputs.error().message().find(op_name(op)) == 0u);
    return;
  }
  for (const TensorSpec& spec : *outputs) RC_ASSERT(check_spec(spec).has_value());
  const OpCost estimate = cost(op, specs, *outputs);
  RC_ASSERT(estimate.flops >= 0);
  RC_ASSERT(estimate.bytes >= 0);
}

}  // namespace
}  // namespace volta
