// Tokenizers made to do harm: what expands, or takes time out of proportion, ends soon with an
// error that names the step. And by how much tokenizers in use stay below the limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "device/helpers.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"
#include "text/quoted_text.h"
#include "text/tokenizer.h"
#include "text/tokenizers/added_tokens.h"
#include "text/tokenizers/bpe.h"
#include "text/tokenizers/bpe_trainer.h"
#include "text/tokenizers/model.h"
#include "text/tokenizers/normalizer.h"
#include "text/tokenizers/pre_tokenizer.h"

namespace volta::tokenizers {
namespace {

using nlohmann::json;
using test::expect_error;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

constexpr auto kInvalid = ErrorCode::kInvalidFile;

json parsed(const std::string& text) { return json::parse(text); }

// A tokenizer of the letters a and b, with one part replaced.
json file_with(const std::string& key, const json& part) {
  json file = parsed(R"({"model":{"type":"BPE","unk_token":"a","vocab":{"a":0,"b":1,"zz":2}}})");
  file[key] = part;
  return file;
}

json sequence(const std::string& list, const json& part, std::size_t count) {
  return {{"type", "Sequence"}, {list, std::vector<json>(count, part)}};
}

std::shared_ptr<const Tokenizer> load(const json& file, const Interruption& interrupted = {}) {
  auto tokenizer = parse_tokenizer(file.dump(), "t.json", "", interrupted);
  if (tokenizer) return *tokenizer;
  ADD_FAILURE() << tokenizer.error().message();
  return make_byte_tokenizer();
}

void refuse(const json& file, const std::string& message) {
  expect_error(parse_tokenizer(file.dump(), "t.json"), kInvalid, message);
}

void give_up(const json& file, const std::string& text, const std::string& message) {
  const auto tokenizer = load(file);
  const auto begin = std::chrono::steady_clock::now();
  expect_error(tokenizer->encode_prompt(text), kInvalid, message);
  // Some 50 ms; but a machine may be busy, and sanitizers are slow.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

const json kReplace =
    parsed(R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})");

TEST(TokenizerLimits, ChainsOfReplaceEnd) {
  const json chain = sequence("normalizers", kReplace, 12);
  give_up(file_with("normalizer", chain), "a", "t.json: normalizer Replace makes too much text");
  EXPECT_EQ(load(file_with("normalizer", chain))->encode("b")->size(), 1u);
  // While loading.
  json file = file_with("normalizer", chain);
  file["added_tokens"] = parsed(R"([{"id":3,"content":"xa","normalized":true}])");
  refuse(file, "t.json: normalizer Replace makes too much text");
  // In tokenizer_config.json.
  expect_error(parse_tokenizer(file_with("normalizer", chain).dump(), "t.json",
                               R"({"added_tokens_decoder":{"4":{"content":"ya"}}})"),
               kInvalid, "normalizer Replace makes too much text");
}

TEST(TokenizerLimits, TemplatesDoNotDoubleAText) {
  const json twice = parsed(R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},
                               {"Sequence":{"id":"A"}}],"special_tokens":{}})");
  refuse(file_with("post_processor", sequence("processors", twice, 40)), "repeat a text 16 times");
  EXPECT_EQ(load(file_with("post_processor", sequence("processors", twice, 3)))
                ->encode_prompt("ab")
                ->size(),
            16u);
  json special = parsed(R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],
                            "special_tokens":{"x":{"ids":[]}}})");
  special["special_tokens"]["x"]["ids"] = Ids(65, 1);
  refuse(file_with("post_processor", special), "at most 32 templates of 64 parts");
  special["special_tokens"]["x"]["ids"] = Ids(64, 1);
  for (int i = 1; i < 64; ++i) special["single"].push_back(special["single"][0]);
  refuse(file_with("post_processor", special), "at most 32 templates of 64 parts");
  const json once = parsed(R"({"type":"BertProcessing","cls":["a",0],"sep":["b",1]})");
  EXPECT_EQ(load(file_with("post_processor", sequence("processors", once, 32)))
                ->encode_prompt("")
                ->size(),
            64u);
  refuse(file_with("post_processor", sequence("processors", once, 33)), "at most 32 templates");
  json many = parsed(R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}}],
                         "special_tokens":{"x":{"ids":[1]}}})");
  for (int i = 0; i < 60; ++i) {
    many["single"].push_back(parsed(R"({"SpecialToken":{"id":"x"}})"));
  }
  refuse(file_with("post_processor", sequence("processors", many, 20)), "add 1080 ids");
}

