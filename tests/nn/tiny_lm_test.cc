// TinyLm and forward_step are short names: they give what Transformer and Decoder give.
#include "nn/tiny_lm.h"

#include "nn/helpers.h"

namespace volta {
namespace {

using test::must;

constexpr SamplingRow kGreedy = {0.0f, 0.0f, 1.0f, 0.0f, 1.0f};

TEST(TinyLm, StepsGiveWhatAPromptGives) {
  const TinyLm model = test::lively_model(test::gpt2_config(), test::device(2));
  Decoder stepping = must(Decoder::create(model, {}));
  const auto ids = test::some_ids(12, model.config().vocab_size);
  DrawnToken next;
  for (const std::int32_t id : ids) next = must(forward_step(stepping, 0, id));
  Decoder whole = must(Decoder::create(model, {}));
  const DrawnToken expected = must(whole.prefill(0, ids, kGreedy, {}));
  EXPECT_EQ(next.token, expected.token);
  EXPECT_EQ(next.logprob, expected.logprob);
}

TEST(TinyLm, ATokenThatTheModelDoesNotHaveIsRefused) {
  const TinyLm model = must(TinyLm::random(tiny_lm_config(), 1, test::device(1)));
  Decoder decoder = must(Decoder::create(model, {}));
  for (const std::int32_t token : {-1, 256, 1 << 30}) {
    const auto result = forward_step(decoder, 0, token);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(result.error().message().find("the tokens 0 to 255"), std::string::npos);
  }
  EXPECT_TRUE(forward_step(decoder, 0, 255));
  EXPECT_FALSE(forward_step(decoder, 7, 255));  // There is no such slot.
}

}  // namespace
}  // namespace volta
