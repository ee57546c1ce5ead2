// What holds for all commands alike: the exit code where a place cannot be written, and that no
// option is taken which would have no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

// A trained model, an adapter for it, a .gguf file and a tuning file, made once.
class Usage : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<test::TempDir>();
    std::ofstream text(path("text.txt"));
    for (int i = 0; i < 400; ++i) text << "the quick brown fox jumps over the lazy dog\n";
    text.close();
    std::ofstream(path("file")) << "x";
    std::filesystem::create_directories(path("folder"));
    std::ofstream(path("folder/x")) << "x";
    for (const Words& words :
         std::vector<Words>{with(kTrain, {"--out", "run"}),
                            {"train", "--data", "text.txt", "--init", "run", "--lora-rank", "2",
                             "--out", "lora", "--steps", "1", "--batch", "2", "--warmup", "0"},
                            {"convert", "run", "model.gguf"},
                            {"tune", "matmul", "--dim", "16", "--budget", "0.05", "--runs", "3"}}) {
      const CommandResult made = volta(words);
      ASSERT_EQ(made.exit_code, 0) << made.err;
    }
  }
  static void TearDownTestSuite() { dir_.reset(); }
  static std::string path(const std::string& name) { return dir_->file(name); }
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static CommandResult volta(const Words& words) {
    return test::run_volta(words, dir_->path(), {{"VOLTA_CACHE_DIR", path("cache")}});
  }
  static void refuse(const Words& words, int code, const std::string& message) {
    const CommandResult result = volta(words);
    EXPECT_EQ(result.exit_code, code) << testing::PrintToString(words) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message)) << testing::PrintToString(words);
  }

  inline static const Words kTrain = {
      "train",     "--data",    "text.txt", "--layers", "1", "--dim",   "32", "--heads",
      "2",         "--context", "32",       "--batch",  "4", "--steps", "1",  "--activation",
      "gelu_tanh", "--warmup",  "1"};
  inline static std::unique_ptr<test::TempDir> dir_;
};

TEST_F(Usage, AFolderThatCannotBeMadeIsAFailure) {
  const std::vector<Words> makers = {
      with(kTrain, {"--out"}),
      {"quantize", "run", "--weights", "q8", "--out"},
      {"merge", "run", "--adapter", "lora", "--out"},
      {"convert", "model.gguf"},
      {"tokenizer", "train", "--data", "text.txt", "--vocab", "270", "--out"},
      {"demo", "--text", "text.txt", "--steps", "1", "--out"}};
  for (const Words& maker : makers) {
    for (const std::string place : {"file", "file/x", "/proc/none/x"}) {
      refuse(with(maker, {place}), 1, "cannot create folder");
    }
    refuse(with(maker, {std::string(300, 'a')}), 1, "File name too long");
    refuse(with(maker, {std::string(5000, 'a')}), 1, "");
    refuse(with(maker, {""}), 2, "");
  }
  // Nothing is replaced that somebody may still want.
  for (const std::size_t maker : {1, 2, 3}) refuse(with(makers[maker], {"folder"}), 2, "not empty");
}

TEST_F(Usage, AFileThatCannotBeMadeIsAFailure) {
  std::filesystem::create_directories(path("folder.gguf"));
  const auto gguf = [](const std::string& place) { return place + ".gguf"; };
  for (const std::string place : {"file/x", "/proc/none/x", "folder"}) {
    refuse({"tune", "export", place}, 1, "cannot");
    refuse({"eval", "run", "--data", "text.txt", "--profile", place}, 1, "--profile");
    refuse({"convert", "run", gguf(place), "--force"}, 1, "cannot");
  }
  refuse({"tune", "export", ""}, 2, "give the name");
}

