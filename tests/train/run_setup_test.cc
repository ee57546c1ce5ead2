// What a run makes of its options before the first step: data, folders, models to start from, and
// what it refuses.
#include "train/run_setup.h"

#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/temporary.h"
#include "device/device_proxy.h"
#include "formats/safetensors.h"
#include "support/fault_device.h"
#include "support/file_faults.h"
#include "support/model.h"
#include "support/shared_data.h"
#include "text/tokenizer.h"
#include "train/checkpoint.h"
#include "train/checkpoint_writer.h"
#include "train/dataset.h"
#include "train/evaluator.h"
#include "train/flag_values.h"
#include "train/metrics.h"
#include "train/run_fixture.h"

namespace volta {
namespace {

using test::expect_error;
using test::FileCall;
using testing::HasSubstr;

class RunSetupTest : public test::RunFixture {};

TEST_F(RunSetupTest, BadDataIsAnErrorBeforeAnythingIsTrained) {
  const auto with = [&](const std::string& text, const std::string& tokenizer = "char") {
    RunOptions o = options("a");
    o.tokenizer = tokenizer;
    test::put_file(o.data.front(), text);
    return train(o);
  };
  const auto code = ErrorCode::kInvalidArgument;
  expect_error(with(""), ErrorCode::kInvalidFile, "text.txt is empty");
  expect_error(with("abc\xFF"), ErrorCode::kInvalidFile, "is not UTF-8");
  expect_error(with("abc"), code, "a context of 8 needs at least 9");
  expect_error(with(std::string(30, 'x'), "byte"), code, "are for validation");
  RunOptions o = options("a");
  o.data = {dir_.file("none.txt")};
  expect_error(train(o), ErrorCode::kNotFound, "none.txt");
  o = options("a");
  o.model.heads = 3;
  o.model.head_dim = 0;
  expect_error(train(o), code, "do not divide");
  // Nothing is left behind, and a folder that was there is as it was.
  EXPECT_FALSE(path_exists(dir_.file("a")));
  std::filesystem::create_directories(dir_.file("a"));
  expect_error(with(""), ErrorCode::kInvalidFile, "text.txt is empty");
  EXPECT_TRUE(list_directory(dir_.file("a"))->empty());
  EXPECT_TRUE(with(test::small_text()));
}

TEST_F(RunSetupTest, AnOutputThatCannotBeAFolderIsAnIoError) {
  for (const std::string& out :
       {dir_.file("text.txt"), dir_.file("text.txt/x"), std::string("/proc/volta")}) {
    RunOptions o = options("a");
    o.out = out;
    expect_error(train(o), ErrorCode::kIo, "cannot create folder");
    o.resume = true;
    expect_error(train(o), ErrorCode::kIo, "cannot create folder");
  }
}

TEST_F(RunSetupTest, WhatAKilledRunLeftBehindGoesOnTheNextStart) {
  RunOptions o = options("a");
  ASSERT_TRUE(train(o));
  const std::string left = TemporaryFolder::create(o.out + "/loss.svg")->path();
  test::put_file(left, "x");
  test::put_file(o.out + "/run.json.tmp-7-7", "mine");
  o.resume = true;
  ASSERT_TRUE(train(o));
  EXPECT_FALSE(path_exists(left));
  EXPECT_EQ(test::get_file(o.out + "/run.json.tmp-7-7"), "mine");
}

// What lies behind a link out of a stranger's checkpoint is not copied into the next one.
TEST_F(RunSetupTest, ATokenizerConfigBehindALinkIsNotCarriedAlong) {
  RunOptions o = options("a");
  ASSERT_TRUE(train(o));
  std::filesystem::create_directories(dir_.file("tok"));
  test::put_file(dir_.file("tok/tokenizer.json"),
                 test::get_file(o.out + "/step-20/tokenizer.json"));
  test::put_file(dir_.file("secret.json"), "{\"key\": \"secret\"}");
  std::filesystem::create_symlink(dir_.file("secret.json"), dir_.file("tok/tokenizer_config.json"));
  RunOptions with = options("b");
  with.tokenizer = dir_.file("tok/tokenizer.json");
  expect_error(train(with), ErrorCode::kInvalidFile, "tokenizer_config.json");
}

// A model would have a row for every id.
TEST_F(RunSetupTest, ATokenizerWithLargeGapsBetweenItsIdsIsRefused) {
  const auto with_last_id = [&](std::int64_t id) {
    test::put_file(dir_.file("tokenizer.json"),
                   R"({"model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":)" +
                       std::to_string(id) + "},\"merges\":[]}}");
    RunOptions o = options("a" + std::to_string(id));
    o.tokenizer = dir_.file("tokenizer.json");
    return train(o);
  };
  expect_error(with_last_id(1'000'000), ErrorCode::kInvalidFile,
               "tokenizer.json: 3 tokens have ids up to 1000000");
  EXPECT_FALSE(path_exists(dir_.file("a1000000")));
  EXPECT_TRUE(with_last_id(4000));
}

// A folder that held no run yet holds nothing of a killed one.
TEST_F(RunSetupTest, AFolderThatIsNoRunsIsLeftAsItIs) {
  RunOptions o = options("a");
  for (const char* name : {"/backup.tmp-2024-11", "/.tmp-step-3", "/.old-step-3"}) {
    std::filesystem::create_directories(o.out + name);
    test::put_file(o.out + name + "/thesis.txt", "years of work");
  }
  ASSERT_TRUE(train(o));
  for (const char* name : {"/backup.tmp-2024-11", "/.tmp-step-3", "/.old-step-3"}) {
    EXPECT_EQ(test::get_file(o.out + name + "/thesis.txt"), "years of work") << name;
  }
}

// Whoever wrote run.json chose its paths: they count where a checkpoint says what was read.
TEST_F(RunSetupTest, PathsOfRunJsonNeedACheckpoint) {
  ASSERT_TRUE(train(options("base")));
  const auto begin = [&](RunOptions o) {
    o.save_every = 5;
    EXPECT_TRUE(train(o));
    auto saved = load_run_options(o.out);
    EXPECT_TRUE(saved);
    saved->resume = true;
    return *saved;
  };
  const auto without_checkpoints = [](const RunOptions& o) {
    const auto places = list_checkpoints(o.out);
    ASSERT_TRUE(places);
    for (const auto& place : *places) std::filesystem::remove_all(place.path);
  };
  RunOptions plain = begin(options("plain"));
  EXPECT_EQ(plain.recorded_paths, (std::set<std::string, std::less<>>{"data"}));
  EXPECT_TRUE(train(plain));
  RunOptions moved = plain;
  moved.data.front() += ".moved";
  expect_error(train(moved), ErrorCode::kNotFound,
               plain.out + "/run.json names '" + moved.data.front() +
                   "', which is not there; say where it is now: --data PATH");
  without_checkpoints(plain);
  expect_error(train(plain), ErrorCode::kInvalidArgument,
               "give it again: --data " + plain.data.front());
  plain.recorded_paths.clear();
  EXPECT_TRUE(train(plain));

  RunOptions tuned = options("tuned");
  tuned.init = dir_.file("base");
  tuned = begin(tuned);
  without_checkpoints(tuned);
  tuned.recorded_paths.erase("data");
  expect_error(train(tuned), ErrorCode::kInvalidArgument, "give it again: --init ");

  RunOptions named = options("named");
  named.tokenizer = dir_.file("base/step-20/tokenizer.json");
  named = begin(named);
  without_checkpoints(named);
  named.recorded_paths.erase("data");
  expect_error(train(named), ErrorCode::kInvalidArgument, "give it again: --tokenizer ");
}

TEST_F(RunSetupTest, AWarmUpLongerThanTheRunIsSaid) {
  RunOptions o = options("a");
  ASSERT_TRUE(train(o));
  EXPECT_THAT(messages_, testing::Not(HasSubstr("warm-up")));
  o.out = dir_.file("b");
  o.trainer.schedule.warmup = 20;
  ASSERT_TRUE(train(o));
  EXPECT_THAT(messages_, HasSubstr("the warm-up of 20 steps is as long as the run of 20"));
  EXPECT_THAT(messages_, HasSubstr("; try --warmup 2"));
}

TEST_F(RunSetupTest, TheWarmUpOfAPresetIsShortenedToATenth) {
  RunOptions o = options("a");
  o.trainer.schedule.warmup = 100;
  o.shorten_warmup = true;
  ASSERT_TRUE(train(o));
  EXPECT_THAT(messages_, testing::Not(HasSubstr("warm-up")));
  EXPECT_EQ(load_run_options(dir_.file("a"))->trainer.schedule.warmup, 2);
  ASSERT_TRUE(set_flags({{"warmup", 20}}, o));  // What is given stays as it is.
  o.out = dir_.file("b");
  ASSERT_TRUE(train(o));
  EXPECT_EQ(load_run_options(o.out)->trainer.schedule.warmup, 20);
}

TEST_F(RunSetupTest, WithoutValidationThereIsNoValidationLoss) {
  RunOptions o = options("a");
  o.val_fraction = 0.0;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_FALSE(result.val_loss);
  EXPECT_THAT(test::get_file(o.out + "/metrics.jsonl"), testing::Not(HasSubstr("val_loss")));
}

TEST_F(RunSetupTest, ReadyMadeExamplesAreTakenInOrder) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 6 * 9; ++i) ids.push_back(i * 7 % 13);
  RunOptions o = options("a");
  o.data = {dir_.file("rows.safetensors")};
  ASSERT_TRUE(write_safetensors(
      o.data.front(), {{"input_ids", *Tensor::from_values<std::int64_t>(Shape(6, 9), ids)}}));
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_FALSE(result.val_loss);
  EXPECT_THAT(messages_, HasSubstr("6 examples of 8 tokens"));
  // The first loss is that of rows 0 to 3.
  VOLTA_ASSERT_OK(const Transformer model,
                  Transformer::random(test::small_config(), 1, test::device(1)));
  TrainerOptions trainer_options = test::small_options();
  VOLTA_ASSERT_OK(Trainer trainer, Trainer::create(model, trainer_options));
  VOLTA_ASSERT_OK(const ExampleRows rows, ExampleRows::create({ids.begin(), ids.end()}, 6, 8, 1));
  EXPECT_EQ(events_.front().report.loss, trainer.step(rows)->loss);
  const auto refused = [&](auto change, ErrorCode code, const std::string& text) {
    RunOptions bad = o;
    bad.out = dir_.file("b");
    change(bad);
    expect_error(train(bad), code, text);
  };
  const auto code = ErrorCode::kInvalidArgument;
  refused([](auto& bad) { bad.trainer.time = 4; }, code, "its examples are 8 tokens long");
  refused([](auto& bad) { bad.model.context = 4; }, code, "longer than the model's context of 4");
  refused([](auto& bad) { bad.patience = 1; }, code, "patience needs data to validate with");
  refused([](auto& bad) { bad.model.vocab_size = 5; }, ErrorCode::kInvalidFile, "ids must be");
}

