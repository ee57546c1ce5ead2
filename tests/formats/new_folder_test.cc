// The place of a new folder: what is refused, and that looking leaves nothing behind.
#include "formats/new_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

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

class NewFolderTest : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return dir_.file(name); }
  static void fill(const NewFolder& folder) {
    for (const char* name : {"config.json", "model.safetensors", "vocab.txt"}) {
      ASSERT_TRUE(write_file_atomic(join_path(folder.path(), name), name));
    }
  }
  static std::vector<std::string> names(const std::string& path) { return *list_directory(path); }
  const std::vector<std::string> whole_ = {"config.json", "model.safetensors", "vocab.txt"};

  test::TempDir dir_;
};

TEST_F(NewFolderTest, TakesItsNameOrLeavesNothing) {
  {
    auto folder = NewFolder::create(file("a/new"));
    ASSERT_TRUE(folder);
    fill(*folder);
    ASSERT_TRUE(folder->publish());
  }
  EXPECT_EQ(names(file("a/new")), whole_);
  {
    auto folder = NewFolder::create(file("a/other"));
    ASSERT_TRUE(folder);
    fill(*folder);
  }
  EXPECT_EQ(names(file("a")), std::vector<std::string>{"new"});
}

TEST_F(NewFolderTest, ALinkToAnEmptyFolderStandsForIt) {
  std::filesystem::create_directories(file("real/empty"));
  std::filesystem::create_directory_symlink("real/empty", file("link"));
  auto folder = NewFolder::create(file("link"));
  ASSERT_TRUE(folder) << folder.error().message();
  fill(*folder);
  ASSERT_TRUE(folder->publish());
  EXPECT_TRUE(is_link(file("link")));
  EXPECT_EQ(names(file("real/empty")), whole_);
  EXPECT_EQ(names(file("real")), std::vector<std::string>{"empty"});
  EXPECT_EQ(names(dir_.path()), (std::vector<std::string>{"link", "real"}));
  std::filesystem::create_directory_symlink("nowhere", file("dangling"));
  const auto refused = NewFolder::create(file("dangling"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kIo);
}

// A mount point cannot be renamed over (EBUSY), a parent that belongs to others not be written.
TEST_F(NewFolderTest, AFolderThatCannotBeReplacedIsFilled) {
  for (const auto& [call, error_number] :
       {std::pair{test::FileCall::kRename, EBUSY}, {test::FileCall::kMkdir, EACCES}}) {
    std::filesystem::remove_all(file("out"));
    std::filesystem::create_directory(file("out"));
    test::FaultyFileOps faults;
    faults.fail(call, 1, error_number, 1);
    const ScopedFileOps scope(faults);
    auto folder = NewFolder::create(file("out"));
    ASSERT_TRUE(folder) << folder.error().message();
    EXPECT_EQ(parent_path(folder->path()), file("out"));
    fill(*folder);
    ASSERT_TRUE(folder->publish());
    folder = std::unexpected(Error(ErrorCode::kIo, "gone"));
    EXPECT_EQ(names(file("out")), whole_);
    EXPECT_EQ(names(dir_.path()), std::vector<std::string>{"out"});
  }
}

TEST_F(NewFolderTest, AFolderThatCannotBeFilledStaysEmpty) {
  using Call = test::FileCall;
  // Each of the three renames, the flush before config.json, and none of fill()'s six flushes.
  for (const auto& [call, failing] : {std::pair{Call::kRenameNew, 1},
                                      {Call::kRenameNew, 2},
                                      {Call::kRenameNew, 3},
                                      {Call::kFsync, 7}}) {
    std::filesystem::remove_all(file("out"));
    std::filesystem::create_directory(file("out"));
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kRename, 1, EBUSY, 1);
    const ScopedFileOps scope(faults);
    {
      auto folder = NewFolder::create(file("out"));
      ASSERT_TRUE(folder);
      fill(*folder);
      faults.fail(call, failing, EIO, 1);
      const Status published = folder->publish();
      ASSERT_FALSE(published) << failing;
      EXPECT_EQ(published.error().code(), ErrorCode::kIo);
      EXPECT_EQ(published.error().message().find("in its place"), std::string::npos);
    }
    EXPECT_TRUE(names(file("out")).empty()) << failing;
  }
  // Nor is anything replaced that came meanwhile.
  test::FaultyFileOps faults;
  faults.fail(test::FileCall::kRename, 1, EBUSY, 1);
  const ScopedFileOps scope(faults);
  {
    auto folder = NewFolder::create(file("out"));
    ASSERT_TRUE(folder);
    fill(*folder);
    ASSERT_TRUE(write_file_atomic(file("out/vocab.txt"), "somebody's"));
    EXPECT_FALSE(folder->publish());
  }
  EXPECT_EQ(names(file("out")), std::vector<std::string>{"vocab.txt"});
  EXPECT_EQ(*read_text_file(file("out/vocab.txt")), "somebody's");
}

