// Conversations to fine-tune on: what is learned of them, how they are put into rows, and which
// lines are refused. The comparison with PyTorch is in chat_run_test.cc.
#include "train/chat_data.h"

#include <algorithm>

#include "support/assert_ok.h"
#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

// What is written over several lines here is one line of a file.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// Bytes are tokens, so the learned tokens can be read as text.
class ChatDataTest : public testing::Test {
 protected:
  static ChatTemplate make_template(std::string_view source) {
    auto made = ChatTemplate::parse(source, "test");
    EXPECT_TRUE(made) << made.error().message();
    return *std::move(made);
  }
  Result<std::vector<ChatExample>> parse(std::string_view lines) const {
    return parse_chats(lines, "c.jsonl",
                       {.chat_template = plain_ ? nullptr : &template_,
                        .tokenizer = tokenizer_.get(),
                        .interrupted = interrupted_,
                        .row_tokens = row_tokens_});
  }
  // The text of an example with what is learned in brackets.
  std::string marked(const ChatExample& example) const {
    std::string text;
    for (std::size_t i = 0; i < example.ids.size(); ++i) {
      const bool before = i > 0 && example.is_answer[i - 1];
      if (example.is_answer[i] != before) text += before ? "]" : "[";
      text += tokenizer_->token_bytes(example.ids[i]);
    }
    return text + (example.is_answer.back() ? "]" : "");
  }
  void expect_marked(std::string_view line, const std::vector<std::string>& wanted) const {
    const auto examples = parse(one_line(std::string(line)));
    ASSERT_TRUE(examples) << examples.error().message();
    std::vector<std::string> texts;
    for (const ChatExample& example : *examples) texts.push_back(marked(example));
    EXPECT_EQ(texts, wanted);
  }

  std::shared_ptr<const Tokenizer> tokenizer_ = make_byte_tokenizer();
  ChatTemplate template_ = make_template(
      "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }};{% endfor %}"
      "{{ '<a>' if add_generation_prompt }}");
  bool plain_ = false;
  std::int64_t row_tokens_ = 1000;
  Interruption interrupted_;
};

TEST_F(ChatDataTest, AnswersAreLearnedAndNothingElse) {
  expect_marked(R"({"messages": [{"role": "system", "content": "s"},
                   {"role": "user", "content": "q"}, {"role": "assistant", "content": "one"},
                   {"role": "user", "content": "r"}, {"role": "assistant", "content": "two"},
                   {"role": "user", "content": "not answered"}]})",
                {"<s>s;<u>q;<a>[one;]<u>r;<a>[two;]"});
  expect_marked(R"({"prompt": "q", "completion": "one", "id": 7})", {"<u>q;<a>[one;]"});
  // Answers in a prompt of messages are given, not learned.
  expect_marked(R"({"prompt": [{"role": "user", "content": "q"},
                               {"role": "assistant", "content": "one"},
                               {"role": "user", "content": "r"}],
                    "completion": [{"role": "assistant", "content": "two"}]})",
                {"<u>q;<a>one;<u>r;<a>[two;]"});
}

TEST_F(ChatDataTest, EncodingsOfEditorsAreReadOrTold) {
  const std::string line = R"({"prompt": "q", "completion": "a"})";
  const auto marked = parse("\xEF\xBB\xBF" + line);  // The mark of UTF-8.
  ASSERT_TRUE(marked) << marked.error().message();
  EXPECT_EQ(marked->size(), 1U);
  std::string wide = "\xFF\xFE";
  for (const char c : line) wide += {c, '\0'};
  expect_error(parse(wide), ErrorCode::kInvalidFile,
               "c.jsonl: line 1: it is UTF-16, not UTF-8; convert it with `iconv -f UTF-16 ");
}

TEST_F(ChatDataTest, LinesEndAsTheyEndOnAnySystem) {
  VOLTA_ASSERT_OK(const auto examples, parse("{\"prompt\": \"a\", \"completion\": \"b\"}\r\n"
                                             "{\"prompt\": \"c\", \"completion\": \"d\"}"));
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(marked(examples[1]), "<u>c;<a>[d;]");
}

// Thoughts are shown in the last answer only, so each answer needs an example of its own.
TEST_F(ChatDataTest, AnAnswerThatChangesLaterIsAnExampleOfItsOwn) {
  template_ = make_template(
      "{% for m in messages %}<{{ m.role[0] }}>"
      "{{ '(' + m.thinking + ')' if loop.last and m.thinking }}{{ m.content }};{% endfor %}"
      "{{ '<a>' if add_generation_prompt }}");
  expect_marked(R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "one", "thinking": "hm"}, {"role": "user", "content": "r"},
      {"role": "assistant", "content": "two", "thinking": "ha"}]})",
                {"<u>q;<a>one;<u>r;<a>[(ha)two;]", "<u>q;<a>[(hm)one;]"});
}