TEST(TokenizerLimits, PreTokenizersThatRewriteEnd) {
  const json bytes = parsed(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})");
  give_up(file_with("pre_tokenizer", sequence("pretokenizers", bytes, 30)), "\u00e9",
          "t.json: pre_tokenizer ByteLevel makes too much text");
  // Every character a word, and a U+2581 before every word.
  json steps = sequence("pretokenizers", parsed(R"({"type":"FixedLength","length":1})"), 32);
  for (std::size_t i = 0; i < 32; ++i) {
    const auto at = steps["pretokenizers"].begin() + static_cast<std::ptrdiff_t>(2 * i);
    const json metaspace = {
        {"type", "Metaspace"}, {"replacement", i % 2 == 0 ? "\u2581" : "\u2582"}, {"split", false}};
    steps["pretokenizers"].insert(at, metaspace);
  }
  give_up(file_with("pre_tokenizer", steps), std::string(1000, 'b'), "pre_tokenizer");
}

TEST(TokenizerLimits, StepsOfAKindAreCounted) {
  const auto steps = [](const std::string& key, const std::string& list, const std::string& type) {
    EXPECT_TRUE(
        parse_tokenizer(file_with(key, sequence(list, {{"type", type}}, 32)).dump(), "t.json"));
    refuse(file_with(key, sequence(list, {{"type", type}}, 33)), "more than 32 steps of this kind");
  };
  steps("normalizer", "normalizers", "NFC");
  steps("pre_tokenizer", "pretokenizers", "Whitespace");
  steps("decoder", "decoders", "Fuse");
}

TEST(TokenizerLimits, TextsOfStepsAreShort) {
  const std::string text(1025, 'b');
  refuse(file_with("normalizer", {{"type", "Prepend"}, {"prepend", text}}), "prepend has 1025");
  json replace = kReplace;
  replace["content"] = text;
  refuse(file_with("normalizer", replace), "content has 1025 bytes; at most 1024");
  refuse(file_with("decoder", replace), "content has 1025 bytes");
  replace = kReplace;
  replace["pattern"]["String"] = text;
  refuse(file_with("normalizer", replace), "pattern has 1025 bytes");
  refuse(file_with("pre_tokenizer",
                   {{"type", "Split"}, {"pattern", {{"String", text}}}, {"behavior", "Isolated"}}),
         "pattern has 1025 bytes");
  refuse(file_with("decoder", {{"type", "Metaspace"}, {"replacement", text}}), "replacement has");
  refuse(file_with("decoder", {{"type", "WordPiece"}, {"prefix", text}}), "prefix has 1025");
  refuse(file_with("decoder", {{"type", "BPEDecoder"}, {"suffix", text}}), "suffix has 1025");
  refuse(file_with("decoder", {{"type", "Strip"}, {"content", "a"}, {"stop", 1025}}), "stop");
  json file = file_with("decoder", nullptr);
  file["model"]["end_of_word_suffix"] = std::string(65, 'b');
  refuse(file, "a prefix or suffix of more than 64 bytes");
}

TEST(TokenizerLimits, TokensAreShort) {
  const std::string longest(4096, 'b');
  json file = file_with("decoder", nullptr);
  file["model"]["vocab"][longest] = 3;
  file["added_tokens"] = {{{"id", 4}, {"content", std::string(4096, 'x')}}};
  EXPECT_EQ(load(file)->token_bytes(3), longest);
  json more = file;
  more["model"]["vocab"][longest + "b"] = 4;
  refuse(more, "4097 bytes; at most 4096");
  file["added_tokens"][0]["content"] = std::string(4097, 'x');
  refuse(file, "added token 4 has more than 4096 bytes");
  Trie trie;
  expect_error(trie.insert(std::string(Trie::kMaxNodes, 'x'), 0), kInvalid,
               "too many and too long");
  EXPECT_TRUE(trie.empty());
}

