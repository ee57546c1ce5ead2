#include "formats/model_check.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/file.h"
#include "base/memory.h"
#include "device/helpers.h"
#include "formats/adapter.h"
#include "formats/gguf/convert_paths.h"
#include "formats/gguf/gguf_bytes.h"
#include "formats/model_folder.h"
#include "formats/safetensors.h"
#include "support/model.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"
#include "text/tokenizer.h"

namespace volta {
namespace {

using test::expect_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TransformerConfig small_llama() {
  return {.vocab_size = 256,
          .context = 8,
          .layers = 2,
          .dim = 16,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 4,
          .ffn = 24,
          .naming = WeightNaming::kLlama,
          .position = PositionKind::kRotary,
          .norm = NormKind::kRms,
          .ffn_kind = FfnKind::kGated,
          .activation = Activation::kSilu,
          .tied_output = false};
}

ModelCheck check(const std::string& folder) {
  auto pool = ThreadPool::create(2);
  auto checked = check_model(folder, *pool);
  if (checked) return *std::move(checked);
  ADD_FAILURE() << checked.error().message();
  return {};
}

// "file: message" of every finding, contradictions with a "!".
std::vector<std::string> findings(const std::string& folder) {
  std::vector<std::string> lines;
  for (const Finding& finding : check(folder).findings) {
    const bool contradiction = finding.kind == Finding::Kind::kContradiction;
    lines.push_back((contradiction ? "!" : "") + finding.where + ": " + finding.what);
  }
  return lines;
}

class ModelCheckTest : public testing::Test {
 protected:
  // A good model of 256 byte tokens.
  void make(const TransformerConfig& config) {
    const auto model = Transformer::random(config, 1, test::cpu(1));
    ASSERT_TRUE(model) << model.error().message();
    ASSERT_TRUE(save_model(folder_, *model, make_byte_tokenizer().get()));
    tensors_ = *SafetensorsFile::open(weights_)->load_all();
  }
  void save() { ASSERT_TRUE(write_safetensors(weights_, tensors_, {})); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  // Overwrites one element.
  void poison(const std::string& tensor, std::int64_t element, float value) {
    auto values = tensors_.at(tensor).mutable_values<float>();
    ASSERT_TRUE(values);
    (*values)[static_cast<std::size_t>(element)] = value;
  }

  test::TempDir dir_;
  std::string folder_ = dir_.path();
  std::string weights_ = dir_.file("model.safetensors");
  std::map<std::string, Tensor> tensors_;
};

TEST_F(ModelCheckTest, AGoodModelHasNoFindings) {
  make(small_llama());
  put("generation_config.json", R"({"bos_token_id": 1, "eos_token_id": [2, 255], "x": null})");
  const ModelCheck good = check(folder_);
  EXPECT_THAT(findings(folder_), IsEmpty());
  EXPECT_THAT(good.weight_files, ElementsAre("model.safetensors"));
  EXPECT_EQ(good.tensors, static_cast<std::int64_t>(tensors_.size()));
  EXPECT_EQ(good.bytes, 4 * parameter_count(small_llama()));
  EXPECT_TRUE(good.has_tokenizer);
  std::filesystem::remove(dir_.file("tokenizer.json"));
  EXPECT_FALSE(check(folder_).has_tokenizer);
  EXPECT_THAT(findings(folder_), IsEmpty());
}

TEST_F(ModelCheckTest, GoodModelsOfOthersHaveNone) {
  VOLTA_NEEDS_SHARED("models");
  for (const auto& entry : std::filesystem::directory_iterator(test::shared_path("models"))) {
    const auto config = test::load_config(entry.path().string());
    if (!config && config.error().code() == ErrorCode::kUnsupported) continue;
    EXPECT_THAT(findings(entry.path().string()), IsEmpty()) << entry.path();
  }
}

// Other programs may write to a file while it is read: that is a finding, not the end of the
// process.
TEST_F(ModelCheckTest, AFileThatIsCutWhileItIsReadIsAFinding) {
  install_mapping_guard();
  make(small_llama());
  const auto size = std::filesystem::file_size(weights_);
  auto pool = ThreadPool::create(2);
  std::int64_t calls = 0;
  const auto checked = check_model(folder_, *pool, [&](std::int64_t, std::int64_t) {
    if (++calls == 3) std::filesystem::resize_file(weights_, 4096);
    return true;
  });
  ASSERT_TRUE(checked) << checked.error().message();
  ASSERT_EQ(checked->findings.size(), 1u);
  EXPECT_EQ(checked->findings.front().kind, Finding::Kind::kInvalid);
  EXPECT_EQ(checked->findings.front().where, "model.safetensors");
  EXPECT_THAT(checked->findings.front().what,
              HasSubstr("was cut from " + std::to_string(size) + " to 4096 bytes"));
  EXPECT_EQ(calls, 3);  // The rest is not read.
}

TEST_F(ModelCheckTest, EveryTensorThatDoesNotFitIsNamed) {
  make(small_llama());
  tensors_.erase("model.norm.weight");
  tensors_.erase("model.layers.1.mlp.up_proj.weight");
  tensors_["model.layers.0.mlp.up_proj.weight"] = *Tensor::zeros(test::f32(Shape(16, 24)));
  tensors_["model.layers.0.mlp.down_proj.weight"] = *Tensor::zeros(test::i32(Shape(16, 24)));
  tensors_["model.layers.2.mlp.up_proj.weight"] = *Tensor::zeros(test::f32(Shape(1)));
  tensors_["layers.0.mlp.gate_proj.weight"] = *Tensor::zeros(test::f32(Shape(24, 16)));
  tensors_["model.layers.0.self_attn.rotary_emb.inv_freq"] = *Tensor::zeros(test::f32(Shape(2)));
  save();
  EXPECT_THAT(
      findings(folder_),
      testing::UnorderedElementsAre(
          "model.safetensors: tensor 'model.norm.weight' [16] is missing",
          "model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight' [24, 16] is missing",
          "model.safetensors: tensor 'model.layers.0.mlp.up_proj.weight' is f32[16, 24]; the "
          "config asks for a float tensor [24, 16]",
          "model.safetensors: tensor 'model.layers.0.mlp.down_proj.weight' is i32[16, 24]; the "
          "config asks for a float tensor [16, 24]",
          "model.safetensors: tensor 'model.layers.2.mlp.up_proj.weight' f32[1] belongs to no "
          "parameter of this architecture",
          "model.safetensors: tensor 'model.layers.0.mlp.gate_proj.weight' is there twice"));
}

TEST_F(ModelCheckTest, ValuesThatAreNoNumbersAreCounted) {
  make(small_llama());
  poison("model.norm.weight", 3, std::nanf(""));
  poison("model.norm.weight", 5, -INFINITY);
  poison("model.norm.weight", 15, std::nanf(""));
  poison("lm_head.weight", 4095, INFINITY);
  save();
  EXPECT_THAT(findings(folder_),
              ElementsAre("model.safetensors: tensor 'lm_head.weight' f32[256, 16] has 0 NaN and 1 "
                          "infinite values, the first at element 4095",
                          "model.safetensors: tensor 'model.norm.weight' f32[16] has 2 NaN and 1 "
                          "infinite values, the first at element 3"));
}

TEST_F(ModelCheckTest, ATiedOutputMustBeTheEmbedding) {
  TransformerConfig config = small_llama();
  config.tied_output = true;
  make(config);
  tensors_["lm_head.weight"] = *tensors_.at("model.embed_tokens.weight").clone_to();
  save();
  EXPECT_THAT(findings(folder_), IsEmpty());
  poison("lm_head.weight", 0, 5.0f);
  save();
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("!model.safetensors: the config ties")));
}

TEST_F(ModelCheckTest, BiasesThatTheModelLacksMustBeZero) {
  TransformerConfig config = small_llama();
  config.naming = WeightNaming::kGpt2;
  config.position = PositionKind::kLearned;
  config.norm = NormKind::kLayer;
  config.ffn_kind = FfnKind::kMlp;
  config.activation = Activation::kGelu;
  config.kv_heads = 4;
  make(config);
  EXPECT_THAT(findings(folder_), IsEmpty());
  poison("transformer.h.0.ln_1.bias", 2, 0.5f);
  save();
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("'transformer.h.0.ln_1.bias' f32[16] is a "
                                                       "bias that this architecture has not")));
}

