#include "formats/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "device/helpers.h"
#include "support/scoped_env.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::ScopedEnv;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

void write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// A model in the cache whose refs/main names its only snapshot; returns the snapshot's folder.
std::string put_model(const std::string& model) {
  const std::string snapshot = model + "/snapshots/" + kCommit;
  write(snapshot + "/config.json", "{}");
  write(model + "/refs/main", kCommit);
  return snapshot;
}

TEST(HubCache, NamesAreAnOrganisationAndAModel) {
  const auto plain = parse_hub_name("Qwen/Qwen2.5-0.5B");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->repository, "Qwen/Qwen2.5-0.5B");
  EXPECT_EQ(plain->revision, "main");
  const auto revision = parse_hub_name("org/name@refs/pr/1");
  ASSERT_TRUE(revision);
  EXPECT_EQ(revision->repository, "org/name");
  EXPECT_EQ(revision->revision, "refs/pr/1");
  for (const char* text :
       {"", "gpt2", "/org/name", "org/name/file", "../name", "org/..", "./name", "org/", "/name",
        "org/name@", "org/name@../..", "org/name@a//b", "org/na me", "org/name@/etc", "-o/name"}) {
    EXPECT_FALSE(parse_hub_name(text)) << text;
  }
}

TEST(HubCache, ItsFolderIsTheOneOfTheHubsClients) {
  const ScopedEnv home("HOME", "/home/u"), xdg("XDG_CACHE_HOME", nullptr);
  const ScopedEnv hf_home("HF_HOME", nullptr), hf_cache("HF_HUB_CACHE", nullptr);
  EXPECT_EQ(hub_cache_folder(), "/home/u/.cache/huggingface/hub");
  const ScopedEnv with_xdg("XDG_CACHE_HOME", "/x");
  EXPECT_EQ(hub_cache_folder(), "/x/huggingface/hub");
  const ScopedEnv with_home("HF_HOME", "/h");
  EXPECT_EQ(hub_cache_folder(), "/h/hub");
  const ScopedEnv with_cache("HF_HUB_CACHE", "/c");
  EXPECT_EQ(hub_cache_folder(), "/c");
}

TEST(HubCache, AModelIsFoundByBranchTagAndCommit) {
  const test::TempDir cache;
  const std::string model = cache.file("models--org--name");
  const std::string snapshot = put_model(model);
  write(model + "/refs/refs/pr/1", std::string(kCommit) + "\n");
  for (const char* revision : {"main", "refs/pr/1", kCommit}) {
    const auto found = find_in_hub_cache({"org/name", revision}, cache.path());
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(*found, snapshot);
  }
  const ScopedEnv variable("HF_HUB_CACHE", cache.path().c_str());
  EXPECT_EQ(*find_model_path("org/name"), snapshot);
  EXPECT_EQ(name_or_folder(snapshot), "org/name");
  EXPECT_EQ(name_or_folder(model), model);
  EXPECT_EQ(*find_model_path(std::string("org/name@") + kCommit), snapshot);
}

TEST(HubCache, AModelWithoutOrganisationIsFoundIfItWasDownloadedSo) {
  const test::TempDir cache;
  const std::string model = cache.file("models--gpt2");
  const std::string snapshot = put_model(model);
  const ScopedEnv variable("HF_HUB_CACHE", cache.path().c_str());
  EXPECT_EQ(*find_model_path("gpt2"), snapshot);
  EXPECT_EQ(*find_model_path(std::string("gpt2@") + kCommit), snapshot);
  EXPECT_EQ(*find_model_path("gpt3"), "gpt3");
  expect_error(find_model_path("gpt2@v2"), ErrorCode::kNotFound, "hf download gpt2 --revision v2`");
}