TEST_F(RunSetupTest, ReadyMadeBytesNeedNoTokenizer) {
  RunOptions o = options("a");
  o.data = {dir_.file("rows.safetensors")};
  o.model.vocab_size = 256;
  const std::vector<std::int64_t> ids(2 * 9, 65);
  ASSERT_TRUE(write_safetensors(
      o.data.front(), {{"input_ids", *Tensor::from_values<std::int64_t>(Shape(2, 9), ids)}}));
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ((*load_tokenizer(result.checkpoint))->kind(), "byte");
}

// The whole path from a folder and examples that others made to their losses.
TEST_F(RunSetupTest, TunesAModelOfOthersLikeThem) {
  VOLTA_NEEDS_SHARED("models/gpt2-tiny/train_golden.safetensors");
  RunOptions o = options("a");
  o.init = test::shared_path("models/gpt2-tiny");
  o.data = {o.init + "/train_golden.safetensors"};
  o.trainer.batch = 4;
  o.trainer.optimizer = {.beta2 = 0.95f, .weight_decay = 0.1f, .clip = 1.0f};
  o.trainer.schedule = {.kind = ScheduleKind::kConstant, .lr = 1e-3, .steps = 20};
  ASSERT_TRUE(train(o));
  const auto golden = SafetensorsFile::open(o.data.front())->load("losses");
  ASSERT_TRUE(golden);
  const std::vector<float> losses = test::values(*golden);
  ASSERT_EQ(events_.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double wanted = static_cast<double>(losses[i]);
    EXPECT_NEAR(events_[i].report.loss, wanted, 1e-5 * wanted);
  }
}

