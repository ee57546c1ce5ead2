#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_fixture.h"
#include "base/log.h"
#include "base/temporary.h"
#include "support/file_faults.h"

namespace volta {
namespace {

using test::code_of;
using test::FaultyFileOps;
using test::FileCall;
using test::FileTest;

TEST_F(FileTest, WhatCannotBeReadSaysWhy) {
  std::filesystem::create_symlink("loop", file("loop"));
  EXPECT_EQ(code_of(read_text_file(file("loop"))), ErrorCode::kInvalidFile);
  EXPECT_NE(get("loop").find("remove it"), std::string::npos);
  EXPECT_EQ(code_of(write_file_atomic(file("loop/new"), "text")), ErrorCode::kIo);
  EXPECT_EQ(code_of(read_text_file(file(std::string(300, 'a')))), ErrorCode::kNotFound);
  // The system claims that it is empty.
  const auto status = read_text_file("/proc/self/status");
  EXPECT_EQ(code_of(status), ErrorCode::kInvalidFile);
  EXPECT_NE(status.error().message().find("name the copy"), std::string::npos);
  put("empty", "");
  EXPECT_EQ(get("empty"), "");
}

TEST_F(FileTest, ReadsWholeFiles) {
  put("a", std::string("one\0two", 7));
  EXPECT_EQ(get("a"), std::string("one\0two", 7));
  const Result<HeapArray<std::byte>> bytes = read_binary_file(file("a"));
  ASSERT_TRUE(bytes);
  EXPECT_EQ(as_text(bytes->span()), std::string_view("one\0two", 7));
  put("empty", "");
  EXPECT_EQ(get("empty"), "");
  EXPECT_TRUE(read_binary_file(file("empty"))->empty());
  EXPECT_EQ(*file_size(file("a")), 7);
}

TEST_F(FileTest, ReadingSaysWhyNot) {
  put("a", "12345");
  EXPECT_EQ(code_of(read_text_file(file("none"))), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(read_text_file(file("a/b"))), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(read_text_file(dir())), ErrorCode::kInvalidFile);
  EXPECT_EQ(code_of(read_binary_file("/dev/zero")), ErrorCode::kInvalidFile);
  EXPECT_EQ(code_of(read_text_file(file("a"), 4)), ErrorCode::kInvalidFile);
  EXPECT_EQ(code_of(read_binary_file(file("a"), 4)), ErrorCode::kInvalidFile);
  EXPECT_TRUE(read_text_file(file("a"), 5));
  put("large", std::string((size_t{32} << 20) + 1, 'x'));
  for (const int after : {0, 1, 2}) {
    int asked = 0;
    EXPECT_EQ(code_of(read_text_file(file("large"), 1 << 26, [&] { return asked++ == after; })),
              ErrorCode::kInterrupted);
  }
  const auto large = read_text_file(file("large"), 1 << 26, [] { return false; });
  ASSERT_TRUE(large);
  EXPECT_EQ(*large, std::string((size_t{32} << 20) + 1, 'x'));
  EXPECT_EQ(code_of(file_size(file("none"))), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(file_size(dir())), ErrorCode::kInvalidFile);
  // A pipe without a writer must be refused, not waited for.
  ASSERT_EQ(mkfifo(file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(code_of(read_text_file(file("pipe"))), ErrorCode::kInvalidFile);
}

TEST_F(FileTest, FilesLargerThanMemoryAreRefused) {
  std::ofstream(file("sparse")).flush();
  std::error_code error;
  std::filesystem::resize_file(file("sparse"), uintmax_t{1} << 43, error);
  if (error) GTEST_SKIP() << "this file system has no sparse files of 8 TiB";
  EXPECT_EQ(code_of(read_text_file(file("sparse"), int64_t{1} << 50)), ErrorCode::kOutOfMemory);
  EXPECT_EQ(code_of(read_binary_file(file("sparse"), int64_t{1} << 50)), ErrorCode::kOutOfMemory);
}

TEST_F(FileTest, ReadFaultsAreReported) {
  put("a", "12345");
  for (const auto& [call, error_number] :
       {std::pair{FileCall::kOpen, EACCES}, {FileCall::kRead, EIO}}) {
    FaultyFileOps faults;
    faults.fail(call, 1, error_number);
    const ScopedFileOps scope(faults);
    EXPECT_EQ(code_of(read_text_file(file("a"))), ErrorCode::kIo);
    EXPECT_EQ(code_of(read_binary_file(file("a"))), ErrorCode::kIo);
  }
  FaultyFileOps shrinking;
  shrinking.end_reads_early();
  const ScopedFileOps scope(shrinking);
  EXPECT_EQ(code_of(read_text_file(file("a"))), ErrorCode::kIo);
}

TEST_F(FileTest, InterruptedAndPartialTransfersAreContinued) {
  FaultyFileOps faults;
  faults.limit_transfers(2);
  faults.fail(FileCall::kOpen, 1, EINTR, 1);
  faults.fail(FileCall::kWrite, 2, EINTR, 3);
  faults.fail(FileCall::kRead, 2, EINTR, 1);
  faults.fail(FileCall::kFsync, 1, EINTR, 1);
  const ScopedFileOps scope(faults);
  ASSERT_TRUE(write_file_atomic(file("a"), "hello world"));
  EXPECT_EQ(get("a"), "hello world");
  EXPECT_EQ(faults.calls(FileCall::kWrite), 6 + 3);
}

TEST_F(FileTest, AtomicWriteReplaces) {
  ASSERT_TRUE(write_file_atomic(file("a"), "first"));
  ASSERT_TRUE(write_file_atomic(file("a"), as_bytes("second")));
  EXPECT_EQ(get("a"), "second");
  ASSERT_TRUE(write_file_atomic(file("empty"), ""));
  EXPECT_EQ(names(), (std::vector<std::string>{"a", "empty"}));
}

TEST_F(FileTest, SettingAsideTakesTheFirstFreeName) {
  std::filesystem::create_symlink("nowhere", file("a.old.2"));
  for (const char* expected : {"a.old", "a.old.3", "a.old.4"}) {
    put("a", expected);
    EXPECT_EQ(*set_aside(file("a"), ".old"), file(expected));
    EXPECT_EQ(get(expected), expected);
  }
  EXPECT_TRUE(is_link(file("a.old.2")));
  EXPECT_FALSE(set_aside(file("a"), ".old"));
}

TEST_F(FileTest, AFailedAtomicWriteLeavesTheOldFileAndNothingElse) {
  put("a", "old");
  const std::pair<FileCall, int> kFaults[] = {
      {FileCall::kOpen, EROFS},   {FileCall::kWrite, ENOSPC},  {FileCall::kFsync, EIO},
      {FileCall::kClose, EDQUOT}, {FileCall::kRename, EACCES},
  };
  for (const auto& [call, error_number] : kFaults) {
    FaultyFileOps faults;
    faults.fail(call, 1, error_number);
    {
      const ScopedFileOps scope(faults);
      EXPECT_EQ(code_of(write_file_atomic(file("a"), "new")), ErrorCode::kIo);
    }
    EXPECT_EQ(get("a"), "old") << static_cast<int>(call);
    EXPECT_EQ(names(), std::vector<std::string>{"a"}) << static_cast<int>(call);
  }
  FaultyFileOps stuck;  // A write that makes no progress must not loop for ever.
  stuck.limit_transfers(0);
  const ScopedFileOps scope(stuck);
  EXPECT_EQ(code_of(write_file_atomic(file("a"), "new")), ErrorCode::kIo);
}

// The ways to rename without replacing, on file systems that have them or not.
TEST_F(FileTest, AFileThatAppearedMeanwhileStays) {
  for (const int without : {0, 1, 2}) {
    FaultyFileOps faults;
    if (without > 0) faults.fail(FileCall::kRenameNew, 1, EINVAL);
    if (without > 1) faults.fail(FileCall::kLink, 1, EPERM);
    const ScopedFileOps scope(faults);
    put("mine", "mine");
    const Status kept = write_file_atomic(file("mine"), "new", Existing::kKeep);
    EXPECT_EQ(code_of(kept), ErrorCode::kInvalidArgument) << without;
    EXPECT_NE(kept.error().message().find("was made by another program"), std::string::npos);
    EXPECT_EQ(get("mine"), "mine") << without;
    ASSERT_TRUE(write_file_atomic(file("free"), "new", Existing::kKeep)) << without;
    EXPECT_EQ(get("free"), "new") << without;
    EXPECT_EQ(names(), (std::vector<std::string>{"free", "mine"})) << without;
    ASSERT_TRUE(remove_all(file("free")));
  }
  FaultyFileOps faults;  // Other errors are no reason to try another way.
  faults.fail(FileCall::kRenameNew, 1, EACCES);
  const ScopedFileOps scope(faults);
  EXPECT_EQ(code_of(write_file_atomic(file("free"), "new", Existing::kKeep)), ErrorCode::kIo);
  EXPECT_EQ(names(), std::vector<std::string>{"mine"});
}

TEST_F(FileTest, AtomicWriteNeedsItsFolder) {
  EXPECT_EQ(code_of(write_file_atomic(file("no/such/dir"), "x")), ErrorCode::kIo);
  put("a", "");
  EXPECT_EQ(code_of(write_file_atomic(file("a/x"), "x")), ErrorCode::kIo);
}

TEST_F(FileTest, OnlyFilesAreReplaced) {
  put("keep", "kept");
  ASSERT_EQ(symlink(file("keep").c_str(), file("link").c_str()), 0);
  ASSERT_EQ(mkfifo(file("pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(file("folder"));
  EXPECT_TRUE(check_replaceable(file("keep")));
  EXPECT_TRUE(check_replaceable(file("new")));
  for (const auto& [name, what] : {std::pair{"link", "is a symbolic link"},
                                   {"pipe", "is a device or pipe"},
                                   {"folder", "is a folder"}}) {
    const Status written = write_file_atomic(file(name), "x");
    EXPECT_EQ(code_of(written), ErrorCode::kIo) << name;
    EXPECT_NE(written.error().message().find(what), std::string::npos) << name;
    EXPECT_EQ(code_of(FileWriter::open_temporary(file(name))), ErrorCode::kIo) << name;
  }
  EXPECT_EQ(get("keep"), "kept");
  EXPECT_EQ(names(), (std::vector<std::string>{"folder", "keep", "link", "pipe"}));
}

TEST_F(FileTest, AFullDiskNamesTheRemedy) {
  FaultyFileOps faults;
  faults.fail(FileCall::kWrite, 1, ENOSPC);
  const ScopedFileOps scope(faults);
  EXPECT_NE(write_file_atomic(file("a"), "new").error().message().find("free some space"),
            std::string::npos);
}

TEST_F(FileTest, FaultsStayOnTheirThread) {
  FaultyFileOps faults;
  faults.fail(FileCall::kOpen, 1, EIO);
  const ScopedFileOps scope(faults);
  EXPECT_FALSE(write_file_atomic(file("a"), "x"));
  Status other;
  std::jthread([&] { other = write_file_atomic(file("a"), "x"); }).join();
  EXPECT_TRUE(other);
}

TEST_F(FileTest, WriterCreatesAndAppends) {
  {
    FileWriter writer = *FileWriter::open(file("a"), FileWriter::Mode::kCreate);
    ASSERT_TRUE(writer.write("one "));
    EXPECT_EQ(get("a"), "");  // Still in the buffer.
    ASSERT_TRUE(writer.flush());
    EXPECT_EQ(get("a"), "one ");
    ASSERT_TRUE(writer.write(as_bytes("two ")));
    ASSERT_TRUE(writer.sync());
    EXPECT_EQ(writer.size(), 8);
    EXPECT_EQ(writer.path(), file("a"));
    ASSERT_TRUE(writer.close());
    EXPECT_EQ(code_of(writer.write("late")), ErrorCode::kIo);
    EXPECT_EQ(code_of(writer.close()), ErrorCode::kIo);
  }
  FileWriter appender = *FileWriter::open(file("a"), FileWriter::Mode::kAppend);
  EXPECT_EQ(appender.size(), 8);
  ASSERT_TRUE(appender.write("three"));
  ASSERT_TRUE(appender.close());
  EXPECT_EQ(get("a"), "one two three");
  ASSERT_TRUE(FileWriter::open(file("a"), FileWriter::Mode::kCreate)->close());
  EXPECT_EQ(get("a"), "");
}

TEST_F(FileTest, WriterHandlesAnySizes) {
  std::string expected;
  FileWriter writer = *FileWriter::open(file("a"), FileWriter::Mode::kCreate);
  for (const size_t size : {1u, 100'000u, 200'000u, 1'000'000u, 0u, 262'144u, 5u}) {
    const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
    ASSERT_TRUE(writer.write(piece));
    expected += piece;
  }
  EXPECT_EQ(writer.size(), static_cast<int64_t>(expected.size()));
  ASSERT_TRUE(writer.close());
  EXPECT_EQ(get("a"), expected);
}

TEST_F(FileTest, WriterMoves) {
  FileWriter a = *FileWriter::open(file("a"), FileWriter::Mode::kCreate);
  ASSERT_TRUE(a.write("to a"));
  FileWriter b = std::move(a);
  FileWriter c = *FileWriter::open(file("c"), FileWriter::Mode::kCreate);
  c = std::move(b);
  ASSERT_TRUE(c.write("!"));
  ASSERT_TRUE(c.close());
  EXPECT_EQ(get("a"), "to a!");
}

TEST_F(FileTest, WriterStopsAtItsFirstError) {
  {
    FaultyFileOps faults;
    faults.fail(FileCall::kFtruncate, 1, EIO);
    const ScopedFileOps scope(faults);
    EXPECT_EQ(code_of(FileWriter::open(file("a"), FileWriter::Mode::kCreate)), ErrorCode::kIo);
  }
  for (const FileCall call : {FileCall::kWrite, FileCall::kFsync, FileCall::kClose}) {
    FaultyFileOps faults;
    FileWriter writer = *FileWriter::open(file("a"), FileWriter::Mode::kCreate);
    faults.fail(call, 1, ENOSPC);
    const ScopedFileOps scope(faults);
    ASSERT_TRUE(writer.write("text"));
    EXPECT_EQ(code_of(call == FileCall::kClose ? writer.close() : writer.sync()), ErrorCode::kIo);
    EXPECT_NE(writer.write("more").error().message().find("failed before"), std::string::npos);
  }
  FaultyFileOps faults;
  FileWriter writer = *FileWriter::open(file("a"), FileWriter::Mode::kCreate);
  faults.fail(FileCall::kWrite, 1, ENOSPC);
  const ScopedFileOps scope(faults);
  EXPECT_EQ(code_of(writer.write(std::string(1'000'000, 'x'))), ErrorCode::kIo);
  EXPECT_EQ(code_of(writer.flush()), ErrorCode::kIo);
}

// A large file goes to the disk while it is written, so that little is left for the last fsync.
TEST_F(FileTest, WriterGivesTheDiskAPieceAtATime) {
  constexpr size_t kPiece = size_t{16} << 20;
  const std::string half(kPiece / 2, 'x');
  const auto write_halves = [&](FaultyFileOps& faults, int count) -> Status {
    const ScopedFileOps scope(faults);
    VOLTA_TRY(FileWriter writer, FileWriter::open(file("a"), FileWriter::Mode::kCreate));
    for (int i = 0; i < count; ++i) VOLTA_TRY(writer.write(half));
    VOLTA_TRY(writer.write(half + half + "end"));  // Pieces need not be what the caller writes.
    VOLTA_TRY(writer.sync());
    return writer.close();
  };
  FaultyFileOps counting;
  ASSERT_TRUE(write_halves(counting, 3));
  EXPECT_EQ(get("a").size(), 5 * half.size() + 3);
  // Two whole pieces were begun, and the first one was awaited when the second had begun.
  EXPECT_EQ(counting.calls(FileCall::kSyncRange), 3);
  for (int first = 1; first <= 3; ++first) {
    FaultyFileOps full;  // What a disk reports there it does not report again at the end.
    full.fail(FileCall::kSyncRange, first, ENOSPC, 1);
    EXPECT_EQ(code_of(write_halves(full, 3)), ErrorCode::kIo) << first;
  }
  for (const int unable : {EINVAL, ENOSYS, ESPIPE, EOPNOTSUPP}) {
    FaultyFileOps faults;
    faults.fail(FileCall::kSyncRange, 1, unable);
    EXPECT_TRUE(write_halves(faults, 3)) << unable;
    EXPECT_EQ(faults.calls(FileCall::kFsync), 1);
  }
}

TEST_F(FileTest, WriterReportsWhatADestructorCannotSay) {
  std::string logged;
  set_log_callback([&](LogLevel, std::string_view message) { logged = message; });
  {
    ASSERT_TRUE(FileWriter::open(file("a"), FileWriter::Mode::kCreate)->write("kept"));
  }
  EXPECT_EQ(get("a"), "kept");
  EXPECT_EQ(logged, "");
  FaultyFileOps faults;
  faults.fail(FileCall::kWrite, 1, ENOSPC);
  const ScopedFileOps scope(faults);
  {
    ASSERT_TRUE(FileWriter::open(file("a"), FileWriter::Mode::kAppend)->write("lost"));
  }
  EXPECT_NE(logged.find(file("a")), std::string::npos);
  set_log_callback({});
}

TEST_F(FileTest, WriterNeedsItsFolder) {
  EXPECT_EQ(code_of(FileWriter::open(file("no/a"), FileWriter::Mode::kCreate)), ErrorCode::kIo);
  EXPECT_EQ(code_of(FileWriter::open(dir(), FileWriter::Mode::kCreate)), ErrorCode::kInvalidFile);
}

// Neither emptied nor appended to nor cut: what a link or a second name leads to is not ours.
TEST_F(FileTest, NothingIsWrittenThroughALink) {
  put("thesis", "years of work");
  ASSERT_EQ(symlink(file("thesis").c_str(), file("link").c_str()), 0);
  ASSERT_EQ(symlink(file("nothing").c_str(), file("dangling").c_str()), 0);
  ASSERT_EQ(link(file("thesis").c_str(), file("second").c_str()), 0);
  ASSERT_EQ(mkfifo(file("pipe").c_str(), 0600), 0);
  const int reader = open(file("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  for (const auto& [name, what] : {std::pair{"link", "it is a symbolic link"},
                                   {"dangling", "it is a symbolic link"},
                                   {"second", "it has a second name"},
                                   {"pipe", "it is not a regular file"}}) {
    for (const auto mode : {FileWriter::Mode::kCreate, FileWriter::Mode::kAppend}) {
      const auto opened = FileWriter::open(file(name), mode);
      ASSERT_FALSE(opened) << name;
      EXPECT_EQ(opened.error().code(), ErrorCode::kInvalidFile) << name;
      EXPECT_NE(opened.error().message().find(what), std::string::npos) << opened.error().message();
    }
  }
  close(reader);
  EXPECT_EQ(code_of(truncate_file(file("link"), 0)), ErrorCode::kInvalidFile);
  EXPECT_EQ(get("thesis"), "years of work");
  EXPECT_FALSE(path_exists(file("nothing")));
}

TEST_F(FileTest, AFileThatIsMountedByItselfIsNotReplaced) {
  // Containers mount this one.
  const Status replaceable = check_replaceable("/etc/hosts");
  if (replaceable) GTEST_SKIP() << "nothing is mounted at /etc/hosts";
  EXPECT_EQ(replaceable.error().code(), ErrorCode::kIo);
  EXPECT_NE(replaceable.error().message().find("mounted by itself"), std::string::npos);
}

// A failure to flush the folder comes after the rename: the file is whole.
TEST_F(FileTest, AnErrorAfterTheRenameSaysThatTheFileIsInPlace) {
  FaultyFileOps faults;
  faults.fail(FileCall::kFsync, 2, EIO);
  const ScopedFileOps scope(faults);
  const Status written = write_file_atomic(file("a"), "new");
  EXPECT_EQ(code_of(written), ErrorCode::kIo);
  EXPECT_NE(written.error().message().find("a' is complete and in its place"), std::string::npos);
  EXPECT_EQ(get("a"), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

// Parts of a temporary and the mark of a replacement are removed after such a failure.
TEST_F(FileTest, NothingIsSaidToBeInPlaceThatIsRemoved) {
  const auto folder = TemporaryFolder::create(file("model"));
  ASSERT_TRUE(folder);
  for (const std::string& path :
       {folder->path() + "/config.json", file(std::string(kReplacedMark))}) {
    FaultyFileOps faults;
    faults.fail(FileCall::kFsync, 2, EIO);
    const ScopedFileOps scope(faults);
    const Status written = write_file_atomic(path, "new");
    EXPECT_EQ(code_of(written), ErrorCode::kIo);
    EXPECT_EQ(written.error().message().find("in its place"), std::string::npos)
        << written.error().message();
  }
}

TEST_F(FileTest, Truncates) {
  put("a", "12345");
  ASSERT_TRUE(truncate_file(file("a"), 3));
  EXPECT_EQ(get("a"), "123");
  EXPECT_EQ(code_of(truncate_file(file("a"), 4)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(truncate_file(file("a"), -1)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(truncate_file(file("none"), 0)), ErrorCode::kNotFound);
  for (const FileCall call :
       {FileCall::kOpen, FileCall::kFtruncate, FileCall::kFsync, FileCall::kClose}) {
    FaultyFileOps faults;
    faults.fail(call, 1, EIO);
    const ScopedFileOps scope(faults);
    EXPECT_EQ(code_of(truncate_file(file("a"), 1)), ErrorCode::kIo);
  }
}

TEST_F(FileTest, RenamesAndSyncsFolders) {
  ASSERT_TRUE(create_directories(file("x")));
  ASSERT_TRUE(rename_path(file("x"), file("y")));
  EXPECT_EQ(names(), std::vector<std::string>{"y"});
  EXPECT_EQ(code_of(rename_path(file("none"), file("z"))), ErrorCode::kIo);
  EXPECT_TRUE(fsync_directory(dir()));
  EXPECT_EQ(code_of(fsync_directory(file("none"))), ErrorCode::kNotFound);
  put("a", "");
  EXPECT_EQ(code_of(fsync_directory(file("a"))), ErrorCode::kNotFound);
  FaultyFileOps faults;
  faults.fail(FileCall::kFsync, 1, EIO);
  const ScopedFileOps scope(faults);
  EXPECT_EQ(code_of(fsync_directory(dir())), ErrorCode::kIo);
}

TEST_F(FileTest, FreeBytesAreThoseOfTheFileSystem) {
  class Small final : public FileOps {
    int statvfs(const std::string&, struct statvfs& info) override {
      info.f_bavail = 3;
      info.f_frsize = 512;
      return 0;
    }
  };
  const Result<int64_t> here = free_bytes(dir());
  ASSERT_TRUE(here);
  EXPECT_GT(*here, 0);
  EXPECT_EQ(code_of(free_bytes(file("none"))), ErrorCode::kNotFound);
  Small small;
  const ScopedFileOps scope(small);
  EXPECT_EQ(*free_bytes(dir()), 1536);
}

TEST_F(FileTest, DroppingCachedPagesChangesNothing) {
  put("a", "text");
  EXPECT_TRUE(drop_cached_pages(file("a")));
  EXPECT_EQ(get("a"), "text");
  EXPECT_EQ(code_of(drop_cached_pages(file("none"))), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace volta
