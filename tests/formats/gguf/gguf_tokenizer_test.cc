// Tokenizers of GGUF files against SentencePiece's own ids, and those of Hugging Face tokenizers.
#include "formats/gguf/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/json.h"
#include "device/helpers.h"
#include "formats/gguf/gguf_bytes.h"

namespace volta {
namespace {

using test::expect_error;
using test::GgufSample;
using Ids = std::vector<std::int32_t>;
using ::testing::HasSubstr;
using ::testing::Not;

// The tokens and merges of a committed file, to be described anew.
GgufMetadata lists_of(const GgufFile& file) {
  GgufMetadata metadata;
  const auto texts = [&](std::string_view key) {
    const auto views = file.get_strings(key);
    metadata.add_strings(key, std::vector<std::string>(views->begin(), views->end()));
  };
  texts("tokenizer.ggml.tokens");
  if (file.find("tokenizer.ggml.merges") != nullptr) texts("tokenizer.ggml.merges");
  metadata.add_ints("tokenizer.ggml.token_type", *file.get_ints("tokenizer.ggml.token_type"));
  return metadata;
}

// The tokenizer.json that a conversion writes means the same tokenizer.
void expect_same_as_its_json(const GgufFile& file, const Tokenizer& tokenizer) {
  const std::string text = tokenizer.to_json();
  const auto read = parse_tokenizer(text, "tokenizer.json", *gguf_tokenizer_config(file));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ((*read)->kind(), tokenizer.kind());
  EXPECT_EQ((*read)->vocab_size(), tokenizer.vocab_size());
  EXPECT_EQ((*read)->end_token(), tokenizer.end_token());
  EXPECT_EQ((*read)->to_json(), text);
  std::vector<std::string> texts = test::gguf_goldens()["texts"];
  texts.emplace_back(" 12345 a\u0301\u4f60\U0001F600  It's\r\n\n ab <tool></s>");
  texts.push_back(texts.back() + std::string(200, 'a'));
  for (const std::string& each : texts) {
    const auto ids = tokenizer.encode_prompt(each);
    ASSERT_TRUE(ids) << ids.error().message();
    EXPECT_EQ(*(*read)->encode_prompt(each), *ids) << each;
    EXPECT_EQ((*read)->decode(*ids), tokenizer.decode(*ids));
    EXPECT_EQ((*read)->decode_all(*ids), tokenizer.decode_all(*ids));
    for (const std::int32_t id : *ids) {
      EXPECT_EQ((*read)->token_bytes(id), tokenizer.token_bytes(id));
    }
  }
}

TEST(GgufTokenizer, SentencePieceGivesItsIds) {
  const auto goldens = test::gguf_goldens();
  const GgufFile file = test::open_gguf(test::gguf_data("llama.gguf"));
  const auto tokenizer = gguf_tokenizer(file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  for (std::size_t i = 0; i < goldens["texts"].size(); ++i) {
    std::string text = goldens["texts"][i];
    for (const std::string_view role : {"<s>", "</s>"}) {
      const std::size_t place = text.find(role);
      if (place != std::string::npos) text.erase(place, role.size());
    }
    if (text.empty() || text.find("<tool>") != std::string::npos) continue;  // See below.
    const auto wanted = goldens["sentencepiece"][i].get<Ids>();
    EXPECT_EQ(*(*tokenizer)->encode(text), wanted) << text;
    EXPECT_EQ((*tokenizer)->decode(wanted), text);
  }
  EXPECT_EQ((*tokenizer)->encode_prompt("x")->front(), 1);  // <s>, as usual for this model.
  EXPECT_EQ((*tokenizer)->end_token(), 2);
  expect_same_as_its_json(file, **tokenizer);
  // What the user defined stays whole.
  const auto tool = (*tokenizer)->encode("<tool>");
  EXPECT_EQ(tool->size(), 1u);
  const auto config = gguf_tokenizer_config(file);
  EXPECT_THAT(*config, HasSubstr(R"("chat_template": "{{ messages[0]['content'] }}")"));
  EXPECT_THAT(*config, HasSubstr(R"("bos_token": "<s>")"));
  EXPECT_THAT(*config, HasSubstr(R"("unk_token": "<unk>")"));
  EXPECT_THAT(*config, Not(HasSubstr("pad_token")));
}

TEST(GgufGenerationConfig, NamesTheTokensThatBeginAndEnd) {
  const auto config = [](const std::vector<std::pair<std::string, std::uint32_t>>& ids) {
    GgufSample sample;
    for (const auto& [name, id] : ids) {
      sample.metadata.add_u32("tokenizer.ggml." + name + "_token_id", id);
    }
    const auto file = sample.parse();
    return file ? gguf_generation_config(*file).value_or("failed") : "failed";
  };
  EXPECT_EQ(config({}), "");
  const auto both = nlohmann::json::parse(config({{"bos", 1}, {"eos", 2}, {"eot", 5}}));
  EXPECT_EQ(both, (nlohmann::json{{"bos_token_id", 1}, {"eos_token_id", {2, 5}}}));
  const auto same = nlohmann::json::parse(config({{"eos", 2}, {"eot", 2}, {"padding", 0}}));
  EXPECT_EQ(same, (nlohmann::json{{"eos_token_id", 2}, {"pad_token_id", 0}}));
}

class Split : public ::testing::TestWithParam<std::string> {};

TEST_P(Split, ByteLevelBpeGivesTheIdsOfOthers) {
  const auto goldens = test::gguf_goldens();
  GgufSample sample;
  sample.metadata = lists_of(test::open_gguf(test::gguf_data("qwen2.gguf")));
  sample.metadata.add_string("tokenizer.ggml.model", "gpt2");
  sample.metadata.add_string("tokenizer.ggml.pre", GetParam());
  const auto file = sample.parse();
  ASSERT_TRUE(file) << file.error().message();
  const auto tokenizer = gguf_tokenizer(*file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  for (std::size_t i = 0; i < goldens["texts"].size(); ++i) {
    const std::string text = goldens["texts"][i];
    EXPECT_EQ(*(*tokenizer)->encode(text), goldens["byte_level"][GetParam()][i].get<Ids>()) << text;
  }
}

TEST(GgufTokenizer, EverySplitHasATokenizerJson) {
  for (const char* pre :
       {"gpt-2", "phi-2", "mpt", "olmo", "smollm", "starcoder", "refact", "command-r", "llama-bpe",
        "llama3", "llama-v3", "smaug-bpe", "dbrx", "qwen2", "deepseek-r1-qwen", "tekken"}) {
    SCOPED_TRACE(pre);
    GgufSample sample;
    sample.metadata = lists_of(test::open_gguf(test::gguf_data("qwen2.gguf")));
    sample.metadata.add_string("tokenizer.ggml.model", "gpt2");
    sample.metadata.add_string("tokenizer.ggml.pre", pre);
    sample.metadata.add_u32("tokenizer.ggml.bos_token_id", 1);
    sample.metadata.add_u32("tokenizer.ggml.eos_token_id", 2);
    sample.metadata.add_bool("tokenizer.ggml.add_eos_token", true);
    const auto file = sample.parse();
    ASSERT_TRUE(file) << file.error().message();
    const auto tokenizer = gguf_tokenizer(*file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    expect_same_as_its_json(*file, **tokenizer);
  }
}

INSTANTIATE_TEST_SUITE_P(Names, Split,
                         ::testing::Values("gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

// A tokenizer of a few tokens, to be changed.
struct Few {
  GgufSample sample;
  std::vector<std::string> tokens = {"<s>", "</s>", "a", "b", "ab"};
  explicit Few(const std::string& model = "gpt2") {
    sample.metadata.add_string("tokenizer.ggml.model", model);
  }
  GgufMetadata& metadata() { return sample.metadata; }
  Result<std::shared_ptr<const Tokenizer>> parse() {
    if (!tokens.empty()) metadata().add_strings("tokenizer.ggml.tokens", tokens);
    const auto file = sample.parse();
    if (!file) return std::unexpected(file.error());
    return gguf_tokenizer(*file);
  }
};

TEST(GgufTokenizer, SpecialTokensAreWhereTheMetadataPutsThem) {
  Few few;
  few.metadata().add_string("tokenizer.ggml.pre", "llama-bpe");
  few.metadata().add_strings("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  few.metadata().add_u32("tokenizer.ggml.bos_token_id", 0);
  few.metadata().add_u32("tokenizer.ggml.eos_token_id", 1);
  few.metadata().add_bool("tokenizer.ggml.add_eos_token", true);
  const auto tokenizer = few.parse();
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ(*(*tokenizer)->encode_prompt("ab"), (Ids{0, 4, 1}));  // Llama 3 begins with its bos.
  EXPECT_EQ(*(*tokenizer)->encode("<s>ab"), (Ids{0, 4}));         // Special without being typed so.
  EXPECT_EQ((*tokenizer)->decode(Ids{0, 4, 1}), "ab");
  EXPECT_EQ((*tokenizer)->end_token(), 1);
}

TEST(GgufTokenizer, WithoutASplitTheArchitectureDecides) {
  for (const auto& [architecture, known] :
       {std::pair{"gpt2", true}, std::pair{"qwen3", true}, std::pair{"llama", false}}) {
    Few few;
    few.metadata().add_strings("tokenizer.ggml.merges", std::vector<std::string>{});
    few.metadata().add_string("general.architecture", architecture);
    const auto tokenizer = few.parse();
    EXPECT_EQ(tokenizer.has_value(), known) << architecture;
    if (!known) {
      expect_error(tokenizer, ErrorCode::kUnsupported,
                   "tokenizer.ggml.pre 'default'; Volta knows gpt-2, phi-2");
    }
  }
}

TEST(GgufTokenizer, UnusedTokensAreNone) {
  Few few;
  few.metadata().add_strings("tokenizer.ggml.merges", std::vector<std::string>{});
  few.tokens.push_back("[PAD5]");
  few.metadata().add_string("tokenizer.ggml.pre", "gpt-2");
  few.metadata().add_ints("tokenizer.ggml.token_type", Ids{3, 3, 1, 1, 1, 5});
  const auto tokenizer = few.parse();
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ((*tokenizer)->vocab_size(), 5);
}

TEST(GgufTokenizer, MergesFollowTheScores) {
  // "aa" beats "ab": so "aab" is aa b. A piece that is too long to be looked at is never made.
  Few few("llama");
  few.tokens = {"<unk>", "a", "b", "ab", "aa", std::string(300, 'a')};
  few.metadata().add_ints("tokenizer.ggml.token_type", Ids{2, 1, 1, 1, 1, 1});
  few.metadata().add_floats("tokenizer.ggml.scores", std::vector<float>{0, -9, -9, -2, -1, 0});
  few.metadata().add_bool("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = few.parse();
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ(*(*tokenizer)->encode("aab"), (Ids{4, 2}));
  EXPECT_EQ(*(*tokenizer)->encode("ab"), (Ids{3}));
  expect_same_as_its_json(*few.sample.parse(), **tokenizer);
  // Merges that the file has itself go before scores.
  Few own("llama");
  own.tokens = few.tokens;
  own.metadata().add_floats("tokenizer.ggml.scores", std::vector<float>(6, 0.0f));
  own.metadata().add_strings("tokenizer.ggml.merges", std::vector<std::string>{"a b", "a a"});
  own.metadata().add_bool("tokenizer.ggml.add_space_prefix", false);
  const auto other = own.parse();
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_EQ(*(*other)->encode("aab"), (Ids{1, 3}));
  expect_same_as_its_json(*own.sample.parse(), **other);
}

// Runs of one letter can be halved anywhere: a file of a few kilobytes would become millions of
// merges.
TEST(GgufTokenizer, PiecesWithTooManyHalvesAreRefused) {
  const auto runs = [](std::size_t longest) {
    Few file("llama");
    file.tokens = {"<unk>"};
    for (std::size_t n = 1; n <= longest; ++n) file.tokens.emplace_back(n, 'a');
    std::vector<float> scores(file.tokens.size());
    for (std::size_t n = 0; n < scores.size(); ++n) scores[n] = static_cast<float>(n);
    file.metadata().add_floats("tokenizer.ggml.scores", scores);
    file.metadata().add_bool("tokenizer.ggml.add_space_prefix", false);
    return file.parse();
  };
  const auto good = runs(30);
  ASSERT_TRUE(good) << good.error().message();
  EXPECT_EQ((*good)->encode(std::string(30, 'a'))->size(), 1u);
  expect_error(runs(60), ErrorCode::kInvalidFile, "can be put together in more than ");
}

TEST(GgufTokenizer, DamagedOnesAreRefused) {
  const auto invalid = ErrorCode::kInvalidFile, unsupported = ErrorCode::kUnsupported;
  const auto refuse = [](Few few, ErrorCode code, const std::string& text) {
    expect_error(few.parse(), code, text);
  };
  const auto with = [](const std::string& model, auto change) {
    Few few(model);
    few.metadata().add_string("tokenizer.ggml.pre", "gpt-2");
    change(few);
    return few;
  };
  expect_error(gguf_tokenizer(*GgufSample().parse()), ErrorCode::kNotFound, "has no tokenizer");
  refuse(Few("no_vocab"), ErrorCode::kNotFound, "has no tokenizer");
  refuse(Few("none"), ErrorCode::kNotFound, "has no tokenizer");
  refuse(Few("bert"), unsupported, "tokenizer.ggml.model 'bert'; Volta knows gpt2");
  refuse(with("gpt2", [](Few& f) { f.tokens.clear(); }), invalid, "is missing or empty");
  refuse(with("gpt2", [](Few& f) { f.tokens.push_back("a"); }), invalid,
         "tokens 2 and 5 are both 'a'");
  refuse(with("gpt2", [](Few& f) { f.tokens.emplace_back(5000, 'a'); }), invalid,
         "token 5 has 5000 bytes; at most 4096 are allowed");
  refuse(with("gpt2",
              [](Few& f) {
                f.metadata().add_strings("tokenizer.ggml.merges", std::vector<std::string>{"ab"});
              }),
         invalid, "merge 'ab' is not two tokens");
  refuse(with("gpt2", [](Few&) {}), invalid, "tokenizer.ggml.merges is missing");
  refuse(with("gpt2",
              [](Few& f) {
                f.metadata().add_strings("tokenizer.ggml.merges",
                                         std::vector<std::string>{"a b", "a c"});
              }),
         invalid, "tokenizer.ggml.merges[1]: token 'c' is not in the vocabulary");
  refuse(with("gpt2", [](Few& f) { f.metadata().add_ints("tokenizer.ggml.token_type", Ids{1}); }),
         invalid, "1 token types for 5 tokens");
  for (const std::int32_t type : {0, 7, -1}) {
    const auto unknown = [&](Few& f) {
      f.metadata().add_ints("tokenizer.ggml.token_type", Ids{3, 3, 1, type, 1});
    };
    refuse(with("gpt2", unknown), invalid,
           "tokenizer.ggml.token_type is " + std::to_string(type) +
               " for token 3 ('b'); the types are 1 (normal), 2 (unknown)");
  }
  refuse(with("gpt2", [](Few& f) { f.metadata().add_u32("tokenizer.ggml.bos_token_id", 5); }),
         invalid, "is not an integer from 0 to 4");
  refuse(with("llama", [](Few&) {}), invalid, "0 scores for 5 tokens");
  refuse(with("llama",
              [](Few& f) {
                f.metadata().add_floats(
                    "tokenizer.ggml.scores",
                    std::vector<float>(5, std::numeric_limits<float>::quiet_NaN()));
              }),
         invalid, "is not finite");
}

TEST(GgufTokenizer, ATokenizerJsonIsTakenAsItIs) {
  GgufSample sample;
  sample.metadata.add_string("tokenizer.huggingface.json", make_byte_tokenizer()->to_json());
  sample.metadata.add_u32("tokenizer.ggml.eos_token_id", 7);  // An id without a list of tokens.
  const auto file = sample.parse();
  const auto tokenizer = gguf_tokenizer(*file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ((*tokenizer)->kind(), "byte");
  EXPECT_EQ(gguf_token_ids(*file)->eos, 7);
}

TEST(GgufTokenizer, ABadTokenizerJsonIsReportedWithItsKey) {
  for (const std::string text : {"{}", "[", R"({"model": {"type": "x"}})"}) {
    GgufSample sample;
    sample.metadata.add_string("tokenizer.huggingface.json", text);
    const auto file = sample.parse();
    const auto tokenizer = gguf_tokenizer(*file);
    ASSERT_FALSE(tokenizer);
    EXPECT_THAT(tokenizer.error().message(),
                testing::StartsWith(file->path() + ": tokenizer.huggingface.json"));
  }
}

}  // namespace
}  // namespace volta
