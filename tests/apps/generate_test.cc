// volta generate: stops, prompts from files, log-probabilities, the model's own settings, and how
// much memory it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "device/helpers.h"
#include "formats/model_folder.h"
#include "formats/safetensors.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using nlohmann::json;
using test::Command;
using test::CommandResult;
using test::run_shell;
using test::run_volta;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Ids = std::vector<std::int32_t>;

// A folder "model" of random weights over bytes.
class GenerateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TransformerConfig config = tiny_lm_config();
    config.layers = 2;
    config.dim = 32;
    config.head_dim = 8;
    config.ffn = 64;
    config.context = 20'000;
    config.init_std = 0.2f;
    const auto model = Transformer::random(config, 3, test::cpu(1));
    ASSERT_TRUE(model);
    std::filesystem::create_directory(dir_.file("model"));
    ASSERT_TRUE(save_model(dir_.file("model"), *model, make_byte_tokenizer().get()));
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"generate", "model", "--temperature", "0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  CommandResult generate(const std::vector<std::string>& more) const {
    return run_volta(arguments(more), dir_.path());
  }
  json generate_json(std::vector<std::string> more) const {
    more.insert(more.end(), {"--output", "json"});
    const CommandResult result = generate(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out, nullptr, false);
  }
  void expect_error(const std::vector<std::string>& more, int exit_code,
                    const std::string& words) const {
    const CommandResult result = generate(more);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "");
  }

  test::TempDir dir_;
};

// The files contradict each other, which no prompt can help. Ids are what the user says they are.
TEST_F(GenerateTest, ATokenizerBeyondTheVocabularyIsTheFaultOfTheFiles) {
  std::string config = *read_text_file(dir_.file("model/config.json"));
  int sizes = 0;  // Of the common keys, and of Volta's own.
  for (std::size_t at = 0; (at = config.find("\"vocab_size\": 256")) != std::string::npos;
       ++sizes) {
    config.replace(at, 17, "\"vocab_size\": 100");
  }
  ASSERT_GT(sizes, 0) << config;
  write("model/config.json", config);
  write("text.txt", std::string(1000, 'z'));
  const std::string words =
      "model/tokenizer.json has the id 122, and the vocabulary of model/config.json the ids 0 to "
      "99 (vocab_size)";
  expect_error({"-p", "zz"}, 3, words);
  expect_error({"-f", "text.txt"}, 3, words);
  expect_error({"--ids", "122"}, 2, "--ids: token 0 of the prompt is 122");
  const CommandResult tuned = run_volta(
      {"train", "--init", "model", "--data", "text.txt", "--out", "run", "--context", "8"},
      dir_.path());
  EXPECT_EQ(tuned.exit_code, 3);
  EXPECT_THAT(tuned.err, HasSubstr("tokenizer.json has the id 255"));
}

// Random bytes are not text; ids of a prompt that leads to printable ones would be luck. So stops
// are taken from what the model says.
TEST_F(GenerateTest, StopStringsEndBeforeTheirText) {
  const json whole = generate_json({"--ids", "104,105", "-n", "40"});
  const auto ids = whole["ids"].get<Ids>();
  ASSERT_EQ(ids.size(), 42u);
  // A byte below 128 is a character of its own: the first of them after the prompt.
  const auto place = std::find_if(ids.begin() + 4, ids.end(), [](int id) { return id < 128; });
  ASSERT_NE(place, ids.end());
  const std::string stop(1, static_cast<char>(*place));
  const auto first = std::find(ids.begin() + 2, ids.end(), *place);
  const json ended = generate_json({"--ids", "104,105", "-n", "40", "--stop", stop});
  EXPECT_EQ(ended["ids"].get<Ids>(), Ids(ids.begin(), first + 1));
  EXPECT_EQ(ended["stop_reason"], "stop_string");
  const auto text = ended["text"].get<std::string>();
  EXPECT_EQ(text.find(stop), std::string::npos);
  EXPECT_TRUE(whole["text"].get<std::string>().starts_with(text));
  const CommandResult streamed =
      generate({"--ids", "104,105", "-n", "40", "--stop", "never", "--stop", stop});
  EXPECT_EQ(streamed.out, "hi" + text + "\n");
  expect_error({"--stop", ""}, 2, "--stop: an empty stop string");
  expect_error({"--stop", "\xFF"}, 2, "--stop: not UTF-8");
}

