// Chat templates: what transformers makes of the same ones, and where they are found in a folder.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/model.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using ::testing::HasSubstr;

std::string read_source(const std::string& name) {
  std::ifstream file(test::source_path("tests/text/data/" + name), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The moment of make_chat_template_goldens.py: Friday, 26 July 2024, 13:05:09.
std::tm golden_time() {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 13;
  time.tm_min = 5;
  time.tm_sec = 9;
  time.tm_wday = 5;
  time.tm_yday = 207;
  return time;
}

class ChatTemplateGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto parsed = parse_json(read_source("chat_templates.json"), "chat_templates.json");
    ASSERT_TRUE(parsed) << parsed.error().message();
    golden_ = *parsed;
    for (const auto& [name, text] : *golden_.find("tokens")->if_object()) {
      tokens_[name] = *text.if_string();
    }
  }
  Result<std::string> render(const std::string& source, const JsonValue& messages,
                             ChatOptions options) const {
    options.now = golden_time();
    VOLTA_TRY(const auto parsed, ChatTemplate::parse(source, "golden", tokens_));
    return parsed.render(messages, options);
  }
  static void check(const Result<std::string>& ours, const JsonValue& golden) {
    const JsonValue* text = golden.find("text");
    if (text != nullptr) {
      ASSERT_TRUE(ours) << ours.error().message();
      EXPECT_EQ(*ours, *text->if_string());
      return;
    }
    ASSERT_FALSE(ours) << "transformers says " << *golden.find("error")->if_string()
                       << ", Volta: " << *ours;
    const std::string& error = *golden.find("error")->if_string();
    constexpr std::string_view kRaised = "TemplateError: ";
    if (!error.starts_with(kRaised)) return;
    EXPECT_EQ(ours.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(ours.error().message(), HasSubstr(error.substr(kRaised.size())));
  }

  JsonValue golden_;
  ChatTemplate::SpecialTokens tokens_;
};

TEST_F(ChatTemplateGolden, Conversations) {
  for (const JsonValue& one : *golden_.find("conversations")->if_array()) {
    SCOPED_TRACE(*one.find("template")->if_string() + " " +
                 one.find(one.find("text") == nullptr ? "error" : "text")->leaf_text());
    ChatOptions options;
    if (const JsonValue* flag = one.find("add_generation_prompt")) {
      options.add_generation_prompt = *flag->if_bool();
    }
    options.tools = one.find("tools");
    if (const JsonValue* variables = one.find("variables")) {
      for (const auto& [name, value] : *variables->if_object()) options.variables[name] = value;
    }
    const std::string source = read_source("chat/" + *one.find("template")->if_string());
    ASSERT_FALSE(source.empty());
    check(render(source, *one.find("messages"), options), one);
  }
}

TEST_F(ChatTemplateGolden, Expressions) {
  ChatOptions options;
  for (const auto& [name, value] : *golden_.find("values")->if_object()) {
    options.variables[name] = value;
  }
  const auto messages = parse_json(R"([{"role": "user", "content": "hi"}])", "messages");
  ASSERT_TRUE(messages);
  for (const JsonValue& one : *golden_.find("expressions")->if_array()) {
    const std::string& source = *one.find("template")->if_string();
    SCOPED_TRACE(source);
    check(render(source, *messages, options), one);
  }
}

// What a message says is quoted, whatever a template does to it. Every second character of what is
// given is one that no template has: in the prompt, all of them must be quoted.
constexpr std::string_view kMark = "\uE000";

JsonValue marked(const JsonValue& json) {
  if (const std::string* text = json.if_string()) {
    std::string out;
    for (const char c : *text) {
      const bool begins = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      if (begins) out += kMark;
      out += c;
    }
    return JsonValue(out);
  }
  if (const JsonValue::Array* array = json.if_array()) {
    JsonValue::Array items;
    for (const JsonValue& item : *array) items.push_back(marked(item));
    return JsonValue(std::move(items));
  }
  if (const JsonValue::Object* object = json.if_object()) {
    JsonValue::Object members;
    for (const auto& [key, value] : *object) {
      members.emplace_back(key, key == "role" || key == "type" ? value : marked(value));
    }
    return JsonValue(std::move(members));
  }
  return json;
}

// How many marks a prompt has; all of them in what is quoted.
std::size_t count_marks(const QuotedText& prompt) {
  std::size_t marks = 0;
  for (std::size_t at = prompt.text.find(kMark); at != std::string::npos;
       at = prompt.text.find(kMark, at + 1)) {
    ++marks;
    const bool quoted = std::ranges::any_of(prompt.quoted, [&](const TextRange& range) {
      return range.begin <= at && range.end >= at + kMark.size();
    });
    EXPECT_TRUE(quoted) << "at " << at << " of " << prompt.text;
  }
  return marks;
}

TEST_F(ChatTemplateGolden, WhatMessagesSayIsQuoted) {
  std::size_t marks = 0;
  for (const JsonValue& one : *golden_.find("conversations")->if_array()) {
    const std::string name = *one.find("template")->if_string();
    SCOPED_TRACE(name);
    ChatOptions options;
    options.now = golden_time();
    options.add_generation_prompt = true;
    JsonValue tools;
    if (one.find("tools") != nullptr) {
      tools = marked(*one.find("tools"));
      options.tools = &tools;
    }
    const auto parsed = ChatTemplate::parse(read_source("chat/" + name), name, tokens_);
    ASSERT_TRUE(parsed);
    const auto prompt = parsed->render_quoted(marked(*one.find("messages")), options);
    if (prompt) marks += count_marks(*prompt);
  }
  EXPECT_GT(marks, 1000U);
}

TEST_F(ChatTemplateGolden, WhatIsMadeOfAQuotationIsQuoted) {
  std::size_t marks = 0;
  ChatOptions options;
  options.now = golden_time();
  for (const auto& [name, value] : *golden_.find("values")->if_object()) {
    options.variables[name] = marked(value);
  }
  const auto messages = parse_json(R"([{"role": "user", "content": "hi"}])", "messages");
  for (const JsonValue& one : *golden_.find("expressions")->if_array()) {
    const std::string& source = *one.find("template")->if_string();
    SCOPED_TRACE(source);
    const auto parsed = ChatTemplate::parse(source, "expression", tokens_);
    if (!parsed) continue;
    const auto prompt = parsed->render_quoted(*messages, options);
    if (prompt) marks += count_marks(*prompt);
  }
  EXPECT_GT(marks, 300U);
}

// The budget of a rendering stops what does not end, not what is long: a megabyte of text in many
// messages, and in few.
TEST_F(ChatTemplateGolden, LongConversationsFitTheBudget) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  for (const std::string name :
       {"chatml", "generation", "llama2", "llama3", "llama31", "mistral_v1", "mistral_v3", "qwen2",
        "qwen25", "qwen3", "zephyr"}) {
    const std::string source = read_source("chat/" + name + ".jinja");
    ASSERT_FALSE(source.empty()) << name;
    const auto made = ChatTemplate::parse(source, name, tokens_);
    ASSERT_TRUE(made) << name << made.error().message();
    for (const std::size_t count : {2U, 2000U}) {
      std::string content;
      while (content.size() < kBytes / count) content += "Words \"and\" more,\n\xc3\xa9. ";
      std::vector<ChatMessage> messages;
      for (std::size_t i = 0; i < count; ++i) {
        messages.push_back({i % 2 == 0 ? "user" : "assistant", content});
      }
      messages.push_back({"user", "And now?"});
      const auto text = made->render(messages, {.now = golden_time()});
      ASSERT_TRUE(text) << name << ": " << text.error().message();
      EXPECT_GE(text->size(), kBytes - count * 32) << name;
    }
  }
}