TEST_F(ModelCheckTest, TokensBeyondTheVocabularyContradictTheModel) {
  TransformerConfig config = small_llama();
  config.vocab_size = 200;
  make(config);
  put("generation_config.json", R"({"bos_token_id": 200, "eos_token_id": [2, 255]})");
  EXPECT_THAT(
      findings(folder_),
      ElementsAre("!tokenizer.json: it has ids up to 255, the model's vocabulary ids 0 to "
                  "199",
                  "!generation_config.json: bos_token_id is 200; the model's vocabulary has "
                  "ids 0 to 199",
                  "!generation_config.json: eos_token_id is 255; the model's vocabulary "
                  "has ids 0 to 199"));
}

// Each id is looked for in the file that has it.
TEST_F(ModelCheckTest, AnEndTokenIsReportedForTheFileThatNamesIt) {
  make(small_llama());
  std::string config = *read_text_file(dir_.file("config.json"));
  const std::size_t key = config.find("\"eos_token_id\"");
  config.replace(key, config.find_first_of(",\n", key) - key, "\"eos_token_id\": [2, 99999]");
  put("config.json", config);
  put("generation_config.json", R"({"eos_token_id": 2})");
  const std::string what = "eos_token_id is 99999; the model's vocabulary has ids 0 to 255";
  EXPECT_THAT(findings(folder_), ElementsAre("!config.json: " + what));
  put("generation_config.json", R"({"eos_token_id": 99999})");
  EXPECT_THAT(findings(folder_),
              ElementsAre("!generation_config.json: " + what, "!config.json: " + what));
}

