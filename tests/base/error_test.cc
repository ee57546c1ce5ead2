#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "base/result.h"
#include "base/system_error.h"

namespace volta {
namespace {

TEST(ErrorTest, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    names.insert(error_code_name(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), 11u);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(error_code_name(ErrorCode::kInvalidArgument), "invalid_argument");
  EXPECT_EQ(error_code_name(static_cast<ErrorCode>(99)), "unknown");
}

TEST(ErrorTest, ContextReadsOutermostFirst) {
  const Error error =
      Error(ErrorCode::kIo, "disk full").with_context("writing x").with_context("checkpoint 3");
  EXPECT_EQ(error.message(), "checkpoint 3: writing x: disk full");
  EXPECT_EQ(error.code(), ErrorCode::kIo);
}

Status half(int n, int& out) {
  const auto checked = [](int v) -> Result<int> {
    if (v % 2 != 0) return fail(ErrorCode::kInvalidArgument, "odd");
    return v / 2;
  };
  VOLTA_TRY(const int result, checked(n));
  out = result;
  return {};
}

Status half_twice(int n, int& out) {
  VOLTA_TRY(half(n, out));
  VOLTA_TRY(half(out, out));
  return {};
}

TEST(ResultTest, TryReturnsTheErrorOrGoesOn) {
  int out = 0;
  EXPECT_TRUE(half_twice(12, out).has_value());
  EXPECT_EQ(out, 3);
  const Status status = half_twice(6, out);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "odd");
}

TEST(SystemErrorTest, MapsErrnoAndNamesTheRemedy) {
  EXPECT_EQ(fail_system("open", "x", ENOENT).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(fail_system("open", "x", ENOENT).error().message(),
            "cannot open 'x': No such file or directory");
  EXPECT_EQ(fail_system("open", "x", ENOTDIR).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(fail_system("map", "x", ENOMEM).error().code(), ErrorCode::kOutOfMemory);
  const Error full = fail_system("write", "x", ENOSPC).error();
  EXPECT_EQ(full.code(), ErrorCode::kIo);
  EXPECT_NE(full.message().find("free some space"), std::string::npos);
  EXPECT_NE(fail_system("open", "x", EACCES).error().message().find("permissions"),
            std::string::npos);
}

}  // namespace
}  // namespace volta