TEST_F(GenerateTest, LogprobsOfTheLikeliest) {
  const json result = generate_json({"-p", "abc", "-n", "3", "--logprobs", "4"});
  ASSERT_EQ(result["top_logprobs"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const json& top = result["top_logprobs"][i];
    ASSERT_EQ(top.size(), 4u);
    EXPECT_EQ(top[0]["id"], result["ids"][3 + i]);  // Greedy.
    EXPECT_EQ(top[0]["logprob"], result["logprobs"][i]);
    EXPECT_GE(top[2]["logprob"], top[3]["logprob"]);
    EXPECT_TRUE(top[0]["token"].is_string());
  }
  EXPECT_FALSE(generate_json({"-p", "abc", "-n", "3"}).contains("top_logprobs"));
  expect_error({"--logprobs", "257", "-n", "1", "--output", "json"}, 2, "257 log-probabilities");
  expect_error({"--logprobs", "4", "-n", "1"}, 2, "use --output json or jsonl");
}

TEST_F(GenerateTest, PromptsOfAFileRunThroughTheSlots) {
  std::string lines;
  json wanted = json::array();
  for (int i = 0; i < 9; ++i) {
    const std::string prompt = std::string(static_cast<std::size_t>(1 + 7 * i), 'a') + "z";
    lines += prompt + "\n";
    wanted.push_back(generate_json({"-p", prompt, "-n", "6"}));
  }
  write("prompts.txt", lines);
  EXPECT_EQ(generate_json({"--prompts-file", "prompts.txt", "-n", "6"}), wanted);
  EXPECT_EQ(generate_json({"--prompts-file", "prompts.txt", "-n", "6", "--slots", "2"}), wanted);
  const CommandResult by_line =
      generate({"--prompts-file", "prompts.txt", "-n", "6", "--slots", "3", "--output", "jsonl"});
  std::istringstream out(by_line.out);
  std::string line;
  for (const json& one : wanted) {
    ASSERT_TRUE(std::getline(out, line));
    EXPECT_EQ(json::parse(line), one);
  }
  EXPECT_FALSE(std::getline(out, line));
  write("one.jsonl", "{\"ids\": [97, 122]}");  // A file gives an array even of one.
  EXPECT_EQ(generate_json({"--prompts-file", "one.jsonl", "-n", "6"}), json::array({wanted[0]}));
  const CommandResult text = generate({"--prompts-file", "prompts.txt", "-n", "6"});
  EXPECT_THAT(text.out, HasSubstr("--- 8 (seed 9)\naaaa"));
}

TEST_F(GenerateTest, OneBadPromptStopsAllBeforeAnythingRuns) {
  write("empty.txt", "good\n\n");
  expect_error({"--prompts-file", "empty.txt"}, 3, "empty.txt: line 2 is empty");
  write("bytes.txt", "good\nbad\xFF\n");
  expect_error({"--prompts-file", "bytes.txt"}, 3, "bytes.txt: line 2: byte 3 is not UTF-8");
  write("long.txt", "good\n" + std::string(20'001, 'a') + "\n");
  expect_error({"--prompts-file", "long.txt"}, 3,
               "long.txt: line 2: the prompt has 20001 tokens and the context holds 20000");
  write("ids.jsonl", "{\"ids\": [1]}\n{\"ids\": [1, 256]}\n");
  expect_error({"--prompts-file", "ids.jsonl", "--output", "jsonl"}, 3,
               "ids.jsonl: line 2: token 1 of the prompt is 256");
  write("none.jsonl", "{\"prompt\": \"\"}\n");
  expect_error({"--prompts-file", "none.jsonl"}, 3, "none.jsonl: line 1: the prompt is empty");
  expect_error({"--prompts-file", "absent.txt"}, 3, "absent.txt");
  expect_error({"--ids", "1,256"}, 2, "--ids: token 1 of the prompt is 256");
  expect_error({"--prompt", "a\xFF"}, 2, "--prompt: byte 1 is not UTF-8");
  expect_error({"--top-k", "99999999999"}, 2, "99999999999 is not between 0 and 16777216");
  expect_error({"--frequency-penalty", "2.5"}, 2, "--frequency-penalty is 2.5");
  expect_error({"--output", "csv"}, 2, "this command writes text, json, jsonl");
}

TEST_F(GenerateTest, PenaltiesCountWhatWasGenerated) {
  const auto new_ids = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"-p", "aaaa", "-n", "60"};
    all.insert(all.end(), more.begin(), more.end());
    auto ids = generate_json(all)["ids"].get<Ids>();
    ids.erase(ids.begin(), ids.begin() + 4);
    std::sort(ids.begin(), ids.end());
    return std::unique(ids.begin(), ids.end()) - ids.begin();
  };
  const auto plain = new_ids({});
  EXPECT_GT(new_ids({"--frequency-penalty", "2"}), plain);
  EXPECT_GT(new_ids({"--presence-penalty", "2"}), plain);
}

TEST_F(GenerateTest, TheModelsSettingsAreDefaults) {
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"generate", "model", "-p", "abc", "--output", "json"};
    all.insert(all.end(), more.begin(), more.end());
    const CommandResult result = run_volta(all, dir_.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return std::pair(json::parse(result.out, nullptr, false), result.err);
  };
  const json greedy = generate_json({"-p", "abc", "-n", "12"});
  write("model/generation_config.json", R"({"do_sample": false, "max_new_tokens": 12})");
  EXPECT_EQ(run({}).first, greedy);
  const auto [shown, settings] = run({"-v", "--top-k", "5"});
  EXPECT_THAT(settings, HasSubstr("temperature 0 (generation_config.json), top-k 5 (command line), "
                                  "top-p 1 (default)"));
  EXPECT_THAT(settings, HasSubstr("tokens 12 (generation_config.json)"));
  EXPECT_THAT(settings, HasSubstr("end tokens: none"));
  EXPECT_EQ(run({"-n", "3"}).first["ids"].size(), 6u);
  EXPECT_EQ(run({"--temperature", "0.5"}).first,
            generate_json({"-p", "abc", "-n", "12", "--temperature", "0.5"}));
  // The end: the third new token, which is included.
  const std::int32_t end = greedy["ids"][5];
  const auto ids = greedy["ids"].get<Ids>();
  const auto first = std::find(ids.begin() + 3, ids.end(), end);
  write("model/generation_config.json",
        "{\"do_sample\": false, \"max_length\": 15, \"eos_token_id\": [255, " +
            std::to_string(end) + "]}");
  const json ended = run({}).first;
  EXPECT_EQ(ended["ids"].get<Ids>(), Ids(ids.begin(), first + 1));
  EXPECT_EQ(ended["stop_reason"], "stop_token");
  EXPECT_EQ(run({"--ignore-eos"}).first, greedy);
  write("model/generation_config.json", R"({"top_p": 7})");
  expect_error({"-p", "abc"}, 3, "generation_config.json: sampling: top_p is 7");
  write("model/generation_config.json", R"({"eos_token_id": 99999})");
  expect_error({"-p", "abc"}, 3,
               "generation_config.json: eos_token_id is 99999; the vocabulary has ids 0 to 255");
}

