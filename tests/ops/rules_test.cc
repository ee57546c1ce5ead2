// The rules beside infer: texts of attributes, effects, costs, and the structure of gradients.
#include "ops/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/check.h"
#include "ops/op_texts.h"

namespace volta {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Specs = std::vector<TensorSpec>;

TEST(Effects, InputsPastTheMaskAreNotWritten) {
  EXPECT_TRUE(writes_input(0b10u, 1));
  EXPECT_FALSE(writes_input(0b10u, 0));
  EXPECT_FALSE(writes_input(~0u, 32));
}

TEST(Attributes, EveryOpHasAText) {
  const AttentionShape shape = {
      .heads = 4, .kv_heads = 2, .head_dim = 8, .window = 16, .scale = 0.5f, .packed = true};
  const AttentionShape plain = {.heads = 4, .kv_heads = 4, .head_dim = 8};
  const AttentionShape windowed = {.heads = 4, .kv_heads = 4, .head_dim = 8, .window = 9};
  const std::vector<std::pair<Op, const char*>> rows = {
      {MatMul{}, "MatMul"},
      {MatMul{.has_bias = true, .out = DType::kBF16}, "MatMul{bias, bf16}"},
      {MatMul{true, true, true, true, true, Activation::kGeluTanh},
       "MatMul{transpose_a, transpose_b, batched, bias, gelu_tanh, residual}"},
      {Unary{UnaryKind::kScale, 0.5f}, "Unary{scale, alpha=0.5}"},
      {Unary{UnaryKind::kNone}, "Unary{none}"},
      {Unary{UnaryKind::kExp}, "Unary{exp}"},
      {Unary{UnaryKind::kLog}, "Unary{log}"},
      {Unary{UnaryKind::kSqrt}, "Unary{sqrt}"},
      {Unary{UnaryKind::kSquare}, "Unary{square}"},
      {Unary{UnaryKind::kReciprocal}, "Unary{reciprocal}"},
      {Unary{UnaryKind::kTanh}, "Unary{tanh}"},
      {Unary{UnaryKind::kRelu}, "Unary{relu}"},
      {Unary{UnaryKind::kGelu}, "Unary{gelu}"},
      {Unary{UnaryKind::kSilu}, "Unary{silu}"},
      {Unary{static_cast<UnaryKind>(99)}, "Unary{?}"},
      {UnaryGrad{UnaryKind::kGeluTanh}, "UnaryGrad{gelu_tanh}"},
      {Binary{BinaryKind::kAdd}, "Binary{add}"},
      {Binary{BinaryKind::kSub}, "Binary{sub}"},
      {Binary{BinaryKind::kMul}, "Binary{mul}"},
      {Binary{BinaryKind::kDiv}, "Binary{div}"},
      {Binary{static_cast<BinaryKind>(99)}, "Binary{?}"},
      {Reduce{ReduceKind::kSum, 0, 2}, "Reduce{sum, begin=0, end=2}"},
      {Reduce{ReduceKind::kMean, 1, 2}, "Reduce{mean, begin=1, end=2}"},
      {Reduce{ReduceKind::kMax, 1, 2}, "Reduce{max, begin=1, end=2}"},
      {Reduce{static_cast<ReduceKind>(99), 1, 2}, "Reduce{?, begin=1, end=2}"},
      {Expand{Shape(2, 3), 1}, "Expand{[2, 3], begin=1}"},
      {Expand{Shape(2, 3), 0, 0.5f}, "Expand{[2, 3], begin=0, scale=0.5}"},
      {Reshape{Shape(6)}, "Reshape{[6]}"},
      {Permute{{2, 0, 1}}, "Permute{[2, 0, 1, 0, 0, 0]}"},
      {Slice{1, 2, 3}, "Slice{axis=1, begin=2, length=3}"},
      {Pad{1, 2, 3}, "Pad{axis=1, before=2, after=3}"},
      {Cast{DType::kBF16}, "Cast{bf16}"},
      {Encode{}, "Encode{rows}"},
      {Encode{{Packing::kPanels, false, 32}}, "Encode{panels, width=32}"},
      {Encode{{Packing::kPanels, true, 16}}, "Encode{panels, transposed, width=16}"},
      {Encode{{Packing::kPanels, false, 16, 2}}, "Encode{panels, width=16, group=2}"},
      {Encode{{Packing::kPanels, true, 16, 4, Quant::kInt4, 32}},
       "Encode{panels, transposed, width=16, group=4, int4, block=32}"},
      {Encode{{.quant = Quant::kInt8, .block = 64}}, "Encode{rows, int8, block=64}"},
      {Embedding{}, "Embedding"},
      {Embedding{DType::kF16}, "Embedding{f16}"},
      {EmbeddingGrad{7}, "EmbeddingGrad{rows=7}"},
      {Norm{NormKind::kLayer, true, 0.5f}, "Norm{layer, bias, eps=0.5}"},
      {Norm{NormKind::kRms, false, 0.25f}, "Norm{rms, eps=0.25}"},
      {Norm{NormKind::kRms, false, 0.25f, true}, "Norm{rms, eps=0.25, plus_one}"},
      {NormGrad{NormKind::kLayer, true}, "NormGrad{layer, bias}"},
      {NormGrad{NormKind::kRms, false, true}, "NormGrad{rms, plus_one}"},
      {GatedUnit{Activation::kSilu}, "GatedUnit{silu}"},
      {GatedUnitGrad{Activation::kNone}, "GatedUnitGrad{none}"},
      {Softmax{0.5f}, "Softmax{scale=0.5}"},
      {SoftmaxGrad{2.0f}, "SoftmaxGrad{scale=2}"},
      {Rope{2, 8, true, true}, "Rope{heads=2, head_dim=8, interleaved, inverse}"},
      {Attention{shape, 0.5f, 3},
       "Attention{heads=4, kv_heads=2, head_dim=8, window=16, scale=0.5, packed, dropout=0.5, "
       "stream=3}"},
      {AttentionGrad{plain}, "AttentionGrad{heads=4, head_dim=8, scale=1}"},
      {KvAppend{plain}, "KvAppend{heads=4, head_dim=8, scale=1}"},
      {CachedAttention{windowed}, "CachedAttention{heads=4, head_dim=8, window=9, scale=1}"},
      {CachedAttention{plain}, "CachedAttention{heads=4, head_dim=8, scale=1}"},
      {CachedAttention{{.heads = 2, .kv_heads = 2, .head_dim = 8, .softcap = 50.0f}},
       "CachedAttention{heads=2, head_dim=8, scale=1, softcap=50}"},
      {CrossEntropy{}, "CrossEntropy"},
      {CrossEntropyGrad{}, "CrossEntropyGrad"},
      {CrossEntropyGrad{.with_loss = true}, "CrossEntropyGrad{with_loss}"},
      {Dropout{0.25f, 9}, "Dropout{p=0.25, stream=9}"},
      {GlobalNorm{1.0f}, "GlobalNorm{max_norm=1}"},
      {AdamW{0.5f, 0.25f, 1.0f, 0.125f}, "AdamW{beta1=0.5, beta2=0.25, eps=1, weight_decay=0.125}"},
      {Sgd{0.5f, 0.25f}, "Sgd{momentum=0.5, weight_decay=0.25}"},
      {Accumulate{0.5f}, "Accumulate{scale=0.5}"},
      {Fill{3.0f}, "Fill{value=3}"},
      {Argmax{}, "Argmax"},
      {Sample{}, "Sample"},
      {Sample{5}, "Sample{top=5}"},
  };
  for (const auto& [op, text] : rows) EXPECT_EQ(to_string(op), text);
}

// Ops compare by their attributes: passes merge equal nodes.
TEST(Attributes, OpsCompareByThem) {
#define VOLTA_EXPECT_EQUAL(Name) EXPECT_TRUE(Op(Name{}) == Op(Name{}));
  VOLTA_OPS(VOLTA_EXPECT_EQUAL)
#undef VOLTA_EXPECT_EQUAL
  EXPECT_FALSE(Op(Softmax{1.0f}) == Op(Softmax{2.0f}));
  EXPECT_FALSE(Op(Reshape{Shape(2, 3)}) == Op(Reshape{Shape(3, 2)}));
  EXPECT_FALSE(Op(Attention{{.window = 1}}) == Op(Attention{{.window = 2}}));
  EXPECT_FALSE(Op(Argmax{}) == Op(Fill{}));
}

TEST(Effects, Writes) {
  AttentionShape packed;
  packed.packed = true;
  EXPECT_EQ(writes(KvAppend{packed}, 7), 0b0110u);
  EXPECT_EQ(writes(KvAppend{}, 8), 0b1100u);
  EXPECT_EQ(writes(AdamW{}, 6), 0b1101u);
  EXPECT_EQ(writes(Sgd{}, 4), 0b1u);
  EXPECT_EQ(writes(Sgd{0.9f}, 5), 0b101u);
  EXPECT_EQ(writes(Accumulate{}, 2), 0b1u);
  EXPECT_EQ(writes(Fill{}, 1), 0b1u);
  EXPECT_EQ(writes(Sample{}, 5), 0b1000u);
  EXPECT_EQ(writes(AdamW{}, 1), 0b1u);
  EXPECT_EQ(writes(GlobalNorm{}, 100), 0u);
}

TEST(Effects, MayAlias) {
  EXPECT_TRUE(may_alias(Unary{}, 0));
  EXPECT_TRUE(may_alias(UnaryGrad{}, 1));
  EXPECT_TRUE(may_alias(Binary{}, 0));
  EXPECT_FALSE(may_alias(Binary{}, 1));
  EXPECT_TRUE(may_alias(Reshape{}, 0));
  EXPECT_TRUE(may_alias(Dropout{}, 0));
  EXPECT_FALSE(may_alias(Dropout{}, 1));
  EXPECT_TRUE(may_alias(GatedUnit{}, 1));
  EXPECT_TRUE(may_alias(GatedUnitGrad{}, 2));
  EXPECT_FALSE(may_alias(GatedUnitGrad{}, 3));
  EXPECT_TRUE(may_alias(CrossEntropyGrad{}, 0));
  EXPECT_FALSE(may_alias(CrossEntropyGrad{}, 1));
  EXPECT_TRUE(may_alias(Softmax{}, 0));
  EXPECT_TRUE(may_alias(SoftmaxGrad{}, 1));
  EXPECT_TRUE(may_alias(Rope{}, 0));
  EXPECT_FALSE(may_alias(Rope{}, 1));
  for (const Op& op : {Op(MatMul{}), Op(Norm{}), Op(Permute{}), Op(Embedding{}), Op(Cast{}),
                       Op(Attention{}), Op(AdamW{})}) {
    for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(may_alias(op, i)) << op_name(op);
  }
}

OpCost cost_of(const Op& op, const Specs& inputs) { return cost(op, inputs, *infer(op, inputs)); }

TEST(Cost, MatMulCountsTwoFlopsAProduct) {
  EXPECT_EQ(cost_of(MatMul{}, {f32({2, 3}), f32({3, 5})}).flops, 2 * 2 * 3 * 5);
  EXPECT_EQ(cost_of(MatMul{}, {f32({2, 3}), bf16({3, 5})}).bytes, 6 * 4 + 15 * 2 + 10 * 4);
  EXPECT_EQ(cost_of(MatMul{.transpose_a = true}, {f32({7, 3, 2}), f32({21, 5})}).flops,
            2 * 2 * 21 * 5);
  EXPECT_EQ(
      cost_of(MatMul{.transpose_a = true, .batched = true}, {f32({7, 3, 2}), f32({7, 3, 5})}).flops,
      7 * 2 * 2 * 3 * 5);
  EXPECT_EQ(cost_of(MatMul{.has_bias = true, .has_residual = true, .activation = Activation::kRelu},
                    {f32({2, 3}), f32({3, 5}), f32({5}), f32({2, 5})})
                .flops,
            10 * (2 * 3 + 1 + 1 + 8));
}

TEST(Cost, AttentionCountsTheCausalHalf) {
  AttentionShape shape = {.heads = 2, .kv_heads = 1, .head_dim = 4};
  const TensorSpec q = f32({3, 5, 8}), kv = f32({3, 5, 4});
  const std::int64_t pairs = 3 * 2 * (5 * 6 / 2);
  EXPECT_EQ(cost_of(Attention{shape}, {q, kv, kv}).flops, pairs * (4 * 4 + 8));
  EXPECT_EQ(cost_of(AttentionGrad{shape}, {q, kv, kv, q, f32({3, 2, 5}), q}).flops,
            pairs * (10 * 4 + 8));
  shape.window = 2;
  EXPECT_EQ(cost_of(Attention{shape}, {q, kv, kv}).flops, 3 * 2 * (1 + 2 * 4) * (4 * 4 + 8));
  const TensorSpec k = f32({9, 1, 4, 64}), v = f32({9, 1, 64, 4}), n = i32({15}), r = i32({1});
  const TensorSpec rows = f32({15, 8}), t = i32({3, 2});
  const auto cached = [&] { return cost_of(CachedAttention{shape}, {rows, k, v, n, n, r, t}); };
  EXPECT_EQ(cached().flops, 15 * 2 * 2 * (4 * 4 + 8));
  EXPECT_EQ(cached().bytes, 15 * 8 * 4 * 2 + 3 * 2 * 2 * 4 * 4);
  shape.window = 0;
  EXPECT_EQ(cached().flops, 15 * 128 * 2 * (4 * 4 + 8));
  EXPECT_EQ(cached().bytes, 15 * 8 * 4 * 2 + 3 * 128 * 2 * 4 * 4);
}

TEST(Cost, BytesFollowWhatMoves) {
  EXPECT_EQ(cost_of(Reshape{Shape(6)}, {f32({2, 3})}).bytes, 0);
  EXPECT_EQ(cost_of(Slice{0, 1, 2}, {f32({100, 3})}).bytes, 2 * 24);
  EXPECT_EQ(cost_of(Embedding{}, {bf16({1000, 4}), i32({3})}).bytes, 3 * 4 * 2 + 12 + 48);
  const TensorSpec int8 = {DType::kF32,
                           Shape(96, 64),
                           {.packing = Packing::kPanels,
                            .transposed = true,
                            .width = 16,
                            .group = 4,
                            .quant = Quant::kInt8,
                            .block = 32}};
  ASSERT_TRUE(infer(Embedding{}, Specs{int8, i32({3})}));
  EXPECT_EQ(cost_of(Embedding{}, {int8, i32({3})}).bytes, 3 * 2 * 34 + 12 + 3 * 64 * 4);
  EXPECT_EQ(cost_of(Fill{}, {f32({8})}).bytes, 32);
  EXPECT_EQ(cost_of(Accumulate{}, {f32({8}), f32({8})}).bytes, 3 * 32);
  const TensorSpec p = f32({10}), three = f32({3});
  EXPECT_EQ(cost_of(AdamW{}, {p, p, p, p, three, three}).bytes, 7 * 40 + 24);
  AttentionShape shape = {.heads = 2, .kv_heads = 1, .head_dim = 4};
  const TensorSpec k = bf16({3, 1, 4, 64}), v = bf16({3, 1, 64, 4});
  const TensorSpec n = i32({6}), kv = f32({6, 4}), r = i32({1}), t = i32({2, 3});
  EXPECT_EQ(cost_of(KvAppend{shape}, {kv, kv, k, v, n, n, r, t}).bytes, 2 * 96 + 2 * 24 * 2);
  EXPECT_EQ(
      cost_of(Sample{}, {f32({1, 7}), f32({1, 7}), i64({1, 2}), i32({3, 2, 7}), i32({1})}).bytes,
      28 + 28 + 16 + 56 + 4 + 4 + 4);
}

TEST(Cost, ElementwiseAndRowOps) {
  const TensorSpec x = f32({4, 5}), row = f32({5});
  EXPECT_EQ(cost_of(Unary{UnaryKind::kRelu}, {x}).flops, 20);
  EXPECT_EQ(cost_of(Unary{UnaryKind::kGelu}, {x}).flops, 160);
  EXPECT_EQ(cost_of(UnaryGrad{UnaryKind::kSquare}, {x, x}).flops, 60);
  EXPECT_EQ(cost_of(Binary{}, {x, row}).flops, 20);
  EXPECT_EQ(cost_of(Reduce{ReduceKind::kSum, 0, 1}, {x}).flops, 20);
  EXPECT_EQ(cost_of(Expand{Shape(4, 5), 0}, {row}).flops, 0);
  EXPECT_EQ(cost_of(Expand{Shape(4, 5), 0, 2.0f}, {row}).flops, 20);
  EXPECT_EQ(cost_of(Permute{{1, 0}}, {x}).flops, 0);
  EXPECT_EQ(cost_of(EmbeddingGrad{9}, {i32({4}), x}).flops, 20);
  EXPECT_EQ(cost_of(GlobalNorm{}, {f32({1}), x, row}).flops, 2 * 26);
  for (const auto& [op, inputs] : std::vector<std::pair<Op, Specs>>{
           {Norm{NormKind::kRms}, {x, row}},
           {NormGrad{NormKind::kRms}, {x, row, f32({4, 2}), x}},
           {GatedUnit{}, {x, x}},
           {GatedUnitGrad{}, {x, x, x}},
           {Softmax{}, {x}},
           {SoftmaxGrad{}, {x, x}},
           {Rope{.heads = 1, .head_dim = 5}, {x, i32({4}), f32({9, 2})}},
           {CrossEntropy{}, {x, i32({4})}},
           {CrossEntropyGrad{}, {x, i32({4}), f32({4}), f32({4})}},
           {CrossEntropyGrad{.with_loss = true}, {x, i32({4}), f32({4})}},
           {Dropout{}, {x, rng_spec()}},
           {AdamW{}, {x, x, x, x, f32({3}), f32({3})}},
           {Sgd{}, {x, x, f32({3}), f32({3})}},
           {Accumulate{}, {x, x}},
           {Argmax{}, {x}},
           {Sample{}, {x, f32({4, 7}), i64({4, 2}), i32({4, 2, 5}), i32({4})}}}) {
    const OpCost estimate = cost_of(op, inputs);
    EXPECT_GE(estimate.flops, 20) << to_string(op);
    EXPECT_LE(estimate.flops, 400) << to_string(op);
  }
}

TEST(Cost, SaturatesInsteadOfOverflowing) {
  const std::int64_t big = std::int64_t{1} << 22;
  const Specs in = {f32({big, big}), f32({big, big})};
  const OpCost estimate = cost_of(MatMul{}, in);
  EXPECT_EQ(estimate.flops, std::int64_t{1} << 62);
  EXPECT_GT(estimate.bytes, 0);
}

TEST(AddOne, GivesTheFirstOutput) {
  RecordingGraph graph;
  const ValueId x = graph.leaf(f32({2, 4}));
  const ValueId w = graph.leaf(f32({4}));
  const auto y = graph.add_one(Norm{NormKind::kRms}, {x, w});
  ASSERT_TRUE(y);
  EXPECT_EQ(graph.spec(*y), f32({2, 4}));
  const auto nothing = graph.add_one(Fill{}, {x});
  ASSERT_FALSE(nothing);
  EXPECT_THAT(nothing.error().message(), HasSubstr("no output"));
  EXPECT_FALSE(graph.add_one(Norm{}, {w, x}));
}

// One valid call of every op that has a gradient.
const std::vector<std::pair<Op, Specs>>& differentiable_calls() {
  static const AttentionShape split = {.heads = 4, .kv_heads = 2, .head_dim = 3};
  static const std::vector<std::pair<Op, Specs>> rows = {
      {MatMul{}, {f32({4, 2, 3}), f32({3, 5})}},
      {MatMul{.transpose_b = true}, {bf16({4, 2, 3}), bf16({5, 3})}},
      {MatMul{.transpose_a = true}, {f32({4, 2, 3}), f32({8, 5})}},
      {MatMul{.transpose_a = true}, {f32({8, 3}), f32({2, 4, 5})}},
      {MatMul{.transpose_a = true, .transpose_b = true}, {f32({2, 4, 3}), f32({5, 8})}},
      {MatMul{.transpose_a = true, .transpose_b = true}, {f32({8, 3}), f32({5, 2, 8})}},
      {MatMul{.batched = true}, {f32({7, 2, 3}), f32({7, 3, 5})}},
      {MatMul{.transpose_b = true, .batched = true}, {f32({7, 2, 3}), f32({7, 5, 3})}},
      {MatMul{.transpose_a = true, .batched = true}, {f32({7, 3, 2}), f32({7, 3, 5})}},
      {MatMul{.transpose_a = true, .transpose_b = true, .batched = true},
       {f32({7, 3, 2}), f32({7, 5, 3})}},
      {MatMul{.has_bias = true, .has_residual = true, .activation = Activation::kSilu},
       {f32({4, 2, 3}), f32({3, 5}), f32({5}), f32({4, 2, 5})}},
      {Unary{UnaryKind::kScale, 2.0f}, {f32({2, 3})}},
      {Unary{UnaryKind::kExp}, {f32({2, 3})}},
      {Binary{BinaryKind::kAdd}, {f32({2, 3}), f32({3})}},
      {Binary{BinaryKind::kSub}, {f32({2, 3}), f32({2, 3})}},
      {Binary{BinaryKind::kMul}, {f32({2, 3}), f32({1, 1, 1})}},
      {Binary{BinaryKind::kDiv}, {f32({2, 3}), f32(Shape())}},
      {Binary{BinaryKind::kMul}, {f32(Shape()), f32({1, 1})}},
      {Reduce{ReduceKind::kSum, 0, 1}, {f32({2, 3})}},
      {Reduce{ReduceKind::kMean, 0, 2}, {f32({2, 3})}},
      {Expand{Shape(2, 3), 0, 0.5f}, {f32({3})}},
      {Expand{Shape(3), 0}, {f32({3})}},
      {Reshape{Shape(6)}, {f32({2, 3})}},
      {Permute{{2, 0, 1}}, {f32({2, 3, 4})}},
      {Slice{1, 1, 2}, {f32({2, 5})}},
      {Pad{1, 1, 2}, {f32({2, 5})}},
      {Cast{DType::kBF16}, {f32({2})}},
      {Cast{DType::kF32}, {bf16({2})}},
      {Embedding{}, {f32({9, 4}), i32({2, 3})}},
      {Norm{NormKind::kLayer, true}, {f32({2, 4}), f32({4}), f32({4})}},
      {Norm{NormKind::kRms}, {f32({2, 4}), f32({4})}},
      {GatedUnit{}, {f32({2, 4}), f32({2, 4})}},
      {Softmax{2.0f}, {f32({2, 4})}},
      {Attention{split}, {f32({2, 5, 12}), f32({2, 5, 6}), f32({2, 5, 6})}},
      {Attention{{4, 2, 3, 0, 1.0f, true}, 0.5f, 7}, {f32({2, 5, 24}), rng_spec()}},
      {CrossEntropy{}, {f32({3, 7}), i32({3})}},
      {Dropout{0.5f, 3}, {f32({2, 4}), rng_spec()}},
  };
  return rows;
}

TEST(GradientRules, GradientsAreShapedLikeTheirInputs) {
  for (const auto& [op, specs] : differentiable_calls()) {
    const RecordedGradient run(op, specs);
    ASSERT_TRUE(run.grads) << to_string(op) << ": " << run.grads.error().message();
    ASSERT_EQ(run.grads->size(), specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const ValueId grad = (*run.grads)[i];
      ASSERT_EQ(grad.valid(), is_float(specs[i].dtype)) << to_string(op) << " input " << i;
      if (!grad.valid()) continue;
      EXPECT_EQ(run.graph.spec(grad), f32(specs[i].shape)) << to_string(op);
    }
  }
}

TEST(GradientRules, GiveOnlyWhatIsWanted) {
  for (const auto& [op, specs] : differentiable_calls()) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!is_float(specs[i].dtype)) continue;
      std::vector<bool> want(specs.size());
      want[i] = true;
      const RecordedGradient run(op, specs, want);
      ASSERT_TRUE(run.grads) << run.grads.error().message();
      for (std::size_t j = 0; j < specs.size(); ++j) {
        EXPECT_EQ((*run.grads)[j].valid(), i == j) << to_string(op);
      }
    }
    const RecordedGradient nothing(op, specs, std::vector<bool>(specs.size()));
    ASSERT_TRUE(nothing.grads);
    EXPECT_THAT(nothing.graph.ops, IsEmpty());
    const RecordedGradient unused(op, specs, {}, std::vector<bool>(8));
    ASSERT_TRUE(unused.grads);
    EXPECT_THAT(unused.graph.ops, IsEmpty());
  }
}

