// volta chat in a terminal: editing, history, messages of several lines, commands, interruption.
// What was sent to the model is read from the file of /save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "apps/terminal.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::Terminal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr std::string_view kUp = "\033[A", kDown = "\033[B", kRight = "\033[C", kLeft = "\033[D";

class ChatTerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(dir_.file("model"));
    for (const std::string name : {"config.json", "model.safetensors", "tokenizer.json"}) {
      std::filesystem::copy_file(test::tiny_llama_path() + "/" + name, dir_.file("model/" + name));
    }
    // No answer ends before its first word, because it would not be in the conversation.
    Json config = load("model/config.json");
    config["eos_token_id"] = nullptr;
    std::ofstream(dir_.file("model/config.json")) << config.dump();
    std::ofstream(dir_.file("model/tokenizer_config.json"))
        << Json{{"bos_token", "<s>"},
                {"chat_template",
                 "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"}}
               .dump();
  }
  Terminal start(int columns = 80, const std::string& history = "history",
                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"chat", "model", "-n", "2", "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return Terminal(words, dir_.path(), {{"VOLTA_HISTORY", history}}, columns);
  }
  // Sends each line of keys as a message, saves the conversation, and returns what the user said.
  std::vector<std::string> said(Terminal& terminal, const std::vector<std::string>& lines,
                                const std::string& file) const {
    for (const std::string& keys : lines) {
      if (!terminal.wait_for_prompt()) return {};
      terminal.type(keys + "\r");
      // The end of the line: a message that is empty in between looks like the prompt.
      if (!terminal.wait_for("\r\n")) return {};
    }
    if (!terminal.wait_for_prompt()) return {};
    terminal.type("/save " + file + "\r");
    if (!terminal.wait_for("messages are in " + file)) return {};
    terminal.wait_for_prompt();
    std::vector<std::string> texts;
    for (const Json& message : load(file)) {
      if (message["role"] == "user") texts.push_back(message["content"]);
    }
    return texts;
  }
  // A long context, and nothing that would end an answer before it is full.
  void make_long_answers() const {
    Json config = load("model/config.json");
    config["max_position_embeddings"] = 8192;
    config["eos_token_id"] = nullptr;
    std::ofstream(dir_.file("model/config.json")) << config.dump();
    std::ofstream(dir_.file("model/tokenizer_config.json"))
        << Json{{"chat_template", "{{ messages[-1].content }}"}}.dump();
  }
  std::vector<std::string> lines_of(const std::string& file) const {
    std::ifstream stream(dir_.file(file));
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  // Writes a history of messages "entry 0", "entry 1", ..., each with `more` behind it.
  void write_history(const std::string& file, int count, const std::string& more = "") const {
    std::ofstream stream(dir_.file(file));
    for (int i = 0; i < count; ++i) stream << "entry " << i << more << '\n';
    std::filesystem::permissions(dir_.file(file), std::filesystem::perms(0600));
  }
  Json load(const std::string& file) const {
    std::ifstream stream(dir_.file(file));
    return Json::parse(stream);
  }

  test::TempDir dir_;
};

TEST_F(ChatTerminalTest, KeysEditAMessage) {
  const std::string left(kLeft), right(kRight);
  {
    Terminal terminal = start();
    const auto texts = said(terminal,
                            {
                                "ac" + left + "b" + right + "d",  // abcd
                                "bc\001a\005d",                   // Ctrl-A, Ctrl-E
                                "one two three\027\027four",      // Ctrl-W twice
                                "keep this\001\013gone\025new",   // Ctrl-K, Ctrl-U
                            },
                            "a.json");
    EXPECT_THAT(texts, ElementsAre("abcd", "abcd", "one four", "new"));
  }
  Terminal terminal = start();
  const auto texts = said(terminal,
                          {
                              "x\177y" + left + "\033[3~z",                  // Backspace, Delete
                              "gr\xc3\xbc\xc3\x9f" + left + left + "\177u",  // Two bytes each
                              "a b\033bX\033fY",                             // Alt-B, Alt-F
                              "\033[1;5D\033[5~ok",                          // No effect
                          },
                          "b.json");
  EXPECT_THAT(texts, ElementsAre("z", "gu\xc3\xbc\xc3\x9f", "a XbY", "ok"));
  terminal.type("\004");
  EXPECT_EQ(terminal.end(), 0);
}

