// Rotary scaling in config.json: every type in old and new keys against transformers, what is
// refused, and what is written.
#include "formats/rope_config.h"

#include <bit>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "device/helpers.h"
#include "formats/model_config.h"
#include "nn/rope_table.h"
#include "support/shared_data.h"

namespace volta {
namespace {

using nlohmann::json;
using test::expect_error;

json goldens() {
  std::ifstream file(test::source_path("tests/formats/data/rope_goldens.json"));
  return json::parse(file);
}

TransformerConfig parse(const json& config) {
  auto parsed = parse_model_config(config.dump(), "config.json");
  if (!parsed) throw std::runtime_error(parsed.error().message());
  return *std::move(parsed);
}

// As transformers 4 wrote them: theta beside an object that is null without scaling.
json with_old_keys(json config, const char* type_key) {
  json rope = config["rope_parameters"];
  config.erase("rope_parameters");
  config["rope_theta"] = rope["rope_theta"];
  rope.erase("rope_theta");
  const std::string type = rope["rope_type"];
  rope.erase("rope_type");
  rope[type_key] = type;
  config["rope_scaling"] = type == "default" ? json() : rope;
  return config;
}

// The distance of two positive floats in representable numbers.
int ulps(float a, float b) {
  return std::abs(std::bit_cast<std::int32_t>(a) - std::bit_cast<std::int32_t>(b));
}

TEST(RopeConfig, FrequenciesAreThoseOfTransformers) {
  const json cases = goldens();
  ASSERT_GE(cases.size(), 14u);
  for (const json& one : cases) {
    const TransformerConfig config = parse(one["config"]);
    EXPECT_DOUBLE_EQ(config.rope_scaling.attention_factor, one["attention_factor"]) << one["name"];
    for (const auto& [length, text] : one["frequencies"].items()) {
      const auto found = rope_frequencies(config, std::stoll(length));
      const std::string hex = text;
      ASSERT_EQ(hex.size(), 8 * found.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto wanted = std::bit_cast<float>(
            static_cast<std::uint32_t>(std::stoul(hex.substr(8 * i, 8), nullptr, 16)));
        EXPECT_LE(ulps(found[i], wanted), 4) << one["name"] << " " << length << " [" << i << "]";
      }
    }
  }
}

TEST(RopeConfig, OldKeysAndWrittenOnesSayTheSame) {
  for (const json& one : goldens()) {
    const TransformerConfig config = parse(one["config"]);
    for (const char* type_key : {"type", "rope_type"}) {
      EXPECT_EQ(parse(with_old_keys(one["config"], type_key)), config) << one["name"];
    }
    json written = json::parse(model_config_json(config));
    EXPECT_EQ(parse(written), config) << one["name"];
    for (const char* dropped : {"rope_parameters", "rope_scaling", ""}) {
      json family = written;
      family.erase("volta");
      family.erase(dropped);
      EXPECT_EQ(parse(family), config) << one["name"] << " without " << dropped;
    }
  }
}

// One llama with these rope parameters.
json llama(const std::string& rope, const std::string& key = "rope_parameters") {
  json config = {
      {"model_type", "llama"},        {"vocab_size", 11},       {"hidden_size", 16},
      {"intermediate_size", 24},      {"num_hidden_layers", 2}, {"num_attention_heads", 2},
      {"max_position_embeddings", 64}};
  config[key] = json::parse(rope);
  return config;
}

TEST(RopeConfig, ContextIsTheStretchedOne) {
  const auto context = [](const std::string& rope) { return parse(llama(rope)).context; };
  EXPECT_EQ(context(R"({"rope_type":"default"})"), 64);
  EXPECT_EQ(context(R"({"rope_type":"linear","factor":2})"), 128);
  EXPECT_EQ(context(R"({"rope_type":"dynamic","factor":1.5})"), 96);
  EXPECT_EQ(context(R"({"rope_type":"linear","factor":0.5})"), 64);
  // Yarn stretches the original length; the config's may be the stretched one already.
  const std::string yarn = R"({"rope_type":"yarn","original_max_position_embeddings":32,"factor":)";
  EXPECT_EQ(context(yarn + "8}"), 256);
  EXPECT_EQ(context(yarn + "2}"), 64);
  EXPECT_EQ(context(R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,)"
                    R"("original_max_position_embeddings":32})"),
            64);
}

TEST(RopeConfig, MissingNumbersHaveTransformersMeaning) {
  const auto scaling = [](const std::string& rope) { return parse(llama(rope)).rope_scaling; };
  EXPECT_EQ(scaling(R"({})"), RopeScaling{});
  EXPECT_EQ(scaling(R"({"rope_type":null})"), RopeScaling{});
  const RopeScaling yarn = scaling(R"({"rope_type":"yarn","factor":4,"beta_fast":0})");
  EXPECT_EQ(yarn.original, 64);
  EXPECT_EQ(yarn.beta_fast, 32.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1.0);
  // Without a factor it is the ratio of the lengths; a stretch of one or less sharpens nothing.
  EXPECT_EQ(scaling(R"({"rope_type":"yarn","original_max_position_embeddings":16})").factor, 4.0);
  EXPECT_EQ(scaling(R"({"rope_type":"yarn","factor":0.5})").attention_factor, 1.0);
  // Phi's place for the original length.
  json outside = llama(R"({"rope_type":"yarn","factor":4})");
  outside["original_max_position_embeddings"] = 8;
  EXPECT_EQ(parse(outside).rope_scaling.original, 8);
  // The old key counts where both are there and it is not empty; whole heads rotate without
  // scaling.
  json both = llama(R"({"rope_type":"linear","factor":2,"rope_theta":5})");
  both["rope_scaling"] = json::parse(R"({"type":"linear","factor":3})");
  both["rope_theta"] = 5.0;
  EXPECT_EQ(parse(both).rope_scaling.factor, 3.0);
  EXPECT_EQ(parse(both).rope_theta, 5.0f);
  both["rope_scaling"] = json::object();
  EXPECT_EQ(parse(both).rope_scaling.factor, 2.0);
  EXPECT_EQ(parse(both).rope_theta, 5.0f);
  EXPECT_EQ(parse(llama(R"({"rope_type":"default","partial_rotary_factor":0.5})")).rotated(), 8);
}

// transformers 4 takes the base beside the parameters and the old type, version 5 the base among
// the parameters and the new type.
TEST(RopeConfig, TwoPlacesThatDifferAreRefused) {
  const auto refuse = [](const json& config, const std::string& text) {
    expect_error(parse_model_config(config.dump(), "config.json"), ErrorCode::kInvalidFile, text);
  };
  for (const std::string key : {"rope_parameters", "rope_scaling"}) {
    json bases = llama(R"({"rope_type":"default","rope_theta":10000})", key);
    bases["rope_theta"] = 500000.0;
    refuse(bases, "config.json: rope_theta is 500000, but " + key +
                      ".rope_theta is 10000; write the rope_theta that the model is to run with "
                      "in both places, or remove one of them");
    bases["rope_theta"] = 10000.0;
    EXPECT_EQ(parse(bases).rope_theta, 10000.0f);
    bases["rope_theta"] = nullptr;
    EXPECT_EQ(parse(bases).rope_theta, 10000.0f);
    json types = llama(R"({"rope_type":"linear","type":"dynamic","factor":2})", key);
    refuse(types, "config.json: " + key + ".rope_type is linear, but " + key + ".type is dynamic");
    types[key]["type"] = "linear";
    EXPECT_EQ(parse(types).rope_scaling.kind, RopeKind::kLinear);
    types[key]["type"] = "mrope";  // As the text part of Qwen2-VL has it.
    EXPECT_EQ(parse(types).rope_scaling.kind, RopeKind::kLinear);
  }
  json objects = llama(R"({"rope_type":"default","rope_theta":5})");
  objects["rope_scaling"] = json::parse(R"({"type":"linear","factor":3})");
  refuse(objects, "rope_scaling.type is linear, but rope_parameters.rope_type is default");
  objects["rope_scaling"] = json::parse(R"({"type":"default","rope_theta":7})");
  refuse(objects, "rope_scaling.rope_theta is 7, but rope_parameters.rope_theta is 5");
  // The layers of Gemma 3 with and without a window have a base each.
  json gemma = llama(R"({"full_attention":{"rope_type":"default","rope_theta":1000000},)"
                     R"("sliding_attention":{"rope_type":"default","rope_theta":10000}})");
  gemma["model_type"] = "gemma3_text";
  gemma["rope_theta"] = 1000000;
  gemma["rope_local_base_freq"] = 10000;
  EXPECT_EQ(parse(gemma).rope_theta, 1000000.0f);
  gemma["rope_local_base_freq"] = 20000;
  refuse(gemma,
         "rope_local_base_freq is 20000, but rope_parameters.sliding_attention.rope_theta "
         "is 10000");
  gemma["rope_local_base_freq"] = 10000;
  gemma["rope_theta"] = 10000;
  refuse(gemma, "rope_theta is 10000, but rope_parameters.full_attention.rope_theta is 1000000");
  // Phi-3 has two older names for longrope.
  json phi = llama(R"({"type":"su","rope_type":"longrope","short_factor":[1,1,1,1],)"
                   R"("long_factor":[2,2,2,2]})",
                   "rope_scaling");
  phi["model_type"] = "phi3";
  phi["original_max_position_embeddings"] = 32;
  EXPECT_EQ(parse(phi).rope_scaling.kind, RopeKind::kLongrope);
}

TEST(RopeConfig, WhatCannotWorkIsRefused) {
  const auto refuse = [](const std::string& rope, ErrorCode code, const std::string& text) {
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
      expect_error(parse_model_config(llama(rope, key).dump(), "config.json"), code, text);
    }
  };
  const auto invalid = ErrorCode::kInvalidFile, unsupported = ErrorCode::kUnsupported;
  refuse(R"({"type":"ntk"})", unsupported,
         "rotary scaling 'ntk'; Volta has default, linear, dynamic, llama3, yarn and longrope");
  refuse(R"({"type":"longrope"})", invalid, "short_factor");
  refuse(R"({"type":"longrope","short_factor":[1,1,1],"long_factor":[1,1,1,1]})", invalid,
         "3 factors for 4 rotated pairs");
  refuse(R"({"type":"longrope","short_factor":[1,1,1,0],"long_factor":[1,1,1,1]})", invalid,
         "a factor is not between");
  refuse(R"({"type":"longrope","short_factor":[1,1,1,"1"],"long_factor":[1,1,1,1]})", invalid,
         "short_factor[3]");
  refuse(R"({"full_attention":{"rope_type":"default"}})", unsupported, "for 'full_attention'");
  refuse(R"({"type":"linear","factor":2,"partial_rotary_factor":0.5})", unsupported,
         "partial_rotary_factor 0.5 with linear scaling");
  refuse("3", invalid, "object");
  refuse(R"({"type":7})", invalid, "type");
  refuse(R"({"type":"linear"})", invalid, "factor");
  refuse(R"({"type":"dynamic","factor":null})", invalid, "factor");
  refuse(R"({"type":"linear","factor":"2"})", invalid, "factor");
  refuse(R"({"type":"linear","factor":0})", invalid, "factor is 0");
  refuse(R"({"type":"linear","factor":-2})", invalid, "factor is -2");
  refuse(R"({"type":"linear","factor":1e300})", invalid, "context is 1099511627776");
  refuse(R"({"type":"yarn","factor":4,"original_max_position_embeddings":0})", invalid,
         "original_max_position_embeddings");
  refuse(R"({"type":"yarn","factor":4,"attention_factor":0})", invalid, "attention_factor is 0");
  refuse(R"({"type":"yarn","factor":4,"beta_slow":-1})", invalid, "beta_slow is -1");
  refuse(R"({"type":"yarn","factor":4,"truncate":3})", invalid, "truncate");
  refuse(R"({"type":"yarn","factor":4,"mscale":"x"})", invalid, "mscale");
  refuse(R"({"type":"yarn","factor":4,"rope_theta":1})", invalid, "yarn needs one above 1");
  refuse(R"({"type":"llama3","factor":8})", invalid, "low_freq_factor");
  refuse(R"({"type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})", invalid,
         "must be below high_freq_factor");
  refuse(R"({"rope_theta":0})", invalid, "rope_theta is 0");
  refuse(R"({"rope_theta":1e300})", invalid, "rope_theta is inf");
}

TEST(RopeConfig, OwnKeysAreChecked) {
  TransformerConfig config = parse(llama(R"({"rope_type":"yarn","factor":4})"));
  const json good = json::parse(model_config_json(config));
  const auto refuse = [&](const char* key, const json& value, ErrorCode code,
                          const std::string& text) {
    json bad = good;
    bad["volta"]["rope_scaling"][key] = value;
    expect_error(parse_model_config(bad.dump(), "config.json"), code, text);
  };
  refuse("kind", "ntk", ErrorCode::kUnsupported, "'ntk'");
  refuse("kind", "longrope", ErrorCode::kInvalidFile, "short_factors");
  refuse("kind", 3, ErrorCode::kInvalidFile, "kind");
  refuse("beta_fast", "x", ErrorCode::kInvalidFile, "volta.rope_scaling.beta_fast");
  refuse("original", -1, ErrorCode::kInvalidFile, "original");
  refuse("truncate", 1, ErrorCode::kInvalidFile, "truncate");
  refuse("kind", "linear", ErrorCode::kInvalidFile, "max_position_embeddings is 256");
  refuse("factor", 8.0, ErrorCode::kInvalidFile, "factor is 4");
}

}  // namespace
}  // namespace volta
