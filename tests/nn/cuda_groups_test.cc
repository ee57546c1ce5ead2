// Decoding on a GPU launches calls in groups and lets kernels begin early. A device that measures
// every step runs them one by one. Both give the same tokens and the same bits of their
// probabilities, with any number of slots. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "device/gpu_fixture.h"
#include "device/profiling_device.h"
#include "nn/generation.h"
#include "nn/helpers.h"

namespace volta {
namespace {

using test::must;
using test::request;

class CudaGroups : public test::GpuTest, public testing::WithParamInterface<DType> {
 protected:
  // A width that the kernels for streamed weights take.
  static TransformerConfig config() {
    TransformerConfig config = test::llama_config();
    config.dim = 128;
    config.head_dim = 32;
    config.ffn = 192;
    return config;
  }
  static std::vector<GenerationRequest> requests() {
    std::vector<GenerationRequest> out;
    for (const std::size_t length : {1, 7, 64, 90}) {
      out.push_back(request(length, 20));
      out.push_back(request(length, 12, {.temperature = 0.8f, .top_k = 9, .seed = length}));
    }
    return out;
  }
  static test::Results generate(const std::shared_ptr<Device>& device, std::int64_t slots) {
    const Transformer model = test::lively_model(config(), device);
    return test::generate(model, requests(), {.slots = slots, .compute_dtype = GetParam()});
  }
};
INSTANTIATE_TEST_SUITE_P(, CudaGroups, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& type) {
                           return type.param == DType::kF32 ? "F32" : "BF16";
                         });

TEST_P(CudaGroups, GiveWhatSingleStepsGive) {
  const test::Results grouped = generate(gpu_, 1);
  test::expect_equal(grouped, generate(must(ProfilingDevice::create(gpu_)), 1));
  test::expect_equal(grouped, generate(gpu_, 1));
}

TEST_P(CudaGroups, TokensDoNotDependOnTheNumberOfSlots) {
  const test::Results alone = generate(gpu_, 1);
  test::expect_equal(generate(gpu_, 3), alone);
  test::expect_equal(generate(gpu_, 8), alone);
}

}  // namespace
}  // namespace volta