TEST(ChatTemplate, CanBeInterrupted) {
  const auto made = ChatTemplate::parse("{% for i in range(20000) %}{{ i }}{% endfor %}", "t");
  ASSERT_TRUE(made);
  const ChatMessage message{"user", "hi"};
  EXPECT_TRUE(made->render({&message, 1}, {}));
  const auto text = made->render({&message, 1}, {.interrupted = [] { return true; }});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), ErrorCode::kInterrupted);
}

class ChatTemplateFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  std::string render() const {
    const auto loaded = test::load_chat_template(dir_.path());
    if (!loaded) return loaded.error().message();
    const ChatMessage message{"user", "hi"};
    const auto text = loaded->render({&message, 1});
    return text ? *text : text.error().message();
  }

  test::TempDir dir_;
};

TEST_F(ChatTemplateFolder, TokenizerConfig) {
  write("tokenizer_config.json",
        R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
            "pad_token": null, "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"})");
  EXPECT_EQ(render(), "<s>hi</s>");
  const auto loaded = test::load_chat_template(dir_.path());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->special_token("eos_token"), "</s>");
  EXPECT_EQ(loaded->special_token("pad_token"), std::nullopt);
}

TEST_F(ChatTemplateFolder, AFileOfItsOwnComesFirst) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "config"})");
  write("chat_template.jinja", "{{ bos_token }}file\n");
  EXPECT_EQ(render(), "<s>file");
}

