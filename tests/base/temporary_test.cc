// Temporaries: their names, who holds them, and that nothing else is ever removed.
#include "base/temporary.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "support/file_faults.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::FaultyFileOps;
using test::FileCall;

class TemporaryTest : public testing::Test {
 protected:
  std::string file(std::string_view name) const { return dir_.file(name); }
  const std::string& dir() const { return dir_.path(); }
  void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  std::vector<std::string> names() { return *list_directory(dir()); }
  // A name that a temporary for `target` had; nothing is there.
  std::string used_path(const std::string& target) {
    const auto folder = TemporaryFolder::create(file(target));
    return folder ? folder->path() : "";
  }

 private:
  test::TempDir dir_;
};

ErrorCode code_of(const auto& result) {
  EXPECT_FALSE(result);
  return result ? ErrorCode::kInternal : result.error().code();
}

TEST_F(TemporaryTest, OnlyOurNamesAreKnown) {
  const std::string ours = file_name(used_path("run.json"));
  EXPECT_TRUE(is_temporary_name(ours)) << ours;
  EXPECT_TRUE(ours.starts_with("run.json.tmp-volta-"));
  std::string changed = ours;
  changed.back() = changed.back() == '0' ? '1' : '0';
  for (const std::string& name :
       {changed, "x" + ours, ours + "0", ours.substr(1), std::string(), std::string("run.json"),
        std::string("backup.tmp-2024-11"), std::string("run.json.tmp-12-34"),
        std::string("run.json.tmp-volta-0123456789abcdef"), ours.substr(8)}) {
    EXPECT_FALSE(is_temporary_name(name)) << name;
  }
}

TEST_F(TemporaryTest, FilesAndFoldersAreNew) {
  std::set<std::string> paths;
  std::vector<TemporaryFile> files;
  std::vector<TemporaryFolder> folders;
  for (int i = 0; i < 50; ++i) {
    auto temporary = create_temporary_file(file("x"));
    ASSERT_TRUE(temporary);
    paths.insert(temporary->path);
    files.push_back(*std::move(temporary));
    auto folder = TemporaryFolder::create(file("x/"));
    ASSERT_TRUE(folder);
    paths.insert(folder->path());
    folders.push_back(*std::move(folder));
  }
  EXPECT_EQ(paths.size(), 100u);
  EXPECT_EQ(names().size(), 100u);
  for (const std::string& name : names()) EXPECT_TRUE(is_temporary_name(name)) << name;
  folders.clear();
  EXPECT_EQ(names().size(), 50u);
  const auto deep = TemporaryFolder::create(file("new/parents/y"));
  ASSERT_TRUE(deep);
  EXPECT_TRUE(is_directory(deep->path()));
  EXPECT_EQ(parent_path(deep->path()), file("new/parents"));
  for (const std::string path : {"/", "", ".", "a/.."}) {
    EXPECT_EQ(code_of(TemporaryFolder::create(path)), ErrorCode::kInvalidArgument) << path;
  }
  EXPECT_EQ(code_of(TemporaryFolder::create(file(std::string(300, 'x')))), ErrorCode::kIo);
}

TEST_F(TemporaryTest, WhatAKillBeforeTheRenameLeavesGoesWithTheNextWrite) {
  const std::string left = used_path("a"), left_folder = used_path("a");
  put(left, "half");
  ASSERT_TRUE(create_directories(left_folder + "/deep"));
  const std::string other = used_path("b");
  put(other, "half of another");
  ASSERT_TRUE(write_file_atomic(file("a"), "whole"));
  EXPECT_EQ(names(), (std::vector<std::string>{"a", file_name(other)}));
  remove_abandoned_temporaries(dir());
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
  remove_abandoned_temporaries(file("none"));
}

TEST_F(TemporaryTest, WhatIsBeingFilledOrNotOursStays) {
  auto writer = FileWriter::open_temporary(file("a"));
  ASSERT_TRUE(writer);
  const auto folder = TemporaryFolder::create(file("a"));
  ASSERT_TRUE(folder);
  const std::vector<std::string> strangers = {"backup.tmp-2024-11", "a.tmp-1-2",
                                              "a.tmp-volta-0123456789abcdef"};
  for (const std::string& name : strangers) {
    ASSERT_TRUE(create_directories(file(name)));
    put(file(name + "/thesis.txt"), "years of work");
  }
  // Our name, but a link or a pipe: neither is a temporary of ours.
  ASSERT_TRUE(create_directories(file("kept")));
  const std::string linked = used_path("a"), pipe = used_path("a");
  ASSERT_EQ(symlink(file("kept").c_str(), linked.c_str()), 0);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto before = names();
  remove_abandoned_temporaries(dir());
  EXPECT_EQ(names(), before);
  // Closed, but not renamed yet: still held.
  ASSERT_TRUE(writer->close());
  remove_abandoned_temporaries(dir());
  EXPECT_TRUE(path_exists(writer->path()));
  ASSERT_TRUE(rename_path(writer->path(), file("a")));
}

