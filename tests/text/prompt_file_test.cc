// Files of prompts: lines, JSON lines, and errors that name the line.
#include "text/prompt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "device/helpers.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;
using Ints = std::vector<std::int32_t>;

TEST(PromptFile, TextHasAPromptALine) {
  const auto prompts = parse_prompt_lines("one\r\n two words \n{\"x\": \u00e9}", "p.txt").value();
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(std::get<std::string>(prompts[0].prompt), "one");
  EXPECT_EQ(std::get<std::string>(prompts[1].prompt), " two words ");
  EXPECT_EQ(std::get<std::string>(prompts[2].prompt), "{\"x\": \u00e9}");
  EXPECT_EQ(prompts[2].line, 3);
  EXPECT_EQ(parse_prompt_lines("a\n", "p.txt").value().size(), 1u);
}

TEST(PromptFile, JsonLinesHaveTextOrIds) {
  const auto prompts = parse_prompt_json_lines(
                           "{\"prompt\": \"a\\nb\"}\r\n{\"ids\": [5, 0, 2147483647]}\n"
                           "{\"prompt\": \"\"}",
                           "p.jsonl")
                           .value();
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(std::get<std::string>(prompts[0].prompt), "a\nb");
  EXPECT_EQ(std::get<Ints>(prompts[1].prompt), (Ints{5, 0, 2147483647}));
  EXPECT_EQ(std::get<std::string>(prompts[2].prompt), "");  // For the tokenizer to judge.
  EXPECT_EQ(prompts[1].line, 2);
}

TEST(PromptFile, ErrorsNameTheLine) {
  const auto invalid = ErrorCode::kInvalidFile;
  expect_error(parse_prompt_lines("", "p.txt"), invalid, "p.txt: no prompts");
  expect_error(parse_prompt_lines("a\n\nb\n", "p.txt"), invalid, "p.txt: line 2 is empty");
  expect_error(parse_prompt_lines("a\n\r\n", "p.txt"), invalid, "p.txt: line 2 is empty");
  expect_error(parse_prompt_lines("a\nb\xFF", "p.txt"), invalid,
               "p.txt: line 2: byte 1 is not UTF-8");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"x", "p: line 2"},
      {"[]", "line 2: expected an object with either \"prompt\" or \"ids\""},
      {"{}", "line 2: expected an object"},
      {"{\"text\": \"a\"}", "line 2: expected an object"},
      {"{\"prompt\": \"a\", \"ids\": [1]}", "line 2: expected an object"},
      {"{\"prompt\": 5}", "line 2: prompt: expected a string, found an integer"},
      {"{\"ids\": \"5\"}", "line 2: ids: expected an array"},
      {"{\"ids\": []}", "line 2: ids: no ids"},
      {"{\"ids\": [1, -1]}", "line 2: ids[1]"},
      {"{\"ids\": [[[[[1]]]]]}", "line 2"},
      {"{\"ids\": [2147483648]}", "line 2: ids[0]"}};
  for (const auto& [line, text] : cases) {
    SCOPED_TRACE(line);
    expect_error(parse_prompt_json_lines("{\"prompt\": \"a\"}\n" + line + "\n", "p"), invalid,
                 text);
  }
}

TEST(PromptFile, TheNameSaysTheKind) {
  const test::TempDir dir;
  const std::string text = join_path(dir.path(), "p.txt"), lines = join_path(dir.path(), "p.jsonl");
  ASSERT_TRUE(write_file_atomic(text, "{\"ids\": [1]}"));
  ASSERT_TRUE(write_file_atomic(lines, "{\"ids\": [1]}"));
  EXPECT_EQ(std::get<std::string>(load_prompts(text).value()[0].prompt), "{\"ids\": [1]}");
  EXPECT_EQ(std::get<Ints>(load_prompts(lines).value()[0].prompt), Ints{1});
  expect_error(load_prompts(join_path(dir.path(), "none")), ErrorCode::kNotFound, "none");
}

}  // namespace
}  // namespace volta
