// Runs for tests: a text, folders for the runs, and what a run said.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "support/temp_dir.h"
#include "train/helpers.h"
#include "train/metrics.h"
#include "train/run.h"

namespace volta::test {

class RunFixture : public testing::Test {
 protected:
  RunFixture() {
    put_file(dir_.file("text.txt"), small_text());
    callbacks_.on_message = [this](LogLevel, std::string_view message) {
      messages_ += message;
      messages_ += "\n";
    };
    callbacks_.on_step = [this](const StepEvent& event) {
      events_.push_back(event);
      ++steps_since_start_;
    };
    callbacks_.should_stop = [this] {
      return stop_after_ > 0 && steps_since_start_ >= stop_after_;
    };
  }

  /// A run of 20 steps into the folder `name`.
  RunOptions options(const std::string& name) const {
    RunOptions o = small_run();
    o.data = {dir_.file("text.txt")};
    o.out = dir_.file(name);
    return o;
  }

  Result<RunResult> train(const RunOptions& o) {
    steps_since_start_ = 0;
    return volta::train(o, device_, callbacks_);
  }

  /// The bytes of a checkpoint's weights, or adapter.
  static std::map<std::string, std::vector<std::uint8_t>> weights_of(const std::string& folder) {
    const std::string adapter = folder + "/adapter_model.safetensors";
    const auto file = SafetensorsFile::open(
        std::filesystem::exists(adapter) ? adapter : folder + "/model.safetensors");
    EXPECT_TRUE(file);
    return file ? bits_of(*file->load_all()) : std::map<std::string, std::vector<std::uint8_t>>{};
  }

  /// The same losses, validation losses, norms, rates and weights, bit for bit.
  static void expect_same_runs(const std::string& a, const std::string& b,
                               const std::string& last = "step-20") {
    const auto left = read_metrics(a + "/metrics.jsonl");
    const auto right = read_metrics(b + "/metrics.jsonl");
    ASSERT_TRUE(left && right);
    ASSERT_EQ(left->size(), right->size());
    for (std::size_t i = 0; i < left->size(); ++i) {
      EXPECT_EQ((*left)[i].step, (*right)[i].step);
      EXPECT_EQ((*left)[i].loss, (*right)[i].loss) << i;
      EXPECT_EQ((*left)[i].val_loss, (*right)[i].val_loss) << i;
      EXPECT_EQ((*left)[i].grad_norm, (*right)[i].grad_norm) << i;
      EXPECT_EQ((*left)[i].lr, (*right)[i].lr) << i;
    }
    EXPECT_EQ(weights_of(a + "/" + last), weights_of(b + "/" + last));
    EXPECT_EQ(get_file(a + "/" + last + "/trainer.safetensors"),
              get_file(b + "/" + last + "/trainer.safetensors"));
  }

  TempDir dir_;
  std::shared_ptr<Device> device_ = device(1);
  RunCallbacks callbacks_;
  std::string messages_;
  std::vector<StepEvent> events_;
  std::int64_t stop_after_ = 0;  ///< Steps after which should_stop says yes; 0: never.
  std::int64_t steps_since_start_ = 0;
};

}  // namespace volta::test