TEST_F(TemporaryTest, WithoutLocksNothingIsTakenForAbandoned) {
  const std::string left = used_path("a");
  put(left, "half");
  FaultyFileOps faults;
  faults.fail(FileCall::kFlock, 1, ENOSYS);
  const ScopedFileOps scope(faults);
  ASSERT_TRUE(write_file_atomic(file("a"), "whole"));
  EXPECT_TRUE(path_exists(left));
  EXPECT_TRUE(TemporaryFolder::create(file("a")));
}

TEST_F(TemporaryTest, FailuresLeaveNothingBehind) {
  for (const auto& [call, error_number] :
       {std::pair{FileCall::kOpen, EIO}, {FileCall::kFlock, EIO}, {FileCall::kMkdir, EROFS}}) {
    FaultyFileOps faults;
    faults.fail(call, 1, error_number, 1);
    {
      const ScopedFileOps scope(faults);
      EXPECT_FALSE(TemporaryFolder::create(file("x")));
    }
    FaultyFileOps again;
    again.fail(call, 1, error_number, 1);
    const ScopedFileOps scope(again);
    EXPECT_EQ(create_temporary_file(file("x")).has_value(), call == FileCall::kMkdir);
    remove_abandoned_temporaries(dir());
    EXPECT_TRUE(names().empty());
  }
}

TEST_F(TemporaryTest, AMissingFolderIsNamed) {
  const auto made = create_temporary_file(file("no/such/x"));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::kIo);
  EXPECT_EQ(made.error().message(), "cannot create '" + file("no/such/x") +
                                        "': there is no folder '" + file("no/such") + "'");
}

// Somebody took a folder that was made this moment for abandoned: the next name is tried.
TEST_F(TemporaryTest, AHolderWhoWasFasterIsLeftAlone) {
  FaultyFileOps faults;
  faults.fail(FileCall::kFlock, 1, EWOULDBLOCK, 1);
  const ScopedFileOps scope(faults);
  const auto folder = TemporaryFolder::create(file("x"));
  ASSERT_TRUE(folder);
  FaultyFileOps more;
  more.fail(FileCall::kFlock, 1, EWOULDBLOCK, 1);
  const ScopedFileOps inner(more);
  EXPECT_TRUE(create_temporary_file(file("y")));
}

// The same, before the folder could even be opened.
TEST_F(TemporaryTest, AFolderThatIsRemovedBeforeItIsLockedIsMadeAgain) {
  FaultyFileOps faults;
  faults.fail(FileCall::kOpen, 1, ENOENT, 1);
  {
    const ScopedFileOps scope(faults);
    const auto folder = TemporaryFolder::create(file("x"));
    ASSERT_TRUE(folder);
    EXPECT_TRUE(is_directory(folder->path()));
  }
  EXPECT_EQ(faults.calls(FileCall::kMkdir), 2);
  FaultyFileOps always;  // A folder that never stays is an error, not an endless loop.
  always.fail(FileCall::kOpen, 1, ENOENT);
  const ScopedFileOps scope(always);
  EXPECT_FALSE(TemporaryFolder::create(file("x")));
}

TEST_F(TemporaryTest, AFolderGetsItsName) {
  ASSERT_TRUE(create_directories(file("private")));
  ASSERT_EQ(chmod(file("private").c_str(), 0700), 0);
  for (const char* target : {"new", "private"}) {
    auto folder = TemporaryFolder::create(file(target));
    ASSERT_TRUE(folder);
    put(folder->path() + "/inside", "x");
    ASSERT_TRUE(folder->rename_to(file(target)));
    EXPECT_EQ(folder->path(), "");
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"new", "private"}));
  EXPECT_TRUE(path_exists(file("private/inside")));
  struct stat info = {};
  ASSERT_EQ(stat(file("private").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  // What cannot have the name goes; what has it stays, though its folder cannot be flushed.
  {
    auto folder = TemporaryFolder::create(file("x"));
    EXPECT_EQ(code_of(folder->rename_to(file("new"))), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"new", "private"}));
  FaultyFileOps faults;
  faults.fail(FileCall::kFsync, 1, EIO);
  {
    const ScopedFileOps scope(faults);
    auto folder = TemporaryFolder::create(file("y"));
    const Status renamed = folder->rename_to(file("y"));
    EXPECT_EQ(code_of(renamed), ErrorCode::kIo);
    EXPECT_NE(renamed.error().message().find("is complete and in its place"), std::string::npos);
  }
  EXPECT_TRUE(is_directory(file("y")));
}

TEST_F(TemporaryTest, AFolderMovesAndSaysWhatItCannotRemove) {
  auto a = TemporaryFolder::create(file("x"));
  auto b = TemporaryFolder::create(file("x"));
  ASSERT_TRUE(a && b);
  *a = *std::move(b);
  b = TemporaryFolder::create(file("z"));
  EXPECT_EQ(names().size(), 2u);  // The first of the three went with its owner.
  EXPECT_TRUE(is_directory(a->path()));
  std::string logged;
  set_log_callback([&](LogLevel, std::string_view message) { logged = message; });
  {
    FaultyFileOps faults;
    faults.fail(FileCall::kRmdir, 1, EACCES);
    const ScopedFileOps scope(faults);
    const auto stuck = TemporaryFolder::create(file("y"));
  }
  set_log_callback({});
  EXPECT_NE(logged.find("y.tmp-volta-"), std::string::npos) << logged;
}

}  // namespace
}  // namespace volta
