// The lock on a folder: who gets it, and what a stranger's `.lock` may not do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "support/file_faults.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::FaultyFileOps;
using test::FileCall;

class DirectoryLockTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_callback([this](LogLevel, std::string_view message) { logged_ += message; });
  }
  void TearDown() override { set_log_callback({}); }
  std::string file(std::string_view name) const { return dir_.file(name); }
  const std::string& dir() const { return dir_.path(); }
  void put(const std::string& name, const std::string& text) {
    std::ofstream(file(name), std::ios::binary) << text;
  }
  std::string get(const std::string& name) { return read_text_file(file(name)).value_or("?"); }

  std::string logged_;

 private:
  test::TempDir dir_;
};

ErrorCode code_of(const auto& result) {
  EXPECT_FALSE(result);
  return result ? ErrorCode::kInternal : result.error().code();
}

TEST_F(DirectoryLockTest, AdmitsOne) {
  Result<DirectoryLock> first = DirectoryLock::acquire(dir());
  ASSERT_TRUE(first) << first.error().message();
  const Result<DirectoryLock> second = DirectoryLock::acquire(dir());
  EXPECT_EQ(code_of(second), ErrorCode::kIo);
  EXPECT_NE(second.error().message().find("in use by process " + std::to_string(getpid())),
            std::string::npos)
      << second.error().message();
  {
    const DirectoryLock moved = *std::move(first);
    EXPECT_FALSE(DirectoryLock::acquire(dir()));
  }
  Result<DirectoryLock> third = DirectoryLock::acquire(dir());
  ASSERT_TRUE(third);
  ASSERT_TRUE(create_directories(file("other")));
  *third = *DirectoryLock::acquire(file("other"));  // Lets go of the first folder.
  EXPECT_TRUE(DirectoryLock::acquire(dir()));
}

// A lock belongs to a folder, not to a name.
TEST_F(DirectoryLockTest, KnowsWhereItsFolderIs) {
  std::filesystem::create_directory(file("a"));
  Result<DirectoryLock> lock = DirectoryLock::acquire(file("a"));
  ASSERT_TRUE(lock);
  EXPECT_EQ(lock->place(), file("a"));
  std::filesystem::rename(file("a"), file("b"));
  std::filesystem::create_directory(file("a"));
  EXPECT_EQ(lock->place(), file("b"));
  std::filesystem::remove_all(file("b"));
  std::filesystem::create_directory(file("b"));
  const Result<std::string> removed = lock->place();
  EXPECT_EQ(code_of(removed), ErrorCode::kIo);
  EXPECT_TRUE(removed.error().message().contains("was removed")) << removed.error().message();
}

TEST_F(DirectoryLockTest, SaysWhyNot) {
  EXPECT_EQ(code_of(DirectoryLock::acquire(file("none"))), ErrorCode::kIo);
  for (const FileCall call : {FileCall::kOpen, FileCall::kFlock, FileCall::kRead}) {
    FaultyFileOps faults;
    faults.fail(call, 1, EIO);
    const ScopedFileOps scope(faults);
    EXPECT_EQ(code_of(DirectoryLock::acquire(dir())), ErrorCode::kIo);
  }
  EXPECT_TRUE(DirectoryLock::acquire(dir()));  // A failed attempt holds nothing.
}

TEST_F(DirectoryLockTest, AFullDiskOrNoLocksAreWarnings) {
  for (const FileCall call : {FileCall::kFtruncate, FileCall::kWrite}) {
    logged_.clear();
    FaultyFileOps faults;
    faults.fail(call, 1, ENOSPC);
    const ScopedFileOps scope(faults);
    EXPECT_TRUE(DirectoryLock::acquire(dir()));
    EXPECT_NE(logged_.find("does not say which process"), std::string::npos) << logged_;
  }
  for (const int error_number : {ENOSYS, EOPNOTSUPP, ENOLCK}) {
    logged_.clear();
    FaultyFileOps faults;
    faults.fail(FileCall::kFlock, 1, error_number);
    const ScopedFileOps scope(faults);
    EXPECT_TRUE(DirectoryLock::acquire(dir()));
    EXPECT_NE(logged_.find("has no locks"), std::string::npos) << logged_;
  }
}

TEST_F(DirectoryLockTest, WhatIsNoLockOfOursStaysAsItIs) {
  put("bashrc", "alias ll='ls -l'\n");
  ASSERT_EQ(symlink(file("bashrc").c_str(), file(".lock").c_str()), 0);
  EXPECT_EQ(code_of(DirectoryLock::acquire(dir())), ErrorCode::kInvalidFile);
  std::filesystem::remove(file(".lock"));
  ASSERT_EQ(symlink(file("new").c_str(), file(".lock").c_str()), 0);
  EXPECT_EQ(code_of(DirectoryLock::acquire(dir())), ErrorCode::kInvalidFile);
  EXPECT_FALSE(path_exists(file("new")));
  std::filesystem::remove(file(".lock"));
  ASSERT_EQ(link(file("bashrc").c_str(), file(".lock").c_str()), 0);
  EXPECT_EQ(code_of(DirectoryLock::acquire(dir())), ErrorCode::kInvalidFile);
  EXPECT_EQ(get("bashrc"), "alias ll='ls -l'\n");
  std::filesystem::remove(file(".lock"));
  ASSERT_EQ(mkfifo(file(".lock").c_str(), 0600), 0);
  EXPECT_EQ(code_of(DirectoryLock::acquire(dir())), ErrorCode::kInvalidFile);
  std::filesystem::remove(file(".lock"));
  for (const char* text : {"# notes", "12 34", "123456789012345678901"}) {
    put(".lock", text);
    const auto refused = DirectoryLock::acquire(dir());
    EXPECT_EQ(code_of(refused), ErrorCode::kInvalidFile) << text;
    EXPECT_NE(refused.error().message().find("is not a lock of Volta's"), std::string::npos);
    EXPECT_EQ(get(".lock"), text);
  }
  for (const char* text : {"", "4711", "4711\n"}) {
    put(".lock", text);
    EXPECT_TRUE(DirectoryLock::acquire(dir())) << text;
    EXPECT_EQ(get(".lock"), std::to_string(getpid()));
  }
}

}  // namespace
}  // namespace volta
