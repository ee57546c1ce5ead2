// Fine-tuning on conversations as a whole run, against transformers and PyTorch (goldens of
// tests/interop/make_chat_golden.py): the tokens, which of them are answers, the rows and the
// losses of 20 updates.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "formats/model_source.h"
#include "support/shared_data.h"
#include "train/chat_data.h"
#include "train/run_fixture.h"

namespace volta {
namespace {

using Json = nlohmann::json;
using test::expect_error;
using testing::HasSubstr;

class ChatRun : public test::RunFixture {
 protected:
  ChatRun() : golden_(Json::parse(test::get_file(folder_ + "/golden.json"))) {}

  // The recipe of the golden.
  RunOptions chat_run(const std::string& name) const {
    RunOptions o;
    o.init = folder_;
    o.data = {folder_ + "/chats.jsonl"};
    o.out = dir_.file(name);
    o.seed = 7;
    o.val_fraction = 0.0;
    o.packing = true;
    o.trainer = {.batch = 2, .time = 96, .accumulate = 2};
    o.trainer.optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .weight_decay = 0.1f, .clip = 1.0f};
    o.trainer.schedule = {.kind = ScheduleKind::kConstant, .lr = 1e-2, .steps = 20};
    return o;
  }

  std::string folder_ = test::source_path("tests/train/data/chat_llama");
  Json golden_;
};

TEST_F(ChatRun, TokensAndAnswersAreThoseOfTransformers) {
  VOLTA_ASSERT_OK(const ModelSource source, ModelSource::open(folder_));
  VOLTA_ASSERT_OK(const ChatTemplate chat_template, source.chat_template());
  VOLTA_ASSERT_OK(const auto tokenizer, source.tokenizer());
  VOLTA_ASSERT_OK(const auto examples,
                  parse_chats(test::get_file(folder_ + "/chats.jsonl"), "chats",
                              {.chat_template = &chat_template, .tokenizer = tokenizer.get()}));
  ASSERT_EQ(examples.size(), golden_["ids"].size());
  for (std::size_t i = 0; i < examples.size(); ++i) {
    EXPECT_EQ(examples[i].ids, golden_["ids"][i].get<std::vector<std::int32_t>>()) << i;
    const auto answers = golden_["answers"][i].get<std::vector<int>>();
    EXPECT_EQ(examples[i].is_answer, std::vector<bool>(answers.begin(), answers.end())) << i;
  }
}

TEST_F(ChatRun, LossesOfPackedMaskedRowsAreThoseOfPyTorch) {
  VOLTA_ASSERT_OK(const RunResult result, train(chat_run("run")));
  EXPECT_EQ(result.steps, 20);
  VOLTA_ASSERT_OK(const auto metrics, read_metrics(dir_.file("run") + "/metrics.jsonl"));
  const auto losses = golden_["losses"].get<std::vector<double>>();
  ASSERT_EQ(metrics.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(metrics[i].loss, losses[i], 1e-5) << "step " << i + 1;
  }
  EXPECT_THAT(messages_, HasSubstr(fmt::format("in {} rows of 96", golden_["rows"].get<int>())));
  EXPECT_THAT(messages_,
              HasSubstr("3 of 16 conversations are longer than 96 tokens: ends of answers "
                        "are cut off; try --context 122, into which the longest one "
                        "fits"));
  // The result is a model that answers with the same template.
  EXPECT_EQ(test::get_file(result.checkpoint + "/chat_template.jinja"),
            test::get_file(folder_ + "/chat_template.jinja"));
}

// The checkpoint of an adapter holds neither a tokenizer nor a template; its base may have changed.
TEST_F(ChatRun, AnotherTemplateOrTokenizerOfTheBaseIsNoticed) {
  const std::string base = dir_.file("base");
  std::filesystem::copy(folder_, base, std::filesystem::copy_options::recursive);
  RunOptions o = chat_run("lora");
  o.init = base;
  o.lora = {.rank = 2};
  o.trainer.schedule.steps = 4;
  stop_after_ = 2;
  expect_error(train(o), ErrorCode::kInterrupted, "after step 2 of 4");
  stop_after_ = 0;
  o.resume = true;
  const std::string place = base + "/chat_template.jinja";
  const std::string chat_template = test::get_file(place);
  test::put_file(place, "x" + chat_template);
  expect_error(train(o), ErrorCode::kMismatch,
               "The tokenizer or the chat template of the base is no longer what it was");
  test::put_file(place, chat_template);
  // Other ids because of other settings: these are named.
  RunOptions other = o;
  other.val_fraction = 0.3;
  expect_error(train(other), ErrorCode::kMismatch, "--val-fraction is 0.3");
  other = o;
  other.seed = 8;
  expect_error(train(other), ErrorCode::kMismatch, "seed is 8");
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ(result.new_steps, 2);
}

TEST_F(ChatRun, AResumedRunHasTheSameBits) {
  RunOptions o = chat_run("whole");
  o.val_fraction = 0.2;
  o.eval_every = 5;
  o.save_every = 0;
  o.trainer.schedule.steps = 12;
  VOLTA_ASSERT_OK(const RunResult whole, train(o));
  EXPECT_TRUE(whole.val_loss.has_value());
  o.out = dir_.file("parts");
  stop_after_ = 7;
  expect_error(train(o), ErrorCode::kInterrupted, "after step 7 of 12");
  stop_after_ = 0;
  o.resume = true;
  VOLTA_ASSERT_OK(const RunResult parts, train(o));
  EXPECT_EQ(parts.new_steps, 5);
  expect_same_runs(dir_.file("whole"), dir_.file("parts"), "step-12");
}

// Each conversation has a row of its own, which is as long as the longest one, so that it is
// learned without others before it.
TEST_F(ChatRun, WithoutPackingARowIsAConversation) {
  const std::string data = dir_.file("data.jsonl");
  test::put_file(data, R"({"prompt": "who", "completion": "me"})"
                       "\n"
                       R"({"prompt": "where", "completion": "here and there"})"
                       "\n");
  RunOptions o = chat_run("whole");
  o.data = {data};
  o.packing = false;
  o.epochs = 6;
  o.batch_by_memory = true;
  o.save_every = 0;
  VOLTA_ASSERT_OK(const RunResult whole, train(o));
  EXPECT_EQ(whole.steps, 6);
  EXPECT_THAT(messages_, HasSubstr("in 2 rows of 24"));
  EXPECT_THAT(messages_, HasSubstr("steps: 6, each of 2 rows of 24 tokens"));
  o.out = dir_.file("parts");
  stop_after_ = 4;
  expect_error(train(o), ErrorCode::kInterrupted, "after step 4 of 6");
  stop_after_ = 0;
  o.resume = true;  // With the length of rows that was asked for, not that of the run.
  VOLTA_ASSERT_OK(const RunResult parts, train(o));
  expect_same_runs(dir_.file("whole"), dir_.file("parts"), "step-6");
}

TEST_F(ChatRun, EpochsSayHowManySteps) {
  RunOptions o = chat_run("run");
  o.epochs = 3;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  const auto rows = golden_["rows"].get<std::int64_t>();
  EXPECT_EQ(result.steps, (3 * rows + 3) / 4);
}

// A batch that nobody has chosen has no row twice.
TEST_F(ChatRun, AnEpochIsAtLeastOneStep) {
  const std::string data = dir_.file("data.jsonl");
  test::put_file(data, R"({"prompt": "who", "completion": "me"})");
  RunOptions o = chat_run("run");
  o.data = {data};
  o.epochs = 5;
  o.batch_by_memory = true;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ(result.steps, 5);
  EXPECT_THAT(messages_, HasSubstr("steps: 5, each of 1 row of 96 tokens"));
}

TEST_F(ChatRun, OneConversationIsOne) {
  const std::string data = dir_.file("data.jsonl");
  const std::string words(200, 'a');
  test::put_file(data, R"({"prompt": "who", "completion": ")" + words + "\"}\n" +
                           R"({"prompt": ")" + words + R"(", "completion": "me"})");
  RunOptions o = chat_run("run");
  o.data = {data};
  o.trainer.schedule.steps = 2;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ(result.steps, 2);
  EXPECT_THAT(messages_, HasSubstr("1 of 2 conversations is longer than 96 tokens: ends of "
                                   "answers are cut off; try --context 128, the model's own"));
  EXPECT_THAT(messages_, HasSubstr("1 conversation is left out: no answer begins within 96"));
  // Where none of a file to validate with fits, the run would be without validation.
  const std::string unfit = dir_.file("unfit.jsonl");
  test::put_file(unfit, R"({"prompt": ")" + words + R"(", "completion": "me"})");
  RunOptions unvalidated = o;
  unvalidated.val_data = unfit;
  unvalidated.out = dir_.file("unvalidated");
  expect_error(train(unvalidated), ErrorCode::kInvalidArgument,
               unfit + ": no conversation has an answer within 96 tokens");
  EXPECT_THAT(messages_, HasSubstr("tokens of answers in 1 row of 96; "));
  // No advice that cannot be followed.
  messages_.clear();
  o.out = dir_.file("longest");
  o.trainer.time = 128;
  VOLTA_ASSERT_OK(const RunResult longest, train(o));
  EXPECT_EQ(longest.steps, 2);
  EXPECT_THAT(messages_, HasSubstr("are cut off; the model's context is no longer, so divide"));
}

