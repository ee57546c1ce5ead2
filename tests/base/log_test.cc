#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace volta {
namespace {

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { set_log_callback({}); }
};

TEST_F(LogTest, CallbackReceivesEverything) {
  std::vector<std::string> seen;
  set_log_callback([&](LogLevel level, std::string_view message) {
    seen.push_back(std::string(log_level_name(level)) + " " + std::string(message));
  });
  log(LogLevel::kDebug, "a");
  log(LogLevel::kInfo, "b");
  log(LogLevel::kWarning, "c");
  log(LogLevel::kError, "d");
  EXPECT_EQ(seen, (std::vector<std::string>{"debug a", "info b", "warning c", "error d"}));
  EXPECT_EQ(log_level_name(static_cast<LogLevel>(9)), "unknown");
}

TEST_F(LogTest, DefaultWritesWarningsAndErrorsToStderr) {
  testing::internal::CaptureStderr();
  log(LogLevel::kInfo, "quiet");
  log(LogLevel::kWarning, "careful");
  log(LogLevel::kError, "broken\x1b[2J");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "volta: warning: careful\nvolta: error: broken\\u001b[2J\n");
}

TEST_F(LogTest, MessagesFromManyThreadsArriveOneAtATime) {
  int count = 0;  // Not atomic: the log serialises.
  set_log_callback([&](LogLevel, std::string_view) { ++count; });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 250; ++i) log(LogLevel::kInfo, "x");
      });
    }
  }
  EXPECT_EQ(count, 1000);
}

TEST(Log, AMessageIsOneLine) {
  EXPECT_EQ(one_line("a name, caf\u00e9"), "a name, caf\u00e9");
  EXPECT_EQ(one_line("a\nvolta: b\r\tc\u2028d\u2029"), R"(a\nvolta: b\u000d\tc\u2028d\u2029)");
  EXPECT_EQ(one_line("\x1b[31m\xff"), R"(\u001b[31m\xff)");
  EXPECT_EQ(one_line(""), "");
}

}  // namespace
}  // namespace volta