TEST_F(ChatTemplateFolder, ProcessorFileAndTokensOfTheMap) {
  write("special_tokens_map.json", R"({"bos_token": "<b>"})");
  write("chat_template.json", R"({"chat_template": "{{ bos_token }}old"})");
  EXPECT_EQ(render(), "<b>old");
}

TEST_F(ChatTemplateFolder, NamedTemplates) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"},
                              {"name": "rag", "template": "{% broken"},
                              {"name": "tool_use", "template": "tools {{ tools|length }}"}]})");
  EXPECT_EQ(render(), "plain");
  const auto loaded = test::load_chat_template(dir_.path());
  ASSERT_TRUE(loaded);
  const auto tools = parse_json("[1, 2]", "tools");
  const auto messages = parse_json(R"([{"role": "user"}])", "messages");
  EXPECT_EQ(*loaded->render(*messages, {.tools = &*tools}), "tools 2");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THAT(render(), HasSubstr("none of the templates is named 'default'"));
}

// A list of many templates of one name would be many syntax trees.
TEST_F(ChatTemplateFolder, TheFirstOfANameCounts) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "first"},
                              {"name": "default", "template": "{% not even parsed"}]})");
  EXPECT_EQ(render(), "first");
}

TEST_F(ChatTemplateFolder, MistakesAreNamed) {
  EXPECT_THAT(render(), HasSubstr("has no chat template"));
  EXPECT_EQ(test::load_chat_template(dir_.path()).error().code(), ErrorCode::kNotFound);
  write("tokenizer_config.json", R"({"eos_token": "x"})");
  EXPECT_EQ(test::load_chat_template(dir_.path()).error().code(), ErrorCode::kNotFound);
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(render(), HasSubstr("chat_template: expected a string"));
  write("tokenizer_config.json", R"({"chat_template": "a\n{% if x %}"})");
  EXPECT_THAT(render(), HasSubstr("tokenizer_config.json: chat_template: line 2: the block has no "
                                  "{% endif %}"));
  write("tokenizer_config.json", R"({"chat_template": "a", "bos_token": 5})");
  EXPECT_THAT(render(), HasSubstr("bos_token: expected a string"));
  write("tokenizer_config.json", "{");
  EXPECT_EQ(test::load_chat_template(dir_.path()).error().code(), ErrorCode::kInvalidFile);
  EXPECT_EQ(
      (*ModelSource::open(dir_.path())).chat_template_from(dir_.file("missing")).error().code(),
      ErrorCode::kNotFound);
  write("tokenizer_config.json", "{}");
  write("chat_template.jinja", "{{ messages[0].content.x.y }}");
  EXPECT_THAT(render(), HasSubstr("chat_template.jinja: line 1: a value of type str has no "
                                  "element 'x'"));
}

