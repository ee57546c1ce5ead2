#include "base/version.h"

#include <gtest/gtest.h>

#include <string>

namespace volta {
namespace {

TEST(VersionTest, JoinsReleaseAndCommit) {
  EXPECT_FALSE(version().empty());
  EXPECT_TRUE(version_with_hash().starts_with(version()));
  const std::string expected =
      std::string(version()) + (git_hash().empty() ? "" : "+" + std::string(git_hash()));
  EXPECT_EQ(version_with_hash(), expected);
}

}  // namespace
}  // namespace volta
