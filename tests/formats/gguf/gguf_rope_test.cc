#include "formats/gguf/gguf_rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "device/helpers.h"
#include "formats/gguf/gguf_bytes.h"
#include "nn/rope_table.h"

namespace volta {
namespace {

using test::expect_error;

TransformerConfig rotary(std::int64_t head_dim) {
  TransformerConfig c;
  c.naming = WeightNaming::kLlama;
  c.position = PositionKind::kRotary;
  c.norm = NormKind::kRms;
  c.ffn_kind = FfnKind::kGated;
  c.head_dim = head_dim;
  c.context = 131072;
  c.rope_theta = 500000.0f;
  return c;
}

const GgufArchitecture& llama() { return **find_gguf_architecture("llama"); }

// The one tensor of factors.
std::vector<float> factors_of(const TransformerConfig& config) {
  const auto lists = gguf_rope_factors(config);
  return lists.size() == 1 ? lists.front().values : std::vector<float>();
}

// A file that says nothing but these factors and metadata.
Result<RopeScaling> read(const TransformerConfig& config, const std::vector<float>& factors,
                         const GgufMetadata& metadata = {}) {
  test::GgufBytes bytes;
  bytes.header(factors.empty() ? 0 : 1, metadata.count()).raw(metadata.bytes());
  if (!factors.empty()) bytes.tensor(kGgufRopeFactors, factors.size(), 0).data(0);
  for (const float factor : factors) bytes.number(factor);
  const auto file = bytes.parse();
  if (!file) return std::unexpected(file.error());
  TransformerConfig out = config;
  out.rope_scaling = {};
  VOLTA_TRY(read_gguf_rope(*file, llama(), out));
  return out.rope_scaling;
}

// What llama.cpp's converter writes for llama3's scaling.
std::vector<float> converter_factors(const TransformerConfig& c, const RopeScaling& s) {
  std::vector<float> factors;
  const double length = static_cast<double>(s.original), pi = std::acos(-1.0);
  for (std::int64_t i = 0; i < c.head_dim; i += 2) {
    const double wave = 2.0 * pi *
                        std::pow(static_cast<double>(c.rope_theta),
                                 static_cast<double>(i) / static_cast<double>(c.head_dim));
    const double smooth =
        (length / wave - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    factors.push_back(static_cast<float>(wave < length / s.high_freq_factor ? 1.0
                                         : wave > length / s.low_freq_factor
                                             ? s.factor
                                             : 1.0 / ((1.0 - smooth) / s.factor + smooth)));
  }
  return factors;
}

TEST(GgufRope, Llama3IsFoundFromItsFactors) {
  const RopeScaling llama31{RopeKind::kLlama3, 8.0, 8192, 1.0, 4.0};
  for (const RopeScaling& wanted : {llama31, RopeScaling{RopeKind::kLlama3, 32.0, 8192, 1.0, 4.0},
                                    RopeScaling{RopeKind::kLlama3, 4.0, 3000, 1.0, 8.0}}) {
    for (const std::int64_t head_dim : {64, 128}) {
      TransformerConfig config = rotary(head_dim);
      const auto found = read(config, converter_factors(config, wanted));
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_EQ(found->kind, RopeKind::kLlama3);
      EXPECT_EQ(found->factor, wanted.factor);
      EXPECT_NEAR(static_cast<double>(found->original), static_cast<double>(wanted.original), 1.0);
      EXPECT_EQ(found->low_freq_factor, 1.0);
      EXPECT_NEAR(found->high_freq_factor, wanted.high_freq_factor, 1e-2);
    }
  }
}

TEST(GgufRope, FewPairsLeaveAChoiceThatGivesTheSameFactors) {
  for (const std::int64_t head_dim : {8, 16, 24, 32}) {
    for (const std::int64_t original : {32, 100, 700, 5000}) {
      TransformerConfig config = rotary(head_dim);
      config.rope_scaling = {RopeKind::kLlama3, 8.0, original, 1.0, 4.0};
      const auto factors = factors_of(config);
      const auto found = read(config, factors);
      ASSERT_TRUE(found) << head_dim << " " << original << ": " << found.error().message();
      TransformerConfig other = config;
      other.rope_scaling = *found;
      const auto again = factors_of(other);
      for (std::size_t i = 0; i < factors.size(); ++i) {
        EXPECT_NEAR(again[i], factors[i], 1e-4f * factors[i]);
      }
      // Told the original length, it is exactly what was written.
      GgufMetadata metadata;
      add_gguf_rope(config, llama(), metadata);
      const auto exact = read(config, factors, metadata);
      ASSERT_TRUE(exact) << exact.error().message();
      EXPECT_EQ(*exact, config.rope_scaling);
    }
  }
}

// Scalings with other bounds, of which few pairs may be between, or none stretched by the whole
// factor, are read back from their factors.
TEST(GgufRope, OtherBoundsGiveTheSameFactors) {
  for (const std::int64_t head_dim : {8, 16, 32, 128}) {
    for (const double low : {0.25, 0.5, 1.5, 2.0, 3.9}) {
      for (const double high : {4.0, 5.5, 40.0}) {
        TransformerConfig config = rotary(head_dim);
        config.rope_scaling = {RopeKind::kLlama3, 8.0, 32, low, high};
        const auto factors = factors_of(config);
        GgufMetadata metadata;
        add_gguf_rope(config, llama(), metadata);
        const auto found = read(config, factors, metadata);
        ASSERT_TRUE(found) << head_dim << " " << low << " " << high << ": "
                           << found.error().message();
        config.rope_scaling = *found;
        const auto again = factors_of(config);
        ASSERT_EQ(again.size(), factors.size());
        for (std::size_t i = 0; i < factors.size(); ++i) {
          EXPECT_NEAR(again[i], factors[i], 1e-4f * factors[i]);
        }
      }
    }
  }
}

TEST(GgufRope, LinearAndYarnAreMetadata) {
  TransformerConfig config = rotary(64);
  for (const RopeScaling& wanted :
       {RopeScaling{RopeKind::kLinear, 4.0, 4096},
        RopeScaling{.kind = RopeKind::kYarn,
                    .factor = 4.0,
                    .original = 32768,
                    .attention_factor = 0.1 * std::log(4.0) + 1.0},
        RopeScaling{.kind = RopeKind::kYarn,
                    .factor = 2.0,
                    .original = 100,
                    .beta_fast = 16.0,
                    .beta_slow = 2.0,
                    .attention_factor = (0.1 * std::log(2.0) + 1.0) * 0.5}}) {
    config.rope_scaling = wanted;
    EXPECT_TRUE(gguf_rope_factors(config).empty());
    GgufMetadata metadata;
    add_gguf_rope(config, llama(), metadata);
    const auto found = read(config, {}, metadata);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(*found, wanted);
  }
  GgufMetadata old;  // A factor alone is linear, over the file's context.
  old.add_f32("llama.rope.scaling.factor", 2.0f);
  EXPECT_EQ(*read(config, {}, old), (RopeScaling{RopeKind::kLinear, 2.0, 131072}));
  EXPECT_EQ(*read(config, {}), RopeScaling());
  EXPECT_EQ(*read(config, std::vector<float>(32, 1.0f)), RopeScaling());
  config.rope_scaling = {};
  GgufMetadata none;
  add_gguf_rope(config, llama(), none);
  EXPECT_EQ(none.count(), 0u);
}

TEST(GgufRope, OthersAreRefused) {
  const TransformerConfig config = rotary(16);
  const auto invalid = ErrorCode::kInvalidFile, unsupported = ErrorCode::kUnsupported;
  GgufMetadata longrope;
  longrope.add_string("llama.rope.scaling.type", "longrope");
  expect_error(read(config, {}, longrope), unsupported, "rotary scaling 'longrope'");
  std::vector<float> factors(8, 8.0f);
  GgufMetadata linear;
  linear.add_f32("llama.rope.scaling.factor", 2.0f);
  expect_error(read(config, factors, linear), unsupported, "by factors and 'linear' at once");
  for (std::size_t i = 0; i < factors.size(); i += 2) factors[i] = 1.0f;
  expect_error(read(config, factors), unsupported, "are not those of llama3's scaling");
  expect_error(read(config, std::vector<float>(8, 8.0f)), unsupported, "are not those of llama3's");
  factors[0] = 0.0f;
  expect_error(read(config, factors), invalid, "has factors below 1");
  expect_error(read(config, {1.0f, 2.0f}), invalid, "must be F32 [8]");
}

}  // namespace
}  // namespace volta