TEST(TokenizerLimits, MergesAreLimited) {
  const std::vector<BpeMerge> merges(kMaxMerges + 1, {"a", "b"});
  WorkBudget budget(text_work_limits(0));
  expect_error(Bpe::create({}, Vocabulary(), merges, "merges", false, budget), kInvalid,
               "merges: 2097153 merges; at most 2097152 are allowed");
}

TEST(TokenizerLimits, DecodersDoNotExpandTokens) {
  refuse(file_with("decoder", sequence("decoders", kReplace, 2)), "100 bytes of one");
  const auto tokenizer = load(file_with("decoder", kReplace));
  EXPECT_EQ(tokenizer->decode(Ids{0, 1}), "aaaaaaaaaab");
  json regex = kReplace;
  regex["pattern"] = {{"Regex", "x*"}};
  regex["content"] = std::string(64, 'y');
  refuse(file_with("decoder", regex), "65 bytes of one");
  const json word_piece = parsed(R"({"type":"WordPiece"})");
  json spaces = sequence("decoders", word_piece, 32);
  EXPECT_EQ(load(file_with("decoder", spaces))->decode(Ids{0, 1}).size(), 2u + 32);
}

// 300,000 tokens, fused and then replaced as one: their text is collected once.
TEST(TokenizerLimits, FusedTextIsNotCopiedForEveryToken) {
  const json decoder = {{"type", "Sequence"},
                        {"decoders", {{{"type", "Fuse"}}, kReplace, {{"type", "Fuse"}}}}};
  const auto tokenizer = load(file_with("decoder", decoder));
  const Ids ids(300'000, 0);
  EXPECT_EQ(tokenizer->decode(ids).size(), 3'000'000u);
}

TEST(TokenizerLimits, LongBeginningsThatLeadNowhereEnd) {
  const std::string trap = std::string(4000, 'a') + "b";
  const std::string text(100'000, 'a');
  json unigram = {{"model", {{"type", "Unigram"}, {"unk_id", 0}}}};
  unigram["model"]["vocab"] = json::array({json::array({"a", -1.0}), json::array({trap, -2.0})});
  give_up(unigram, text, "t.json: model Unigram runs for too long");
  json pieces = {{"model", {{"type", "WordPiece"}, {"max_input_chars_per_word", 1 << 30}}}};
  pieces["model"]["vocab"] = {{"a", 0}, {"##a", 1}, {"##" + trap, 2}};
  give_up(pieces, text, "t.json: model WordPiece runs for too long");
  json added = file_with("added_tokens", {{{"id", 5}, {"content", trap}, {"normalized", false}}});
  give_up(added, text, "t.json: added_tokens runs for too long");
  added["added_tokens"][0] = {{"id", 5}, {"content", " "}, {"rstrip", true}};
  give_up(added, std::string(20'000, ' '), "added_tokens runs for too long");
}

// Every step is counted, and every 10,000 steps the tokenizer asks whether to go on.
std::int64_t questions(json file, const QuotedText& prompt) {
  std::int64_t count = 0;
  const auto tokenizer = load(file, [&] {
    ++count;
    return false;
  });
  count = 0;
  EXPECT_TRUE(tokenizer->encode_quoted(prompt));
  return count;
}

TEST(TokenizerLimits, ManyQuotationsTakeLinearTime) {
  json file = file_with("normalizer", parsed(R"({"type":"NFC"})"));
  file["added_tokens"] = parsed(R"([{"id":3,"content":"<b>","special":true,"normalized":true}])");
  QuotedText prompt;
  for (int i = 0; i < 10'000; ++i) {
    prompt.append("<b>");
    prompt.append_quoted("aaaa");
  }
  // 70 kB are 160 questions when each byte takes 20 steps; they were 180,000.
  EXPECT_LT(questions(file, prompt), 160);
}

// Tokens of the template's own words are looked for up to the next quoted byte, a second time.
TEST(TokenizerLimits, LongTokensBesideQuotationsAreCounted) {
  json file = file_with("added_tokens", json::array());
  file["added_tokens"] = {{{"id", 3}, {"content", "a"}, {"special", true}, {"normalized", false}},
                          {{"id", 4},
                           {"content", std::string(4000, 'a') + "b"},
                           {"special", true},
                           {"normalized", false}}};
  QuotedText prompt;
  prompt.append_quoted(std::string(60'000, 'a'));
  EXPECT_FALSE(load(file)->encode_quoted(prompt));
}

// Of many scripts, with long words, runs of spaces and what normal forms expand most.
std::string hard_text() {
  return "The quick brown fox 12345 times! \u00C5ngstr\u00F6m \u041F\u0440\u0438\u0432\u0435\u0442 "
         "\u4F60\u597D\u4E16\u754C\u3002 \u0939\u093F\u0928\u094D\u0926\u0940 \uFDFA\uFDFA " +
         std::string(40, ' ') + std::string(60, '=') + "\n\n\n" + std::string(200, 'e') +
         " donaudampfschifffahrtsgesellschaft \U0001F600\U0001F600 e\u0301\u0301\u0301 ";
}

TEST(TokenizerLimits, InterruptedWorkEnds) {
  for (const std::string name :
       {"gpt2", "llama3", "llama2", "mistral", "bert", "unigram", "suffix", "general"}) {
    SCOPED_TRACE(name);
    std::ifstream stream(test::source_path("tests/text/data/" + name + "_tokenizer.json"));
    const json file = json::parse(stream)["tokenizer"];
    bool stop = false;
    const auto asked = [&] { return stop; };
    const auto tokenizer = load(file, asked);
    std::string text;
    while (text.size() < 50'000) text += hard_text();
    EXPECT_TRUE(tokenizer->encode(text));
    const Ids ids(2000, 5);
    const std::string whole = tokenizer->decode(ids);
    stop = true;
    expect_error(tokenizer->encode(text), ErrorCode::kInterrupted, "interrupted");
    EXPECT_LT(tokenizer->decode(ids).size(), whole.size());
  }
  const auto now = [] { return true; };
  const std::string text(20'000, 'x');
  expect_error(make_char_tokenizer(text, now), ErrorCode::kInterrupted, "interrupted");
  expect_error(train_byte_level_bpe(text, {.interrupted = now}), ErrorCode::kInterrupted,
               "interrupted");
  for (const std::string type : {"BPE", "WordPiece", "WordLevel"}) {
    json file = {{"model", {{"type", type}}}};
    for (int id = 0; id < 2000; ++id) file["model"]["vocab"]["token" + std::to_string(id)] = id;
    expect_error(parse_tokenizer(file.dump(), "t.json", "", now), ErrorCode::kInterrupted,
                 "interrupted");
  }
}

TEST(TokenizerLimits, TrainingAsksUntilItsEnd) {
  int questions = 0;
  const auto count = [&] { return ++questions < 0; };
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "w" + std::to_string(i * 7919) + " ";
  ASSERT_TRUE(train_byte_level_bpe(text, {.vocab_size = 600, .interrupted = count}));
  const int all = questions;
  EXPECT_GT(all, 20);
  questions = -all / 2;  // True from the middle on.
  const auto half = [&] { return ++questions > 0; };
  expect_error(train_byte_level_bpe(text, {.vocab_size = 600, .interrupted = half}),
               ErrorCode::kInterrupted, "interrupted");
}

// Steps and bytes that a part of a pipeline takes for a text.
struct Cost {
  std::uint64_t steps = 0;
  std::uint64_t bytes = 0;
};

// Runs the parts of a tokenizer.json as HfTokenizer does, with budgets that are read afterwards.
class Pipeline {
 public:
  explicit Pipeline(const json& file) : text_(file.dump()) {
    value_ = *parse_json(text_, "t.json");
    const JsonRef root(value_, "t.json");
    if (auto part = *root.optional_member("normalizer")) normalizer_ = *Normalizer::parse(*part);
    if (auto part = *root.optional_member("pre_tokenizer")) split_ = *PreTokenizer::parse(*part);
    WorkBudget budget(text_work_limits(text_.size()));
    const JsonRef model = *root.member("model");
    const bool byte_words = split_.ends_in_byte_characters() && takes_byte_words(model);
    if (byte_words) split_.drop_last_step();
    model_ = *parse_model(model, byte_words, budget);
    loading_ = text_work_limits(text_.size()).steps - budget.steps_left();
  }

  std::uint64_t loading_steps() const { return loading_; }
  std::size_t file_bytes() const { return text_.size(); }

  std::uint64_t steps(const std::string& text) const {
    const WorkLimits limits = text_work_limits(text.size());
    WorkBudget budget(limits);
    const auto normal = normalizer_.normalize(text, budget);
    EXPECT_TRUE(normal);
    const auto words = split_.split(*normal, true, budget);
    EXPECT_TRUE(words);
    Ids ids;
    for (const Span& word : words->list)
      EXPECT_TRUE(model_->tokenize(words->at(word), ids, budget));
    return limits.steps - budget.steps_left();
  }

 private:
  std::string text_;
  JsonValue value_;
  Normalizer normalizer_;
  PreTokenizer split_;
  std::unique_ptr<Model> model_;
  std::uint64_t loading_ = 0;
};

std::vector<json> tokenizers_in_use() {
  std::vector<json> files;
  for (const std::string name :
       {"gpt2", "llama3", "llama2", "mistral", "bert", "unigram", "suffix", "general"}) {
    std::ifstream stream(test::source_path("tests/text/data/" + name + "_tokenizer.json"));
    files.push_back(json::parse(stream)["tokenizer"]);
  }
  return files;
}

TEST(TokenizerLimits, TokenizersInUseStayFarBelow) {
  std::string text;
  while (text.size() < 50'000) text += hard_text();
  double most = 0;
  double most_loading = 0;
  for (const json& file : tokenizers_in_use()) {
    const Pipeline pipeline(file);
    const auto each = [](std::uint64_t steps, std::size_t bytes) {
      return static_cast<double>(steps) / static_cast<double>(bytes);
    };
    most = std::max(most, each(pipeline.steps(text), text.size()));
    most_loading = std::max(most_loading, each(pipeline.loading_steps(), pipeline.file_bytes()));
  }
  // Of 256 steps a byte. docs/cli.md has the numbers.
  RecordProperty("steps_per_byte", std::to_string(most));
  RecordProperty("loading_steps_per_byte", std::to_string(most_loading));
  EXPECT_LT(most, 32);
  EXPECT_LT(most_loading, 32);
}

TEST(TokenizerLimits, LongTextTakesLinearTime) {
  const auto grow = [](const std::string& unit, std::size_t size) {
    std::string text;
    while (text.size() < size) text += unit;
    return text;
  };
  for (const json& file : tokenizers_in_use()) {
    const Pipeline pipeline(file);
    for (const std::string& unit :
         {std::string("a"), std::string(" "), std::string("e\u0301\u0301"), std::string("\u4F60"),
          hard_text()}) {
      const auto once = static_cast<double>(pipeline.steps(grow(unit, 30'000)));
      const auto four = static_cast<double>(pipeline.steps(grow(unit, 120'000)));
      EXPECT_LT(four, 4.5 * once + 1000) << unit << "\n" << file.dump().substr(0, 800);
    }
  }
}

// One word, none of whose pairs are never merged, in a heap.
TEST(TokenizerLimits, OneLongWordTakesLinearTime) {
  json file = parsed(R"({"model":{"type":"BPE","vocab":{"a":0,"aa":1,"aaaa":2,"aaaaaaaa":3},
                          "merges":[["a","a"],["aa","aa"],["aaaa","aaaa"]]}})");
  const Pipeline pipeline(file);
  const auto once = pipeline.steps(std::string(250'000, 'a'));
  const auto four = pipeline.steps(std::string(1'000'000, 'a'));
  EXPECT_LT(four, 5 * once);
  EXPECT_LT(four, 128u * 1'000'000);
  EXPECT_EQ(load(file)->encode(std::string(1'000'003, 'a'))->size(), 125'000u + 2);
}

// Marks in the wrong order, in one run.
TEST(TokenizerLimits, LongRunsOfMarksAreNormalised) {
  std::string text = "e";
  for (int i = 0; i < 100'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const JsonValue step = *parse_json(R"({"type":"NFC"})", "t.json");
  const Normalizer normalizer = *Normalizer::parse(JsonRef(step, "t.json"));
  WorkBudget budget(text_work_limits(text.size()));
  const auto normal = normalizer.normalize(text, budget);
  ASSERT_TRUE(normal);
  EXPECT_TRUE(normal->starts_with("\u1EB9\u0323"));
  EXPECT_TRUE(normal->ends_with("\u0301\u0301"));
}

// Normal forms are made piece by piece: the pieces' ends do not show.
TEST(TokenizerLimits, PiecesOfNormalFormsFitTogether) {
  for (const std::string form : {"NFC", "NFD", "NFKC", "NFKD"}) {
    const JsonValue step = *parse_json(R"({"type":")" + form + "\"}", "t.json");
    const Normalizer normalizer = *Normalizer::parse(JsonRef(step, "t.json"));
    const std::string unit =
        "e\u0301\uFDFA\uAC01\u1100\u1161\u11A8 \u4F60\u0301\u3099x\u0323\u0301";
    WorkBudget budget(text_work_limits(1 << 20));
    const std::string piece = *normalizer.normalize(unit, budget);
    for (std::size_t shift = 0; shift < unit.size(); ++shift) {
      std::string text(shift, 'y'), wanted(shift, 'y');
      while (text.size() < 140'000) {
        text += unit;
        wanted += piece;
      }
      ASSERT_EQ(*normalizer.normalize(text, budget), wanted) << form << ' ' << shift;
    }
  }
}

TEST(TokenizerLimits, FilesOfStrangersEnd) {
  VOLTA_NEEDS_SHARED("hostile");
  std::string text = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  for (const std::string name : {"post", "norm", "normload"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = load_tokenizer(test::shared_path("hostile/" + name + ".json"));
    if (!tokenizer) {
      EXPECT_EQ(tokenizer.error().code(), kInvalid);
    } else {
      expect_error((*tokenizer)->encode_prompt(text), kInvalid, "norm.json: normalizer Replace");
      expect_error(try_tokenizer(**tokenizer), kInvalid, "normalizer Replace");
    }
  }
}

// flood.c prints a vocabulary whose words collide in a hash table with XXH3's default seed. In a
// table with a seed of its own they take as long as any other words of this length; reading 8,000
// that collide took ten times as long.
TEST(TokenizerLimits, WordsMadeToCollideTakeNoLonger) {
  VOLTA_NEEDS_SHARED("hostile");
  if (std::system("command -v cc >/dev/null") != 0) GTEST_SKIP() << "there is no C compiler (cc)";
  const test::TempDir dir;
  const std::string program = dir.file("flood"), made = dir.file("flood.json");
  ASSERT_EQ(std::system(("cc -O2 -w -o '" + program + "' '" + test::shared_path("hostile/flood.c") +
                         "' && '" + program + "' 8000 >'" + made + "' 2>/dev/null")
                            .c_str()),
            0);
  json file = json::parse(std::ifstream(made));
  json& words = file["model"]["vocab"];
  ASSERT_EQ(words.size(), 8'001U);
  const std::string collide = file.dump();
  json others = {{"zz", 0}};
  for (int i = 1; i <= 8'000; ++i) others[std::to_string(10'000'000 + i * 577)] = i;
  words = others;
  const std::string plain = file.dump();
  const auto seconds = [](const std::string& text) {
    double least = 1e9;
    for (int round = 0; round < 5; ++round) {
      const double begin = monotonic_seconds();
      EXPECT_TRUE(parse_tokenizer(text, "flood.json"));
      least = std::min(least, monotonic_seconds() - begin);
    }
    return least;
  };
  EXPECT_LT(seconds(collide), 4 * seconds(plain));
}

// What grows a thousandfold stays within the constant part of a budget if the text is short.
TEST(TokenizerLimits, ATrialFindsWhatOnlyShortTextsSurvive) {
  const json bytes = parsed(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})");
  const auto tokenizer = load(file_with("pre_tokenizer", sequence("pretokenizers", bytes, 10)));
  EXPECT_TRUE(tokenizer->encode_prompt("\u00e9\u4f60"));
  expect_error(try_tokenizer(*tokenizer), kInvalid, "pre_tokenizer ByteLevel makes too much text");
}

TEST(TokenizerLimits, GoodTokenizersPassTheirTrial) {
  EXPECT_TRUE(try_tokenizer(*make_byte_tokenizer()));
  EXPECT_TRUE(try_tokenizer(**make_char_tokenizer("abc")));  // It lacks characters, which is fine.
  for (const json& file : tokenizers_in_use()) EXPECT_TRUE(try_tokenizer(*load(file)));
}

}  // namespace
}  // namespace volta::tokenizers
