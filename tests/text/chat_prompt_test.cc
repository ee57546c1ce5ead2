// Prompts of conversations: what an answer continues, and what ends it.
#include "text/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "device/helpers.h"
#include "support/shared_data.h"

namespace volta {
namespace {

using test::expect_error;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

ChatTemplate parse(std::string_view text) {
  return ChatTemplate::parse(text, "t", {{"eos_token", "</s>"}}).value();
}
JsonValue json(std::string_view text) { return parse_json(text, "m").value(); }
JsonValue::Array messages(std::string_view text) { return *json(text).if_array(); }

constexpr std::string_view kTemplate =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token if m.role == 'assistant' }}"
    "{% endfor %}{{ '[assistant]' if add_generation_prompt }}";

TEST(ChatPrompt, EndsWithTheBeginningOfAnAnswerOrWithItsText) {
  const ChatTemplate chat = parse(kTemplate);
  const auto prompt = [&](JsonValue::Array list) {
    return make_chat_prompt(chat, std::move(list), {})->text;
  };
  EXPECT_EQ(prompt({make_message("user", "Hi")}), "[user]Hi[assistant]");
  const auto continued =
      make_chat_prompt(chat, {make_message("user", "Hi"), make_message("assistant", "Well")}, {});
  EXPECT_EQ(continued->text, "[user]Hi[assistant]Well");
  ASSERT_FALSE(continued->quoted.empty());
  EXPECT_EQ(continued->quoted.back(), (TextRange{19, 23}));
}

TEST(ChatPrompt, AnAnswerThatCannotBeContinuedIsRefused) {
  expect_error(make_chat_prompt(parse(kTemplate), messages(R"([{"role": "assistant"}])"), {}),
               ErrorCode::kInvalidArgument, "there is nothing to continue");
  expect_error(make_chat_prompt(parse("{{ messages[0].content }}"),
                                {make_message("user", "a"), make_message("assistant", "b")}, {}),
               ErrorCode::kInvalidArgument, "does not show the last message");
}

TEST(ChatPrompt, AnswersThatSayNothingAreRefused) {
  const auto check = [](const std::string& answer) {
    return check_messages(messages(R"([{"role": "user"}, {"role": "assistant", )" + answer + "}]"),
                          "m.json");
  };
  for (const std::string empty :
       {R"("content": "")", R"("content": null)", R"("tool_calls": [])"}) {
    expect_error(check(empty), ErrorCode::kInvalidFile, "m.json: message 2 is an assistant's");
  }
  for (const std::string good :
       {R"("content": "x")", R"("tool_calls": [1])", R"("reasoning_content": "r")"}) {
    EXPECT_TRUE(check(good)) << good;
  }
}

TEST(ChatPrompt, WhatIsNoMessageIsRefused) {
  expect_error(check_messages(messages("[[]]"), "m.json"), ErrorCode::kInvalidFile,
               "m.json: message 1 is not an object");
  expect_error(check_messages(messages(R"([{"content": "x"}])"), "m.json"), ErrorCode::kInvalidFile,
               "m.json: message 1 needs a \"role\"");
}

TEST(ChatPrompt, AMessageKeepsItsOtherMembers) {
  const JsonValue message = json(R"({"role": "user", "name": "A", "content": "x"})");
  const JsonValue changed = with_text(message, "y");
  EXPECT_EQ(message_role(changed), "user");
  EXPECT_EQ(*changed.find("name")->if_string(), "A");
  EXPECT_EQ(*message_text(changed), "y");
  EXPECT_EQ(*message_text(with_text(json(R"({"role": "user"})"), "z")), "z");
  EXPECT_EQ(message_role(json("{}")), "");
  EXPECT_EQ(message_text(json(R"({"content": []})")), nullptr);
}

TEST(ChatPrompt, TheTemplateShowsTheTokenThatEndsATurn) {
  std::ifstream file(test::source_path("tests/text/data/llama2_tokenizer.json"));
  const auto tokenizer =
      parse_tokenizer(nlohmann::json::parse(file)["tokenizer"].dump(), "llama2").value();
  const auto ends = [&](std::string_view text) { return end_of_turn(parse(text), {}, *tokenizer); };
  EXPECT_THAT(ends(kTemplate), ElementsAre(2));
  EXPECT_THAT(ends("{% for m in messages %}{{ m.content }} \n{{ eos_token }}{% endfor %}"),
              ElementsAre(2));
  // Ordinary text after an answer ends none, and a template may refuse the question.
  EXPECT_THAT(ends("{% for m in messages %}{{ m.content }}[end]{% endfor %}"), IsEmpty());
  EXPECT_THAT(ends("{{ raise_exception('no') }}"), IsEmpty());
  EXPECT_THAT(ends("fixed"), IsEmpty());
}

}  // namespace
}  // namespace volta
