#include "io/gguf/gguf_layout.h"

#include <gtest/gtest.h>

#include <set>

#include "device/helpers.h"

namespace volta {
namespace {

TEST(GgufLayout, EveryParameterHasAPlaceOfItsOwn) {
  for (const std::string_view architecture : {"gpt2", "llama", "qwen2", "qwen3"}) {
    TransformerConfig c;
    c.norm_bias = architecture == "gpt2";
    c.attention_bias = c.attention_out_bias = c.ffn_bias = true;
    c.tied_output = false;
    if (architecture != "gpt2") {
      c.position = PositionKind::kRotary;
      c.norm = NormKind::kRms;
      c.ffn_kind = FfnKind::kGated;
      c.qk_norm = true;
    }
    std::set<std::string> names;
    for (const ParameterInfo& info : parameters(c)) {
      const GgufPlace place = gguf_place(architecture, info.name);
      EXPECT_FALSE(place.name.empty()) << info.name;
      EXPECT_TRUE(names.insert(place.name).second) << place.name;
      EXPECT_EQ(gguf_shape(place.layout, info.shape).elements(), info.shape.elements());
    }
  }
}

TEST(GgufLayout, RowsAndAxesMoveWhereTheArchitectureSaysSo) {
  EXPECT_EQ(gguf_place("llama", "model.layers.3.self_attn.q_proj.weight").name,
            "blk.3.attn_q.weight");
  EXPECT_EQ(gguf_place("llama", "model.layers.3.self_attn.k_proj.bias").layout,
            GgufLayout::kRotaryPairs);
  EXPECT_EQ(gguf_place("qwen2", "model.layers.3.self_attn.k_proj.bias").layout, GgufLayout::kSame);
  const GgufPlace packed = gguf_place("gpt2", "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(packed.layout, GgufLayout::kTransposed);
  EXPECT_EQ(gguf_shape(packed.layout, Shape(4, 12)), Shape(12, 4));
  EXPECT_EQ(gguf_place("gpt2", "transformer.h.0.attn.c_attn.bias").layout, GgufLayout::kSame);
  for (const char* name : {"", "weight", "model.layers.weight", "model.layers.0.weight",
                           "model.layers.0.other.weight", "other.weight"}) {
    EXPECT_EQ(gguf_place("llama", name).name, "") << name;
  }
}

TEST(GgufLayout, RowsThatRotateTogetherAreNeighbours) {
  const std::vector<std::int64_t> wanted = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
  for (std::int64_t row = 0; row < 16; ++row) {
    EXPECT_EQ(gguf_row_source(row, 8), wanted[static_cast<std::size_t>(row)]);
  }
}

TEST(GgufArchitecture, SaysWhatGgufCannot) {
  using test::expect_error;
  const auto unsupported = ErrorCode::kUnsupported;
  TransformerConfig gpt2;
  expect_error(gguf_architecture(gpt2), unsupported, "another activation than gelu_new");
  gpt2.activation = Activation::kGeluTanh;
  EXPECT_EQ(*gguf_architecture(gpt2), "gpt2");
  TransformerConfig llama;
  llama.position = PositionKind::kRotary;
  llama.norm = NormKind::kRms;
  llama.ffn_kind = FfnKind::kGated;
  llama.activation = Activation::kRelu;
  expect_error(gguf_architecture(llama), unsupported, "another activation than silu");
  llama.activation = Activation::kSilu;
  llama.init_std = 1.0f;
  EXPECT_EQ(*gguf_architecture(llama), "llama");
  llama.window = 8;
  EXPECT_EQ(*gguf_architecture(llama), "llama");
  llama.norm = NormKind::kLayer;
  expect_error(gguf_architecture(llama), unsupported, "this combination of parts");
}

}  // namespace
}  // namespace volta
