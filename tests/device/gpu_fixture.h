// A fixture for tests that need a GPU. They are skipped where no GPU can be used.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "device/cuda_device.h"
#include "device/helpers.h"
#include "device/tensor_ops.h"

namespace volta::test {

/// Tests on the first GPU. A fixture with a SetUp() of its own calls this one first and returns if
/// IsSkipped().
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CudaDevice::create();
    if (!device) GTEST_SKIP() << device.error().message();
    gpu_ = *std::move(device);
  }

  /// Numbers of a standard normal distribution, rounded to `dtype`, in the GPU's memory.
  Tensor random_normal(const Shape& shape, DType dtype, std::mt19937& random) {
    std::vector<float> x(static_cast<std::size_t>(shape.elements()));
    std::normal_distribution<float> normal;
    for (float& each : x) each = normal(random);
    return *tensor_ops::cast(*gpu_, floats(shape, x, gpu_->memory()), dtype);
  }

  std::shared_ptr<Device> gpu_;
};

}  // namespace volta::test
