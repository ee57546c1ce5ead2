// File mappings, and what becomes of them when other programs cut, change or replace the file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

namespace fs = std::filesystem;

TEST(MappedFileTest, MapsAWholeFile) {
  const test::TempDir dir;
  std::ofstream(dir.file("a")) << "some text";
  Result<MappedFile> file = MappedFile::open(dir.file("a"));
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->size(), 9);
  EXPECT_EQ(as_text(file->bytes()), "some text");
  MappedFile moved = *std::move(file);
  EXPECT_EQ(as_text(moved.bytes()), "some text");
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(as_text(assigned.bytes()), "some text");
}

TEST(MappedFileTest, WhatIsReleasedCanBeReadAgain) {
  const test::TempDir dir;
  const std::string text(40000, 'x');
  std::ofstream(dir.file("a")) << text;
  const Result<MappedFile> file = MappedFile::open(dir.file("a"));
  ASSERT_TRUE(file);
  for (const auto& [offset, length] :
       {std::pair<int64_t, int64_t>{0, 40000}, {5, 39000}, {4096, 4096}, {100, 20}, {40000, 0}}) {
    EXPECT_EQ(as_text(file->bytes()), text);
    file->release(offset, length);
    EXPECT_EQ(as_text(file->bytes()), text) << offset;
  }
}

TEST(MappedFileTest, SaysWhyNot) {
  const test::TempDir dir;
  EXPECT_EQ(MappedFile::open(dir.file("none")).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(MappedFile::open(dir.path()).error().code(), ErrorCode::kInvalidFile);
  EXPECT_EQ(MappedFile::open("/dev/null").error().code(), ErrorCode::kInvalidFile);
  std::ofstream(dir.file("empty")).flush();
  const Result<MappedFile> empty = MappedFile::open(dir.file("empty"));
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->bytes().empty());
}

class CutFile : public testing::Test {
 protected:
  void SetUp() override {
    install_mapping_guard();
    install_mapping_guard();  // Once is enough.
    write(3 * page() + 100);
  }
  static std::uintmax_t page() { return static_cast<std::uintmax_t>(sysconf(_SC_PAGESIZE)); }
  std::string path() const { return dir_.file("a"); }
  void write(std::uintmax_t bytes) const {
    std::ofstream(path(), std::ios::binary) << std::string(bytes, 'x');
  }
  static void expect_error(const Status& status, const std::string& what) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidFile);
    EXPECT_NE(status.error().message().find(what), std::string::npos) << status.error().message();
  }
  static std::ptrdiff_t count(const MappedFile& file, char c) {
    return std::ranges::count(as_text(file.bytes()), c);
  }

  test::TempDir dir_;
};

TEST_F(CutFile, ReadsAsZerosAndIsAnError) {
  const auto file = MappedFile::open(path());
  const auto other = MappedFile::open(path());
  ASSERT_TRUE(file && other);
  EXPECT_TRUE(file->check_unchanged());
  fs::resize_file(path(), page());
  EXPECT_EQ(count(*file, 'x'), static_cast<std::ptrdiff_t>(page()));
  EXPECT_EQ(count(*file, '\0'), static_cast<std::ptrdiff_t>(2 * page() + 100));
  expect_error(file->check_unchanged(), "was cut from");
  expect_error(other->check_unchanged(), "was cut from");  // Though nobody has read it.
  file->release(0, file->size());
  EXPECT_EQ(count(*file, 'x'), static_cast<std::ptrdiff_t>(page()));
  // Grown again to its size, it is still not what it was.
  fs::resize_file(path(), 3 * page() + 100);
  EXPECT_FALSE(file->check_unchanged());
  // The mappings that come after are not concerned.
  const auto again = MappedFile::open(path());
  EXPECT_EQ(count(*again, '\0'), static_cast<std::ptrdiff_t>(2 * page() + 100));
  EXPECT_TRUE(again->check_unchanged());
}

TEST_F(CutFile, IsReadByManyThreads) {
  const auto file = MappedFile::open(path());
  ASSERT_TRUE(file);
  fs::resize_file(path(), 0);
  std::vector<std::jthread> threads;
  std::vector<std::ptrdiff_t> zeros(8);
  for (std::ptrdiff_t& n : zeros) threads.emplace_back([&] { n = count(*file, '\0'); });
  threads.clear();
  for (const std::ptrdiff_t n : zeros) EXPECT_EQ(n, file->size());
  expect_error(file->check_unchanged(), "was cut from");
}

TEST_F(CutFile, ChangesAndReplacementsAreNoticed) {
  const auto file = MappedFile::open(path());
  ASSERT_TRUE(file);
  const auto unchanged = fs::last_write_time(path());
  {
    std::fstream change(path(), std::ios::in | std::ios::out | std::ios::binary);
    change.put('y');
  }
  fs::last_write_time(path(), unchanged + std::chrono::seconds(2));
  expect_error(file->check_unchanged(), "was changed");
  const auto second = MappedFile::open(path());
  std::ofstream(dir_.file("b")) << std::string(static_cast<std::size_t>(second->size()), 'z');
  fs::last_write_time(dir_.file("b"), fs::last_write_time(path()));
  fs::rename(dir_.file("b"), path());
  expect_error(second->check_unchanged(), "was changed");
  // What was only removed is whole as long as it is mapped.
  const auto third = MappedFile::open(path());
  fs::remove(path());
  EXPECT_TRUE(third->check_unchanged());
  EXPECT_EQ(count(*third, 'z'), third->size());
  EXPECT_TRUE(MappedFile().check_unchanged());
}

// More mappings than the guard has room for: the rest works, too.
TEST_F(CutFile, ManyMappingsAreFine) {
  std::vector<MappedFile> files;
  for (int i = 0; i < 9000; ++i) {
    auto file = MappedFile::open(path());
    ASSERT_TRUE(file) << file.error().message();
    files.push_back(*std::move(file));
  }
  EXPECT_EQ(count(files.back(), 'x'), files.back().size());
  files.clear();
  const auto file = MappedFile::open(path());
  fs::resize_file(path(), 0);
  EXPECT_EQ(count(*file, '\0'), file->size());
}

using CutFileDeathTest = CutFile;

// A mapping that is not ours, cut behind its owner's back.
[[noreturn]] void fault(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR);
  void* const data = mmap(nullptr, 100, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED || ftruncate(fd, 0) != 0) std::_Exit(10);
  std::_Exit(*static_cast<volatile char*>(data) == 0 ? 11 : 12);
}

// By the signal, or (with a sanitizer, which has a handler of its own) with a report and exit code
// 1, or ThreadSanitizer's 66.
bool died(int status) {
  return WIFSIGNALED(status) || WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 66;
}

TEST_F(CutFileDeathTest, OtherFaultsEndTheProcessAsEver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fault(path()), died, "");
}

TEST_F(CutFileDeathTest, ASignalThatWasSentIsNoFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        raise(SIGBUS);
        std::_Exit(0);
      },
      died, "");
}

}  // namespace
}  // namespace volta