TEST_F(RunSetupTest, StartsFromAModelFolder) {
  VOLTA_ASSERT_OK(const RunResult first, train(options("a")));
  RunOptions o = options("b");
  o.init = first.checkpoint;
  o.model.layers = 99;  // Not looked at.
  o.tokenizer = "byte";
  VOLTA_ASSERT_OK(const RunResult second, train(o));
  EXPECT_LT(events_[20].report.loss, events_[0].report.loss - 0.3);
  VOLTA_ASSERT_OK(const auto tokenizer, load_tokenizer(second.checkpoint));
  EXPECT_EQ(tokenizer->kind(), "char");
  // The folder it came from is as it was, and not needed to go on.
  EXPECT_TRUE(open_checkpoint(first.checkpoint));
  std::filesystem::rename(first.checkpoint, dir_.file("elsewhere"));
  o.resume = true;
  std::filesystem::remove_all(second.checkpoint);
  EXPECT_TRUE(train(o));
  o.init = dir_.file("none");
  o.out = dir_.file("c");
  o.resume = false;
  EXPECT_FALSE(path_exists(o.out));
  expect_error(train(o), ErrorCode::kNotFound, "none");
}

// A device that has as much memory as it is told.
class SmallDevice final : public DeviceProxy {
 public:
  SmallDevice(std::shared_ptr<Device> inner, std::int64_t bytes)
      : DeviceProxy(std::move(inner)), bytes_(bytes) {}
  DeviceInfo info() const override {
    DeviceInfo info = DeviceProxy::info();
    info.memory_bytes = bytes_;
    return info;
  }