// What generate would refuse.
TEST_F(ModelCheckTest, GenerationConfigsMustBeUsable) {
  make(small_llama());
  for (const std::string text :
       {R"({"temperature": "hot"})", R"({"top_k": -5})", R"({"max_new_tokens": 1e30})",
        R"({"eos_token_id": -1})", R"({"eos_token_id": "x"})", "[]"}) {
    put("generation_config.json", text);
    EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("generation_config.json: "))) << text;
  }
  std::filesystem::remove(dir_.file("generation_config.json"));
  EXPECT_THAT(findings(folder_), IsEmpty());
  const std::string config = *read_text_file(dir_.file("config.json"));
  const auto end_token = [&](const std::string& id) {
    const std::size_t key = config.find("\"eos_token_id\"");
    const std::size_t end = config.find_first_of(",\n", key);
    ASSERT_NE(end, std::string::npos);
    put("config.json", config.substr(0, key) + "\"eos_token_id\": " + id + config.substr(end));
  };
  for (const std::string id : {"-1", "\"x\"", "[1, null]"}) {
    end_token(id);
    EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("config.json: "))) << id;
  }
  end_token("256");
  EXPECT_THAT(findings(folder_), ElementsAre("!config.json: eos_token_id is 256; the model's "
                                             "vocabulary has ids 0 to 255"));
  end_token("255");
  EXPECT_THAT(findings(folder_), IsEmpty());
}

TEST_F(ModelCheckTest, ChatTemplatesMustParse) {
  make(small_llama());
  put("chat_template.jinja", "{% if %}");
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("chat_template.jinja: ")));
  put("chat_template.jinja", "{{ messages }}");
  EXPECT_THAT(findings(folder_), IsEmpty());
  std::filesystem::remove(dir_.file("chat_template.jinja"));
  put("tokenizer_config.json", R"({"chat_template": "{{"})");
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("tokenizer_config.json: ")));
}

TEST_F(ModelCheckTest, ChatTemplatesMustRenderAConversation) {
  make(small_llama());
  put("chat_template.jinja", "{% for m in messages %}{{ m.content[5].x }}{% endfor %}");
  EXPECT_THAT(findings(folder_),
              ElementsAre(AllOf(HasSubstr("chat_template.jinja: "), HasSubstr("line 1"))));
  // Both conversations are refused: the report has the reason for a user's message alone.
  put("chat_template.jinja", "{{ raise_exception(messages|length ~ ' are not enough') }}");
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("1 are not enough")));
  // A template may refuse forms of conversations, and it may render nothing.
  for (const std::string good :
       {"{% if messages[0].role != 'system' %}{{ raise_exception('no system message') }}{% endif %}"
        "{{ messages[1].content }}",
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{{ messages[0].content }}",
        ""}) {
    put("chat_template.jinja", good);
    EXPECT_THAT(findings(folder_), IsEmpty()) << good;
  }
}