// The context of 20,000 would take 2 * 2 * 32 * 4 bytes a token: 10 MB.
TEST_F(GenerateTest, TheCacheIsAsLargeAsTheRun) {
  const CommandResult small = generate({"-p", "abc", "-n", "100", "-v"});
  EXPECT_THAT(small.err, HasSubstr("cache 64.0 KiB (1 slot of 128 tokens)"));
  write("prompts.txt", [] {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += "abc\n";
    return lines;
  }());
  const CommandResult many = generate({"--prompts-file", "prompts.txt", "-n", "1", "-v"});
  EXPECT_THAT(many.err, HasSubstr("(16 slots of 64 tokens)"));
  std::vector<std::string> endless = {"-p", "abc", "-n", "100000", "-v"};
  for (char c = 1; c < 127; ++c) {  // Whatever it writes soon ends it.
    endless.insert(endless.end(), {"--stop", std::string(1, c)});
  }
  const CommandResult whole = generate(endless);
  EXPECT_THAT(whole.err, HasSubstr("(1 slot of 20000 tokens)"));
}

// A narrower cache takes half the memory and gives other bits, but hardly other numbers.
TEST_F(GenerateTest, TheCacheMayBeNarrower) {
  const auto first_logprob = [&](const std::string& dtype) {
    const json result = generate_json({"--ids", "5,6,7", "-n", "1", "--kv-cache-dtype", dtype});
    return result["logprobs"][0].get<double>();
  };
  const auto cache_bytes = [&](const std::string& dtype) {
    const CommandResult result =
        run_volta({"inspect", "model", "--output", "json", "--kv-cache-dtype", dtype}, dir_.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out, nullptr, false)["memory"]["cache"].get<std::int64_t>();
  };
  const double exact = first_logprob("f32");
  for (const std::string dtype : {"bf16", "f16"}) {
    EXPECT_EQ(2 * cache_bytes(dtype), cache_bytes("f32"));
    EXPECT_NE(first_logprob(dtype), exact);
    EXPECT_NEAR(first_logprob(dtype), exact, 0.01);
  }
  expect_error({"--kv-cache-dtype", "q8"}, 2, "--kv-cache-dtype q8: use f32, bf16 or f16");
  expect_error({"--kv-cache-dtype", "bf16", "--no-kv-cache"}, 2, "--kv-cache-dtype");
}

