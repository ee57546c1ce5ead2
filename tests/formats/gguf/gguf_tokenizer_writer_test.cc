// Tokenizer files into metadata: read back from tokenizer.ggml.* alone, the ids are the same.
#include "formats/gguf/gguf_tokenizer_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "device/helpers.h"
#include "formats/gguf/gguf_bytes.h"
#include "formats/gguf/gguf_tokenizer.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using nlohmann::json;
using test::expect_error;
using test::GgufSample;

json tokenizer_data(const std::string& name) {
  std::ifstream file(test::source_path("tests/text/data/" + name + "_tokenizer.json"));
  EXPECT_TRUE(file) << name;
  return json::parse(file);
}

// What other programs see: everything but tokenizer.huggingface.json.
struct Written {
  GgufSample sample;
  bool complete = false;
  Result<GgufFile> file = fail(ErrorCode::kInternal, "");
};
void write(const TokenizerFiles& files, std::int64_t vocab_size, Written& out) {
  const auto complete = add_gguf_tokenizer(files, vocab_size, out.sample.metadata);
  ASSERT_TRUE(complete) << complete.error().message();
  out.complete = *complete;
  out.file = out.sample.parse();
  ASSERT_TRUE(out.file) << out.file.error().message();
}
// The same without the tokenizer.json, which is the last key.
Result<std::shared_ptr<const Tokenizer>> from_lists(const GgufFile& file) {
  GgufSample sample;
  for (const GgufEntry& entry : file.metadata()) {
    if (!entry.key.starts_with("tokenizer.ggml.")) continue;
    const std::string key(entry.key);
    switch (entry.value.type) {
      case GgufValueType::kString:
        sample.metadata.add_string(key, *file.get_string(key));
        break;
      case GgufValueType::kBool:
        sample.metadata.add_bool(key, *file.get_bool_or(key, false));
        break;
      case GgufValueType::kUint32:
        sample.metadata.add_u32(key, static_cast<std::uint32_t>(*file.get_int(key, 0, 1 << 30)));
        break;
      default:
        if (entry.value.element == GgufValueType::kString) {
          const auto views = file.get_strings(key);
          sample.metadata.add_strings(key, std::vector<std::string>(views->begin(), views->end()));
        } else if (entry.value.element == GgufValueType::kFloat32) {
          sample.metadata.add_floats(key, *file.get_floats(key));
        } else {
          sample.metadata.add_ints(key, *file.get_ints(key));
        }
    }
  }
  const auto parsed = sample.parse();
  if (!parsed) return std::unexpected(parsed.error());
  return gguf_tokenizer(*parsed);
}

struct Case {
  std::string name, model, pre;
};
class Writer : public ::testing::TestWithParam<Case> {};