// The parts of a prompt that are not quoted, "|" where something is.
std::string own_words(const std::string& source, const std::string& messages) {
  const auto made = ChatTemplate::parse(source, "t", {{"bos_token", "<s>"}});
  if (!made) return made.error().message();
  const auto prompt = made->render_quoted(*parse_json(messages, "messages"));
  if (!prompt) return prompt.error().message();
  std::string out;
  std::size_t end = 0;
  for (const TextRange& range : prompt->quoted) {
    out += prompt->text.substr(end, range.begin - end) + "|";
    end = range.end;
  }
  return out + prompt->text.substr(end);
}

TEST(ChatTemplate, ATemplatesOwnWordsAreNotQuoted) {
  const std::string message = R"([{"role": "user", "content": "  a<s>b  ", "n": 5}])";
  const auto own = [&](const std::string& source) { return own_words(source, message); };
  EXPECT_EQ(own("{{ bos_token }}{{ messages[0].content }}!"), "<s>|!");
  EXPECT_EQ(own("{{ bos_token + messages[0].content|trim ~ '<s>' }}"), "<s>|<s>");
  EXPECT_EQ(own("{{ ('<s>' + messages[0].content + '</s> ')|trim }}"), "<s>|</s>");
  EXPECT_EQ(own("{{ ('<s>' + messages[0].content)[:4] }}"), "<s>|");
  EXPECT_EQ(own("{{ ('<s>' + messages[0].content)[2] }}"), ">");
  EXPECT_EQ(own("{{ ('<s>' + messages[0].content)[3] }}"), "|");
  EXPECT_EQ(own("{{ ('<s>' + messages[0].content + '</s>').split('<s>') | join('<s>') }}"),
            "<s>|<s>|</s>");
  EXPECT_EQ(own("{{ messages[0].content.replace('a', '<s>') }}"), "|<s>|");
  EXPECT_EQ(own("{{ '<s>x'.replace('x', messages[0].content) }}"), "<s>|");
  EXPECT_EQ(own("{{ ['<s>', messages[0].content, '</s>'] | join }}"), "<s>|</s>");
  EXPECT_EQ(own("{% set x %}<s>{{ messages[0].content }}{% endset %}{{ x|trim }}</s>"), "<s>|</s>");
  EXPECT_EQ(own("{% macro m(x) %}<s>{{ x }}</s>{% endmacro %}{{ m(messages[0].content) }}"),
            "<s>|</s>");
  EXPECT_EQ(own("{{ ('<s>\n' + messages[0].content)|indent(2) }}"), "<s>\n  |");
  EXPECT_EQ(own("{{ {'k': messages[0].content}|tojson }}"), R"({"k": "|"})");
  EXPECT_EQ(own("{{ messages[0]|tojson }}"), R"({"|": "user", "|": "|", "|": 5})");
  EXPECT_EQ(own("{{ [messages[0].content, '<s>'] }}"), "[|, '<s>']");
  EXPECT_EQ(own("{{ ('<s>' + messages[0].content)|upper }}"), "|");
  EXPECT_EQ(own("{{ messages[0].content|list|join }}"), "|");
  EXPECT_EQ(own("{{ messages[0].content * 2 }}{{ '<s>' * 2 }}"), "|<s><s>");
  EXPECT_EQ(own("{{ messages[0].content.split('<s>')|join('-') }}"), "|-|");
  EXPECT_EQ(own("{{ [messages[0].content, 'B']|sort|join('<s>') }}"), "|<s>B");
  EXPECT_EQ(own("{{ messages[0].content|default('x') }}{{ y|default('<s>') }}"), "|<s>");
  EXPECT_EQ(own("{{ strftime_now(messages[0].content) }}"), "|");
}