TEST(HubCache, ASnapshotThatItsNameDoesNotMeanKeepsItsPath) {
  const test::TempDir cache;
  const std::string model = cache.file("models--org--name");
  const std::string snapshot = model + "/snapshots/" + kCommit;
  write(snapshot + "/config.json", "{}");
  write(model + "/refs/main", "another");
  {
    const ScopedEnv variable("HF_HUB_CACHE", cache.path().c_str());
    EXPECT_EQ(name_or_folder(snapshot), snapshot);
  }
  write(model + "/refs/main", kCommit);
  const ScopedEnv elsewhere("HF_HUB_CACHE", model.c_str());
  EXPECT_EQ(name_or_folder(snapshot), snapshot);
}

TEST(HubCache, TheOtherSnapshotsOfAModelAreNamed) {
  const test::TempDir cache;
  const std::string snapshots = cache.file("models--org--name/snapshots");
  fs::create_directories(snapshots + "/a1");
  EXPECT_THAT(other_snapshots(snapshots + "/a1"), testing::IsEmpty());
  fs::create_directories(snapshots + "/b2");
  EXPECT_THAT(other_snapshots(snapshots + "/a1"), testing::ElementsAre("org/name@b2"));
  EXPECT_THAT(other_snapshots(cache.path()), testing::IsEmpty());
  EXPECT_THAT(other_snapshots(cache.file("none")), testing::IsEmpty());
}

TEST(HubCache, AWordAloneGetsTheFormOfTheHubsNames) {
  const auto message = [](const std::string& path) {
    const Result<std::string> failed = no_model_folder(path);
    EXPECT_EQ(failed.error().code(), ErrorCode::kNotFound);
    return std::string(failed.error().message());
  };
  EXPECT_THAT(message("gpt2"), testing::HasSubstr("no model folder at 'gpt2', and no model "));
  EXPECT_THAT(message("gpt2"), testing::HasSubstr("as 'ORGANISATION/gpt2'"));
  EXPECT_THAT(message("gpt2"), testing::HasSubstr("`hf download ORGANISATION/gpt2`"));
  EXPECT_THAT(message("gpt2@v1"),
              testing::HasSubstr("`hf download ORGANISATION/gpt2 --revision v1`"));
  for (const std::string path : {"./gpt2", "/models/gpt2", "a/b/c", "gpt 2", ""}) {
    EXPECT_EQ(message(path), "no model folder at '" + path + "'");
  }
}

TEST(HubCache, WhatIsThereGoesBeforeTheCache) {
  const test::TempDir dir;
  const ScopedEnv variable("HF_HUB_CACHE", dir.path().c_str());
  EXPECT_EQ(*find_model_path(dir.path()), dir.path());
  EXPECT_EQ(*find_model_path("no-name-of-the-hub"), "no-name-of-the-hub");
  EXPECT_EQ(*find_model_path(dir.file("missing/a/b")), dir.file("missing/a/b"));
}

TEST(HubCache, WhatIsMissingIsToldWithTheCommandThatDownloadsIt) {
  const test::TempDir cache;
  expect_error(find_in_hub_cache({"org/name"}, cache.path()), ErrorCode::kNotFound,
               "hf download org/name`");
  expect_error(find_in_hub_cache({"org/name"}, ""), ErrorCode::kNotFound, "hf download org/name`");
  const std::string model = cache.file("models--org--name");
  write(model + "/refs/main", kCommit);
  expect_error(find_in_hub_cache({"org/name", "v2"}, cache.path()), ErrorCode::kNotFound,
               "hf download org/name --revision v2`");
  expect_error(find_in_hub_cache({"org/name", "a/b"}, cache.path()), ErrorCode::kNotFound,
               "not its revision a/b");
  fs::create_directories(model + "/snapshots/" + kCommit);  // A download that was interrupted.
  expect_error(find_in_hub_cache({"org/name"}, cache.path()), ErrorCode::kNotFound,
               "without its config.json");
  // A dangling link: the blob was never downloaded, or has been removed.
  fs::create_symlink("../../blobs/none", model + "/snapshots/" + kCommit + "/config.json");
  expect_error(find_in_hub_cache({"org/name"}, cache.path()), ErrorCode::kNotFound,
               "lacks config.json (a link to '../../blobs/none', which is not there)");
}

