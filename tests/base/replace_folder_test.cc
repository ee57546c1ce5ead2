// A folder takes another one's place: what stays, what a kill leaves, what is refused.
#include "base/replace_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/temporary.h"
#include "support/file_faults.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReplaceFolder : public testing::Test {
 protected:
  void SetUp() override {
    write("model/config.json", "old");
    write("model/weights", "old");
    write("model/theirs/file", "kept");
    folder_ = *real_path(dir_.file("model"));
    temporary_ = std::move(*TemporaryFolder::create(folder_));
    made_ = temporary_->path();
    write_file("config.json", "new");
    write_file("weights", "new");
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(dir_.file(name)).parent_path());
    std::ofstream(dir_.file(name)) << text;
  }
  void write_file(const std::string& name, const std::string& text) const {
    std::ofstream(join_path(made_, name)) << text;
  }
  std::string read(const std::string& name) const {
    return read_text_file(dir_.file(name)).value_or("nothing");
  }
  std::vector<std::string> names() const { return *list_directory(dir_.path()); }
  // Replaces by two renames, the process being killed behind the `last` of them: nothing that it
  // would do after that happens.
  void replace_until_killed(int last) const {
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kExchange, 1, ENOSYS);
    faults.fail(test::FileCall::kRename, last + 2, EIO);  // The first one is the mark's.
    faults.fail(test::FileCall::kUnlink, 1, EIO);
    const ScopedFileOps scope(faults);
    EXPECT_EQ(replace_folder(made_, folder_, {}).has_value(), last == 2);
  }
  std::string recover() const {
    std::string warnings;
    set_log_callback([&](LogLevel, std::string_view text) { warnings += text; });
    const Status done = recover_folder(folder_);
    set_log_callback({});
    return done ? warnings : "failed: " + std::string(done.error().message());
  }

  test::TempDir dir_;
  std::string folder_, made_;
  std::optional<TemporaryFolder> temporary_;  // Removes what is left of it.
};

TEST_F(ReplaceFolder, SwapsAndKeepsTheRest) {
  ASSERT_TRUE(replace_folder(made_, folder_, {}));
  EXPECT_EQ(read("model/config.json"), "new");
  EXPECT_EQ(read("model/weights"), "new");
  EXPECT_EQ(read("model/theirs/file"), "kept");
  EXPECT_THAT(names(), ElementsAre("model"));
  EXPECT_EQ(list_directory(folder_)->size(), 3u);
}

TEST_F(ReplaceFolder, AFolderInTheWayOfAFileIsNotReplaced) {
  fs::remove(dir_.file("model/weights"));
  write("model/weights/thesis", "years of work");
  const Status done = replace_folder(made_, folder_, {});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message(), HasSubstr("it is a folder"));
  EXPECT_EQ(read("model/weights/thesis"), "years of work");
  EXPECT_EQ(read("model/config.json"), "old");
}

TEST_F(ReplaceFolder, OutdatedNamesAreSetAside) {
  write("model/template", "old");
  constexpr std::array<std::string_view, 2> kOutdated = {"template", "weights"};
  ASSERT_TRUE(replace_folder(made_, folder_, kOutdated));
  EXPECT_EQ(read("model/template"), "nothing");
  EXPECT_EQ(read("model/template.old"), "old");
  EXPECT_EQ(read("model/weights"), "new");
  EXPECT_EQ(read("model/weights.old"), "nothing");  // The new one has such a file.
}

// NFS and others cannot swap.
TEST_F(ReplaceFolder, TwoRenamesDoWhereFoldersCannotBeSwapped) {
  test::FaultyFileOps faults;
  faults.fail(test::FileCall::kExchange, 1, EINVAL);
  const ScopedFileOps scope(faults);
  ASSERT_TRUE(replace_folder(made_, folder_, {}));
  EXPECT_EQ(read("model/config.json"), "new");
  EXPECT_EQ(read("model/theirs/file"), "kept");
  EXPECT_THAT(names(), ElementsAre("model"));
}

