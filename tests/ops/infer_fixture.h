// Tables of what infer accepts and refuses, and their check.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ops/op_texts.h"
#include "ops/rules.h"

namespace volta::test {

using Specs = std::vector<TensorSpec>;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

struct Accepted {
  Op op;
  Specs inputs;
  Specs outputs;
};

struct Refused {
  Op op;
  Specs inputs;
  const char* message;
};

class Infer : public ::testing::Test {
 protected:
  static void accepts(const std::vector<Accepted>& rows) {
    for (const Accepted& row : rows) {
      const auto outputs = infer(row.op, row.inputs);
      ASSERT_TRUE(outputs) << outputs.error().message();
      EXPECT_EQ(*outputs, row.outputs) << to_string(row.op);
    }
  }
  static void refuses(const std::vector<Refused>& rows) {
    for (const Refused& row : rows) {
      const auto outputs = infer(row.op, row.inputs);
      ASSERT_FALSE(outputs) << to_string(row.op) << " should fail: " << row.message;
      EXPECT_EQ(outputs.error().code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(outputs.error().message(), ::testing::HasSubstr(row.message));
      EXPECT_THAT(outputs.error().message(), ::testing::HasSubstr(to_string(row.op) + " of ("));
      for (const TensorSpec& spec : row.inputs) {
        EXPECT_THAT(outputs.error().message(), ::testing::HasSubstr(to_string(spec)));
      }
    }
  }
};

}  // namespace volta::test
