// Chat templates: what transformers makes of the same ones, and where they are found in a folder.
#include "io/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using ::testing::HasSubstr;

std::string read_source(const std::string& name) {
  std::ifstream file(test::source_path("tests/io/data/" + name), std::ios::binary);
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
  const auto made = ChatTemplate::parse("{{ messages }}", "t");
  ASSERT_TRUE(made);
  const ChatMessage message{"user", "hi"};
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
    const auto loaded = ChatTemplate::load(dir_.path());
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
  const auto loaded = ChatTemplate::load(dir_.path());
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
  const auto loaded = ChatTemplate::load(dir_.path());
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
  EXPECT_EQ(ChatTemplate::load(dir_.path()).error().code(), ErrorCode::kNotFound);
  write("tokenizer_config.json", R"({"eos_token": "x"})");
  EXPECT_EQ(ChatTemplate::load(dir_.path()).error().code(), ErrorCode::kNotFound);
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(render(), HasSubstr("chat_template: expected a string"));
  write("tokenizer_config.json", R"({"chat_template": "a\n{% if x %}"})");
  EXPECT_THAT(render(), HasSubstr("tokenizer_config.json: chat_template: line 2: the block has no "
                                  "{% endif %}"));
  write("tokenizer_config.json", R"({"chat_template": "a", "bos_token": 5})");
  EXPECT_THAT(render(), HasSubstr("bos_token: expected a string"));
  write("tokenizer_config.json", "{");
  EXPECT_EQ(ChatTemplate::load(dir_.path()).error().code(), ErrorCode::kInvalidFile);
  EXPECT_EQ(ChatTemplate::load_file(dir_.file("missing"), dir_.path()).error().code(),
            ErrorCode::kNotFound);
  write("tokenizer_config.json", "{}");
  write("chat_template.jinja", "{{ messages[0].content.x.y }}");
  EXPECT_THAT(render(), HasSubstr("chat_template.jinja: line 1: a value of type str has no "
                                  "element 'x'"));
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
  const auto loaded = ChatTemplate::load(test::source_path("tests/io/data/gguf_llama.gguf"));
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->render(std::vector<ChatMessage>{{"user", "Hi"}}).value(), "Hi");
  EXPECT_EQ(loaded->special_token("bos_token"), "<s>");
  for (const char* name : {"gguf_gpt2.gguf", "gguf_types.gguf"}) {
    const auto none = ChatTemplate::load(test::source_path(std::string("tests/io/data/") + name));
    ASSERT_FALSE(none) << name;
    EXPECT_EQ(none.error().code(), ErrorCode::kNotFound);
    EXPECT_THAT(std::string(none.error().message()),
                HasSubstr(std::string(name) + "' has no chat template"));
  }
}

}  // namespace
}  // namespace volta