 private:
  std::int64_t bytes_;
};

TEST_F(RunSetupTest, TheBatchFollowsTheMemory) {
  VOLTA_ASSERT_OK(const RunResult first, train(options("a")));
  RunOptions o = options("b");
  o.init = first.checkpoint;
  o.trainer.batch = 6;
  o.batch_by_memory = true;
  const auto bytes_of = [&](std::int64_t batch, std::int64_t accumulate) {
    TrainerOptions trainer = o.trainer;
    trainer.batch = batch;
    trainer.accumulate = accumulate;
    trainer.time = 8;
    TransformerConfig model = test::small_config();
    model.vocab_size = load_tokenizer(first.checkpoint).value()->vocab_size();
    const auto memory = Trainer::estimate(model, {}, trainer, *device_);
    EXPECT_TRUE(memory);
    return memory->weights + memory->optimizer + memory->activations;
  };
  const auto run_with = [&](std::int64_t memory, const std::string& out) {
    messages_.clear();
    o.out = dir_.file(out);
    const auto device = std::make_shared<SmallDevice>(device_, memory);
    const auto done = volta::train(o, device, callbacks_);
    EXPECT_TRUE(done) << done.error().message();
    const auto used = load_run_options(o.out);
    EXPECT_TRUE(used);
    EXPECT_EQ(used->trainer.batch * used->trainer.accumulate, 6);
    return used->trainer.batch;
  };
  ASSERT_LT(bytes_of(2, 3), bytes_of(3, 2));
  EXPECT_EQ(run_with(std::int64_t{1} << 40, "enough"), 6);
  EXPECT_THAT(messages_, testing::Not(HasSubstr("micro-batches of")));
  EXPECT_EQ(run_with(bytes_of(2, 3) * 4 / 3 + 64, "less"), 2);
  EXPECT_THAT(messages_, HasSubstr("batch: 3 micro-batches of 2 instead of 1 of 6"));
  EXPECT_THAT(messages_, testing::Not(HasSubstr("even with one sequence")));
  EXPECT_EQ(run_with(bytes_of(1, 6) - 64, "least"), 1);
  EXPECT_THAT(messages_,
              HasSubstr("even with one sequence at a time, and " + device_->info().id + " has"));
  // A run goes on with the batch that it began with, and a given batch stays.
  o = *load_run_options(dir_.file("less"));
  o.resume = true;
  o.trainer.schedule.steps += 2;
  VOLTA_ASSERT_OK(const RunResult more, train(o));
  EXPECT_EQ(more.new_steps, 2);
  EXPECT_EQ(load_run_options(o.out)->trainer.batch, 2);
}