TEST(HubCache, FilesThatASnapshotLacksAreToldWithTheCommandThatDownloadsThem) {
  const test::TempDir cache;
  const std::string model = cache.file("models--org--a-name.1");
  const std::string snapshot = model + "/snapshots/" + kCommit;
  write(snapshot + "/config.json", "{}");
  const auto message = [](const std::string& folder, ErrorCode code = ErrorCode::kNotFound) {
    const Result<std::string> failed = missing_files_error(Error(code, "why"), folder, {"a", "b"});
    EXPECT_EQ(failed.error().code(), code);
    return std::string(failed.error().message());
  };
  EXPECT_THAT(message(snapshot),
              testing::HasSubstr("org/a-name.1 in the Hugging Face cache lacks a, b: '"));
  EXPECT_THAT(message(snapshot), testing::HasSubstr(std::string("`hf download org/a-name.1 "
                                                                "--revision ") +
                                                    kCommit + "`"));
  write(model + "/refs/main", kCommit);
  EXPECT_THAT(message(snapshot), testing::HasSubstr("`hf download org/a-name.1`"));
  // Other folders and other errors keep their messages.
  EXPECT_EQ(message(snapshot, ErrorCode::kIo), "why");
  EXPECT_EQ(message(cache.path()), "why");
  EXPECT_EQ(message(snapshot + "/none"), "why");
  fs::create_directories(cache.file("models--alone/snapshots/c"));
  EXPECT_THAT(message(cache.file("models--alone/snapshots/c")),
              testing::HasSubstr("`hf download alone --revision c`"));
}

TEST(HubCache, HalfADownloadIsToldWithTheFilesThatItLacks) {
  const test::TempDir cache;
  const std::string model = cache.file("models--org--name");
  const std::string snapshot = model + "/snapshots/" + kCommit;
  write(model + "/refs/main", kCommit);
  write(snapshot + "/config.json", "{}");
  write(snapshot + "/tokenizer.json", "{}");
  // Without an unfinished download, a model may have been published without weights.
  EXPECT_TRUE(find_in_hub_cache({"org/name"}, cache.path()));
  write(model + "/blobs/abc.incomplete", "half");
  expect_error(find_in_hub_cache({"org/name"}, cache.path()), ErrorCode::kNotFound,
               "org/name in the Hugging Face cache lacks model.safetensors, and a download is "
               "unfinished");
  expect_error(find_in_hub_cache({"org/name", "v2"}, cache.path()), ErrorCode::kNotFound,
               "not its revision v2 (a download is unfinished)");
  // Something else may be unfinished beside a whole model.
  write(snapshot + "/model.safetensors", "");
  EXPECT_TRUE(find_in_hub_cache({"org/name"}, cache.path()));
  // Links without a target count only where Volta reads the file.
  fs::create_symlink("../../blobs/none", snapshot + "/pytorch_model.bin");
  fs::create_symlink("../../blobs/none", snapshot + "/consolidated.safetensors");
  fs::create_symlink("../../blobs/none", snapshot + "/preprocessor_config.json");
  EXPECT_TRUE(find_in_hub_cache({"org/name"}, cache.path()));
  fs::create_symlink("../../blobs/none", snapshot + "/generation_config.json");
  expect_error(find_in_hub_cache({"org/name"}, cache.path()), ErrorCode::kNotFound,
               "lacks generation_config.json (a link to '../../blobs/none', which is not there)");
}

TEST(HubCache, AFileOfRefsHoldsOneCommit) {
  const test::TempDir cache;
  const std::string ref = cache.file("models--org--name/refs/main");
  for (const char* text : {"", "\n", "../../../secret", "a b", "/etc"}) {
    write(ref, text);
    expect_error(find_in_hub_cache({"org/name"}, cache.path()), ErrorCode::kInvalidFile,
                 "expected the name of a commit");
  }
  write(ref, std::string(5000, 'a'));
  EXPECT_FALSE(find_in_hub_cache({"org/name"}, cache.path()));
}

}  // namespace
}  // namespace volta