TEST_F(ChatRun, SeveralFilesAndAFileToValidateWith) {
  const std::string more = dir_.file("more.jsonl");
  test::put_file(more, R"({"prompt": "who", "completion": "me"})");
  RunOptions o = chat_run("run");
  o.data.push_back(more);
  o.val_data = more;
  o.trainer.schedule.steps = 2;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_TRUE(result.val_loss.has_value());
  EXPECT_THAT(messages_, HasSubstr("conversations: 17 to train on"));
  EXPECT_THAT(messages_, HasSubstr("1 to validate with"));
  // A resumed run must find the same conversations to validate with.
  test::put_file(more, R"({"prompt": "who", "completion": "you"})");
  o.data.pop_back();
  o.resume = true;
  expect_error(train(o), ErrorCode::kMismatch, "The data is no longer what the run was trained on");
}

TEST_F(ChatRun, AnAdapterLearnsFromConversations) {
  RunOptions o = chat_run("lora");
  o.lora.rank = 2;
  o.trainer.schedule.steps = 8;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_TRUE(std::filesystem::exists(result.checkpoint + "/adapter_model.safetensors"));
  EXPECT_LT(*result.loss, golden_["losses"][0].get<double>());
}

TEST_F(ChatRun, MistakesAreFoundBeforeTheFirstStep) {
  RunOptions o = chat_run("run");
  const std::string bad = dir_.file("bad.jsonl");
  test::put_file(bad, "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"messages\": 1}\n");
  o.data = {bad};
  expect_error(train(o), ErrorCode::kInvalidFile, "bad.jsonl: line 2: ");
  o.data = {folder_ + "/chats.jsonl", dir_.file("text.txt")};
  expect_error(train(o), ErrorCode::kInvalidArgument, "data of different kinds");
  o.data = {folder_ + "/chats.jsonl"};
  o.init.clear();
  expect_error(train(o), ErrorCode::kInvalidArgument, "with --init");
  o = chat_run("run");
  o.trainer.time = 2;
  expect_error(train(o), ErrorCode::kInvalidArgument, "no conversation has an answer within 2");
  EXPECT_FALSE(std::filesystem::exists(dir_.file("run")));
}

}  // namespace
}  // namespace volta