// Where the command was started in the empty folder, the folder keeps its place.
TEST_F(NewFolderTest, TheCurrentFolderIsFilledWhereItIs) {
  struct WorkingFolder {
    explicit WorkingFolder(const std::string& path) { std::filesystem::current_path(path); }
    ~WorkingFolder() { std::filesystem::current_path(before); }
    std::filesystem::path before = std::filesystem::current_path();
  };
  std::filesystem::create_directory(file("here"));
  struct stat old = {}, now = {};
  ASSERT_EQ(::stat(file("here").c_str(), &old), 0);
  {
    const WorkingFolder here(file("here"));
    EXPECT_TRUE(check_new_folder(file("here")));
    auto folder = NewFolder::create(".");
    ASSERT_TRUE(folder) << folder.error().message();
    fill(*folder);
    EXPECT_TRUE(folder->publish());
    folder = std::unexpected(Error(ErrorCode::kIo, "gone"));
    EXPECT_EQ(names("."), whole_);
  }
  EXPECT_EQ(::stat(file("here").c_str(), &now), 0);
  EXPECT_EQ(now.st_ino, old.st_ino);
  // Whoever stands in a folder that is gone can still name an empty one.
  std::filesystem::create_directories(file("gone"));
  std::filesystem::create_directories(file("empty"));
  const WorkingFolder gone(file("gone"));
  std::filesystem::remove(file("gone"));
  EXPECT_TRUE(check_new_folder(file("empty")));
}

// Of several commands that make one folder at the same time, one succeeds, and the others say why
// they do not.
TEST_F(NewFolderTest, OneOfSeveralSucceeds) {
  for (const bool replace : {false, true}) {
    auto first = NewFolder::create(file("out"), replace);
    ASSERT_TRUE(first) << first.error().message();
    fill(*first);
    auto second = NewFolder::create(file("out"), replace);
    ASSERT_EQ(second.has_value(), !replace);
    if (replace) {
      EXPECT_EQ(second.error().code(), ErrorCode::kIo);
      EXPECT_NE(second.error().message().find("another command is replacing"), std::string::npos);
    }
    EXPECT_TRUE(first->publish());
    if (replace) continue;
    fill(*second);
    const Status published = second->publish();
    ASSERT_FALSE(published);
    EXPECT_EQ(published.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(published.error().message().find("by another program meanwhile"), std::string::npos);
  }
  EXPECT_EQ(names(file("out")), whole_);
}

// With `replace` the model gives way as a whole, what is not of it stays, and settings that the
// new model lacks are set aside.
TEST_F(NewFolderTest, AModelIsReplacedWhereThatIsAllowed) {
  std::filesystem::create_directories(file("real"));
  std::filesystem::create_directory_symlink("real", file("link"));
  for (const char* name : {"config.json", "notes.txt", "chat_template.jinja"}) {
    ASSERT_TRUE(write_file_atomic(file(std::string("real/") + name), "old"));
  }
  for (const char* path : {"real", "real/", "link"}) {
    const Status refused = check_new_folder(file(path));
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message().find("use --force"), std::string::npos);
    EXPECT_TRUE(check_new_folder(file(path), true)) << path;
  }
  {
    auto dropped = NewFolder::create(file("link"), true);
    ASSERT_TRUE(dropped) << dropped.error().message();
    fill(*dropped);
  }
  EXPECT_EQ(names(file("real")).size(), 3u);
  EXPECT_EQ(*read_text_file(file("real/config.json")), "old");
  auto folder = NewFolder::create(file("link"), true);
  ASSERT_TRUE(folder) << folder.error().message();
  fill(*folder);
  ASSERT_TRUE(folder->publish());
  EXPECT_EQ(names(file("real")),
            (std::vector<std::string>{"chat_template.jinja.old", "config.json", "model.safetensors",
                                      "notes.txt", "vocab.txt"}));
  EXPECT_EQ(*read_text_file(file("real/config.json")), "config.json");
  EXPECT_EQ(*read_text_file(file("real/notes.txt")), "old");
  EXPECT_TRUE(is_link(file("link")));
  EXPECT_EQ(names(dir_.path()), (std::vector<std::string>{"link", "real"}));
  // The shards of an index would stay beside the new weights.
  ASSERT_TRUE(write_file_atomic(file("real/model.safetensors.index.json"), "{}"));
  EXPECT_FALSE(check_new_folder(file("real"), true));
}

