// Conversations with a tiny model of random weights and the byte tokenizer.
#include "formats/conversation.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "device/helpers.h"
#include "support/assert_ok.h"
#include "text/chat_prompt.h"

namespace volta {
namespace {

using test::expect_error;

constexpr std::string_view kTemplate =
    "{% for m in messages %}{{ raise_exception('no tools') if m.role == 'tool' }}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}{{ '[a]' if add_generation_prompt }}";

class ConversationTest : public testing::Test {
 protected:
  static constexpr std::int64_t kContext = 96;
  static constexpr std::int64_t kTokens = 4;

  void SetUp() override {
    VOLTA_ASSERT_OK(model_, Transformer::random({.vocab_size = 256,
                                                 .context = 512,
                                                 .layers = 1,
                                                 .dim = 16,
                                                 .heads = 2,
                                                 .kv_heads = 2,
                                                 .head_dim = 8,
                                                 .ffn = 32},
                                                1, test::cpu(1)));
  }
  // Greedy answers of kTokens tokens.
  static Conversation::Settings greedy() {
    Conversation::Settings settings;
    settings.limits.max_new_tokens = kTokens;
    settings.sampling.temperature = 0.0f;
    settings.context = kContext;
    return settings;
  }
  Conversation make(Conversation::Settings settings = greedy(), bool reuse = true) const {
    return Conversation(*ChatTemplate::parse(kTemplate, "t"), make_byte_tokenizer(),
                        *Generator::create(*model_, {.reuse_prefix = reuse}), std::move(settings));
  }
  static Result<Conversation::Answer> ask(Conversation& conversation, std::string_view text) {
    return conversation.ask(make_message("user", text), [](std::string_view) { return true; });
  }
  // The answer to a prompt, from the generator alone.
  std::string continued(const std::string& prompt) const {
    GenerationRequest request;
    request.prompt = *make_byte_tokenizer()->encode(prompt);
    request.max_new_tokens = kTokens;
    request.sampling.temperature = 0.0f;
    Generator generator = *Generator::create(*model_, {});
    const auto tokens = (*generator.generate({&request, 1}))[0].tokens;
    const auto tokenizer = make_byte_tokenizer();
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const std::int32_t id : tokens) text += decoder.push(id);
    return text + decoder.finish();
  }