// Whichever node of a gradient cannot be added, its error comes out.
TEST(GradientRules, ErrorsOfTheGraphComeThrough) {
  for (const auto& [op, specs] : differentiable_calls()) {
    const std::size_t nodes = RecordedGradient(op, specs).graph.ops.size();
    for (std::size_t i = 0; i < nodes; ++i) {
      const RecordedGradient run(op, specs, {}, {}, static_cast<int>(i));
      ASSERT_FALSE(run.grads) << to_string(op) << " node " << i;
      EXPECT_EQ(run.grads.error().code(), ErrorCode::kOutOfMemory);
    }
  }
}

TEST(GradientRules, MatMulBuildsFewNodes) {
  EXPECT_THAT(RecordedGradient(MatMul{}, {f32({4, 2, 3}), f32({3, 5})}).graph.ops,
              ElementsAre("MatMul{transpose_b}", "MatMul{transpose_a}"));
  EXPECT_THAT(RecordedGradient(MatMul{.transpose_b = true}, {f32({2, 3}), f32({5, 3})}).graph.ops,
              ElementsAre("MatMul", "MatMul{transpose_a}"));
  const MatMul fused = {.has_bias = true, .has_residual = true, .activation = Activation::kGelu};
  const Specs specs = {f32({2, 3}), f32({3, 5}), f32({5}), f32({2, 5})};
  EXPECT_THAT(RecordedGradient(fused, specs, {false, false, false, true}).graph.ops, IsEmpty());
  EXPECT_THAT(RecordedGradient(fused, specs, {false, false, true, false}).graph.ops,
              ElementsAre("MatMul{bias}", "UnaryGrad{gelu}", "Reduce{sum, begin=0, end=1}"));
}

