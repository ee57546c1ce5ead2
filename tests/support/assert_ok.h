// Unwraps Results in tests.
#pragma once

#include <gtest/gtest.h>

#include "base/result.h"

/// Binds the value of a Result, or fails the test with its message.
#define VOLTA_ASSERT_OK(decl, expr) VOLTA_ASSERT_OK_AT(__COUNTER__, decl, expr)
#define VOLTA_ASSERT_OK_AT(n, decl, expr) VOLTA_ASSERT_OK_INNER(VOLTA_CONCAT(ok_, n), decl, expr)
#define VOLTA_ASSERT_OK_INNER(tmp, decl, expr)           \
  auto tmp = (expr);                                     \
  ASSERT_TRUE(tmp.has_value()) << tmp.error().message(); \
  decl = *std::move(tmp)
#define VOLTA_ASSERT_STATUS(expr)                                            \
  do {                                                                       \
    const auto volta_status = (expr);                                        \
    ASSERT_TRUE(volta_status.has_value()) << volta_status.error().message(); \
  } while (false)