TEST_F(ChatTerminalTest, MessagesCanHaveSeveralLines) {
  Terminal terminal = start();
  const auto texts = said(
      terminal,
      {"one\\\rtwo", "three\033\rfour", "\033[200~pasted\rlines\tand \x07\033[31mmore\033[201~!"},
      "said.json");
  EXPECT_THAT(texts, ElementsAre("one\ntwo", "three\nfour", "pasted\nlines\tand [31mmore!"));
  EXPECT_THAT(terminal.screen(), HasSubstr("one↵two"));
}

// A terminal in another encoding, such as Latin-1, sends bytes that are not UTF-8. The key that is
// pressed after such a byte still counts.
TEST_F(ChatTerminalTest, BytesThatAreNotUtf8AreReplaced) {
  Terminal terminal = start();
  const auto texts =
      said(terminal, {"\033[200~caf\xe9 au lait\xff\033[201~!", "caf\xe9", "na\xefve \xc3\xa9"},
           "said.json");
  EXPECT_THAT(texts, ElementsAre("caf\uFFFD au lait\uFFFD!", "caf\uFFFD", "na\uFFFDve \u00e9"));
  EXPECT_THAT(terminal.screen(), HasSubstr("2 bytes are replaced by U+FFFD"));
}

TEST_F(ChatTerminalTest, ALargePasteIsOneMessage) {
  Terminal terminal = start();
  ASSERT_TRUE(terminal.wait_for_prompt());
  std::string pasted, stored;
  while (pasted.size() < (std::size_t{3} << 20)) {
    pasted += "a line\r";
    stored += "a line\\n";
  }
  terminal.type("\033[200~" + pasted + "\033[201~end\r");
  ASSERT_TRUE(terminal.wait_for("the message is too long: the prompt has"));
  ASSERT_TRUE(terminal.wait_for_prompt());
  EXPECT_TRUE(lines_of("history") == std::vector<std::string>{stored + "end"});
  // More than a message can hold: nothing of it is taken, and what was typed stays.
  pasted.resize((std::size_t{16} << 20) + 1, 'x');
  terminal.type("be\033[200~" + pasted + "\033[201~");
  ASSERT_TRUE(terminal.wait_for("the pasted text is left out: a message has 16.0 MiB at most"));
  terminal.type("fore");
  ASSERT_TRUE(terminal.wait_for("> before"));
  terminal.type("\025");
  EXPECT_THAT(said(terminal, {"after"}, "said.json"), ElementsAre("after"));
  EXPECT_EQ(lines_of("history").size(), 3u);
}

// A file of another kind is neither extended nor cut.
TEST_F(ChatTerminalTest, AFileThatOthersMayReadIsNoHistory) {
  std::ofstream(dir_.file("history")) << "my novel\n";
  std::filesystem::permissions(dir_.file("history"), std::filesystem::perms(0644));
  Terminal terminal = start();
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("first\r");
  ASSERT_TRUE(terminal.wait_for("is no history of volta chat"));
  EXPECT_THAT(said(terminal, {"second"}, "said.json"), ElementsAre("first", "second"));
  EXPECT_THAT(lines_of("history"), ElementsAre("my novel"));
}

// Esc does nothing, and the next key means what it always means.
TEST_F(ChatTerminalTest, EscAloneIsAKey) {
  Terminal terminal = start();
  const auto press = [&](std::string_view keys) {
    terminal.type(keys);
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
  };
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("first\r");
  ASSERT_TRUE(terminal.wait_for_prompt());
  press("one two\033");
  press("b\033[");  // Not Alt-B; the beginning of no key.
  press("A\033");
  terminal.type("\r");  // Not Alt-Enter.
  ASSERT_TRUE(terminal.wait_for_prompt());
  press("\033");
  ASSERT_TRUE(terminal.wait_for_prompt());  // Drawn again.
  terminal.type(std::string(kUp) + "!\r");
  ASSERT_TRUE(terminal.wait_for_prompt());
  // At once, it is no part of the next key, either.
  terminal.type("\033" + std::string(kUp) + "?\r");
  EXPECT_THAT(said(terminal, {"\033\xc3\xa9"}, "said.json"),
              ElementsAre("first", "one twobA", "one twobA!", "one twobA!?", "\u00e9"));
}