TEST_F(ModelCheckTest, CheckingAChatTemplateCanBeInterrupted) {
  make(small_llama());
  put("chat_template.jinja",
      "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}"
      "{% endfor %}{{ messages[0].content }}");
  auto pool = ThreadPool::create(1);
  std::int64_t calls = 0;
  ASSERT_TRUE(check_model(folder_, *pool, [&](std::int64_t, std::int64_t) { return ++calls > 0; }));
  const std::int64_t last = calls;
  calls = 0;
  expect_error(
      check_model(folder_, *pool, [&](std::int64_t, std::int64_t) { return ++calls < last; }),
      ErrorCode::kInterrupted, "interrupted");
}

TEST_F(ModelCheckTest, AdaptersAreChecked) {
  make(small_llama());
  const std::string base = dir_.file("base");
  std::filesystem::create_directory(base);
  std::filesystem::rename(dir_.file("config.json"), base + "/config.json");
  for (const std::string name : {"model.safetensors", "tokenizer.json"}) {
    std::filesystem::remove(dir_.file(name));
  }
  const auto config = test::load_config(base);
  ASSERT_TRUE(config);
  LoraConfig lora;
  lora.rank = 2;
  lora.alpha = 4.0;
  lora.targets = {"q_proj"};
  Adapter adapter{.config = lora, .weights = {}};
  for (const ParameterInfo& info : lora_parameters(*config, lora)) {
    adapter.weights.emplace(info.name, *Tensor::zeros({DType::kF32, info.shape}));
  }
  ASSERT_TRUE(save_adapter(folder_, *config, adapter, base));
  const ModelCheck good = check(folder_);
  EXPECT_TRUE(good.adapter);
  EXPECT_THAT(findings(folder_), IsEmpty());
  EXPECT_EQ(good.tensors, 4);
  // Tensors that do not fit the base; unknown bases are not looked at.
  lora.rank = 3;
  put("adapter_config.json", adapter_config_json(*config, lora, base));
  const auto refused = testing::Each(
      AllOf(HasSubstr("adapter_model.safetensors: tensor "), HasSubstr("the rank of 3 ")));
  EXPECT_THAT(findings(folder_), AllOf(testing::SizeIs(4), refused));
  put("adapter_config.json", adapter_config_json(*config, lora, "owner/name"));
  EXPECT_THAT(findings(folder_), AllOf(testing::SizeIs(4), refused));  // Whatever its base is.
  lora.rank = 2;
  put("adapter_config.json", adapter_config_json(*config, lora, "owner/name"));
  EXPECT_THAT(findings(folder_), IsEmpty());
  const std::string path = dir_.file("adapter_model.safetensors");
  auto tensors = *SafetensorsFile::open(path)->load_all();
  // What needs no base: targets, pairs, blocks, types, names.
  const std::string a = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight";
  const std::string b = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight";
  const auto findings_of = [&](auto change) {
    auto changed = tensors;
    change(changed);
    EXPECT_TRUE(write_safetensors(path, changed, {}));
    return findings(folder_);
  };
  const Tensor other = *Tensor::zeros({DType::kI32, Shape(2, 16)});
  EXPECT_THAT(findings_of([&](auto& all) { all.erase(b); }),
              ElementsAre(HasSubstr("'" + a + "' is there, but not '" + b + "'")));
  EXPECT_THAT(
      findings_of([&](auto& all) {
        all.erase(a);
        all.erase(b);
        all["base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight"] = tensors.at(a);
        all["base_model.model.model.layers.2.self_attn.q_proj.lora_B.weight"] = tensors.at(b);
      }),
      ElementsAre(HasSubstr("'model.layers.*.self_attn.q_proj' has tensors in 2 blocks, "
                            "but the last block is number 2")));
  EXPECT_THAT(findings_of([&](auto& all) { all[a] = other; }),
              ElementsAre(HasSubstr("is i32[2, 16]; the rank of 2 in adapter_config.json asks for "
                                    "a float tensor [2, inputs]")));
  EXPECT_THAT(
      findings_of([&](auto& all) { all["base_model.model.x.k_proj.lora_A.weight"] = other; }),
      ElementsAre(HasSubstr("belongs to no target of adapter_config.json: q_proj")));
  EXPECT_THAT(findings_of([&](auto& all) { all["lora_A.weight"] = other; }),
              ElementsAre(HasSubstr("'lora_A.weight' is none of an adapter's")));
  ASSERT_TRUE(write_safetensors(path, tensors, {}));
  lora.targets = {"q_proj", "v_proj"};
  put("adapter_config.json", adapter_config_json(*config, lora, "owner/name"));
  EXPECT_THAT(findings(folder_),
              ElementsAre(HasSubstr("the target 'v_proj' of adapter_config.json has no tensors")));
  lora.targets = {"q_proj"};
  put("adapter_config.json", adapter_config_json(*config, lora, "owner/name"));
  (*tensors.begin()->second.mutable_values<float>())[1] = NAN;
  ASSERT_TRUE(write_safetensors(path, tensors, {}));
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("has 1 NaN and 0 infinite values")));
  put("adapter_config.json", "{}");
  put("adapter_model.safetensors", "short");
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("adapter_config.json: "),
                                             HasSubstr("adapter_model.safetensors: ")));
  std::filesystem::remove(dir_.file("adapter_config.json"));
  std::filesystem::create_directory(dir_.file("adapter_config.json"));
  EXPECT_THAT(findings(folder_).front(), HasSubstr("is a folder"));
}