TEST_F(GenerateTest, SaysWhereBf16CanBeSlower) {
  const auto on_sse4 = [&](const std::string& dtype) {
    return run_volta({"generate", "model", "--ids", "5,6,7", "-n", "1", "--dtype", dtype},
                     dir_.path(), {{"VOLTA_SIMD", "sse4"}});
  };
  const CommandResult rounded = on_sse4("bf16");
  EXPECT_EQ(rounded.exit_code, 0) << rounded.err;
  EXPECT_THAT(rounded.err, HasSubstr("volta: --dtype bf16 can be slower than f32 here: this CPU's "
                                     "sse4 kernels convert bf16 to f32"));
  EXPECT_THAT(on_sse4("f32").err, Not(HasSubstr("slower")));
}

TEST_F(GenerateTest, APromptIsInterruptible) {
  write("long.txt", std::string(19'000, 'a') + "\n");
  CommandResult stopped;
  for (const int wait_ms : {100, 300, 1000}) {
    Command command(arguments({"--prompts-file", "long.txt", "-n", "1000", "--output", "json",
                               "--threads", "1", "--no-kv-cache"}),
                    dir_.path());
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    command.kill(SIGINT);
    stopped = command.wait();
    if (!stopped.out.empty()) break;
  }
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("cancelled"));
}

// Prompts of others' models, ended as transformers ends them.
TEST_F(GenerateTest, GreedyIdsOfOthers) {
  VOLTA_NEEDS_SHARED("models/mistral-tiny-sliding");
  const json result =
      json::parse(run_volta({"generate", test::shared_path("models/mistral-tiny-sliding"), "--ids",
                             "221,451,371,402,305,177,107,389", "-n", "24", "--temperature", "0",
                             "--output", "json"},
                            dir_.path())
                      .out);
  EXPECT_THAT(
      result["ids"].get<Ids>(),
      ElementsAre(221, 451, 371, 402, 305, 177, 107, 389, 511, 350, 332, 364, 212, 315, 272, 212,
                  86, 375, 378, 469, 476, 132, 217, 342, 250, 379, 313, 368, 366, 360, 268, 304));
}

// A prompt that is a file or standard input is the same as one on the command line, without the
// line break at its end.
TEST_F(GenerateTest, PromptsComeFromFilesAndStandardInput) {
  write("prompt.txt", "two\nlines\n");
  const std::vector<std::string> json_of_5 = {"-n", "5", "--output", "json"};
  const auto with_input = [&](std::vector<std::string> more) {
    more.insert(more.end(), json_of_5.begin(), json_of_5.end());
    return Command(arguments(more), dir_.path(), {}, "prompt.txt").wait();
  };
  const json expected = generate_json({"-p", "two\nlines", "-n", "5"});
  EXPECT_EQ(generate_json({"-f", "prompt.txt", "-n", "5"}), expected);
  for (const auto& words : {std::vector<std::string>{"-f", "-"}, {"-p", "-"}}) {
    const CommandResult result = with_input(words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json::parse(result.out), expected);
  }
  for (const std::string file : {"-f", "--prompts-file"}) {  // By its other name.
    EXPECT_EQ(with_input({file, "/dev/stdin"}).exit_code, 0) << file;
  }
  // JSON lines from standard input are known by their first character, behind a mark, too.
  write("marked.jsonl", "\xEF\xBB\xBF{\"prompt\": \"two\\nlines\"}\n");
  const CommandResult marked =
      Command(arguments({"--prompts-file", "-", "-n", "5", "--output", "json"}), dir_.path(), {},
              "marked.jsonl")
          .wait();
  ASSERT_EQ(marked.exit_code, 0) << marked.err;
  EXPECT_EQ(json::parse(marked.out), json::array({expected}));
  EXPECT_EQ(generate_json({"-f", "prompt.txt", "-p", "x", "-n", "1"}).size(), 2U);
  expect_error({"-f", "missing.txt"}, 3, "missing.txt");
  expect_error({"-f", "model"}, 3, "is a folder");
  write("empty.txt", "\n");
  expect_error({"-f", "empty.txt"}, 3, "empty.txt: there is no text in it");
  write("latin1.txt", "a\xff");
  expect_error({"-f", "latin1.txt"}, 3, "latin1.txt: byte 1 is not UTF-8");
  write("utf16.txt", std::string("\xFF\xFEh\0i\0", 6));
  expect_error({"-f", "utf16.txt"}, 3,
               "utf16.txt: it is UTF-16, not UTF-8; convert it with `iconv -f UTF-16 -t UTF-8");
}

TEST_F(GenerateTest, APipeMayStandForAFile) {
  write("prompt.txt", "two\nlines\n");
  write("marked.txt", "\xEF\xBB\xBFtwo\nlines\n");
  const json expected = generate_json({"-p", "two\nlines", "-n", "5"});
  EXPECT_EQ(generate_json({"-f", "marked.txt", "-n", "5"}), expected);  // Editors write the mark.
  const std::string end = " -n 5 --temperature 0 --output json";
  // The writer may come later than the reader.
  const CommandResult named = run_shell(
      "mkfifo pipe; (sleep 0.2; cat prompt.txt > pipe) & \"$VOLTA\" generate model -f pipe" + end,
      dir_.path());
  ASSERT_EQ(named.exit_code, 0) << named.err;
  EXPECT_EQ(json::parse(named.out), expected);
  const CommandResult list = run_shell(
      "printf '%s\\n' '{\"prompt\": \"two\\nlines\"}' | \"$VOLTA\" generate model "
      "--prompts-file /dev/stdin" +
          end,
      dir_.path());
  ASSERT_EQ(list.exit_code, 0) << list.err;
  EXPECT_EQ(json::parse(list.out)[0]["ids"], expected["ids"]);
  // Waiting for a writer ends at the first SIGINT.
  Command waiting(arguments({"-f", "pipe"}), dir_.path());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  waiting.kill(SIGINT);
  EXPECT_EQ(waiting.wait().exit_code, 130);
}

TEST_F(GenerateTest, TheContextMayBeShorterThanTheModels) {
  const std::vector<std::string> full = {"--ids", "5,6,7", "-n", "-1", "-c", "100"};
  const json result = generate_json(full);
  // The last token needs no place in the context.
  EXPECT_EQ(result["ids"].size(), 101U);
  EXPECT_EQ(result["stop_reason"], "context_full");
  const CommandResult text = generate(full);
  EXPECT_THAT(text.err, HasSubstr("ended after 98 new tokens, the context of 100 is full"));
  EXPECT_EQ(generate_json({"--ids", "5,6,7", "-n", "10", "--ctx-size", "100"})["ids"].size(), 13U);
  // Without a limit there is room for the prompt and 8,192 tokens.
  std::vector<std::string> endless = {"--ids", "5,6,7", "-n", "-1", "-v"};
  for (char c = 1; c < 127; ++c) {  // Whatever it writes soon ends it.
    endless.insert(endless.end(), {"--stop", std::string(1, c)});
  }
  const CommandResult room = generate(endless);
  EXPECT_THAT(room.err, HasSubstr("the text ends when prompt and answer have 8195 tokens; "
                                  "--context allows up to 20000\n"));
  EXPECT_THAT(room.err, HasSubstr("(1 slot of 8256 tokens)"));
  expect_error({"--ids", "5,6,7", "--context", "2"}, 2, "the prompt has 3 tokens");
  expect_error({"--ids", "5", "--context", "20001"}, 2, "context has 20000 tokens at most");
  expect_error({"--ids", "5", "--context", "0"}, 2, "--context");
  expect_error({"--ids", "5", "-n", "-2"}, 2, "-2");
}

// A model that the hub's clients have downloaded is found by its name.
TEST_F(GenerateTest, ModelsOfTheHubsCacheHaveNames) {
  namespace fs = std::filesystem;
  fs::create_directories(dir_.file("hub/models--org--tiny/refs"));
  fs::create_directories(dir_.file("hub/models--org--tiny/snapshots"));
  fs::copy(dir_.file("model"), dir_.file("hub/models--org--tiny/snapshots/c0ffee"));
  write("hub/models--org--tiny/refs/main", "c0ffee");
  const auto run = [&](std::vector<std::string> words) {
    return run_volta(words, dir_.path(), {{"HF_HUB_CACHE", dir_.file("hub")}});
  };
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"generate", "org/tiny", "-n", "2", "-p", "a"},
                                             {"generate", "org/tiny@c0ffee", "-n", "2", "-p", "a"},
                                             {"inspect", "org/tiny"},
                                             {"verify", "org/tiny"},
                                             {"tokenize", "org/tiny", "a"}}) {
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << words.front() << result.err;
  }
  // Half a download: the message names the files and the command.
  const std::string snapshot = dir_.file("hub/models--org--tiny/snapshots/c0ffee");
  const auto lacks = [&](const std::string& files, const std::string& model) {
    for (const char* command : {"generate", "inspect"}) {
      const CommandResult half = run({command, model});
      EXPECT_EQ(half.exit_code, 3) << command;
      EXPECT_THAT(half.err, HasSubstr("org/tiny in the Hugging Face cache lacks " + files));
      EXPECT_THAT(half.err, HasSubstr("`hf download org/tiny`"));
    }
  };
  fs::rename(snapshot + "/model.safetensors", snapshot + "/model-2.safetensors");
  lacks("model.safetensors (if the repository has none, Volta cannot read it): '", "org/tiny");
  lacks("model.safetensors", snapshot);
  write("hub/models--org--tiny/snapshots/c0ffee/model.safetensors.index.json",
        R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors",)"
        R"( "c": "model-3.safetensors"}})");
  lacks("model-1.safetensors, model-3.safetensors: '", "org/tiny");
  fs::remove(snapshot + "/model.safetensors.index.json");
  fs::rename(snapshot + "/model-2.safetensors", snapshot + "/model.safetensors");
  fs::remove(snapshot + "/tokenizer.json");
  const CommandResult text = run({"generate", "org/tiny", "-p", "a"});
  EXPECT_EQ(text.exit_code, 3);
  EXPECT_THAT(text.err,
              HasSubstr("lacks tokenizer.json (if the repository has none, Volta cannot"));
  EXPECT_THAT(text.err, HasSubstr("`hf download org/tiny`"));
  EXPECT_EQ(run({"generate", "org/tiny", "--ids", "5", "-n", "2"}).exit_code, 0);
  const CommandResult absent = run({"generate", "org/other", "-p", "a"});
  EXPECT_EQ(absent.exit_code, 3);
  EXPECT_THAT(absent.err, HasSubstr("`hf download org/other`"));
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"generate", "tiny", "-p", "a"},
           {"verify", "tiny"},
           {"tokenize", "tiny", "a"},
           {"train", "--data", "hub/models--org--tiny/refs/main", "--out", "run", "--init", "tiny"},
       }) {
    const CommandResult alone = run(words);
    EXPECT_EQ(alone.exit_code, 3) << words.front();
    EXPECT_THAT(alone.err, HasSubstr("no model folder at 'tiny', and no model of this name"));
    EXPECT_THAT(alone.err, HasSubstr("`hf download ORGANISATION/tiny`"));
  }
}

