// A folder with a small text in which tests run the command line.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "support/temp_dir.h"

namespace volta::test {

// Waits until something holds; false when it takes a minute.
template <typename Condition>
bool wait_until(Condition condition) {
  for (int i = 0; i < 30000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

class VoltaTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  CommandResult volta(const std::vector<std::string>& arguments,
                      const std::map<std::string, std::string>& environment = {}) const {
    return run_volta(arguments, dir_.path(), environment);
  }
  // The smallest run that learns something.
  std::vector<std::string> train(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "train",        "--data",  "text.txt",  "--out",   "run",   "--tokenizer",  "char",
        "--layers",     "1",       "--heads",   "2",       "--dim", "16",           "--context",
        "16",           "--batch", "4",         "--steps", "6",     "--eval-every", "3",
        "--save-every", "3",       "--threads", "1"};
    // Files of --data add up, so another one takes the place of this one.
    if (std::find(more.begin(), more.end(), "--data") != more.end()) {
      arguments.erase(arguments.begin() + 1, arguments.begin() + 3);
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "the quick brown fox jumps over the lazy dog.\n";
    write("text.txt", text);
  }
  void expect_error(const std::vector<std::string>& arguments, int exit_code,
                    const std::string& words,
                    const std::map<std::string, std::string>& environment = {}) const {
    const CommandResult result = volta(arguments, environment);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, ::testing::HasSubstr(words));
    EXPECT_EQ(result.out, "");
  }

  TempDir dir_;
};

}  // namespace volta::test