TEST_F(RunSetupTest, StartsFromTheNewestCheckpointOfARun) {
  VOLTA_ASSERT_OK(const RunResult first, train(options("a")));
  RunOptions o = options("b");
  o.init = dir_.file("a");
  VOLTA_ASSERT_OK(const RunResult second, train(o));
  EXPECT_LT(events_[20].report.loss, events_[0].report.loss - 0.3);
  EXPECT_EQ(load_run_options(o.out)->init, first.checkpoint);
  // A damaged folder is no place to start from.
  test::put_file(first.checkpoint + "/model.safetensors", "damaged");
  o.init = first.checkpoint;
  o.out = dir_.file("c");
  expect_error(train(o), ErrorCode::kInvalidFile, "the manifest says");
}

TEST_F(RunSetupTest, WeightsThatAreNoNumbersAreNoBeginning) {
  VOLTA_ASSERT_OK(const RunResult first, train(options("a")));
  RunOptions o = options("b");
  o.init = first.checkpoint;
  std::filesystem::remove(first.checkpoint + "/manifest.json");  // Changed on purpose.
  const std::string path = first.checkpoint + "/model.safetensors";
  auto tensors = *SafetensorsFile::open(path)->load_all();
  Tensor& wte = tensors["transformer.wte.weight"];
  (*wte.mutable_values<float>())[3] = NAN;
  VOLTA_ASSERT_STATUS(write_safetensors(path, tensors));
  expect_error(train(o), ErrorCode::kNonFinite, "'transformer.wte.weight' holds 1 NaN");
  EXPECT_FALSE(path_exists(o.out + "/metrics.jsonl"));
}

TEST_F(RunSetupTest, ATextThatTheModelsVocabularyCannotHoldIsRefused) {
  VOLTA_ASSERT_OK(const RunResult first, train(options("a")));
  RunOptions o = options("b");
  o.init = first.checkpoint;
  test::put_file(dir_.file("text.txt"), test::small_text() + "Z");
  expect_error(train(o), ErrorCode::kInvalidFile, "'Z'");
  std::filesystem::remove(first.checkpoint + "/manifest.json");  // Changed on purpose.
  std::filesystem::remove(first.checkpoint + "/tokenizer.json");
  o.tokenizer = "byte";
  expect_error(train(o), ErrorCode::kInvalidArgument, "a vocabulary of 256 bytes does not fit");
  test::put_file(first.checkpoint + "/tokenizer.json", "{}");
  expect_error(train(o), ErrorCode::kInvalidFile, "tokenizer.json");
}