TEST_P(Writer, ListsSayWhatTheTokenizerDoes) {
  json data = tokenizer_data(GetParam().name);
  if (GetParam().model == "gpt2") data["tokenizer"]["normalizer"] = nullptr;
  Written written;
  TokenizerFiles files;
  files.tokenizer = data["tokenizer"].dump();
  const auto original = parse_tokenizer(files.tokenizer, "tokenizer.json");
  ASSERT_TRUE(original) << original.error().message();
  write(files, (*original)->vocab_size() + 2, written);
  if (HasFatalFailure()) return;
  EXPECT_TRUE(written.complete);
  EXPECT_EQ(*written.file->get_string("tokenizer.ggml.model"), GetParam().model);
  EXPECT_EQ(*written.file->get_string("tokenizer.ggml.pre"), GetParam().pre);
  const auto lists = from_lists(*written.file);
  ASSERT_TRUE(lists) << lists.error().message();
  const auto whole = gguf_tokenizer(*written.file);
  for (const char* text :
       {"Hello, world! 12345", "the  quick brown\n\nfox's", "na\u00efve \u4f60"}) {
    EXPECT_EQ(*(*lists)->encode(text), *(*original)->encode(text)) << text;
    EXPECT_EQ(*(*whole)->encode_prompt(text), *(*original)->encode_prompt(text)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Writer,
                         ::testing::Values(Case{"gpt2", "gpt2", "gpt-2"},
                                           Case{"llama3", "gpt2", "llama-bpe"},
                                           Case{"llama2", "llama", "default"}),
                         [](const auto& test) { return test.param.name; });

TEST(TokenizerWriter, OthersAreStoredAsTheyAre) {
  for (const char* name : {"bert", "unigram"}) {
    Written written;
    TokenizerFiles files;
    files.tokenizer = tokenizer_data(name)["tokenizer"].dump();
    write(files, 4096, written);
    EXPECT_FALSE(written.complete);
    EXPECT_EQ(*written.file->get_string("tokenizer.ggml.model"), "no_vocab");
    EXPECT_TRUE(gguf_tokenizer(*written.file)) << name;
  }
}

// llama.cpp takes no file without the key (llama-vocab.cpp), and this word for "none".
TEST(TokenizerWriter, AFolderWithoutOneSaysSo) {
  Written written;
  write({}, 16, written);
  ASSERT_TRUE(written.file) << written.file.error().message();
  EXPECT_TRUE(written.complete);
  EXPECT_EQ(*written.file->get_string("tokenizer.ggml.model"), "no_vocab");
  const auto none = gguf_tokenizer(*written.file);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ErrorCode::kNotFound);
}

const char* const kBytes =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "</s>": 2, "ab": 3},
  "merges": ["a b"]}, "added_tokens": [{"id": 2, "content": "</s>", "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "decoder": {"type": "ByteLevel"}})";

TEST(TokenizerWriter, SplitsThatHaveNoNameAreNotGuessed) {
  const json data = tokenizer_data("gpt2");
  const auto complete = [](const json& tokenizer) {
    Written written;
    TokenizerFiles files;
    files.tokenizer = tokenizer.dump();
    write(files, 4096, written);
    return written.complete;
  };
  json tokenizer = data["tokenizer"];
  EXPECT_FALSE(complete(tokenizer));  // NFC, which "gpt-2" does not do.
  tokenizer["normalizer"] = nullptr;
  EXPECT_TRUE(complete(tokenizer));
  tokenizer["pre_tokenizer"]["use_regex"] = false;
  EXPECT_FALSE(complete(tokenizer));
  tokenizer["pre_tokenizer"] = {{"type", "Whitespace"}};
  EXPECT_FALSE(complete(tokenizer));
  json qwen = data["tokenizer"];  // NFC is what "qwen2" does.
  const auto qwens = gguf_tokenizer(test::open_gguf(test::gguf_data("qwen2.gguf")));
  qwen["pre_tokenizer"] = json::parse((*qwens)->to_json())["pre_tokenizer"];
  EXPECT_TRUE(complete(qwen));
  qwen["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  EXPECT_TRUE(complete(qwen));
  qwen["normalizer"]["normalizers"].push_back({{"type", "Lowercase"}});
  EXPECT_FALSE(complete(qwen));
  qwen["normalizer"] = {{"type", "NFD"}};
  EXPECT_FALSE(complete(qwen));
}

// llama.cpp normalises nothing under the name "qwen2", so that its ids are those of a tokenizer
// without NFC, and Volta takes the tokenizer.json of the file.
TEST(TokenizerWriter, QwensSplitWithoutNfcKeepsItsIds) {
  json tokenizer = tokenizer_data("gpt2")["tokenizer"];
  const auto qwens = gguf_tokenizer(test::open_gguf(test::gguf_data("qwen2.gguf")));
  tokenizer["pre_tokenizer"] = json::parse((*qwens)->to_json())["pre_tokenizer"];
  std::vector<std::vector<std::int32_t>> ids;
  for (const json& normalizer : {json(), json{{"type", "Sequence"}, {"normalizers", json::array()}},
                                 json{{"type", "NFC"}}}) {
    tokenizer["normalizer"] = normalizer;
    TokenizerFiles files;
    files.tokenizer = tokenizer.dump();
    Written written;
    write(files, 4096, written);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(written.complete);
    EXPECT_EQ(*written.file->get_string("tokenizer.ggml.pre"), "qwen2");
    const auto original = parse_tokenizer(files.tokenizer, "tokenizer.json");
    const auto read = gguf_tokenizer(*written.file);
    ASSERT_TRUE(read) << read.error().message();
    const std::string decomposed = "cafe\u0301";
    ids.push_back(*(*read)->encode(decomposed));
    EXPECT_EQ(ids.back(), *(*original)->encode(decomposed));
  }
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_NE(ids[0], ids[2]);
}

TEST(TokenizerWriter, RolesComeFromTheFilesBesideIt) {
  Written named, numbered;
  TokenizerFiles files;
  files.tokenizer = kBytes;
  files.tokenizer_config =
      R"({"eos_token": {"content": "</s>"}, "pad_token": "none", "bos_token": "a",
          "chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]})";
  write(files, 4, named);
  EXPECT_EQ(gguf_token_ids(*named.file)->eos, 2);
  EXPECT_EQ(gguf_token_ids(*named.file)->bos, 0);
  EXPECT_FALSE(gguf_token_ids(*named.file)->pad);
  EXPECT_EQ(*named.file->get_string("tokenizer.chat_template"), "d");
  files.generation_config = R"({"eos_token_id": [1, 2, 99], "bos_token_id": 0, "pad_token_id": 3})";
  files.chat_template = "{{ own }}";
  write(files, 4, numbered);
  const auto ids = gguf_token_ids(*numbered.file);
  EXPECT_EQ(ids->eos, 1);
  EXPECT_EQ(ids->eot, 2);
  EXPECT_EQ(ids->pad, 3);
  EXPECT_EQ(*numbered.file->get_string("tokenizer.chat_template"), "{{ own }}");
  EXPECT_FALSE(*numbered.file->get_bool_or("tokenizer.ggml.add_bos_token", true));
  Written bare;
  files.tokenizer.clear();
  files.tokenizer_config = R"({"chat_template": 5})";
  files.chat_template.clear();
  write(files, 4, bare);
  EXPECT_EQ(gguf_token_ids(*bare.file)->eos, 1);
  EXPECT_EQ(bare.file->find("tokenizer.chat_template"), nullptr);
  Written last;  // Where neither of the others has one.
  files.chat_template_json = R"({"chat_template": "{{ third }}"})";
  write(files, 4, last);
  EXPECT_EQ(*last.file->get_string("tokenizer.chat_template"), "{{ third }}");
}

TEST(TokenizerWriter, WhatDoesNotFitIsRefused) {
  GgufMetadata metadata;
  const auto refuse = [&](const TokenizerFiles& files, std::int64_t vocab,
                          const std::string& text) {
    expect_error(add_gguf_tokenizer(files, vocab, metadata), ErrorCode::kInvalidFile, text);
  };
  TokenizerFiles files;
  files.tokenizer = kBytes;
  refuse(files, 3, "token 'ab' has id 3, the model's vocabulary is 3");
  files.tokenizer_config = "{";
  refuse(files, 4, "tokenizer_config.json");
  files.tokenizer_config.clear();
  files.generation_config = "[";
  refuse(files, 4, "generation_config.json");
  files.generation_config.clear();
  files.tokenizer = "{}";
  refuse(files, 4, "model");
  files.tokenizer = R"({"model": {"type": "BPE", "vocab": {}, "merges": [["a"]]}})";
  refuse(files, 4, "expected two tokens");
}

TEST(TokenizerWriter, FilesAreReadWhereThereAreAny) {
  const test::TempDir dir;
  EXPECT_EQ(read_tokenizer_files(dir.path())->tokenizer, "");
  std::ofstream(dir.file("chat_template.jinja")) << "{{ x }}";
  EXPECT_EQ(read_tokenizer_files(dir.path())->chat_template, "{{ x }}");
  std::ofstream(dir.file("chat_template.json")) << "{}";
  EXPECT_EQ(read_tokenizer_files(dir.path())->chat_template_json, "{}");
  std::filesystem::create_directory(dir.file("tokenizer.json"));
  expect_error(read_tokenizer_files(dir.path()), ErrorCode::kInvalidFile, "tokenizer.json");
}

}  // namespace
}  // namespace volta