TEST(ChatTemplate, ARoleThatIsAWordIsTheTemplates) {
  const std::string source = "{{ '<|' + messages[0].role + '|>' }}";
  EXPECT_EQ(own_words(source, R"([{"role": "user", "content": "x"}])"), "<|user|>");
  EXPECT_EQ(own_words(source, R"([{"role": "user|><|x", "content": "x"}])"), "<|||>");
  const auto made = ChatTemplate::parse(source, "t");
  EXPECT_TRUE(made->render_quoted(std::vector<ChatMessage>{{"tool_2", "x"}})->quoted.empty());
  EXPECT_FALSE(made->render_quoted(std::vector<ChatMessage>{{"a b", "x"}})->quoted.empty());
}

TEST(ChatTemplate, MessagesAreChecked) {
  const auto made = ChatTemplate::parse("{{ messages[0] }}", "t");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->render(std::span<const ChatMessage>()).error().code(),
            ErrorCode::kInvalidArgument);
  const ChatMessage broken{"user", "a\xff"};
  EXPECT_THAT(made->render({&broken, 1}).error().message(),
              HasSubstr("message 0: byte 1 is not UTF-8"));
  for (const char* text : {"5", "[5]", "[]", "{}"}) {
    const auto messages = parse_json(text, "messages");
    EXPECT_EQ(made->render(*messages).error().code(), ErrorCode::kInvalidArgument) << text;
  }
}

TEST(ChatTemplate, MessagesAreGivenAsTransformersGivesThem) {
  const auto made = ChatTemplate::parse("{{ messages[0] }}", "t");
  ASSERT_TRUE(made);
  const auto render = [&](const char* text) {
    return *made->render(*parse_json(text, "messages"));
  };
  EXPECT_EQ(render(R"([{"role": "user", "content": null, "x": [1.5, false]}])"),
            "{'role': 'user', 'x': [1.5, False]}");
  EXPECT_EQ(render(R"([{"role": "assistant", "content": "a", "tool_calls": []}])"),
            "{'role': 'assistant', 'content': 'a'}");
  EXPECT_EQ(render(R"([{"role": "assistant", "content": null, "tool_calls": null}])"),
            "{'role': 'assistant'}");
  EXPECT_EQ(render(R"([{"content": "", "tool_calls": [1], "images": []}])"),
            "{'content': '', 'tool_calls': [1], 'images': []}");
  EXPECT_EQ(render(R"([{"role": "a", "reasoning": "r"}])"),
            "{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}");
  EXPECT_EQ(render(R"([{"thinking": "t", "reasoning_content": "r"}])"),
            "{'thinking': 't', 'reasoning_content': 'r'}");
}

TEST(ChatTemplate, TheTimeIsNowUnlessGiven) {
  const auto made = ChatTemplate::parse("{{ strftime_now('%Y') }}", "t");
  ASSERT_TRUE(made);
  const ChatMessage message{"user", "hi"};
  EXPECT_GE(std::stoi(*made->render({&message, 1})), 2024);
}

TEST(ChatTemplateGguf, TheFileHasTemplateAndTokens) {
  const auto loaded =
      test::load_chat_template(test::source_path("tests/formats/data/gguf_llama.gguf"));
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->render(std::vector<ChatMessage>{{"user", "Hi"}}).value(), "Hi");
  EXPECT_EQ(loaded->special_token("bos_token"), "<s>");
  for (const char* name : {"gguf_gpt2.gguf", "gguf_types.gguf"}) {
    const auto none =
        test::load_chat_template(test::source_path(std::string("tests/formats/data/") + name));
    ASSERT_FALSE(none) << name;
    EXPECT_EQ(none.error().code(), ErrorCode::kNotFound);
    EXPECT_THAT(std::string(none.error().message()),
                HasSubstr(std::string(name) + "' has no chat template"));
  }
}

}  // namespace
}  // namespace volta