TEST_F(ModelCheckTest, EveryDamagedFileIsNamed) {
  make(small_llama());
  put("config.json", "{\"model_type\": \"llama\"");
  put("model.safetensors", "short");
  put("tokenizer.json", "[]");
  put("generation_config.json", "{");
  EXPECT_THAT(findings(folder_),
              ElementsAre(HasSubstr("config.json: "), HasSubstr("model.safetensors: "),
                          HasSubstr("tokenizer.json: "), HasSubstr("generation_config.json: ")));
  put("generation_config.json", "[]");
  EXPECT_THAT(findings(folder_).back(), HasSubstr("generation_config.json: "));
  std::filesystem::remove(dir_.file("generation_config.json"));
  std::filesystem::create_directory(dir_.file("generation_config.json"));
  EXPECT_THAT(findings(folder_).back(), HasSubstr("is a folder"));
}

// Without a config the values can still be looked at.
TEST_F(ModelCheckTest, AFolderWithoutAConfigIsCheckedAsFarAsPossible) {
  make(small_llama());
  poison("lm_head.weight", 0, INFINITY);
  save();
  std::filesystem::remove(dir_.file("config.json"));
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("config.json: "), HasSubstr("lm_head")));
  std::filesystem::remove(weights_);
  EXPECT_THAT(findings(folder_),
              ElementsAre(HasSubstr("config.json: "), HasSubstr("model.safetensors: ")));
}

class ShardsTest : public ModelCheckTest {
 protected:
  // The model in two shards and an index.
  void SetUp() override {
    make(small_llama());
    std::filesystem::remove(weights_);
    std::string map;
    for (const auto& [name, tensor] : tensors_) {
      const std::string file = shard(name == "lm_head.weight" ? 1 : 2);
      shards_[file].emplace(name, tensor);
      map += (map.empty() ? "" : ",") + ("\"" + name + "\":\"" + file + "\"");
    }
    put("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
    for (const auto& [file, tensors] : shards_) {
      ASSERT_TRUE(write_safetensors(dir_.file(file), tensors));
    }
  }
  static std::string shard(int number) {
    return "model-0000" + std::to_string(number) + "-of-00002.safetensors";
  }
  std::map<std::string, std::map<std::string, Tensor>> shards_;
};

TEST_F(ShardsTest, AreCheckedTogether) {
  EXPECT_THAT(findings(folder_), IsEmpty());
  EXPECT_THAT(check(folder_).weight_files, ElementsAre(shard(1), shard(2)));
  poison("lm_head.weight", 0, std::nanf(""));
  ASSERT_TRUE(write_safetensors(dir_.file(shard(1)), shards_.at(shard(1))));
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr(shard(1) + ": tensor 'lm_head.weight'")));
}

TEST_F(ShardsTest, EveryDamagedOneIsNamed) {
  put(shard(1), "short");
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr(shard(1))));
  put(shard(2), "short, too");
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr(shard(1)), HasSubstr(shard(2))));
  std::filesystem::remove(dir_.file(shard(1)));
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr(shard(2)), HasSubstr(shard(1))));
}

TEST_F(ShardsTest, AnIndexThatDisagreesIsNamed) {
  auto& second = shards_.at(shard(2));
  second.erase("model.norm.weight");
  ASSERT_TRUE(write_safetensors(dir_.file(shard(2)), second));
  EXPECT_THAT(findings(folder_), ElementsAre(HasSubstr("model.norm.weight")));
}