// Thoughts are shown in the answers to the last question: those to one question share an example.
TEST_F(ChatDataTest, AnswersThatChangeLaterShareAnExampleWhereTheyCan) {
  template_ = make_template(
      "{% set ns = namespace(last=0) %}{% for m in messages if m.role == 'user' %}"
      "{% set ns.last = ns.last + 1 %}{% endfor %}{% set seen = namespace(users=0) %}"
      "{% for m in messages %}{% if m.role == 'user' %}{% set seen.users = seen.users + 1 %}"
      "{% endif %}<{{ m.role[0] }}>"
      "{{ '(' + m.thinking + ')' if m.thinking and seen.users == ns.last }}{{ m.content }};"
      "{% endfor %}{{ '<a>' if add_generation_prompt }}");
  expect_marked(
      R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "one", "thinking": "hm"}, {"role": "tool", "content": "x"},
      {"role": "assistant", "content": "two", "thinking": "ha"}, {"role": "user", "content": "r"},
      {"role": "assistant", "content": "three", "thinking": "ho"}]})",
      {"<u>q;<a>one;<t>x;<a>two;<u>r;<a>[(ho)three;]", "<u>q;<a>[(hm)one;]<t>x;<a>[(ha)two;]"});
}

TEST_F(ChatDataTest, AnswersThatNoRowWouldShowAreNotMarked) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "one"},
                       {"role": "user", "content": "r"}, {"role": "assistant", "content": "two"}]})";
  row_tokens_ = 20;  // As long as the prompt of the second answer.
  expect_marked(line, {"<u>q;<a>[one;]<u>r;<a>[two;]"});
  row_tokens_ = 19;
  expect_marked(line, {"<u>q;<a>[one;]<u>r;<a>two;"});
}

// A prompt that begins the answer itself (with thoughts, say) may differ from the answer.
TEST_F(ChatDataTest, AnAnswerBeginsWhereItLeavesItsPrompt) {
  template_ = make_template(
      "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }};{% endfor %}"
      "{{ '<a>(think)' if add_generation_prompt }}");
  expect_marked(R"({"prompt": "q", "completion": "one"})", {"<u>q;<a>[one;]"});
  template_ = make_template("{{ messages | length }}{{ messages[-1].content }}");
  expect_error(parse(R"({"prompt": "q", "completion": "one"})"), ErrorCode::kInvalidFile,
               "c.jsonl: line 1: the chat template changes what is before message 2");
}

TEST_F(ChatDataTest, WithoutATemplateTextsAreJoined) {
  plain_ = true;
  expect_marked(R"({"prompt": "2 + 2 = ", "completion": "4"})", {"2 + 2 = [4]"});
  expect_error(parse(R"({"messages": [{"role": "user", "content": "q"}]})"),
               ErrorCode::kInvalidFile, "c.jsonl: line 1: the model has no chat template");
}

TEST_F(ChatDataTest, MistakesAreToldWithTheirLine) {
  const std::string good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  const auto refuse = [&](const std::string& line, const std::string& message) {
    expect_error(parse(good + line + "\n" + good), ErrorCode::kInvalidFile,
                 "c.jsonl: line 2: " + message);
  };
  refuse("", "empty; each line must be a conversation");
  refuse(R"({"prompt": "a", )", "");
  refuse("\xFF\xFE{\"prompt\"", "");
  refuse(R"(["a"])", "expected {\"messages\": [...]}");
  refuse(R"({"text": "a"})", "expected {\"messages\": [...]}");
  refuse(R"({"prompt": "a"})", "expected {\"messages\": [...]}");
  refuse(R"({"prompt": "a", "completion": ["b"]})", "expected {\"messages\": [...]}");
  refuse(R"({"prompt": "a", "completion": ""})", "the completion is empty");
  refuse(R"({"messages": []})", "no answer to learn");
  refuse(R"({"messages": [{"content": "a"}]})", "message 1 needs a \"role\"");
  refuse(R"({"messages": [{"role": "user", "content": "a"}]})", "no answer to learn");
  refuse(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]})",
      "message 2 is an assistant's without text");
  refuse(R"({"messages": [{"role": "assistant", "content": "a"}]})",
         "message 1 is an answer, but nothing asks for it");
  template_ = make_template("{{ raise_exception('Only users') }}");
  expect_error(parse(good), ErrorCode::kInvalidFile, "c.jsonl: line 1: ");
  expect_error(parse(good), ErrorCode::kInvalidFile, "Only users");
  expect_error(parse(""), ErrorCode::kInvalidFile, "c.jsonl is empty");
}

