// The file of tuning results: round trips, merges by several threads and processes, and every bad
// file or place, none of which may stop anybody.
#include "tuner/tuning_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "support/file_faults.h"
#include "support/scoped_env.h"
#include "support/temp_dir.h"
#include "tuner/kernels_hash.h"
#include "tuner/open_device.h"

namespace volta::tuner {
namespace {

using cpu::Simd;
using test::ScopedEnv;
using test::TempDir;
using testing::HasSubstr;

TuningEntry entry_of(std::int64_t m, std::int64_t n = 768, Simd simd = Simd::kSse4) {
  return {.simd = simd,
          .shape = {.b_type = DType::kF32, .packed = true, .threads = 2, .m = m, .n = n, .k = 512},
          .parameters = {.k_block = 256,
                         .m_block = 64,
                         .n_block = 320,
                         .tile = cpu::default_parameters(simd, 64).tile,
                         .prefetch_bytes = 2048},
          .default_gflops = 80.5,
          .tuned_gflops = 90.25};
}

CpuSignature other_cpu() {
  CpuSignature signature = cpu_signature();
  signature.stepping += 1;
  return signature;
}

void write(const std::string& path, std::string_view text) {
  ASSERT_TRUE(create_directories(parent_path(path)));
  ASSERT_TRUE(write_file_atomic(path, text));
}

// What the log was told while it lives.
class Log {
 public:
  Log() {
    set_log_callback([this](LogLevel level, std::string_view text) {
      if (level == LogLevel::kWarning) text_ += std::string(text) + "\n";
    });
  }
  ~Log() { set_log_callback({}); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

TEST(TuningCache, ReadsWhatItWrote) {
  const TempDir dir;
  const TuningCache cache(dir.file("a/b"), cpu_signature());
  EXPECT_EQ(*cache.read(), std::vector<TuningEntry>());
  TuningEntry plain = entry_of(1, 50257);
  plain.shape.packed = false;
  plain.shape.b_type = DType::kBF16;
  TuningEntry gradient = plain;
  gradient.shape.a_type = DType::kBF16;
  gradient.shape.transpose_a = true;
  TuningEntry other = gradient;
  other.shape.transpose_b = true;
  const std::vector<TuningEntry> entries = {entry_of(64), plain, gradient, other};
  ASSERT_TRUE(cache.add(entries));
  EXPECT_EQ(*cache.read(), entries);
  EXPECT_EQ(cache.path(), dir.file("a/b/" + to_string(cpu_signature()) + "-" +
                                   std::string(kernels_hash()) + ".json"));
  EXPECT_EQ(*parse_tuning(tuning_to_json(entries, other_cpu()), "x", other_cpu()), entries);
}

TEST(TuningCache, AddsAndReplacesByKernelsAndShape) {
  const TempDir dir;
  const TuningCache cache(dir.path(), cpu_signature());
  TuningEntry better = entry_of(60);  // Of the same class of rows as 64.
  better.parameters.k_block = 128;
  ASSERT_TRUE(cache.add({{entry_of(64), entry_of(1)}}));
  ASSERT_TRUE(cache.add({{better, entry_of(64, 1024), entry_of(64, 768, Simd::kAvx2)}}));
  EXPECT_EQ(*cache.read(), (std::vector<TuningEntry>{better, entry_of(1), entry_of(64, 1024),
                                                     entry_of(64, 768, Simd::kAvx2)}));
  const auto tuning = to_tuning(*cache.read(), Simd::kSse4);
  EXPECT_EQ(tuning.size(), 3u);
  EXPECT_EQ(tuning.find(better.shape), better.parameters);
  ASSERT_TRUE(*cache.clear());
  EXPECT_FALSE(*cache.clear());
  EXPECT_TRUE(cache.read()->empty());
}

TEST(TuningCache, OnlyAFileOrALinkIsCleared) {
  const TempDir dir;
  const TuningCache cache(dir.path(), cpu_signature());
  write(cache.path() + "/thesis.txt", "years of work");
  const auto refused = cache.clear();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidFile);
  EXPECT_THAT(refused.error().message(), HasSubstr("is not a file"));
  EXPECT_THAT(refused.error().message(), HasSubstr("move it away"));
  EXPECT_EQ(*read_text_file(cache.path() + "/thesis.txt"), "years of work");
  // A link is removed, and not what it leads to.
  std::filesystem::rename(cache.path(), dir.file("folder"));
  std::filesystem::create_symlink(dir.file("folder"), cache.path());
  EXPECT_TRUE(*cache.clear());
  EXPECT_FALSE(is_link(cache.path()));
  std::filesystem::create_symlink("nowhere", cache.path());
  EXPECT_TRUE(*cache.clear());
  EXPECT_FALSE(is_link(cache.path()));
  EXPECT_EQ(*read_text_file(dir.file("folder/thesis.txt")), "years of work");
}

TEST(TuningCache, TheEnvironmentSaysWhereItIs) {
  const TempDir dir;
  const ScopedEnv home("HOME", dir.file("home").c_str());
  {
    const ScopedEnv env("VOLTA_CACHE_DIR", nullptr);
    EXPECT_EQ(TuningCache::open()->directory(), dir.file("home/.volta/matmul_tuning"));
  }
  {
    const ScopedEnv env("VOLTA_CACHE_DIR", dir.file("cache").c_str());
    EXPECT_EQ(TuningCache::open()->directory(), dir.file("cache/matmul_tuning"));
  }
  const ScopedEnv env("VOLTA_CACHE_DIR", "");
  for (const char* none : {static_cast<const char*>(nullptr), ""}) {
    const ScopedEnv no_home("HOME", none);
    const auto cache = TuningCache::open();
    ASSERT_FALSE(cache);
    EXPECT_THAT(cache.error().message(), HasSubstr("set VOLTA_CACHE_DIR"));
    EXPECT_EQ(*load_tuning(Simd::kSse4), nullptr);
  }
}

TEST(TuningCache, LoadsTheEntriesOfOneInstructionSet) {
  const TempDir dir;
  const ScopedEnv env("VOLTA_CACHE_DIR", dir.path().c_str());
  const ScopedEnv unset("VOLTA_TUNING", nullptr);
  EXPECT_EQ(*load_tuning(Simd::kSse4), nullptr);
  ASSERT_TRUE(TuningCache::open()->add({{entry_of(64), entry_of(1, 1024, Simd::kAvx2)}}));
  const auto tuning = *load_tuning(Simd::kSse4);
  ASSERT_NE(tuning, nullptr);
  EXPECT_EQ(tuning->size(), 1u);
  EXPECT_EQ(tuning->find(entry_of(64).shape), entry_of(64).parameters);
  EXPECT_EQ(*load_tuning(Simd::kAvx512), nullptr);
}

TEST(TuningCache, BadFilesAreReportedAndSetAsideByTheNextTuner) {
  const std::string good = tuning_to_json(std::vector{entry_of(64)}, cpu_signature());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  struct Case {
    std::string text;
    std::string message;
  };
  const std::string hash(kernels_hash());
  std::vector<Case> cases = {
      {"", "JSON"},
      {"{}", "format"},
      {"[]", "expected an object"},
      {"\xff\xfe", "UTF-8"},
      {good.substr(0, good.size() / 2), "JSON"},
      {good + good, "JSON"},
      {std::string(100'000, '['), "JSON"},
      {changed("volta-matmul-tuning", "something"), "no file of the tuner's"},
      {changed("\"version\": 3", "\"version\": 2"), "has version 2, this program writes 3"},
      {changed("\"version\": 3", "\"version\": \"3\""), "version"},
      {changed(hash, "0123456789abcdef"), "kernels of another version"},
      {tuning_to_json({}, other_cpu()), "another CPU"},
      {changed("\"sse4\"", "\"neon\""), "isa: is none of sse4, avx2, avx512"},
      {changed("\"dtype\": \"f32\"", "\"dtype\": \"i64\""), " dtype: is none of f32, bf16"},
      {changed("\"a_dtype\": \"f32\"", "\"a_dtype\": \"i64\""), "a_dtype: is none of f32, bf16"},
      {changed("\"transpose_a\": false", "\"transpose_a\": 0"), "transpose_a"},
      {changed("\"transpose_b\": false", "\"transpose_c\": false"), "transpose_b"},
      {changed("\"transpose_b\": false", "\"transpose_b\": true"), "panels are not transposed"},
      {changed("\"threads\": 2", "\"threads\": 0"), "threads"},
      {changed("\"threads\": 2", "\"threads\": 1e99"), "threads"},
      {changed("\"m\": 64", "\"m\": -64"), "m"},
      {changed("\"k\": 512", "\"k\": 99999999999999999999999"), "k"},
      {changed("80.5", "-1"), "default_gflops"},
      {changed("\"tile_rows\"", "\"tile_row\""), "tile_rows"},
      {changed("\"k_block\": 256", "\"k_block\": 9999999999"), "k_block"},
      {changed("\"packed\": true", "\"packed\": 1"), "packed"},
  };
  std::string many = "{\"isa\": 0}";
  for (int i = 0; i < kMostTuningEntries; ++i) many += ",{\"isa\": 0}";
  cases.push_back({changed("\"entries\": [", "\"entries\": [" + many + ","), "is the most"});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text.substr(0, 2000));
    const TempDir dir;
    const ScopedEnv env("VOLTA_CACHE_DIR", dir.path().c_str());
    const ScopedEnv unset("VOLTA_TUNING", nullptr);
    const TuningCache cache = *TuningCache::open();
    write(cache.path(), c.text);
    {
      const auto read = cache.read();
      ASSERT_FALSE(read);
      EXPECT_THAT(read.error().message(), HasSubstr(c.message));
    }
    const Log log;
    // Loading for a run leaves the bad file unchanged.
    EXPECT_EQ(*load_tuning(Simd::kSse4), nullptr);
    EXPECT_THAT(log.text(), HasSubstr(c.message));
    EXPECT_THAT(log.text(), HasSubstr("`volta tune clear` removes the file"));
    EXPECT_EQ(*read_text_file(cache.path()), c.text);
    // Adding results renames the bad file to *.bad and writes a new one.
    ASSERT_TRUE(cache.add({{entry_of(1)}}));
    EXPECT_THAT(log.text(), HasSubstr("set aside as"));
    EXPECT_EQ(*read_text_file(cache.path() + ".bad"), c.text);
    EXPECT_EQ(*cache.read(), std::vector{entry_of(1)});
  }
}

TEST(TuningCache, EveryBadFileIsKept) {
  const TempDir dir;
  const TuningCache cache(dir.path(), cpu_signature());
  const Log log;
  for (const std::string suffix : {".bad", ".bad.2", ".bad.3"}) {
    write(cache.path(), "{ " + suffix);
    ASSERT_TRUE(cache.add({{entry_of(1)}}));
    EXPECT_THAT(log.text(), HasSubstr(cache.path() + suffix + ": tune again"));
  }
  for (const std::string suffix : {".bad", ".bad.2", ".bad.3"}) {
    EXPECT_EQ(*read_text_file(cache.path() + suffix), "{ " + suffix);
  }
}

TEST(TuningCache, ParametersThatNoKernelTakesAreDropped) {
  TuningEntry odd = entry_of(1), wide = entry_of(2), absurd = entry_of(4);
  odd.parameters.k_block = 100;
  wide.parameters.tile = {16, 4096};
  absurd.parameters.prefetch_bytes = 1 << 29;
  const Log log;
  const std::string text =
      tuning_to_json(std::vector{odd, entry_of(64), wide, absurd}, cpu_signature());
  EXPECT_EQ(*parse_tuning(text, "file", cpu_signature()), std::vector{entry_of(64)});
  EXPECT_THAT(log.text(), HasSubstr("3 of 4 entries"));
}

TEST(TuningCache, FoldersAndHugeFilesInItsPlace) {
  const TempDir dir;
  const ScopedEnv env("VOLTA_CACHE_DIR", dir.path().c_str());
  const ScopedEnv unset("VOLTA_TUNING", nullptr);
  const TuningCache cache = *TuningCache::open();
  ASSERT_TRUE(create_directories(cache.path()));
  {
    const Log log;
    ASSERT_TRUE(cache.add({{entry_of(1)}}));
    EXPECT_THAT(log.text(), HasSubstr("set aside"));
  }
  write(cache.path(), std::string(kMostTuningBytes + 1, ' '));
  const Log log;
  ASSERT_TRUE(cache.add({{entry_of(1)}}));
  EXPECT_THAT(log.text(), HasSubstr(".bad.2: tune again"));  // The folder keeps its name.
  EXPECT_EQ(*cache.read(), std::vector{entry_of(1)});
}

TEST(TuningCache, ABadFileThatCannotBeSetAsideIsReplaced) {
  const TempDir dir;
  const TuningCache cache(dir.path(), cpu_signature());
  write(cache.path(), "{");
  const Log log;
  test::FaultyFileOps faults;
  faults.fail(test::FileCall::kRename, 1, EACCES, 1);
  const ScopedFileOps scope(faults);
  ASSERT_TRUE(cache.add({{entry_of(1)}}));
  EXPECT_THAT(log.text(), HasSubstr("cannot rename"));
  EXPECT_EQ(*cache.read(), std::vector{entry_of(1)});
}

TEST(TuningCache, PlacesThatCannotBeWritten) {
  const TempDir dir;
  write(dir.file("file"), "");
  const TuningCache below_a_file(dir.file("file/tuning"), cpu_signature());
  EXPECT_FALSE(below_a_file.add({{entry_of(1)}}));
  const auto nowhere = below_a_file.lock_for_measuring({});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code(), ErrorCode::kIo);
  EXPECT_TRUE(below_a_file.read_or_warn().empty());

  const TuningCache cache(dir.file("tuning"), cpu_signature());
  ASSERT_TRUE(cache.add({{entry_of(1)}}));
  for (const test::FileCall call :
       {test::FileCall::kOpen, test::FileCall::kWrite, test::FileCall::kRename}) {
    // A full disk: what is there already is left alone.
    {
      test::FaultyFileOps faults;
      faults.fail(call,
                  call == test::FileCall::kOpen    ? 3
                  : call == test::FileCall::kWrite ? 2
                                                   : 1,
                  ENOSPC);
      const ScopedFileOps scope(faults);
      const Status added = cache.add({{entry_of(64)}});
      ASSERT_FALSE(added);
      EXPECT_EQ(added.error().code(), ErrorCode::kIo);
    }
    EXPECT_EQ(*cache.read(), std::vector{entry_of(1)});
  }
  {
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kRead, 1, EIO);
    const ScopedFileOps scope(faults);
    const Log log;
    EXPECT_TRUE(cache.read_or_warn().empty());
    EXPECT_THAT(log.text(), HasSubstr("default parameters"));
  }
  {
    // Bad, in a folder that cannot be written: nobody waits for a lock that nobody holds.
    const TuningCache fresh(dir.file("fresh"), cpu_signature());
    write(fresh.path(), "{");
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kOpen, 2, EROFS);
    const ScopedFileOps scope(faults);
    const Log log;
    const double before = monotonic_seconds();
    EXPECT_TRUE(fresh.read_or_warn().empty());
    EXPECT_LT(monotonic_seconds() - before, 4.0);
    EXPECT_THAT(log.text(), HasSubstr("default parameters"));
    EXPECT_TRUE(path_exists(fresh.path()));
  }
  // Bad, and cannot be set aside.
  write(cache.path(), "{");
  test::FaultyFileOps faults;
  faults.fail(test::FileCall::kRename, 1, EROFS);
  const ScopedFileOps scope(faults);
  const Log log;
  EXPECT_FALSE(cache.add({{entry_of(64)}}));
  EXPECT_THAT(log.text(), HasSubstr("cannot rename"));
  EXPECT_EQ(*read_text_file(cache.path()), "{");
}

TEST(TuningCache, ThreadsThatAddAtOnceLoseNothing) {
  const TempDir dir;
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const TuningCache cache(dir.path(), cpu_signature());
      for (int i = 0; i < 5; ++i) {
        if (!cache.add({{entry_of(64, 100 + 10 * t + i)}})) ++failed;
        if (!cache.read()) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(TuningCache(dir.path(), cpu_signature()).read()->size(), 20u);
}

TEST(TuningCache, ProcessesThatAddAtOnceLoseNothing) {
  const TempDir dir;
  const TuningCache cache(dir.path(), cpu_signature());
  std::vector<pid_t> children;
  for (int c = 0; c < 3; ++c) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool good = true;
      for (int i = 0; i < 5; ++i) good &= cache.add({{entry_of(64, 100 + 10 * c + i)}}).has_value();
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(cache.read()->size(), 15u);
}

TEST(TuningCache, OneMeasuresAtATime) {
  const TempDir dir;
  const TuningCache cache(dir.path(), cpu_signature());
  {
    const auto first = cache.lock_for_measuring({});
    ASSERT_TRUE(first);
    const auto second = cache.lock_for_measuring({});
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message(), HasSubstr(std::to_string(::getpid())));
    EXPECT_TRUE(cache.add({{entry_of(1)}}));  // The file itself is free.
  }
  EXPECT_TRUE(cache.lock_for_measuring({}));
}

TEST(TuningCache, WhatWouldNotBeKeptIsToldBeforeTheWork) {
  const TempDir dir;
  const TuningCache cache(dir.file("tuning"), cpu_signature());
  const std::vector<TuningEntry> expected = {entry_of(1), entry_of(64)};
  ASSERT_TRUE(cache.lock_for_measuring(expected));
  EXPECT_TRUE(cache.read()->empty());             // Nothing of them is kept yet,
  EXPECT_EQ(*list_directory(dir.file("tuning")),  // and no trial is left.
            (std::vector<std::string>{".lock", "measuring"}));
  ASSERT_TRUE(cache.add({{entry_of(1)}}));
  // A full disk: the two locks write, then the file does.
  for (const test::FileCall call : {test::FileCall::kWrite, test::FileCall::kFsync}) {
    test::FaultyFileOps faults;
    faults.fail(call, call == test::FileCall::kWrite ? 3 : 1, ENOSPC);
    const ScopedFileOps scope(faults);
    const auto refused = cache.lock_for_measuring(expected);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kIo);
    EXPECT_THAT(refused.error().message(), HasSubstr("free some space"));
  }
  EXPECT_EQ(*cache.read(), std::vector{entry_of(1)});
  EXPECT_EQ(list_directory(dir.file("tuning"))->size(), 3u);
  // A bad file is set aside, as it would be later.
  write(cache.path(), "{");
  const Log log;
  EXPECT_TRUE(cache.lock_for_measuring(expected));
  EXPECT_THAT(log.text(), HasSubstr("set aside"));
}

TEST(TuningCache, AFullFileTakesNoMore) {
  const TempDir dir;
  const TuningCache cache(dir.path(), cpu_signature());
  std::vector<TuningEntry> entries;
  for (int i = 0; i < kMostTuningEntries; ++i) entries.push_back(entry_of(64, 100 + i));
  ASSERT_TRUE(cache.add(entries));
  ASSERT_TRUE(cache.read()) << cache.read().error().message();
  const Status added = cache.add({{entry_of(1)}});
  ASSERT_FALSE(added);
  EXPECT_THAT(added.error().message(), HasSubstr("volta tune clear"));
  EXPECT_EQ(cache.read()->size(), entries.size());
  // Told before anything is measured, but for what has its place already.
  const auto refused = cache.lock_for_measuring({{entry_of(64, 100), entry_of(1)}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(cache.lock_for_measuring({{entry_of(64, 100)}}));
}

}  // namespace
}  // namespace volta::tuner
