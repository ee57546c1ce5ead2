// A whole model whose matrices are GGUF's blocks of integers computes what the same model computes
// with its weights in f32, if that model rounds the activations of its products in the same way. So
// nothing but this rounding sets the two apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "device/device_proxy.h"
#include "device/helpers.h"
#include "formats/gguf/block_model.h"
#include "nn/sequence_scorer.h"
#include "support/model.h"
#include "support/rounded_block.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::kVocab;

// The left operand of a matrix product with a weight; null for other steps.
const View* rows_of(const OpCall& call) {
  return std::holds_alternative<MatMul>(*call.op) ? &call.inputs[0] : nullptr;
}
std::span<float> values_of(const View& view) {
  return {view.as<float>(), static_cast<std::size_t>(view.shape.elements())};
}

// A device that adds a listener to every plan.
class Listened final : public DeviceProxy {
 public:
  Listened(std::shared_ptr<Device> inner, std::shared_ptr<StepListener> listener)
      : DeviceProxy(std::move(inner)), listener_(std::move(listener)) {}

 protected:
  Result<Executable> load_plan(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                               std::shared_ptr<DeviceBuffer> arena) override {
    VOLTA_TRY(Executable loaded, inner()->load(std::move(plan), lookup, std::move(arena)));
    loaded.add_listener(listener_);
    return loaded;
  }

 private:
  std::shared_ptr<StepListener> listener_;
};

// Keeps the activations of every product, in order.
class Recorder final : public StepListener {
 public:
  Status step_begins(std::size_t, const OpCall& call) override {
    if (const View* const rows = rows_of(call)) {
      const auto values = values_of(*rows);
      products_.emplace_back(values.begin(), values.end());
    }
    return {};
  }
  const std::vector<std::vector<float>>& products() const { return products_; }

 private:
  std::vector<std::vector<float>> products_;
};

// Rounds the activations of every product for the time of that step, in blocks of `block`.
//
// Both models sum in another order, so their activations differ in the last bits. Where a value
// lies in the middle between two integers, this decides which of them it becomes, and the models
// would differ by a whole step of int8. So the integer of the recorded model is taken wherever it
// is a nearest one, too, but for a thousandth of a step.
class Rounder final : public StepListener {
 public:
  Rounder(std::size_t block, const std::vector<std::vector<float>>& recorded)
      : block_(block), recorded_(recorded) {}

  Status step_begins(std::size_t, const OpCall& call) override {
    const View* const rows = rows_of(call);
    if (rows == nullptr) return {};
    const std::span<float> values = values_of(*rows);
    kept_.assign(values.begin(), values.end());
    if (product_ == recorded_.size() || recorded_[product_].size() != values.size()) {
      return fail(ErrorCode::kInternal, "the models have different products");
    }
    const std::span<const float> others = recorded_[product_++];
    for (std::size_t i = 0; i < values.size(); i += block_) {
      round(values.subspan(i, block_), others.subspan(i, block_));
    }
    return {};
  }
  Status step_ends(std::size_t, const OpCall& call) override {
    if (const View* const rows = rows_of(call)) std::ranges::copy(kept_, values_of(*rows).begin());
    return {};
  }
  std::size_t products() const { return product_; }
  std::size_t rests() const { return rests_; }

 private:
  void round(std::span<float> x, std::span<const float> other) {
    const test::RoundedBlock mine = test::round_block(x, fused_);
    const test::RoundedBlock theirs = test::round_block(other, fused_);
    const float scale = mine.whole.scale;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int near = theirs.whole.q[i];
      const bool nearest = std::fabs(x[i] - static_cast<float>(near) * scale) <= 0.501f * scale;
      float rounded = static_cast<float>(nearest ? near : mine.whole.q[i]) * scale;
      if (const auto& rest = mine.rests[i / 32]) {
        rounded += static_cast<float>(rest->q[i % 32]) * rest->scale;
        rests_ += i % 32 == 0 ? 1 : 0;
      }
      x[i] = rounded;
    }
  }

  std::size_t block_;
  bool fused_ = test::cpu()->info().isa != "sse4";  // SSE4 has no fused multiply-add.
  const std::vector<std::vector<float>>& recorded_;
  std::vector<float> kept_;
  std::size_t product_ = 0, rests_ = 0;
};

// The logits of a few ids by the model in a file, with its weights as stored or in f32.
std::vector<float> logits_of(const std::string& path, bool as_stored,
                             std::shared_ptr<StepListener> listener) {
  constexpr std::int64_t kTime = 12;
  const auto device = std::make_shared<Listened>(test::cpu(), std::move(listener));
  const auto model = test::load_model(path, device, {.packed = as_stored});
  EXPECT_TRUE(model) << model.error().message();
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < kTime; ++i) ids.push_back(i * 29 % static_cast<int>(kVocab));
  std::vector<float> logits;
  const Status done =
      compute_logits(*model, ids, 1, kTime, DType::kF32, [&](std::span<const float> rows) {
        logits.insert(logits.end(), rows.begin(), rows.end());
        return Status();
      });
  EXPECT_TRUE(done) << done.error().message();
  return logits;
}

// The largest difference in a row, relative to the row's largest logit; the worst row counts.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (std::size_t row = 0; row < a.size(); row += static_cast<std::size_t>(kVocab)) {
    double apart = 0.0, largest = 0.0;
    for (std::size_t i = row; i < row + static_cast<std::size_t>(kVocab); ++i) {
      apart = std::max(apart, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
      largest = std::max(largest, std::fabs(static_cast<double>(a[i])));
    }
    worst = std::max(worst, apart / largest);
  }
  return worst;
}

struct Format {
  GgmlType type;
  std::size_t block;  ///< The activations that share a scale; all K here are multiples of 256.
};

TEST(GgufProducts, AModelInBlocksIsTheModelInF32WithRoundedActivations) {
  const test::TempDir dir;
  const std::string path = dir.file("model.gguf");
  for (const auto& [type, block] :
       {Format{GgmlType::kQ8_0, 32}, Format{GgmlType::kQ4_0, 128}, Format{GgmlType::kQ4_K, 256},
        Format{GgmlType::kQ5_K, 256}, Format{GgmlType::kQ6_K, 256}}) {
    SCOPED_TRACE(ggml_type_info(type).name);
    test::write_block_model(path, test::all_of(type), false);
    const auto recorder = std::make_shared<Recorder>();
    const std::vector<float> stored = logits_of(path, true, recorder);
    const auto rounder = std::make_shared<Rounder>(block, recorder->products());
    const std::vector<float> rounded = logits_of(path, false, rounder);
    EXPECT_EQ(rounder->products(), recorder->products().size());
    EXPECT_GE(rounder->products(), 15u);  // Seven in each layer, and the logits.
    EXPECT_LT(difference(stored, rounded), 1e-4);
    // Without the rounding the models are further apart, so the comparison means something.
    EXPECT_GT(difference(stored, logits_of(path, false, nullptr)), 1e-3);
  }
}

}  // namespace
}  // namespace volta