  std::optional<Transformer> model_;
};

TEST_F(ConversationTest, ATurnIsThePromptOfTheTemplateContinued) {
  Conversation conversation = make();
  VOLTA_ASSERT_OK(const auto first, ask(conversation, "Hi"));
  EXPECT_EQ(first.text, continued("[user]Hi[a]"));
  EXPECT_EQ(first.prompt_tokens, 11);
  EXPECT_EQ(first.tokens, kTokens);
  EXPECT_EQ(first.reused_tokens, 0);
  EXPECT_EQ(first.reason, StopReason::kLength);
  ASSERT_EQ(conversation.messages().size(), 2U);
  EXPECT_EQ(message_role(conversation.messages()[1]), "assistant");
  EXPECT_EQ(*message_text(conversation.messages()[1]), first.text);
  VOLTA_ASSERT_OK(const auto second, ask(conversation, "Go on"));
  EXPECT_EQ(second.text, continued("[user]Hi[assistant]" + first.text + "[user]Go on[a]"));
}

// The second prompt begins with "[user]Hi[a", which the cache holds.
TEST_F(ConversationTest, OnlyTheNewPartOfAPromptIsRun) {
  Conversation conversation = make(), fresh = make(greedy(), false);
  for (const std::string_view text : {"Hi", "Go on"}) {
    VOLTA_ASSERT_OK(const auto answer, ask(conversation, text));
    VOLTA_ASSERT_OK(const auto same, ask(fresh, text));
    EXPECT_EQ(answer.text, same.text);
    EXPECT_EQ(same.reused_tokens, 0);
    EXPECT_EQ(answer.reused_tokens, text == "Hi" ? 0 : 10);
  }
}

TEST_F(ConversationTest, ResetReturnsToItsBeginning) {
  Conversation conversation = make();
  conversation.begin({make_message("system", "Be kind.")});
  VOLTA_ASSERT_OK(const auto first, ask(conversation, "Hi"));
  EXPECT_EQ(first.text, continued("[system]Be kind.[user]Hi[a]"));
  conversation.reset();
  ASSERT_EQ(conversation.messages().size(), 1U);
  EXPECT_EQ(message_role(conversation.messages()[0]), "system");
  VOLTA_ASSERT_OK(const auto again, ask(conversation, "Hi"));
  EXPECT_EQ(again.text, first.text);
}

TEST_F(ConversationTest, AnAssistantsMessageIsContinued) {
  Conversation conversation = make();
  conversation.begin({make_message("user", "Hi")});
  VOLTA_ASSERT_OK(const auto answer, conversation.ask(make_message("assistant", "Well, "),
                                                      [](std::string_view) { return true; }));
  EXPECT_EQ(answer.text, continued("[user]Hi[assistant]Well, "));
  ASSERT_EQ(conversation.messages().size(), 2U);
  EXPECT_EQ(*message_text(conversation.messages()[1]), "Well, " + answer.text);
}

// The pieces are the answer; a stop string is not part of either.
TEST_F(ConversationTest, PiecesJoinToTheAnswerAndStopStringsEndIt) {
  const std::string whole = continued("[user]Hi[a]");
  Conversation::Settings settings = greedy();
  settings.limits.max_new_tokens = 32;
  const std::string stop = whole.substr(whole.size() - 2);
  settings.stop_strings = {stop};
  Conversation conversation = make(settings);
  std::string pieces;
  VOLTA_ASSERT_OK(const auto answer,
                  conversation.ask(make_message("user", "Hi"), [&](std::string_view piece) {
                    pieces += piece;
                    return true;
                  }));
  EXPECT_EQ(answer.reason, StopReason::kStopCondition);
  EXPECT_EQ(answer.text, pieces);
  EXPECT_EQ(answer.text, whole.substr(0, whole.find(stop)));
}

TEST_F(ConversationTest, AStoppedAnswerStaysUnlessItHasNoToken) {
  Conversation::Settings settings = greedy();
  settings.context = 512;
  Conversation conversation = make(settings);  // The prompt is read in two pieces.
  VOLTA_ASSERT_OK(const auto none, conversation.ask(make_message("user", std::string(300, 'x')),
                                                    [](std::string_view) { return false; }));
  EXPECT_EQ(none.reason, StopReason::kCancelled);
  EXPECT_EQ(none.tokens, 0);
  EXPECT_TRUE(conversation.messages().empty());
  Conversation other = make();
  int pieces = 0;
  VOLTA_ASSERT_OK(const auto some, other.ask(make_message("user", "Hi"),
                                             [&](std::string_view) { return ++pieces < 2; }));
  EXPECT_EQ(some.reason, StopReason::kCancelled);
  EXPECT_EQ(some.tokens, 2);
  EXPECT_EQ(other.messages().size(), 2U);
}

// A message without text would be refused when the conversation is read again.
TEST_F(ConversationTest, AnAnswerWithoutTextLeavesTheConversationUnchanged) {
  Conversation whole = make();
  VOLTA_ASSERT_OK(const auto answer, ask(whole, "Hi"));
  Conversation::Settings settings = greedy();
  settings.limits.max_new_tokens = 32;
  settings.stop_strings = {answer.text};
  Conversation silent = make(settings);
  VOLTA_ASSERT_OK(const auto none, ask(silent, "Hi"));
  EXPECT_EQ(none.reason, StopReason::kStopCondition);
  EXPECT_EQ(none.text, "");
  EXPECT_GT(none.tokens, 0);
  EXPECT_TRUE(silent.messages().empty());
}

TEST_F(ConversationTest, TheOldestTurnsGoWhenTheContextIsFull) {
  Conversation conversation = make();
  conversation.begin({make_message("system", "S")});
  std::int64_t dropped = 0;
  for (int turn = 0; turn < 6; ++turn) {
    VOLTA_ASSERT_OK(const auto answer, ask(conversation, "0123456789"));
    EXPECT_LE(answer.prompt_tokens + answer.tokens, kContext);
    dropped += answer.dropped_turns;
  }
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(message_role(conversation.messages().front()), "system");
  EXPECT_EQ(std::ssize(conversation.messages()), 1 + 2 * (6 - dropped));
}

TEST_F(ConversationTest, AnErrorLeavesItUnchanged) {
  Conversation conversation = make();
  VOLTA_ASSERT_OK(const auto first, ask(conversation, "Hi"));
  expect_error(ask(conversation, std::string(kContext, 'x')), ErrorCode::kInvalidArgument,
               "the message is too long: the prompt has");
  expect_error(conversation.ask(make_message("tool", "x"), [](std::string_view) { return true; }),
               ErrorCode::kInvalidArgument, "no tools");
  ASSERT_EQ(conversation.messages().size(), 2U);
  EXPECT_EQ(*message_text(conversation.messages()[0]), "Hi");
  VOLTA_ASSERT_OK(const auto second, ask(conversation, "Go on"));
  EXPECT_EQ(second.text, continued("[user]Hi[assistant]" + first.text + "[user]Go on[a]"));
}

}  // namespace
}  // namespace volta