TEST_F(RunSetupTest, AnotherInstructionSetIsSaid) {
  RunOptions o = options("a");
  device_ = test::cpu(1, cpu::Simd::kSse4);
  stop_after_ = 4;
  expect_error(train(o), ErrorCode::kInterrupted, "interrupted after step 4 of 20");
  stop_after_ = 0;
  o.resume = true;
  if (test::simds().back() == cpu::Simd::kSse4) GTEST_SKIP() << "this machine has SSE4 only";
  device_ = test::cpu(1, test::simds().back());
  ASSERT_TRUE(train(o));
  EXPECT_THAT(messages_, HasSubstr("the checkpoint was written on cpu (sse4)"));
  EXPECT_THAT(messages_, HasSubstr("bits will differ"));
}

TEST_F(RunSetupTest, OtherKernelParametersAreSaid) {
  RunOptions o = options("a");
  stop_after_ = 4;
  EXPECT_FALSE(train(o));
  stop_after_ = 0;
  const std::string path = o.out + "/step-4/manifest.json";
  std::string manifest = test::get_file(path);
  const std::string_view known = test::on_gpu() ? "MatMul: CUDA" : "one sum";
  ASSERT_NE(manifest.find(known), std::string::npos) << manifest;
  manifest.replace(manifest.find(known), known.size(), "another sum");
  test::put_file(path, manifest);
  o.resume = true;
  ASSERT_TRUE(train(o));
  EXPECT_THAT(messages_, HasSubstr("with other kernel parameters"));
}

TEST_F(RunSetupTest, AForeignRunStateIsSkipped) {
  RunOptions o = options("a");
  ASSERT_TRUE(train(o));
  // A checkpoint that the library's own functions wrote, but no run.
  VOLTA_ASSERT_OK(const Transformer model, test::load_model(o.out + "/step-20", test::device(1)));
  TrainerOptions trainer_options = test::small_options();
  VOLTA_ASSERT_OK(Trainer trainer, Trainer::create(model, trainer_options));
  ASSERT_TRUE(trainer.restore(21, trainer.optimizer_state()));
  o.resume = true;
  for (const std::string state : {"{}", "not json", R"({"settings":{}})"}) {
    ASSERT_TRUE(write_checkpoint(o.out, {&trainer, nullptr, state}, 0));
    std::string log;
    set_log_callback([&](LogLevel, std::string_view message) { log += message; });
    EXPECT_TRUE(train(o));
    set_log_callback({});
    EXPECT_THAT(log, HasSubstr("step-21/trainer.safetensors: run: "));
    EXPECT_THAT(messages_, HasSubstr("resuming from " + o.out + "/step-20"));
    EXPECT_FALSE(path_exists(o.out + "/step-21"));  // It is kept under another name.
  }
  EXPECT_TRUE(path_exists(o.out + "/step-21.invalid"));
}

TEST_F(RunSetupTest, AModelLargerThanTheMemoryIsRefusedBeforeItIsMade) {
  RunOptions o = options("a");
  o.model.layers = 4096;
  o.model.dim = o.model.ffn = 1 << 14;
  o.model.heads = o.model.kv_heads = 8;
  o.model.head_dim = 0;
  expect_error(train(o), ErrorCode::kOutOfMemory, "parameters takes");
  EXPECT_FALSE(path_exists(o.out));
}