// What create() would remove or rename is never what the command reads.
TEST_F(NewFolderTest, WhatAKilledOneLeftIsNotReadBySuchACommand) {
  const auto code_of = [&](const std::string& from, const std::string& to) {
    const Status checked = check_source_stays(file(from), file(to));
    return checked ? ErrorCode::kInternal : checked.error().code();
  };
  std::filesystem::create_directories(file("out.replaced/sub"));
  EXPECT_EQ(code_of("out.replaced", "out"), ErrorCode::kInternal);  // Somebody's own folder.
  ASSERT_TRUE(write_file_atomic(file("out.replaced/.volta-replaced"), "mark"));
  std::filesystem::create_directory_symlink("out.replaced", file("source"));
  std::filesystem::create_directories(file("real"));
  std::filesystem::create_directory_symlink("real", file("link"));
  for (const char* from : {"out.replaced", "out.replaced/sub", "source", "./source/sub/"}) {
    EXPECT_EQ(code_of(from, "out"), ErrorCode::kInvalidArgument) << from;
    EXPECT_EQ(code_of(from, "other"), ErrorCode::kInternal) << from;
    EXPECT_EQ(code_of(from, "link"), ErrorCode::kInternal) << from;
  }
  // Weights may be links out of their folder.
  ASSERT_TRUE(write_file_atomic(file("out.replaced/model.safetensors"), "weights"));
  std::filesystem::create_directories(file("linked"));
  std::filesystem::create_symlink(file("out.replaced/model.safetensors"),
                                  file("linked/model.safetensors"));
  std::filesystem::create_symlink("nowhere", file("linked/dangling"));
  EXPECT_EQ(code_of("linked", "out"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of("linked", "other"), ErrorCode::kInternal);
  std::filesystem::create_directories(file("out"));
  EXPECT_EQ(code_of("out.replaced", "out/"), ErrorCode::kInvalidArgument);
  // Temporaries, beside the folder (also behind a link) and in it.
  for (const auto& [target, to] : {std::pair{"out", "out"}, {"real", "link"}, {"out/out", "out"}}) {
    auto temporary = TemporaryFolder::create(file(target));
    ASSERT_TRUE(temporary);
    EXPECT_FALSE(check_source_stays(temporary->path(), file(to))) << target;
    EXPECT_TRUE(check_source_stays(temporary->path(), file("other"))) << target;
  }
  EXPECT_EQ(code_of("none", "out"), ErrorCode::kInternal);
}

TEST_F(NewFolderTest, WhatAKilledOneLeftGoes) {
  for (const char* place : {"new", "empty/empty"}) {
    std::filesystem::create_directories(file("empty"));
    const std::string left = TemporaryFolder::create(file(place))->path();
    std::filesystem::create_directories(left + "/deep");
    EXPECT_TRUE(check_new_folder(parent_path(place) == "empty" ? file("empty") : file(place)));
    EXPECT_FALSE(path_exists(left));
    EXPECT_EQ(names(dir_.path()), std::vector<std::string>{"empty"});
    EXPECT_TRUE(names(file("empty")).empty());
  }
}

}  // namespace
}  // namespace volta
