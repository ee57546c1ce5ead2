// A folder for tests of files and paths.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "support/temp_dir.h"

namespace volta::test {

class FileTest : public testing::Test {
 protected:
  std::string file(std::string_view name) const { return dir_.file(name); }
  const std::string& dir() const { return dir_.path(); }
  void put(const std::string& name, const std::string& text) {
    std::ofstream(file(name), std::ios::binary) << text;
  }
  std::string get(const std::string& name) {
    const Result<std::string> text = read_text_file(file(name));
    return text ? *text : "<" + text.error().message() + ">";
  }
  std::vector<std::string> names() { return *list_directory(dir()); }

 private:
  TempDir dir_;
};

ErrorCode code_of(const auto& result) {
  EXPECT_FALSE(result);
  return result ? ErrorCode::kInternal : result.error().code();
}

}  // namespace volta::test