// A model's own files would win over the checkpoints beside them.
TEST_F(RunSetupTest, AFolderThatHoldsAModelIsNoPlaceForARun) {
  VOLTA_ASSERT_OK(const RunResult first, train(options("a")));
  const auto code = ErrorCode::kInvalidArgument;
  for (const std::string name : {"config.json", "adapter_config.json", "model.safetensors",
                                 "model.safetensors.index.json"}) {
    const std::string folder = dir_.file("model-" + name);
    std::filesystem::create_directory(folder);
    test::put_file(folder + "/" + name, "{}");
    RunOptions o = options("model-" + name);
    expect_error(train(o), code, "holds a model; choose another folder (--out), or");
    o.resume = true;
    expect_error(train(o), code, "there is nothing to resume");
    EXPECT_FALSE(path_exists(folder + "/run.json"));
  }
  RunOptions o = options("model");
  std::filesystem::copy(first.checkpoint, o.out);
  o.init = o.out;
  expect_error(train(o), code, "holds what the run reads: choose another folder (--out)");
  o.force = true;
  expect_error(train(o), code, "holds what the run reads");
  o.init.clear();
  o.data = {o.out + "/text.txt"};
  expect_error(train(o), code, "holds what the run reads");
  o.resume = true;
  expect_error(train(o), code, "exclude each other");
}

TEST_F(RunSetupTest, ForceSetsAsideWhatWasThere) {
  VOLTA_ASSERT_OK(const RunResult first, train(options("a")));
  RunOptions o = options("a");
  o.force = true;
  o.out += "/";
  // A start that fails leaves the old run where it is.
  o.data = {dir_.file("none")};
  expect_error(train(o), ErrorCode::kNotFound, "none");
  EXPECT_TRUE(open_checkpoint(first.checkpoint));
  o.data = {dir_.file("text.txt")};
  o.trainer.schedule.steps = 4;
  VOLTA_ASSERT_OK(const RunResult second, train(o));
  EXPECT_EQ(list_checkpoints(dir_.file("a"))->size(), 1u);
  EXPECT_TRUE(open_checkpoint(dir_.file("a.old/step-20")));
  EXPECT_THAT(messages_, HasSubstr("is kept as " + dir_.file("a.old")));
  // Nothing is renamed that is not in the way.
  o.out = dir_.file("b");
  std::filesystem::create_directory(o.out);
  ASSERT_TRUE(train(o));
  EXPECT_FALSE(path_exists(dir_.file("b.old")));
}

TEST_F(RunSetupTest, TheSpaceForCheckpointsIsLookedAtBeforeTheFirstStep) {
  class Small final : public FileOps {
    int statvfs(const std::string&, struct statvfs& info) override {
      info.f_bavail = 10;
      info.f_frsize = 1024;
      return 0;
    }
  };
  RunOptions o = options("a");
  ASSERT_TRUE(train(o));
  EXPECT_THAT(messages_, testing::Not(HasSubstr("a checkpoint takes")));
  o.out = dir_.file("b");
  Small small;
  const ScopedFileOps scope(small);
  ASSERT_TRUE(train(o));
  EXPECT_THAT(messages_, HasSubstr("a checkpoint takes"));
  EXPECT_THAT(messages_, HasSubstr("has 10.0 KiB free"));
}

TEST(SpaceWarning, CountsTheCheckpointsThatAreThereTogether) {
  RunOptions o = test::small_run();  // 20 steps, saved every 5.
  o.keep = 2;
  o.out = "run";
  // Two that stay, the one that is written, the best one.
  EXPECT_EQ(space_warning(o, 100, 0, 400), "");
  EXPECT_THAT(space_warning(o, 100, 0, 399), HasSubstr("up to 4 more are kept at a time"));
  EXPECT_EQ(space_warning(o, 100, 3, 100), "");
  EXPECT_THAT(space_warning(o, 100, 9, 99), HasSubstr("up to 1 more"));
  o.keep_best = false;
  EXPECT_EQ(space_warning(o, 100, 0, 300), "");
  o.keep = 0;
  EXPECT_THAT(space_warning(o, 100, 0, 300), HasSubstr("up to 4 more"));
  o.keep = 3;
  o.save_every = 0;
  EXPECT_EQ(space_warning(o, 100, 0, 100), "");
  o.save_every = 15;
  EXPECT_THAT(space_warning(o, 100, 0, 100), HasSubstr("up to 2 more"));
}

}  // namespace
}  // namespace volta