TEST_F(ReplaceFolder, AFailureLeavesTheOldOne) {
  for (int first = 2; first <= 3; ++first) {  // The first rename is the mark's.
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kExchange, 1, ENOSYS);
    faults.fail(test::FileCall::kRename, first, EIO, 1);
    const ScopedFileOps scope(faults);
    EXPECT_FALSE(replace_folder(made_, folder_, {}));
    EXPECT_EQ(read("model/config.json"), "old");
    EXPECT_FALSE(path_exists(join_path(folder_, ".volta-replaced")));
    EXPECT_TRUE(is_directory(made_));  // The caller's.
  }
  test::FaultyFileOps faults;
  faults.fail(test::FileCall::kExchange, 1, ENOSYS);
  faults.fail(test::FileCall::kRename, 3, EIO);  // Neither in, nor back.
  {
    const ScopedFileOps scope(faults);
    const Status done = replace_folder(made_, folder_, {});
    ASSERT_FALSE(done);
    EXPECT_THAT(done.error().message(), HasSubstr("is now '" + folder_ + ".replaced'; rename"));
  }
  ASSERT_TRUE(recover_folder(folder_));
  EXPECT_EQ(read("model/config.json"), "old");
  EXPECT_EQ(read("model/theirs/file"), "kept");
}

TEST_F(ReplaceFolder, WhatCannotBeRemovedIsToldAsAWarning) {
  test::FaultyFileOps faults;
  faults.fail(test::FileCall::kRmdir, 1, EIO);
  const ScopedFileOps scope(faults);
  EXPECT_TRUE(replace_folder(made_, folder_, {}));
  EXPECT_EQ(read("model/config.json"), "new");
}

// Kills: the process ends behind a call, and the next run finds what is there.
TEST_F(ReplaceFolder, AKillBehindTheSwapLeavesTheNewOne) {
  {
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kUnlink, 1, EIO);
    const ScopedFileOps scope(faults);
    ASSERT_TRUE(replace_folder(made_, folder_, {}));
  }
  EXPECT_TRUE(path_exists(join_path(made_, ".volta-replaced")));
  EXPECT_EQ(recover(), "");
  EXPECT_EQ(read("model/config.json"), "new");
  EXPECT_THAT(names(), ElementsAre("model"));
}

TEST_F(ReplaceFolder, AKillBetweenTwoRenamesGivesTheNameBack) {
  replace_until_killed(1);
  EXPECT_FALSE(path_exists(folder_));
  EXPECT_EQ(recover(), "");
  EXPECT_EQ(read("model/config.json"), "old");
  EXPECT_FALSE(path_exists(join_path(folder_, ".volta-replaced")));
  // And one behind both: what was replaced goes.
  replace_until_killed(2);
  EXPECT_TRUE(path_exists(folder_ + ".replaced"));
  EXPECT_EQ(recover(), "");
  EXPECT_FALSE(path_exists(folder_ + ".replaced"));
  EXPECT_EQ(read("model/config.json"), "new");
}

// A kill while the replaced folder is being removed: at no call of that is half a folder left that
// the next run keeps, or takes for a whole one.
TEST_F(ReplaceFolder, AKillWhileTheReplacedFolderIsRemovedLeavesNothingForLong) {
  temporary_->release();
  temporary_.reset();  // Its lock ends, as that of a killed process does.
  for (const int exchange : {0, ENOSYS}) {
    for (int calls = 0; calls < 5; ++calls) {  // The mark, two files, one in a folder, that folder.
      SCOPED_TRACE(fmt::format("{} {}", exchange, calls));
      if (!path_exists(made_)) {
        fs::create_directory(made_);
        write_file("config.json", "new");
        write_file("weights", "new");
      }
      write("model/config.json", "old");
      {
        test::FaultyFileOps faults;
        if (exchange != 0) faults.fail(test::FileCall::kExchange, 1, exchange);
        faults.fail(test::FileCall::kUnlink, std::min(calls, 3) + 1, EIO);
        faults.fail(test::FileCall::kRmdir, calls - 3 + 1, EIO);
        const ScopedFileOps scope(faults);
        ASSERT_TRUE(replace_folder(made_, folder_, {}));
      }
      EXPECT_GT(names().size(), 1u);
      fs::rename(folder_, dir_.file("renamed"));  // What is left must not take the free name.
      EXPECT_EQ(recover(), "");
      // Where nothing was removed yet, the old folder is whole.
      EXPECT_EQ(read("model/config.json"), calls == 0 ? "old" : "nothing");
      fs::remove_all(folder_);
      fs::rename(dir_.file("renamed"), folder_);
      remove_abandoned_temporaries(dir_.path(), "model");  // As whoever makes the next one does.
      EXPECT_THAT(names(), ElementsAre("model"));
      EXPECT_EQ(read("model/config.json"), "new");
    }
  }
}