// The layout of the hub's own client: blobs named by their hash, and relative links to them.
TEST_F(GenerateTest, ShardsOfTheHubsCacheAreRelativeLinksToBlobs) {
  namespace fs = std::filesystem;
  const fs::path model = dir_.file("hub/models--org--sharded");
  const fs::path snapshot = model / "snapshots" / "c0ffee";
  fs::create_directories(model / "blobs");
  fs::create_directories(model / "refs");
  fs::create_directories(snapshot);
  write("hub/models--org--sharded/refs/main", "c0ffee");
  const auto add = [&](const std::string& name, const fs::path& file) {
    const std::string blob = "b10b" + std::to_string(std::hash<std::string>{}(name));
    fs::rename(file, model / "blobs" / blob);
    fs::create_symlink("../../blobs/" + blob, snapshot / name);
  };
  const auto file = SafetensorsFile::open(dir_.file("model/model.safetensors"));
  ASSERT_TRUE(file);
  auto tensors = file->load_all();
  ASSERT_TRUE(tensors);
  std::map<std::string, Tensor> shards[2];
  json index;
  for (const auto& [name, tensor] : *tensors) {
    const std::size_t shard = index["weight_map"].size() % 2;
    shards[shard].emplace(name, tensor);
    index["weight_map"][name] =
        shard == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  }
  for (int i = 0; i < 2; ++i) {
    const std::string shard = dir_.file("shard");
    ASSERT_TRUE(write_safetensors(shard, shards[i]));
    add("model-0000" + std::to_string(i + 1) + "-of-00002.safetensors", shard);
  }
  write("index", index.dump());
  add("model.safetensors.index.json", dir_.file("index"));
  for (const std::string name : {"config.json", "tokenizer.json"}) {
    fs::copy_file(dir_.file("model/" + name), dir_.file(name));
    add(name, dir_.file(name));
  }
  const auto ids = [&](const std::string& name) {
    const CommandResult result = run_volta(
        {"generate", name, "-p", "ab", "-n", "8", "--temperature", "0", "--output", "json"},
        dir_.path(), {{"HF_HUB_CACHE", dir_.file("hub")}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? json::parse(result.out)["ids"] : json();
  };
  EXPECT_EQ(ids("org/sharded"), ids("model"));
  // A link whose blob is missing is named, with the command that downloads it.
  fs::remove(model / "blobs" /
             fs::read_symlink(snapshot / "model-00002-of-00002.safetensors").filename());
  const CommandResult half = run_volta({"generate", "org/sharded", "-p", "ab"}, dir_.path(),
                                       {{"HF_HUB_CACHE", dir_.file("hub")}});
  EXPECT_EQ(half.exit_code, 3);
  EXPECT_THAT(half.err, HasSubstr("lacks model-00002-of-00002.safetensors"));
  EXPECT_THAT(half.err, HasSubstr("`hf download org/sharded`"));
}

}  // namespace
}  // namespace volta