TEST_F(ModelCheckTest, CanBeInterruptedAndNeedsAFolder) {
  auto pool = ThreadPool::create(1);
  expect_error(check_model(dir_.file("none"), *pool), ErrorCode::kNotFound, "none");
  make(small_llama());
  std::int64_t calls = 0;
  expect_error(check_model(folder_, *pool, [&](std::int64_t, std::int64_t) { return ++calls < 3; }),
               ErrorCode::kInterrupted, "interrupted after");
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(finding_name(Finding::Kind::kInvalid), "invalid");
  EXPECT_EQ(finding_name(Finding::Kind::kContradiction), "contradiction");
}

// A header that explains 100 GiB, and a sparse file that has them.
std::string sparse_tensor(const std::string& name, std::int64_t rows, std::int64_t columns) {
  const std::string size = std::to_string(4 * rows * columns);
  return "{\"" + name + R"(":{"dtype":"F32","shape":[)" + std::to_string(rows) + "," +
         std::to_string(columns) + R"(],"data_offsets":[0,)" + size + "]}}";
}
void write_sparse(const std::string& path, const std::string& header, std::int64_t data_bytes) {
  const std::uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary);
  file << as_text(object_bytes(length)) << header;
  file.close();
  std::filesystem::resize_file(path, 8 + header.size() + static_cast<std::size_t>(data_bytes));
}

TEST_F(ModelCheckTest, TensorsThatDoNotFitAreNotRead) {
  make(small_llama());
  constexpr std::int64_t kRows = std::int64_t{25} << 20, kColumns = 1024;  // 100 GiB.
  write_sparse(weights_, sparse_tensor("model.embed_tokens.weight", kRows, kColumns),
               4 * kRows * kColumns);
  const ModelCheck checked = check(folder_);
  EXPECT_EQ(checked.bytes, 0);
  EXPECT_THAT(findings(folder_),
              testing::Contains(HasSubstr("f32[26214400, 1024]; the config asks for")));
  // Nor the biases that the model lacks, when they are longer than such a bias.
  TransformerConfig config = small_llama();
  config.naming = WeightNaming::kGpt2;
  config.position = PositionKind::kLearned;
  config.norm = NormKind::kLayer;
  config.ffn_kind = FfnKind::kMlp;
  config.activation = Activation::kGelu;
  config.kv_heads = 4;
  make(config);
  write_sparse(weights_, sparse_tensor("transformer.h.0.ln_1.bias", kRows, kColumns),
               4 * kRows * kColumns);
  EXPECT_EQ(check(folder_).bytes, 0);
  expect_error(test::load_model(folder_, test::cpu(1)), ErrorCode::kInvalidFile,
               "'transformer.h.0.ln_1.bias' f32[26214400, 1024] belongs to no parameter");
}

TEST_F(ModelCheckTest, AskedOftenHoweverLargeATensorIs) {
  make(small_llama());
  std::filesystem::remove(dir_.file("config.json"));  // Nothing says that it does not fit.
  constexpr std::int64_t kRows = std::int64_t{25} << 20, kColumns = 1024;
  write_sparse(weights_, sparse_tensor("model.embed_tokens.weight", kRows, kColumns),
               4 * kRows * kColumns);
  auto pool = ThreadPool::create(1);
  std::vector<std::int64_t> told;
  const auto go_on = [&](std::int64_t bytes, std::int64_t all) {
    EXPECT_EQ(all, 4 * kRows * kColumns);
    told.push_back(bytes);
    return told.size() < 4;
  };
  expect_error(check_model(folder_, *pool, go_on), ErrorCode::kInterrupted, "interrupted after");
  EXPECT_THAT(told, ElementsAre(0, 32 << 20, 64 << 20, 96 << 20));
}

// Where pieces meet, places still count from the tensor's beginning.
TEST_F(ModelCheckTest, PlacesCountFromTheTensorsBeginning) {
  make(small_llama());
  std::filesystem::remove(dir_.file("config.json"));
  constexpr std::int64_t kElements = std::int64_t{17} << 20;
  Tensor large = *Tensor::zeros(test::f32(Shape(kElements)));
  (*large.mutable_values<float>())[kElements - 1] = NAN;
  ASSERT_TRUE(write_safetensors(weights_, {{"large", large}}));
  EXPECT_THAT(findings(folder_),
              testing::Contains(HasSubstr("has 1 NaN and 0 infinite values, the first at element " +
                                          std::to_string(kElements - 1))));
}

