// The functions of base/file.h for paths, links and folders.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/file_fixture.h"
#include "support/file_faults.h"

namespace volta {
namespace {

using test::code_of;
using test::FaultyFileOps;
using test::FileCall;

class PathTest : public test::FileTest {};

TEST_F(PathTest, ListsSorted) {
  put("b", "");
  put("a", "");
  put(".hidden", "");
  ASSERT_TRUE(create_directories(file("c")));
  EXPECT_EQ(names(), (std::vector<std::string>{".hidden", "a", "b", "c"}));
  EXPECT_EQ(code_of(list_directory(file("none"))), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(list_directory(file("a"))), ErrorCode::kNotFound);
}

TEST_F(PathTest, CreatesFoldersWithParents) {
  ASSERT_TRUE(create_directories(file("a/b//c/")));
  EXPECT_TRUE(is_directory(file("a/b/c")));
  ASSERT_TRUE(create_directories(file("a/b/c")));
  put("f", "");
  EXPECT_EQ(code_of(create_directories(file("f"))), ErrorCode::kIo);
  EXPECT_FALSE(create_directories(file("f/g")));
  EXPECT_EQ(code_of(create_directories("")), ErrorCode::kInvalidArgument);
  std::string deep = file("deep");
  for (int i = 0; i < 60'000; ++i) deep += "/a";
  EXPECT_EQ(code_of(create_directories(deep)), ErrorCode::kIo);
  EXPECT_FALSE(path_exists(file("deep")));
  put("file", "");
  EXPECT_EQ(code_of(create_directories(file("file"))), ErrorCode::kIo);
  EXPECT_EQ(code_of(create_directories(file("file/x"))), ErrorCode::kIo);
  EXPECT_EQ(code_of(create_directories("/proc/volta")), ErrorCode::kIo);
  FaultyFileOps faults;
  faults.fail(FileCall::kMkdir, 1, EACCES);
  const ScopedFileOps scope(faults);
  EXPECT_EQ(code_of(create_directories(file("x/y"))), ErrorCode::kIo);
}

TEST_F(PathTest, ResolvesPaths) {
  ASSERT_TRUE(create_directories(file("deep/er")));
  put("t", "");
  ASSERT_EQ(symlink("deep/er", file("link").c_str()), 0);
  const std::string real = *real_path(dir());
  EXPECT_EQ(*real_path(file("link/../../t")), real + "/t");
  EXPECT_EQ(*real_path(file("link")), real + "/deep/er");
  EXPECT_EQ(code_of(real_path(file("none"))), ErrorCode::kNotFound);
  EXPECT_TRUE(is_link(file("link")));
  EXPECT_FALSE(is_link(file("deep")));
  EXPECT_FALSE(is_link(file("none")));
  EXPECT_EQ(*read_link(file("link")), std::filesystem::read_symlink(file("link")));
  EXPECT_EQ(read_link(file("none")).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(read_link(file("deep")).error().code(), ErrorCode::kIo);
  EXPECT_TRUE(is_mount_point("/proc"));
  EXPECT_FALSE(is_mount_point(file("link")));
}

TEST_F(PathTest, LooksAtPaths) {
  put("f", "");
  EXPECT_TRUE(path_exists(file("f")));
  EXPECT_TRUE(path_exists(dir()));
  EXPECT_FALSE(path_exists(file("none")));
  EXPECT_TRUE(is_directory(dir()));
  EXPECT_FALSE(is_directory(file("f")));
  EXPECT_FALSE(is_directory(file("none")));
}

TEST_F(PathTest, RemovesTreesButFollowsNoLinks) {
  ASSERT_TRUE(create_directories(file("keep")));
  put("keep/me", "safe");
  ASSERT_TRUE(create_directories(file("gone/deep/er")));
  put("gone/deep/x", "");
  ASSERT_EQ(symlink(file("keep").c_str(), file("gone/link").c_str()), 0);
  ASSERT_TRUE(remove_all(file("gone/")));
  EXPECT_EQ(names(), std::vector<std::string>{"keep"});
  EXPECT_EQ(get("keep/me"), "safe");
  ASSERT_TRUE(remove_all(file("keep/me")));
  ASSERT_TRUE(remove_all(file("keep/me")));  // Nothing there is fine.
  for (const std::string bad : {"", "/", "///", ".", "..", "a/..", "/tmp/."}) {
    EXPECT_EQ(code_of(remove_all(bad)), ErrorCode::kInvalidArgument) << bad;
  }
}

TEST_F(PathTest, RemovalFaultsAreReported) {
  ASSERT_TRUE(create_directories(file("d")));
  put("d/f", "");
  for (const FileCall call : {FileCall::kUnlink, FileCall::kRmdir}) {
    FaultyFileOps faults;
    faults.fail(call, 1, EACCES);
    const ScopedFileOps scope(faults);
    EXPECT_EQ(code_of(remove_all(file("d"))), ErrorCode::kIo);
  }
  put("f", "");
  EXPECT_EQ(code_of(remove_all(file("f/x"))), ErrorCode::kNotFound);
}

TEST_F(PathTest, PlacesAreComparedByWhatIsThere) {
  ASSERT_TRUE(create_directories(file("a/b")));
  put("a/b/c", "text");
  ASSERT_EQ(::symlink("a/b", file("link").c_str()), 0);
  EXPECT_TRUE(is_same_place(file("a/b"), file("a/../link/")));
  EXPECT_FALSE(is_same_place(file("a"), file("a/b")));
  EXPECT_FALSE(is_same_place(file("none"), file("none")));
  EXPECT_TRUE(is_inside(file("a/b/c"), file("a")));
  EXPECT_TRUE(is_inside(file("a/b/none"), file("link")));
  EXPECT_TRUE(is_inside(file("a"), file("a")));
  EXPECT_FALSE(is_inside(file("a"), file("a/b")));
  EXPECT_FALSE(is_inside("relative", file("a")));
}

TEST_F(PathTest, JoinsAndSplits) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a", ""), "a");
  EXPECT_EQ(join_path("a", "/b"), "/b");
  EXPECT_EQ(parent_path("a/b"), "a");
  EXPECT_EQ(parent_path("a//b/"), "a");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path(""), ".");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("/"), "/");
  EXPECT_EQ(file_name("a/b"), "b");
  EXPECT_EQ(file_name("b/"), "b");
  EXPECT_EQ(file_name("b"), "b");
  EXPECT_EQ(file_name("/"), "");
  EXPECT_EQ(file_name(""), "");
}

TEST_F(PathTest, APlainFileNameIsNoPath) {
  for (const std::string_view name : {"a", "a.safetensors", ".hidden", "...", "a b"}) {
    EXPECT_TRUE(is_plain_file_name(name)) << name;
  }
  EXPECT_TRUE(is_plain_file_name(std::string(255, 'a')));
  for (const std::string_view name : {"", ".", "..", "a/b", "/a", "..\\a"}) {
    EXPECT_FALSE(is_plain_file_name(name)) << name;
  }
  EXPECT_FALSE(is_plain_file_name(std::string(256, 'a')));
  EXPECT_FALSE(is_plain_file_name(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace volta