// Between two renames somebody else makes a folder of the name: the old one is the only copy.
TEST_F(ReplaceFolder, WhatSomethingElseReplacedStays) {
  replace_until_killed(1);
  write("model/config.json", "somebody's");
  EXPECT_THAT(recover(), HasSubstr("remove or rename '" + folder_ + ".replaced'"));
  EXPECT_EQ(read("model/config.json"), "somebody's");
  EXPECT_EQ(read("model.replaced/config.json"), "old");
  EXPECT_EQ(read("model.replaced/theirs/file"), "kept");
  // Nor is it taken for an abandoned temporary, where the swap gave it such a name.
  const std::string other = TemporaryFolder::create(folder_)->path();
  fs::rename(folder_ + ".replaced", other);
  EXPECT_THAT(recover(), HasSubstr("remove or rename '" + other + "'"));
  remove_abandoned_temporaries(dir_.path());
  EXPECT_TRUE(path_exists(join_path(other, "config.json")));
}

TEST_F(ReplaceFolder, LinksAndWhatCannotBeListedAreNotTouched) {
  replace_until_killed(1);
  fs::rename(folder_ + ".replaced", dir_.file("elsewhere"));
  fs::create_directory_symlink("elsewhere", folder_ + ".replaced");
  EXPECT_EQ(recover(), "");
  EXPECT_FALSE(path_exists(folder_));
  EXPECT_TRUE(is_link(folder_ + ".replaced"));
  EXPECT_EQ(read("elsewhere/config.json"), "old");
  fs::remove(folder_ + ".replaced");
  fs::rename(dir_.file("elsewhere"), folder_ + ".replaced");
  fs::permissions(dir_.path(), fs::perms::owner_write | fs::perms::owner_exec);
  const bool root = list_directory(dir_.path()).has_value();
  EXPECT_EQ(recover(), "");
  fs::permissions(dir_.path(), fs::perms::owner_all);
  EXPECT_EQ(path_exists(folder_), root);
}

TEST_F(ReplaceFolder, FoldersWithoutTheMarkAreNotTouched) {
  EXPECT_TRUE(is_left_of(made_, "model"));
  EXPECT_FALSE(is_left_of(made_, "mod"));
  EXPECT_FALSE(is_left_of(folder_, "model"));
  EXPECT_FALSE(is_left_of(folder_ + ".replaced", "model"));
  write("model.replaced/thesis.txt", "theirs");
  write("model.tmp-2024-11/thesis.txt", "theirs");
  write("other.tmp-1-1/.volta-replaced", "of another folder");
  ASSERT_TRUE(recover_folder(folder_));
  ASSERT_TRUE(recover_folder(dir_.file("none/at/all")));
  EXPECT_EQ(read("model.replaced/thesis.txt"), "theirs");
  EXPECT_EQ(read("model.tmp-2024-11/thesis.txt"), "theirs");
  EXPECT_TRUE(path_exists(dir_.file("other.tmp-1-1")));
}

TEST_F(ReplaceFolder, WhatCannotBeReplacedIsToldBefore) {
  const auto message = [](const Status& status) {
    return status ? std::string("replaceable") : std::string(status.error().message());
  };
  EXPECT_EQ(message(check_replaceable_folder(folder_)), "replaceable");
  EXPECT_EQ(names().size(), 2u);  // The folder and the made one.
  EXPECT_THAT(message(check_replaceable_folder("/proc")), HasSubstr("is a mount point"));
  EXPECT_THAT(message(check_replaceable_folder(*real_path("."))), HasSubstr("started in it"));
  {
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kLink, 1, EPERM);
    const ScopedFileOps scope(faults);
    EXPECT_THAT(message(check_replaceable_folder(folder_)),
                HasSubstr("config.json' cannot be kept"));
  }
  EXPECT_EQ(names().size(), 2u);
  EXPECT_FALSE(real_path(dir_.file("none")));
}

}  // namespace
}  // namespace volta