class GgufCheck : public testing::Test {
 protected:
  std::vector<std::string> findings(const std::string& path) { return volta::findings(path); }
  // A copy of a model, with some of its bytes changed.
  std::string changed(std::size_t at, std::string_view bytes) {
    std::string text = *read_text_file(test::gguf_data("llama.gguf"));
    text.replace(at, bytes.size(), bytes);
    const std::string path = dir_.file("changed.gguf");
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  test::TempDir dir_;
};

TEST_F(GgufCheck, GoodOnesHaveNoFindings) {
  for (const std::string name : {"llama.gguf", "qwen2.gguf", "qwen3.gguf", "gpt2.gguf"}) {
    const std::string path = test::gguf_data(name);
    EXPECT_THAT(findings(path), IsEmpty()) << name;
    const ModelCheck good = check(path);
    EXPECT_EQ(good.tensors, std::ssize(test::open_gguf(path).tensors()));
    EXPECT_GT(good.bytes, 0);
    EXPECT_EQ(good.has_tokenizer, test::load_tokenizer(path).has_value()) << name;
    EXPECT_THAT(good.weight_files, ElementsAre("gguf_" + name));
  }
}

TEST_F(GgufCheck, ValuesAndStructureAreLookedAt) {
  const GgufFile file = test::open_gguf(test::gguf_data("llama.gguf"));
  const GgufTensor* norm = file.find_tensor("output_norm.weight");
  ASSERT_NE(norm, nullptr);
  ASSERT_EQ(norm->type, GgmlType::kF32);
  EXPECT_THAT(findings(changed(static_cast<std::size_t>(norm->offset) + 8, {"\0\0\xc0\x7f", 4})),
              ElementsAre(HasSubstr("changed.gguf: tensor 'output_norm.weight' F32[")));
  const std::string key = "llama.block_count";
  const std::size_t at = read_text_file(test::gguf_data("llama.gguf"))->find(key) + key.size() + 4;
  EXPECT_THAT(findings(changed(at, {"\x63\0\0\0", 4})),
              testing::Contains(HasSubstr("99 blocks are claimed")));
  EXPECT_THAT(findings(changed(at, {"\x02\0\0\0", 4})),
              testing::Contains(HasSubstr("is missing; the metadata asks for")));
  EXPECT_THAT(findings(changed(0, "GGML")), ElementsAre(HasSubstr("this is no GGUF file")));
  auto pool = ThreadPool::create(1);
  expect_error(check_model(dir_.file("none.gguf"), *pool), ErrorCode::kNotFound, "none.gguf");
  expect_error(check_model(test::gguf_data("llama.gguf"), *pool,
                           [](std::int64_t, std::int64_t) { return false; }),
               ErrorCode::kInterrupted, "interrupted");
}

// Scales of quantised blocks, too.
TEST_F(GgufCheck, ScalesOfBlocksAreLookedAt) {
  const std::string folder = dir_.file("folder"), quantised = dir_.file("q.gguf");
  const auto go_on = [](std::size_t, std::size_t) { return true; };
  ASSERT_TRUE(
      test::gguf_to_folder(test::gguf_data("llama.gguf"), folder, DType::kF32, false, go_on));
  for (const GgmlType type : {GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_1}) {
    ASSERT_TRUE(test::folder_to_gguf(folder, quantised, type, true, go_on));
    EXPECT_THAT(findings(quantised), IsEmpty());
    std::size_t at = 0;
    {
      const GgufFile file = test::open_gguf(quantised);
      const GgufTensor* up = file.find_tensor("blk.0.ffn_up.weight");
      ASSERT_EQ(up->type, type);
      at = static_cast<std::size_t>(up->offset + 2 * ggml_type_info(type).block_bytes);
    }
    std::fstream file(quantised, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write("\x00\x7c", 2);  // An infinite scale.
    file.close();
    EXPECT_THAT(findings(quantised), ElementsAre(HasSubstr("'blk.0.ffn_up.weight'")));
    expect_error(test::gguf_to_folder(quantised, dir_.file("refused"), DType::kF32, false, go_on),
                 ErrorCode::kNonFinite, "mlp.up_proj.weight' holds NaN or infinity");
    EXPECT_FALSE(path_exists(dir_.file("refused")));
  }
}

}  // namespace
}  // namespace volta
