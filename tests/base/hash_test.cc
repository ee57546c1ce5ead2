#include "base/hash.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/memory.h"
#include "support/assert_ok.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

// Published by xxHash: XXH3 of nothing, and as `xxhsum -H3` prints "abc".
TEST(HashTest, EqualsKnownAnswers) {
  EXPECT_EQ(hex(hash64("")), "2d06800538d394c2");
  EXPECT_EQ(hex(hash64("abc")), "78af5f94892f3950");
  EXPECT_EQ(hash64(as_bytes("abc")), hash64("abc"));
}

TEST(HashTest, PiecesGiveTheSame) {
  const std::string text((size_t{70} << 20) + 3, 'x');
  std::vector<int64_t> told;
  const auto go_on = [&](int64_t done) {
    told.push_back(done);
    return true;
  };
  EXPECT_EQ(hash64(as_bytes(text), go_on), hash64(text));
  EXPECT_EQ(told, (std::vector<int64_t>{0, 32 << 20, 64 << 20}));
  EXPECT_EQ(hash64(as_bytes(text), [](int64_t done) { return done == 0; }), std::nullopt);
  EXPECT_EQ(hash64(as_bytes(""), [](int64_t) { return false; }), hash64(""));
}

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(HashTest, AFileIsReadWithLittleMemory) {
  const test::TempDir dir;
  const std::string path = dir.file("large");
  std::ofstream(path) << "abc";
  std::filesystem::resize_file(path, (int64_t{256} << 20) + 3);
  VOLTA_ASSERT_OK(const MappedFile file, MappedFile::open(path));
  const int64_t before = resident_bytes();
  int64_t most = 0;
  VOLTA_ASSERT_OK(const uint64_t hash, hash_file(file, [&](int64_t) {
                    most = std::max(most, resident_bytes() - before);
                    return true;
                  }));
  EXPECT_LT(std::max(most, resident_bytes() - before), int64_t{64} << 20);
  EXPECT_EQ(hash, hash64(file.bytes()));
  const auto stopped = hash_file(file, [](int64_t done) { return done < (64 << 20); });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), ErrorCode::kInterrupted);
  EXPECT_TRUE(stopped.error().message().contains(path)) << stopped.error().message();
  std::filesystem::resize_file(path, 4);
  const auto changed = hash_file(file, [](int64_t) { return true; });
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code(), ErrorCode::kInvalidFile);
}

// A sparse file in memory stays sparse: a mapped hole would take memory when it is touched.
TEST(HashTest, HolesOfAFileInMemoryStayHoles) {
  const std::string path = "/dev/shm/volta-hash-test-" + std::to_string(getpid());
  std::ofstream(path) << "abc";
  std::error_code refused;
  std::filesystem::resize_file(path, int64_t{8} << 20, refused);
  if (refused) GTEST_SKIP() << "/dev/shm: " << refused.message();
  const auto file = MappedFile::open(path);
  const auto hash = file ? hash_file(*file, [](int64_t) { return true; }) : Result<uint64_t>(0);
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  std::filesystem::remove(path);
  ASSERT_TRUE(file && hash);
  EXPECT_LT(info.st_blocks * 512, int64_t{1} << 20);
  EXPECT_EQ(*hash, hash64(file->bytes()));
}

TEST(HashTest, HexKeepsLeadingZeros) { EXPECT_EQ(hex(uint64_t{0xab}), "00000000000000ab"); }

}  // namespace
}  // namespace volta
