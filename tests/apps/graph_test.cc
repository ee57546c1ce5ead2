// volta graph: a model's graphs and plans in every form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/volta_fixture.h"
#include "base/json.h"
#include "support/shared_data.h"

namespace volta {
namespace {

using test::CommandResult;
using ::testing::HasSubstr;

class GraphTest : public test::VoltaTest {};

TEST_F(GraphTest, ShowsTheGraphInEveryForm) {
  EXPECT_THAT(volta({"graph"}).out, HasSubstr("CachedAttention"));
  EXPECT_THAT(volta({"graph", "--output", "dot"}).out,
              ::testing::AllOf(HasSubstr("digraph"), HasSubstr("flops"), HasSubstr("arena @")));
  const CommandResult json =
      volta({"graph", "--phase", "train", "--tokens", "8", "--output", "json"});
  EXPECT_TRUE(parse_json(json.out, "graph")) << json.err;
  EXPECT_THAT(json.out, HasSubstr("AdamW"));
  expect_error({"graph", "--phase", "sleep"}, 2, "train, eval, prefill or decode");
  expect_error({"graph", "--phase", "prefill", "--tokens", "65"}, 2,
               "1, 2, 4, 8, 16, 32, 64, 128, 256");
  expect_error({"graph", "--phase", "eval", "--tokens", "513"}, 2, "context is 512");
  // What trains is what the run was told to do.
  ASSERT_EQ(volta(train({"--weight-decay", "0.25", "--accumulate", "1"})).exit_code, 0);
  const CommandResult trained = volta({"graph", "run", "--phase", "train"});
  EXPECT_THAT(trained.out, HasSubstr("0.25")) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("[4, 16]"));
}

TEST_F(GraphTest, ReadsThePlansThatItWrites) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--phase", "decode"},
        {"--phase", "decode", "--weights", "q8"},
        {"--phase", "decode", "--weights", "q4"},
        {"--phase", "train", "--tokens", "8", "--dtype", "bf16"}}) {
    std::vector<std::string> arguments = {"graph"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const CommandResult text = volta(arguments);
    arguments.insert(arguments.end(), {"--output", "json"});
    const CommandResult json = volta(arguments);
    ASSERT_EQ(json.exit_code, 0) << json.err;
    std::ofstream(path("plan.json")) << json.out;
    EXPECT_EQ(volta({"graph", "plan.json", "--output", "json"}).out, json.out);
    EXPECT_EQ(volta({"graph", "plan.json"}).out, text.out);
  }
  for (const std::string model : {"llama-tiny", "gpt2-tiny", "mistral-tiny-sliding"}) {
    if (!test::has_shared("models/" + model)) continue;
    for (const std::string phase : {"decode", "prefill", "eval", "train"}) {
      const CommandResult json = volta(
          {"graph", test::shared_path("models/" + model), "--phase", phase, "--output", "json"});
      ASSERT_EQ(json.exit_code, 0) << json.err;
      std::ofstream(path("plan.json")) << json.out;
      EXPECT_EQ(volta({"graph", "plan.json", "--output", "json"}).out, json.out);
    }
  }
  expect_error({"graph", "plan.json", "--output", "dot"}, 2, "dot");
  expect_error({"graph", "plan.json", "--phase", "decode"}, 2, "have no effect on the plan");
  expect_error({"graph", "plan.json", "--weights", "q8"}, 2, "--weights has no effect");
  expect_error({"graph", "absent.json"}, 3, "absent.json");
  std::ofstream(path("bad.json")) << R"({"arena_bytes":0,"arena_bytes_unshared":0,"bindings":[],)"
                                  << R"("steps":[{"op":"Sinus","fields":{}}],"outputs":[]})";
  expect_error({"graph", "bad.json"}, 3,
               "bad.json: steps[0].op: expected the name of an op, found Sinus");
}

}  // namespace
}  // namespace volta
