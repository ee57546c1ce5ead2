// What a run takes from its data when no option gives it: the length of sequences.
#include "base/file.h"
#include "formats/model_folder.h"
#include "support/shared_data.h"
#include "text/tokenizer.h"
#include "train/run_fixture.h"

namespace volta {
namespace {

using testing::HasSubstr;

class RunSetupDataTest : public test::RunFixture {
 protected:
  // A run of one step that trains a model of this context further.
  RunOptions further(std::int64_t context) {
    TransformerConfig config = test::small_config();
    config.vocab_size = 256;
    config.context = context;
    config.position = PositionKind::kRotary;
    const auto model = Transformer::random(config, 1, device_);
    EXPECT_TRUE(model);
    std::filesystem::create_directory(dir_.file("model"));
    EXPECT_TRUE(save_model(dir_.file("model"), *model, make_byte_tokenizer().get()));
    RunOptions o = options("run");
    o.init = dir_.file("model");
    std::string text;
    while (text.size() < 24'000) text += "All work and no play makes a dull text. ";
    test::put_file(o.data.front(), text);
    o.trainer.batch = 1;
    o.trainer.time = 0;  // Not given.
    o.trainer.schedule.steps = 1;
    return o;
  }
};

TEST_F(RunSetupDataTest, SequencesOfALongModelHave1024Tokens) {
  const RunOptions o = further(2048);
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ(result.steps, 1);
  EXPECT_THAT(messages_, HasSubstr("steps: 1, each of 1 row of 1024 tokens"));
  EXPECT_EQ(load_run_options(o.out)->trainer.time, 1024);
  // The model keeps its own context.
  const std::string config = test::get_file(result.checkpoint + "/config.json");
  EXPECT_THAT(config, HasSubstr("2048"));
}

TEST_F(RunSetupDataTest, SequencesOfAShortModelHaveItsContext) {
  VOLTA_ASSERT_OK(const RunResult result, train(further(96)));
  EXPECT_EQ(result.steps, 1);
  EXPECT_THAT(messages_, HasSubstr("each of 1 row of 96 tokens"));
}

}  // namespace
}  // namespace volta