TEST_F(Usage, TheFoldersAboveAResultAreMade) {
  for (const Words& words : std::vector<Words>{
           {"eval", "run", "--data", "text.txt", "--profile", "new/1/profile.json"},
           {"eval", "run", "--data", "text.txt", "--log-file", "new/2/eval.log"},
           {"convert", "run", "new/3/model.gguf"},
           {"convert", "new/3/model.gguf", "new/4/model"},
           {"quantize", "run", "--weights", "q8", "--out", "new/5/model"},
           {"tokenizer", "train", "--data", "text.txt", "--vocab", "257", "--out", "new/6/tok"},
           {"merge", "run", "--adapter", "lora", "--out", "new/7/model"}}) {
    const CommandResult result = volta(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(std::filesystem::exists(path(words.back()))) << words.back();
  }
  // Not before there is something to write into them.
  for (const Words& words : std::vector<Words>{
           {"eval", "nowhere", "--data", "text.txt", "--profile", "none/1/profile.json"},
           {"logits", "nowhere", "--ids", "x", "--out", "none/2/logits.safetensors"},
           {"bench", "history", "nowhere", "--svg", "none/3/history.svg"},
           {"tokenizer", "train", "--data", "nowhere", "--out", "none/4/tok"}}) {
    EXPECT_NE(volta(words).exit_code, 0) << testing::PrintToString(words);
    EXPECT_FALSE(std::filesystem::exists(path("none"))) << testing::PrintToString(words);
  }
}

TEST_F(Usage, OptionsThatVoltaLacksComeWithWhatToDoInstead) {
  // As the value of an option, it is text.
  EXPECT_EQ(volta({"generate", "run", "-p", "-fa", "-n", "1"}).exit_code, 0);
  for (const auto& [words, message] : std::vector<std::pair<Words, std::string>>{
           {{"generate", "run", "--no-display-prompt"},
            "--no-display-prompt is not known here; --output json has the new text alone"},
           {{"generate", "run", "--repeat_last_n=64"}, "count the new tokens alone"},
           {{"chat", "run", "--logit-bias", "5+1"}, "--top-k, --top-p, --min-p"},
           {{"generate", "run", "--mirostat", "2"}, "--top-k, --top-p, --min-p"},
           {{"generate", "run", "--typical=0.9"},
            "typical, XTC, DRY and mirostat sampling are not"},
           {{"generate", "run", "--grammar", "root"}, "check the text in your program"},
           {{"chat", "run", "--color"}, "drop it: terminals get colours by themselves"},
           {{"train", "--gradient-checkpointing"}, "a smaller --batch with --accumulate"},
           {{"train", "--dora"}, "plain LoRA with --lora-targets all-linear"}}) {
    refuse(words, 2, message);
  }
  // Grammars are for generated text, so `train` gives no hint.
  refuse({"train", "--grammar", "root"}, 2, "--grammar is not known here\n");
}

TEST_F(Usage, APlaceIsFoundNotToBeWritableBeforeTheWork) {
  std::filesystem::create_symlink("file", path("link"));
  refuse({"eval", "run", "--data", "nowhere", "--profile", "link"}, 1, "a symbolic link");
  // The loss would be told with the reason that the text cannot be read.
  refuse({"quantize", "run", "--weights", "q8", "--data", "nowhere", "--out", "file"}, 1,
         "cannot create folder");
  refuse({"tokenizer", "train", "--data", "text.txt", "--vocab", "1", "--out", "file"}, 1,
         "cannot create folder");
}

// Of a shell variable that is not set.
TEST_F(Usage, EmptyValuesAreRefused) {
  for (const Words& words :
       std::vector<Words>{with(kTrain, {"--out", "x", "--lr", ""}),
                          with(kTrain, {"--out", "x", "--init", ""}),
                          {"merge", "run", "--adapter", "", "--out", "x"},
                          {"generate", "run", "--adapter", ""},
                          {"generate", "run", "--temperature", ""},
                          {"generate", "run", "--device", ""},
                          {"generate", ""},
                          {"quantize", "run", "--weights", "q8", "--out", "x", "--data", ""},
                          {"tune", "matmul", "--dim", "32", "--model", ""},
                          {"bench", "infer", ""},
                          {"graph", ""}}) {
    refuse(words, 2, "give a value");
  }
}

TEST_F(Usage, OptionsWithoutEffectAreRefused) {
  const std::vector<Words> nothing_runs = {
      {"tune", "show"},
      {"tune", "clear"},
      {"tune", "export", "x"},
      {"tune", "import", "x"},
      {"version"},
      {"devices"},
      {"chat", "run", "--render"},
      {"verify", "run"},
      {"tokenize", "run", "a"},
      {"tokenizer", "train", "--data", "text.txt", "--out", "x"}};
  for (const Words& command : nothing_runs) {
    refuse(with(command, {"--profile", "p.csv"}), 2, "--profile has no effect here");
    refuse(with(command, {"--dtype", "bf16"}), 2, "--dtype has no effect here");
    refuse(with(command, {"--weights", "q8"}), 2, "--weights has no effect here");
  }
  struct Case {
    Words words;
    std::string message;
  };
  const Words quantize = {"quantize", "run", "--weights", "q8", "--out", "x"};
  const Words merge = {"merge", "run", "--adapter", "lora", "--out", "x"};
  const Words run = with(kTrain, {"--out", "x"});
  for (const auto& [words, message] : std::vector<Case>{
           {with(quantize, {"--val-fraction", "0.5"}), "--val-fraction requires --data"},
           {with(quantize, {"--context", "8"}), "--context requires --data"},
           {with(quantize, {"--dtype", "bf16"}), "goes with --data"},
           {with(quantize, {"--profile", "p.csv"}), "--profile"},
           {{"quantize", "run", "--out", "x", "--data", "text.txt", "--dtype", "bf16"},
            "what to store them as"},
           {with(merge, {"--weights", "q8"}), "--weights has no effect"},
           {with(merge, {"--dtype", "bf16"}), "--dtype has no effect"},
           {{"convert", "model.gguf", "x", "--weights", "q8"}, "--weights has no effect"},
           {{"convert", "model.gguf", "x", "--profile", "p.csv"}, "--profile has no effect"},
           {{"convert", "model.gguf", "x", "--output", "json"}, "this command writes text"},
           {{"tokenizer", "train", "--data", "text.txt", "--out", "x", "--output", "json"},
            "this command writes text"},
           {{"chat", "run", "--render", "--kv-cache-dtype", "bf16"}, "excludes"},
           {{"tokenize", "run", "a", "--skip-special"}, "--skip-special requires --decode"},
           {{"tokenize", "run", "--decode", "5", "--no-special"}, "excludes"},
           {{"tokenize", "run", "a", "--decode", "5"}, "excludes"},
           {{"tokenize", "run", "a", "--file", "text.txt"}, "excludes"},
           {{"tokenize", "run", "--file", "text.txt", "--decode", "5"}, "excludes"},
           {{"graph", "run", "--tokens", "8"}, "--tokens has no effect on decoding"},
           {{"graph", "run", "--phase", "train", "--weights", "q8"}, "--weights has no effect"},
           {{"graph", "run", "--profile", "p.csv"}, "--profile has no effect"},
           {{"inspect", "run", "--profile", "p.csv"}, "--profile has no effect"},
           {{"generate", "run", "--temp", "0", "--top-k", "5"}, "have no effect: drop them"},
           {{"generate", "run", "--temp", "0", "--min-p", "0.1"}, "have no effect: drop them"},
           {with(run, {"--momentum", "0.9"}), "--momentum goes with --optimizer sgd"},
           {with(run, {"--optimizer", "sgd", "--beta1", "0.9"}), "--optimizer adamw"},
           {with(run, {"--optimizer", "sgd", "--beta2", "0.9"}), "--optimizer adamw"},
           {with(run, {"--schedule", "constant", "--min-lr", "0"}),
            "--schedule cosine or linear"}}) {
    refuse(words, 2, message);
  }
  EXPECT_FALSE(std::filesystem::exists(path("x")));
  // Where they have one, they are taken.
  for (const Words& words :
       std::vector<Words>{{"graph", "run", "--phase", "eval", "--tokens", "8"},
                          {"tokenize", "run", "--decode", "5", "--skip-special"},
                          {"tokenize", "run", "a", "--no-special"},
                          {"graph", "run", "--weights", "q8"}}) {
    EXPECT_EQ(volta(words).exit_code, 0) << testing::PrintToString(words);
  }
}

TEST_F(Usage, UnknownWordsComeWithASuggestion) {
  for (const auto& [words, message] : std::vector<std::pair<Words, std::string>>{
           {{"trian"}, "trian is not known here; did you mean train?"},
           {{"bench", "modle", "run"}, "modle is not known here; did you mean model?"},
           {{"generate", "run", "--temprature", "0"}, "did you mean --temperature?"},
           {{"generate", "run", "--top_k=5"}, "--top_k=5 is not known here; did you mean --top-k?"},
           {{"generate", "run", "--n-predict", "5"}, "did you mean --tokens?"},
           {{"chat", "run", "--max-new-tokens", "5"}, "did you mean --tokens?"},
           {{"train", "--max_iters=5"}, "did you mean --steps?"},
           {{"convert", "run", "x.gguf", "--outtype", "f16"}, "did you mean --type?"},
           {{"-V"}, "did you mean --version?"},
           {{"bench", "model", "run", "-p", "8"}, "did you mean --prompt?"},
           {{"generate", "-m", "run"}, "the model is the first word behind the command"},
           {{"generate", "run", "--model", "run"}, "the model is the first word"},
           {{"generate", "-hf", "org/run"}, "-hf is not known here; the model is the first word"},
           {{"-hf", "org/run"}, "-hf is not known here"},
           {{"train", "-hf", "org/run"}, "did you mean --init?"},
           {{"generate", "--hf-repo", "org/run"}, "the model is the first word"},
           {{"train", "--model_name_or_path", "run"}, "did you mean --init?"},
           {{"train", "--bf16"}, "did you mean --dtype?"},
           {{"quantize", "run", "--bits", "4"}, "did you mean --weights?"},
           {{"convert", "run", "x.gguf", "--bits", "4"}, "did you mean --type?"},
           {{"convert", "run", "x.gguf", "--q-bits", "4"}, "did you mean --type?"},
           {{"convert", "run", "x.gguf", "--quantize", "q4"}, "did you mean --type?"},
           {{"chat", "run", "--chat-template", "x"}, "did you mean --template?"},
           {{"train", "--early_stopping_patience", "3"}, "did you mean --patience?"},
           {{"train", "--lr_scheduler_type", "cosine"}, "did you mean --schedule?"},
           {{"train", "--optim", "sgd"}, "did you mean --optimizer?"},
           {{"ppl", "run"}, "did you mean eval?"},
           {{"generate", "run", "-p", "a", "-fa"}, "-fa is not known here; drop it: attention"},
           {{"generate", "run", "-fa", "on", "-p", "a"}, "-fa is not known here; drop it"},
           {{"generate", "run", "-fa"}, "-fa is not known here; drop it"},
           {{"eval", "run", "--data", "text.txt", "-fa"}, "-fa is not known here; drop it"},
           {{"bench", "infer", "--flash-attn"}, "--flash-attn is not known here; drop it"},
           {{"serve", "run", "--port", "80"}, "serve is not known here; a server is not built"},
           {{"server"}, "a server is not built; `volta chat`"},
           {{"pull", "org/run"}, "pull is not known here; Volta opens no connections; `hf"},
           {{"download", "org/run"}, "`hf download ORGANISATION/NAME`"},
           {{"generate", "run", "-cnv"}, "-cnv is not known here; `volta chat MODEL` holds"},
           {{"generate", "run", "-i"}, "`volta chat MODEL` holds a conversation"},
           {{"generate", "run", "--conversation"}, "`volta chat MODEL` holds a conversation"},
           {{"generate", "run", "--interactive"}, "`volta chat MODEL` holds a conversation"},
           {{"chat", "run", "-cnv"}, "drop it: volta chat holds a conversation by itself"},
           {{"generate", "run", "--num_beams", "4"}, "beam search is not built"},
           {{"generate", "run", "--draft-model", "x"}, "speculative decoding is not built"},
           {{"generate", "run", "-md", "x"}, "speculative decoding is not built"},
           {{"generate", "run", "--prompt-cache", "x"}, "a prompt cache on disk is not built"},
           {{"generate", "run", "--lora-scaled", "x"}, "change lora_alpha in a copy"},
           {{"generate", "run", "--embedding"}, "embeddings are not built"},
           {{"chat", "run", "--mmproj", "x"}, "models of text only"},
           {{"generate", "run", "--split-mode", "row"}, "one model on several GPUs is not built"},
           {{"generate", "run", "--typical-p", "1"}, "typical, XTC"},
           {{"train", "--lr_decay_iters", "5"}, "--schedule constant --lr LOWEST"},
           {{"train", "--wandb_log=True"}, "--tensorboard, or metrics.jsonl"},
           {{"train", "--report_to", "none"}, "--tensorboard, or metrics.jsonl"},
           {{"train", "--push_to_hub"}, "`hf upload ORGANISATION/NAME FOLDER`"},
           {{"train", "--load_in_4bit"}, "training keeps weights as f32; LoRA"},
           {{"train", "--qlora"}, "training keeps weights as f32; LoRA"},
           {{"quantize", "run", "--imatrix", "x"}, "calibration is not built"},
           {{"generate", "run", "Once upon"}, "Once upon is not known here; a prompt goes with -p"},
           {{"eval", "run", "text.txt"}, "text.txt is not known here; a file to read goes with"},
           {{"bench"}, "name a command: infer, model, gaps, history"},
           {{"tune"}, "name a command: matmul, show, clear, export, import"},
           {{}, "name a command: train, generate, chat"},
           {{"train", "--lr", "abc"}, "--lr: 'abc' is no number"},
           {{"train", "--steps", "10k"}, "--steps: '10k' is no whole number"},
           {{"generate", "run", "--seed", "-1"}, "--seed: '-1' is no whole number of 0 or more"},
           {{"train", "--steps", "99999999999999999999"}, "99999999999999999999 is out of range"},
           {{"train", "--n_embd", "5"}, "did you mean --dim?"},
           {{"train", "--lora", "8"}, "did you mean --lora-rank?"},
           {{"quantize", "run", "--type", "q8", "--out", "x"}, "did you mean --weights?"},
           {{"generate", "run", "-ngl", "3"}, "did you mean --device?"},
           {{"generate", "run", "-ngl99"}, "-ngl99 is not known here"},
           {{"generate", "run", "-threads", "4"},
            "-threads is not known here; did you mean --threads?"},
           {{"generate", "run", "-temp", "3"}, "-temp is not known here; did you mean --temp?"},
           {{"--adapter", "a", "generate", "run"}, "it goes behind the name of the command"},
           {{"train", "--resume=it", "--out", "x"}, "--resume takes no value"},
           {{"train", "--data=text.txt", "--keep-best=maybe"}, "--keep-best takes no value"},
           {{"run", "x"}, "run is not known here; did you mean chat?"},
           {{"help", "bench", "nosuch"}, "nosuch is not known here"},
           {{"help", "nosuch"}, "nosuch is not known here"},
           {{"train", "--resume", "run"}, "a run goes on with --out run --resume"},
           {{"train", "run/step-1"}, "a model to start from goes with --init run/step-1"},
           {{"train", "--lr"}, "--lr: give a value"},
           {{"generate", "run", "-n", "abc"}, "--tokens: 'abc' is no whole number"},
           {{"generate", "run", "--top-k", "-1"}, "--top-k: -1 is not between 0 and 16777216"},
           {{"generate", "run", "--top-p", "2"}, "--top-p: 2 is not between 0 and 1"},
           {{"generate", "run", "--top-p", "nan"}, "--top-p: nan is not between 0 and 1"},
           {{"generate", "run", "--top-p", "x"}, "--top-p: 'x' is no number"},
           {{"generate", "run", "-p", "a", "--repetition-penalty", "-1"},
            "--repetition-penalty is -1; it must be positive"},
           {{"generate", "run", "--adapter", "a", "--adapter", "b"},
            "--adapter is given more than once"},
           {{"quantize", "run", "--weights", "q8", "--out", "x.gguf"},
            "quantize writes a model folder"},
           {{"tokenizer", "train", "--data", "a", "--data", "b", "--vocab", "300", "--out", "t"},
            "--data is given more than once"}}) {
    refuse(words, 2, message);
  }
  // Nothing is near to these, and train has no --tokens.
  for (const Words& words : std::vector<Words>{{"qqqqqq"},
                                               {"serve", "run"},
                                               {"train", "--xyzzyx"},
                                               {"train", "--n-predict", "5"},
                                               {"train", "--dora"},
                                               {"generate", "run", "--keep", "3"}}) {
    const CommandResult result = volta(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, testing::Not(HasSubstr("did you mean"))) << words.back();
  }
  // The last line names the help of the command.
  EXPECT_THAT(volta({"bench", "gaps", "run", "--xyzzyx"}).err,
              HasSubstr("volta bench gaps --help shows what there is."));
  EXPECT_THAT(volta({"qqqqqq"}).err, HasSubstr("volta --help shows what there is."));
}

// `-` is standard input or output where that is possible, and refused elsewhere.
TEST_F(Usage, AHyphenIsAStreamOrRefused) {
  for (const Words& words :
       std::vector<Words>{with(kTrain, {"--out", "-"}),
                          {"train", "--data", "-", "--out", "x"},
                          with(kTrain, {"--out", "x", "--val-data", "-"}),
                          with(kTrain, {"--out", "x", "--tokenizer", "-"}),
                          with(kTrain, {"--out", "x", "--init", "-"}),
                          {"quantize", "run", "--weights", "q8", "--out", "-"},
                          {"quantize", "run", "--weights", "q8", "--out", "x", "--data", "-"},
                          {"merge", "run", "--adapter", "lora", "--out", "-"},
                          {"convert", "-", "x"},
                          {"convert", "run", "-"},
                          {"logits", "run", "--ids", "-", "--out", "x"},
                          {"logits", "run", "--ids", "text.txt", "--out", "-"},
                          {"tokenizer", "train", "--data", "text.txt", "--out", "-"},
                          {"demo", "--text", "-"},
                          {"demo", "--out", "-"},
                          {"man", "--out", "-"},
                          {"chat", "run", "--tools", "-"},
                          {"chat", "run", "--template", "-"},
                          {"eval", "run", "--data", "text.txt", "--profile", "-"},
                          {"version", "--log-file", "-"},
                          {"bench", "history", "--svg", "-"}}) {
    refuse(words, 2, "- is not taken here for standard input or output: name a file");
  }
  EXPECT_FALSE(std::filesystem::exists(path("-")));
  struct Case {
    std::string input;  // A file of the folder.
    Words words;        // With `-` for that file.
    Words named;        // With its name.
  };
  std::ofstream(path("prompts.txt")) << "the\nquick\n";
  std::ofstream(path("prompts.jsonl")) << "{\"prompt\": \"the\"}\n{\"ids\": [5, 6]}\n";
  std::ofstream(path("messages.json")) << R"([{"role": "user", "content": "the"}])";
  std::ofstream(path("t.jinja")) << "{% for m in messages %}{{ m.content }}{% endfor %}";
  std::ofstream(path("h.jsonl")) << R"({"date": "2026-01-02T03:04:05Z", "commit": "0", )"
                                    R"("machine": "cpu", "isa": "avx2", "figures": {"a": 1.5}})"
                                 << "\n";
  const CommandResult plan = volta({"graph", "run", "--output", "json"});
  std::ofstream(path("plan.json")) << plan.out;
  const Words chat = {"chat", "run", "--template", "t.jinja", "--render"};
  const Words generate = {"generate", "run", "-n", "3"};
  for (const auto& [input, words, named] : std::vector<Case>{
           {"text.txt", {"eval", "run", "--data", "-"}, {"eval", "run", "--data", "text.txt"}},
           {"file", {"tokenize", "run", "--file", "-"}, {"tokenize", "run", "--file", "file"}},
           {"prompts.txt", with(generate, {"-f", "-"}), with(generate, {"-f", "prompts.txt"})},
           {"prompts.txt", with(generate, {"--prompts-file", "-"}),
            with(generate, {"--prompts-file", "prompts.txt"})},
           {"prompts.jsonl", with(generate, {"--prompts-file", "-"}),
            with(generate, {"--prompts-file", "prompts.jsonl"})},
           {"file", with(chat, {"-f", "-"}), with(chat, {"-p", "x"})},
           {"file", with(chat, {"-p", "-"}), with(chat, {"-f", "file"})},
           {"messages.json", with(chat, {"--messages", "-"}),
            with(chat, {"--messages", "messages.json"})},
           {"h.jsonl", {"bench", "history", "-"}, {"bench", "history", "h.jsonl"}},
           {"plan.json", {"graph", "-"}, {"graph", "plan.json"}}}) {
    test::Command piped(words, dir_->path(), {}, input);
    const CommandResult from_input = piped.wait();
    EXPECT_EQ(from_input.exit_code, 0) << testing::PrintToString(words) << from_input.err;
    const CommandResult from_file = volta(named);
    EXPECT_EQ(from_file.exit_code, 0) << testing::PrintToString(named) << from_file.err;
    EXPECT_EQ(from_input.out, from_file.out) << testing::PrintToString(words);
    EXPECT_NE(from_input.out, "");
  }
  test::Command learn({"tokenizer", "train", "--data", "-", "--vocab", "270", "--out", "learnt"},
                      dir_->path(), {}, "text.txt");
  EXPECT_EQ(learn.wait().exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(path("learnt/tokenizer.json")));
  test::Command unread({"generate", "run", "-n", "2"}, dir_->path(), {}, "text.txt");
  EXPECT_THAT(unread.wait().err, HasSubstr("standard input is not read: -p - takes the prompt"));
  std::ofstream(path("broken.jsonl")) << "{\"prompt\": \"the\"\n";
  test::Command broken(with(generate, {"--prompts-file", "-"}), dir_->path(), {}, "broken.jsonl");
  const CommandResult refused = broken.wait();  // Not taken as a plain prompt.
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("standard input: line 1"));
  // Nothing is in standard input here.
  refuse(with(chat, {"-p", "-"}), 3, "standard input: there is no text in it");
  refuse(with(chat, {"-p", "a", "-f", "file"}), 2, "excludes");
  refuse(with(chat, {"-p", "a", "-p", "b"}), 2, "one message is answered");
  refuse(with(chat, {"-f", "folder"}), 3, "is a folder");
}

TEST_F(Usage, HelpIsACommandToo) {
  EXPECT_EQ(volta({"help"}).out, volta({"--help"}).out);
  EXPECT_EQ(volta({"help", "bench", "model"}).out, volta({"bench", "model", "--help"}).out);
  EXPECT_THAT(volta({"help", "chat"}).out, HasSubstr("Usage: volta chat"));
}

TEST_F(Usage, NamesOfOtherProgramsAreTaken) {
  const Words words = {"generate", "run", "-n", "3", "-p", "the"};
  const CommandResult ours = volta(with(words, {"--temperature", "0", "--threads", "1"}));
  ASSERT_EQ(ours.exit_code, 0) << ours.err;
  EXPECT_EQ(volta(with(words, {"--temp", "0", "-t", "1"})).out, ours.out);
}

}  // namespace
}  // namespace volta