TEST(GradientRules, CastsOfLowGradientsGoBackToF32) {
  // A gradient that is itself bf16, as a caller may hand one in.
  RecordingGraph graph;
  const ValueId x = graph.leaf(f32({2}));
  const std::vector<ValueId> inputs = {x};
  const auto outputs = graph.add(Cast{DType::kBF16}, inputs);
  ASSERT_TRUE(outputs);
  const std::vector<ValueId> grads = {graph.leaf(bf16({2}))};
  const bool wanted[] = {true};
  const auto result = gradient(Cast{DType::kBF16}, {graph, inputs, *outputs, grads, wanted});
  ASSERT_TRUE(result);
  EXPECT_EQ(graph.spec(result->front()), f32({2}));
  graph.fail_after = 0;
  EXPECT_FALSE(gradient(Cast{DType::kBF16}, {graph, inputs, *outputs, grads, wanted}));

  const RecordedGradient from_integers(Cast{DType::kF32}, {i32({2})}, {true});
  ASSERT_TRUE(from_integers.grads);
  EXPECT_FALSE(from_integers.grads->front().valid());
}

TEST(GradientRules, OpsWithoutOneSaySo) {
  const AttentionShape shape = {.heads = 2, .kv_heads = 2, .head_dim = 4};
  const TensorSpec q = f32({3, 5, 8}), lse = f32({3, 2, 5}), k = f32({3, 2, 4, 64});
  const TensorSpec v = f32({3, 2, 64, 4}), n = i32({5}), p = f32({2, 4});
  const std::vector<std::pair<Op, Specs>> rows = {
      {UnaryGrad{}, {p, p}},
      {Reduce{ReduceKind::kMax, 0, 1}, {p}},
      {Cast{DType::kI32}, {p}},
      {EmbeddingGrad{9}, {i32({2}), p}},
      {NormGrad{NormKind::kRms}, {p, f32({4}), f32({2, 2}), p}},
      {GatedUnitGrad{}, {p, p, p}},
      {SoftmaxGrad{}, {p, p}},
      {AttentionGrad{shape}, {q, q, q, q, lse, q}},
      {CachedAttention{shape}, {f32({5, 8}), k, v, n, n, i32({1}), i32({3, 1})}},
      {CrossEntropyGrad{}, {p, i32({2}), f32({2}), f32({2})}},
      {GlobalNorm{}, {f32({1}), p}},
      {Argmax{}, {p}},
      {Encode{}, {p}},
      {Sample{}, {f32({3, 7}), f32({3, 7}), i64({3, 2}), i32({3, 2, 7}), i32({3})}},
  };
  for (const auto& [op, specs] : rows) {
    const RecordedGradient run(op, specs);
    ASSERT_FALSE(run.grads) << to_string(op);
    EXPECT_EQ(run.grads.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(run.grads.error().message(), HasSubstr(to_string(op) + " has no gradient"));
  }
  // Ops without outputs are never asked; their rules refuse all the same.
  RecordingGraph graph;
  const GradientContext context = {graph, {}, {}, {}, {}};
  EXPECT_FALSE(rules::gradient(KvAppend{shape}, context));
  EXPECT_FALSE(rules::gradient(AdamW{}, context));
  EXPECT_FALSE(rules::gradient(Sgd{}, context));
  EXPECT_FALSE(rules::gradient(Accumulate{}, context));
  EXPECT_FALSE(rules::gradient(Fill{}, context));
}

TEST(GradientRules, StatisticsHaveNone) {
  const AttentionShape shape = {.heads = 2, .kv_heads = 2, .head_dim = 4};
  const TensorSpec q = f32({3, 5, 8});
  const struct {
    Op op;
    Specs specs;
    const char* output;
  } rows[] = {{CrossEntropy{}, {f32({3, 7}), i32({3})}, "'lse'"},
              {Attention{shape}, {q, q, q}, "'lse'"},
              {Norm{NormKind::kRms}, {f32({2, 4}), f32({4})}, "'stats'"}};
  for (const auto& row : rows) {
    const RecordedGradient run(row.op, row.specs, {}, {false, true});
    ASSERT_FALSE(run.grads);
    EXPECT_THAT(run.grads.error().message(), HasSubstr(row.output));
  }
}

TEST(GradientRules, RopeRotatesBack) {
  const Specs specs = {f32({5, 8}), i32({5}), f32({9, 4})};
  const Rope op = {.heads = 2, .head_dim = 4, .inverse = true};
  const RecordedGradient run(op, specs, {true, false, false});
  ASSERT_TRUE(run.grads);
  EXPECT_THAT(run.graph.ops, ElementsAre("Rope{heads=2, head_dim=4}"));
  const RecordedGradient table(op, specs, {true, false, true});
  ASSERT_FALSE(table.grads);
  EXPECT_THAT(table.grads.error().message(), HasSubstr("its table is fixed"));
  const RecordedGradient only_table(op, specs, {false, false, true});
  EXPECT_FALSE(only_table.grads);
  EXPECT_FALSE(RecordedGradient(op, specs, {true, false, false}, {}, 0).grads);
}

TEST(GradientRules, ContextsMustFitTheirNode) {
  RecordingGraph graph;
  const std::vector<ValueId> inputs = {graph.leaf(f32({2}))};
  const auto outputs = graph.add(Unary{}, inputs);
  const bool wanted[] = {true};
  const auto few = gradient(Unary{}, {graph, inputs, *outputs, {}, wanted});
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().code(), ErrorCode::kInternal);
  EXPECT_FALSE(gradient(Unary{}, {graph, inputs, *outputs, *outputs, {}}));
}

}  // namespace
}  // namespace volta
