// The place of a new folder: what is refused, and that looking leaves nothing behind.
#include "io/new_folder.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "base/file.h"
#include "support/file_faults.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

TEST(NewFolder, TellsWhetherItsPlaceCanBeTaken) {
  const test::TempDir dir;
  const auto code_of = [&](const std::string& path) {
    const Status checked = check_new_folder(path);
    return checked ? ErrorCode::kInternal : checked.error().code();
  };
  ASSERT_TRUE(create_directories(dir.file("empty")));
  ASSERT_TRUE(create_directories(dir.file("full/of")));
  ASSERT_TRUE(write_file_atomic(dir.file("file"), "x"));
  EXPECT_TRUE(check_new_folder(dir.file("new")));
  EXPECT_TRUE(check_new_folder(dir.file("new/")));
  EXPECT_TRUE(check_new_folder(dir.file("empty")));
  EXPECT_TRUE(check_new_folder(dir.file("parents/that/are/missing")));
  EXPECT_EQ(code_of(""), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(dir.file("full")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(dir.file("file")), ErrorCode::kIo);
  EXPECT_EQ(code_of(dir.file("file/below")), ErrorCode::kIo);
  test::FaultyFileOps faults;
  faults.fail(test::FileCall::kMkdir, 1, EROFS);
  const ScopedFileOps scope(faults);
  EXPECT_EQ(code_of(dir.file("new")), ErrorCode::kIo);
  // Nothing of the trials is left: empty, full, file, parents.
  EXPECT_EQ(list_directory(dir.path())->size(), 4u);
}

}  // namespace
}  // namespace volta