TEST_F(ChatTerminalTest, EarlierMessagesComeBack) {
  const std::string up(kUp), down(kDown);
  {
    Terminal terminal = start();
    const auto texts = said(
        terminal, {"first\\\rline", "second", up + up + "!", "draft" + up + down + "ed"}, "a.json");
    EXPECT_THAT(texts, ElementsAre("first\nline", "second", "first\nline!", "drafted"));
    terminal.type("/exit\r");
    EXPECT_EQ(terminal.end(), 0);
  }
  struct stat info{};
  ASSERT_EQ(::stat(dir_.file("history").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  // The next conversation has them, too; "/save" and "/exit" are among them.
  Terminal terminal = start();
  const auto texts = said(terminal, {up + up + up, up + up + up + up + up + up}, "b.json");
  EXPECT_THAT(texts, ElementsAre("drafted", "second"));
}

TEST_F(ChatTerminalTest, AHistoryThatCannotBeWrittenCostsNoMessage) {
  std::filesystem::create_directory(dir_.file("folder"));
  Terminal terminal = start(80, "folder");
  const std::string up(kUp);
  const auto texts = said(terminal, {"hello", up + "!"}, "said.json");
  EXPECT_THAT(texts, ElementsAre("hello", "hello!"));
  EXPECT_THAT(terminal.screen(), HasSubstr("the history is not stored"));
}

// Its size is no reason to ignore it.
TEST_F(ChatTerminalTest, ALongHistoryIsCutToItsNewestMessages) {
  write_history("history", 1010, " " + std::string(4200, 'x'));
  const std::string up(kUp);
  {
    Terminal terminal = start();
    EXPECT_THAT(said(terminal, {up + "\001\013short", "new"}, "a.json"),
                ElementsAre("short", "new"));
  }
  const auto lines = lines_of("history");
  ASSERT_EQ(lines.size(), 1002u);  // Cut with the first message; two and "/save" are behind it.
  EXPECT_EQ(lines.front(), "entry 11 " + std::string(4200, 'x'));
  EXPECT_THAT(lines[999], "short");
  EXPECT_THAT(lines.back(), "/save a.json");
  struct stat info{};
  ASSERT_EQ(::stat(dir_.file("history").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("tmp-volta")));
  }
}

TEST_F(ChatTerminalTest, AHistoryThatCannotBeCutLosesNothing) {
  const auto talk = [&](const std::string& history) {
    Terminal terminal = start(80, history);
    EXPECT_THAT(said(terminal, {"one", "two"}, "said.json"), ElementsAre("one", "two"));
    std::filesystem::remove(dir_.file("said.json"));
    return terminal.screen();
  };
  const auto warnings = [](std::string screen) {
    int count = 0;
    for (std::size_t at = screen.find("volta: "); at != std::string::npos;
         at = screen.find("volta: ", at + 1)) {
      ++count;
    }
    return count;
  };
  // No temporary name fits beside this one.
  const std::string name(250, 'h');
  write_history(name, 1500);
  const std::string uncut = talk(name);
  EXPECT_THAT(uncut, HasSubstr("the history keeps more than its newest 1000 messages: "));
  EXPECT_EQ(warnings(uncut), 1);
  const auto lines = lines_of(name);
  EXPECT_EQ(lines.size(), 1503u);
  EXPECT_EQ(lines.front(), "entry 0");
  // Behind a link lies somebody else's file.
  write_history("other", 1500);
  std::filesystem::create_symlink("other", dir_.file("link"));
  const std::string linked = talk("link");
  EXPECT_THAT(linked, HasSubstr("the history is not stored: "));
  EXPECT_THAT(linked, HasSubstr("it is a symbolic link"));
  EXPECT_EQ(warnings(linked), 1);
  EXPECT_TRUE(std::filesystem::is_symlink(dir_.file("link")));
  EXPECT_EQ(lines_of("other").size(), 1500u);
}

// An editor or a full disk may have left it so.
TEST_F(ChatTerminalTest, AMessageNeverContinuesALineOfTheHistory) {
  std::ofstream(dir_.file("history")) << "old";
  std::filesystem::permissions(dir_.file("history"), std::filesystem::perms(0600));
  Terminal terminal = start();
  EXPECT_THAT(said(terminal, {"new"}, "said.json"), ElementsAre("new"));
  EXPECT_THAT(lines_of("history"), ElementsAre("old", "new", "/save said.json"));
}

TEST_F(ChatTerminalTest, CommandsChangeTheConversation) {
  Terminal terminal = start();
  EXPECT_THAT(said(terminal, {"/system Be brief", "one", "two", "/undo", "three"}, "a.json"),
              ElementsAre("one", "three"));
  EXPECT_EQ(load("a.json")[0], (Json{{"role", "system"}, {"content", "Be brief"}}));
  EXPECT_EQ(load("a.json").size(), 5u);
  terminal.type("/reset\r");
  EXPECT_THAT(said(terminal, {"four", "/load a.json", "/system", "five"}, "b.json"),
              ElementsAre("one", "three", "five"));
  EXPECT_EQ(load("b.json")[0]["role"], "user");
  ASSERT_EQ(::mkfifo(dir_.file("pipe").c_str(), 0600), 0);
  for (const auto& [command, answer] : std::map<std::string, std::string>{
           {"/save b.json", "is there already"},
           {"/save", "name a file"},
           {"/save a.json/where.json", "a.json/where.json"},
           {"/save new/where.json", "messages are in new/where.json"},
           {"/load none.json", "none.json"},
           {"/load pipe", "'pipe' is a device or pipe"},
           {"/load -", "'-'"},
           {"/load model/tokenizer_config.json", "expected an array of messages"},
           {"/foo", "/foo is no command; /help shows them"},
           {"/exit now", "/exit takes no text"},
           {"/undo 2", "/undo takes no text"},
           {"/help", "/undo "}}) {
    terminal.type(command + "\r");
    terminal.wait_for(answer);
    terminal.wait_for_prompt();
  }
  terminal.type("\r");  // Says nothing, and gives a new prompt.
  EXPECT_THAT(said(terminal, {"/reset", "/undo", "/save none.json", " /foo"}, "c.json"),
              ElementsAre(" /foo"));
  EXPECT_THAT(terminal.screen(), HasSubstr("/save: there is no message yet"));
  EXPECT_THAT(terminal.screen(), HasSubstr("there is no message to take back"));
}

TEST_F(ChatTerminalTest, HelpFitsANarrowTerminal) {
  Terminal terminal = start(40);
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("/help\r");
  ASSERT_TRUE(terminal.wait_for("it ends."));
  const std::string screen = terminal.screen();
  EXPECT_THAT(screen, HasSubstr("Alt-Enter"));
  std::istringstream lines(screen.substr(screen.find("A line is")));
  for (std::string line; std::getline(lines, line) && !line.contains("it ends.");) {
    std::erase(line, '\r');
    EXPECT_LE(line.size(), 40u) << line;
  }
}

TEST_F(ChatTerminalTest, ExitMayBeFollowedBySpaces) {
  for (const std::string word : {"/exit", "/quit", "/bye"}) {
    Terminal terminal = start();
    ASSERT_TRUE(terminal.wait_for_prompt());
    terminal.type(word + " now\r");
    ASSERT_TRUE(terminal.wait_for(word + " takes no text"));
    terminal.type(word + "  \r");
    EXPECT_EQ(terminal.end(), 0);
  }
}

TEST_F(ChatTerminalTest, OneMessageIsOne) {
  std::ofstream(dir_.file("one.json")) << R"([{"role": "user", "content": "a"}])";
  Terminal terminal = start();
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("/load one.json\r");
  EXPECT_TRUE(terminal.wait_for("The conversation goes on from the 1 message in one.json"));
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("/save copy.json\r");
  EXPECT_TRUE(terminal.wait_for("1 message is in copy.json"));
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("/retry\r");
  EXPECT_THAT(said(terminal, {"/clear", "/retry", "b"}, "b.json"), ElementsAre("b"));
  EXPECT_THAT(terminal.screen(), HasSubstr("/retry: there is no message to answer again"));
}

// During an answer the terminal is not in raw mode, so that Ctrl-C is a signal.
TEST_F(ChatTerminalTest, CtrlCStopsAnAnswerAndTheConversationGoesOn) {
  make_long_answers();
  Terminal terminal = start(80, "history", {"-n", "-1", "--temperature", "0", "-v"});
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("Hello\r");
  ASSERT_TRUE(terminal.wait_for("\033[?2004l"));
  ASSERT_TRUE(terminal.wait_for_bytes(30));
  terminal.type("\003");
  ASSERT_TRUE(terminal.wait_for("^C"));
  ASSERT_TRUE(terminal.wait_for("of the prompt's"));
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("/save first.json\r");
  ASSERT_TRUE(terminal.wait_for("2 messages are in first.json"));
  EXPECT_EQ(load("first.json")[0]["content"], "Hello");
  EXPECT_NE(load("first.json")[1]["content"], "");
  ASSERT_TRUE(terminal.wait_for_prompt());
  // The keys and the history are there, and so is the conversation.
  terminal.type(std::string(kUp) + std::string(kUp) + " again\r");
  ASSERT_TRUE(terminal.wait_for("\033[?2004l"));
  ASSERT_TRUE(terminal.wait_for_bytes(30));
  terminal.type("\003");
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("/save second.json\r");
  ASSERT_TRUE(terminal.wait_for("4 messages are in second.json"));
  EXPECT_EQ(load("second.json")[2]["content"], "Hello again");
  EXPECT_THAT(terminal.screen(), ::testing::Not(HasSubstr("the answer ends here")));
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("\003");
  EXPECT_EQ(terminal.end(), 130);
  EXPECT_THAT(lines_of("history"),
              ElementsAre("Hello", "/save first.json", "Hello again", "/save second.json"));
}

TEST_F(ChatTerminalTest, CtrlCEmptiesAMessageAndThenEnds) {
  Terminal terminal = start();
  EXPECT_THAT(said(terminal, {"not this\003but this"}, "said.json"), ElementsAre("but this"));
  EXPECT_FALSE(terminal.echoes());
  terminal.type("\003");
  EXPECT_EQ(terminal.end(), 130);
}

TEST_F(ChatTerminalTest, TheTerminalIsGivenBack) {
  Terminal terminal = start();
  ASSERT_TRUE(terminal.wait_for_prompt());
  EXPECT_FALSE(terminal.echoes());
  terminal.type("hello\r");
  ASSERT_TRUE(terminal.wait_for("\033[?2004l"));
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("\004");
  EXPECT_EQ(terminal.end(), 0);
  EXPECT_TRUE(terminal.screen().ends_with("\033[?2004l"));
}

// Lines are read as they are, without editing, and nothing moves the cursor.
TEST_F(ChatTerminalTest, ADumbTerminalGetsPlainLines) {
  Terminal terminal({"chat", "model", "-n", "2", "--threads", "1"}, dir_.path(),
                    {{"VOLTA_HISTORY", "history"}, {"TERM", "dumb"}}, 80);
  ASSERT_TRUE(terminal.wait_for("> "));
  EXPECT_TRUE(terminal.echoes());
  terminal.type("Hello\r");
  ASSERT_TRUE(terminal.wait_for("\n> "));
  terminal.type("/save said.json\r");
  ASSERT_TRUE(terminal.wait_for("2 messages are in said.json"));
  EXPECT_EQ(load("said.json")[0]["content"], "Hello");
  ASSERT_TRUE(terminal.wait_for("> "));
  terminal.type("\004");
  EXPECT_EQ(terminal.end(), 0);
  EXPECT_THAT(terminal.screen(), ::testing::Not(HasSubstr("\033")));
  EXPECT_FALSE(std::filesystem::exists(dir_.file("history")));
}

TEST_F(ChatTerminalTest, AnyWidthWillDo) {
  Terminal terminal = start(1);
  const std::string text = "a rather long message for such a terminal, with 日本 in it";
  ASSERT_TRUE(terminal.wait_for("\r\033[K\r"));  // No room for the prompt.
  terminal.type(text + "\r");
  ASSERT_TRUE(terminal.wait_for("\033[?2004l"));
  ASSERT_TRUE(terminal.wait_for("\033[?2004h"));
  terminal.resize(30);
  terminal.type("/save said.json\r");
  ASSERT_TRUE(terminal.wait_for("messages are in"));
  EXPECT_EQ(load("said.json")[0]["content"], text);
  ASSERT_TRUE(terminal.wait_for("\033[?2004h"));
  terminal.type("\004");
  EXPECT_EQ(terminal.end(), 0);
}

TEST_F(ChatTerminalTest, TheLineIsDrawnAgainInAnotherWidth) {
  Terminal terminal = start();
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("abcdefgh日本");
  ASSERT_TRUE(terminal.wait_for("\r> abcdefgh日本"));
  const auto at = [&](int columns) {
    terminal.resize(columns);
    return terminal.redrawn_line();
  };
  EXPECT_EQ(at(20), "> abcdefgh日本");
  EXPECT_EQ(at(12), "> defgh日本");  // The cursor stands at the end.
  EXPECT_EQ(at(3), "本");
  EXPECT_EQ(at(1), "");   // No room for a character of two columns.
  terminal.type("\001");  // Ctrl-A
  ASSERT_TRUE(terminal.wait_for("\033[Ka\r"));
  EXPECT_EQ(at(10), "> abcdefg");
  EXPECT_EQ(at(4), "> a");
  EXPECT_EQ(at(3), "ab");
  EXPECT_EQ(at(2), "a");
  EXPECT_EQ(at(1), "a");
  EXPECT_EQ(at(40), "> abcdefgh日本");
  terminal.type("\005!\r");
  EXPECT_THAT(said(terminal, {}, "said.json"), ElementsAre("abcdefgh日本!"));
}

// The recorded session of docs/guide/chat.md, with the model and the commands that the page names.
// Its memory and its times are those of another machine.
class GuideSession : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(test::source_path("docs/guide/chat.md"));
    page_.assign(std::istreambuf_iterator<char>(file), {});
  }
  // The text between two others, which the page has once.
  std::string between(const std::string& begin, const std::string& end) const {
    const std::size_t at = page_.find(begin);
    EXPECT_NE(at, std::string::npos) << begin;
    if (at == std::string::npos) return "";
    const std::size_t from = at + begin.size();
    return page_.substr(from, page_.find(end, from) - from);
  }
  // The words behind "volta"; the page's paths begin in the source tree.
  static std::vector<std::string> words_of(const std::string& command) {
    std::istringstream stream(command);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) {
      words.push_back(word.starts_with("tests/") ? test::source_path(word) : word);
    }
    return words;
  }

  std::string page_;
  test::TempDir dir_;
};

TEST_F(GuideSession, GoesAsRecorded) {
  const auto train = words_of("train --init" + between("(`volta train --init", "`"));
  const test::CommandResult trained = test::run_volta(train, dir_.path());
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  std::istringstream lines(between("```text\n$ volta ", "```"));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  Terminal terminal(words_of(line), dir_.path(), {{"VOLTA_HISTORY", "history"}}, 80);
  int messages = 0;
  while (std::getline(lines, line)) {
    if (line.starts_with("> ")) {
      ASSERT_TRUE(terminal.wait_for_prompt());
      terminal.type(line.substr(2) + "\r");
      ++messages;
    } else if (line == ">") {
      ASSERT_TRUE(terminal.wait_for_prompt());
      terminal.type("\004");
      EXPECT_EQ(terminal.end(), 0);
    } else if (!line.starts_with("memory: ")) {
      ASSERT_TRUE(terminal.wait_for(line)) << line;  // A page has no spaces at ends of lines.
    }
  }
  EXPECT_EQ(messages, 3);
}

}  // namespace
}  // namespace volta