TEST_F(ChatDataTest, LinesHaveALimitAndWorkCanBeInterrupted) {
  const std::string line((std::size_t{64} << 20) + 1, 'x');
  expect_error(parse(line), ErrorCode::kInvalidFile, "c.jsonl: line 1: longer than 64.0 MiB");
  interrupted_ = [] { return true; };
  expect_error(parse("{}"), ErrorCode::kInterrupted, "c.jsonl: line 1");
}

// A conversation of `length` tokens whose last `answer` tokens are learned.
ChatExample example(std::int32_t first, std::size_t length, std::size_t answer) {
  ChatExample out;
  for (std::size_t i = 0; i < length; ++i) {
    out.ids.push_back(first + static_cast<std::int32_t>(i));
    out.is_answer.push_back(i + answer >= length);
  }
  return out;
}

TEST(PackChats, RowsHoldWholeConversations) {
  std::vector<ChatExample> chats;
  for (std::int32_t i = 0; i < 40; ++i) {
    chats.push_back(example(100 * i, 2 + static_cast<std::size_t>(i) % 5, 1));
  }
  const PackedChats packed = pack_chats(chats, 8, true, 1);
  EXPECT_EQ(packed.conversations, 40);
  EXPECT_EQ(packed.targets, 40);
  EXPECT_EQ(packed.cut, 0);
  EXPECT_LE(packed.rows.count, 22);  // 160 tokens need 20 rows at least.
  std::size_t found = 0;
  for (std::size_t i = 0; i < packed.rows.ids.size(); ++i) {
    const std::int32_t target = packed.rows.targets[i];
    if (target < 0) continue;
    ++found;
    EXPECT_EQ(target, packed.rows.ids[i] + 1);
    // The conversation lies in one row, before its target.
    const auto length = static_cast<std::size_t>(target % 100 + 1);
    EXPECT_GE(i % 8 + 2, length);
  }
  EXPECT_EQ(found, 40u);
  EXPECT_EQ(pack_chats(chats, 8, false, 1).rows.count, 40);
  EXPECT_NE(pack_chats(chats, 8, true, 2).rows.ids, packed.rows.ids);
  EXPECT_EQ(pack_chats(chats, 8, true, 1).rows.ids, packed.rows.ids);
}

TEST(PackChats, RowsOfOneConversationAreAsLongAsTheLongest) {
  const std::vector chats = {example(0, 5, 2), example(50, 12, 3), example(100, 40, 2)};
  EXPECT_EQ(row_length(chats, 1024), 40);  // 39 and a target, in eights.
  EXPECT_EQ(row_length(chats, 39), 39);
  // The answer of the third one is not within 30 tokens, so it takes no part.
  EXPECT_EQ(row_length(chats, 30), 16);
  EXPECT_EQ(row_length({}, 1024), 8);
  const PackedChats rows = pack_chats(chats, 40, false, 1);
  EXPECT_EQ(rows.rows.count, 3);
  EXPECT_EQ(rows.tokens, 57);
  EXPECT_EQ(rows.cut, 0);
}

TEST(PackChats, WhatIsTooLongIsCutAndCounted) {
  // One token more than a row fits, as a target.
  const PackedChats fits = pack_chats(std::vector{example(0, 5, 2)}, 4, true, 1);
  EXPECT_EQ(fits.rows.ids, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(fits.rows.targets, (std::vector<std::int32_t>{-1, -1, 3, 4}));
  EXPECT_EQ(fits.cut, 0);
  const PackedChats cut = pack_chats(std::vector{example(0, 6, 3)}, 4, true, 1);
  EXPECT_EQ(cut.rows.targets, (std::vector<std::int32_t>{-1, -1, 3, 4}));
  EXPECT_EQ(cut.cut, 1);
  EXPECT_EQ(cut.conversations, 1);
  const PackedChats none = pack_chats(std::vector{example(0, 9, 3), example(0, 1, 1)}, 4, true, 1);
  EXPECT_EQ(none.rows.count, 0);
  EXPECT_EQ(none.left_out, 2);
  EXPECT_EQ(none.conversations, 0);
}

}  // namespace
}  // namespace volta
