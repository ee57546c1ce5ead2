// What the device tests share: tensors from literals and back, devices, and small plans.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cpu_device.h"
#include "device/cuda_device.h"
#include "device/device.h"
#include "device/device_proxy.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace volta::test {

/// A CPU device; failing is a broken test machine.
inline std::shared_ptr<CpuDevice> cpu(int threads = 2, std::optional<cpu::Simd> simd = {}) {
  auto device = CpuDevice::create({.threads = threads, .simd = simd});
  if (!device) {
    ADD_FAILURE() << device.error().message();
    return nullptr;
  }
  return *device;
}

/// Whether tests of models and training run on the first GPU: with VOLTA_TEST_DEVICE=cuda.
inline bool on_gpu() {
  const char* const word = std::getenv("VOLTA_TEST_DEVICE");
  return word != nullptr && std::string_view(word) == "cuda";
}

/// A device that reads prompts in steps of at most `rows` rows, and shares steps as a CPU does.
class StepRowsDevice final : public DeviceProxy {
 public:
  StepRowsDevice(std::shared_ptr<Device> inner, std::int64_t rows)
      : DeviceProxy(std::move(inner)), rows_(rows) {}
  InferenceChoices inference_choices(DType dtype) const override {
    InferenceChoices choices = inner()->inference_choices(dtype);
    choices.step_rows = rows_;
    choices.costs = choices.integer_costs = StepCosts{};
    return choices;
  }

 private:
  std::int64_t rows_;
};

/// The device on which tests of models and training run: a CPU or a GPU. The same tests hold on
/// both, so both read prompts in the same steps.
inline std::shared_ptr<Device> device(int threads = 2) {
  if (!on_gpu()) return cpu(threads);
  static const Result<std::shared_ptr<Device>> gpu = CudaDevice::create();
  if (gpu) return std::make_shared<StepRowsDevice>(*gpu, InferenceChoices{}.step_rows);
  ADD_FAILURE() << gpu.error().message();
  return cpu(threads);
}

/// The instruction sets of this machine.
inline std::vector<cpu::Simd> simds() {
  std::vector<cpu::Simd> all;
  for (const auto simd : cpu::kAllSimd) {
    if (cpu::simd_available(simd)) all.push_back(simd);
  }
  return all;
}

inline Tensor floats(const Shape& shape, const std::vector<float>& values,
                     const std::shared_ptr<MemoryOwner>& owner = host_memory()) {
  return *Tensor::from_values<float>(shape, values)->clone_to(owner);
}
inline Tensor ints(const Shape& shape, const std::vector<std::int32_t>& values,
                   const std::shared_ptr<MemoryOwner>& owner = host_memory()) {
  return *Tensor::from_values<std::int32_t>(shape, values)->clone_to(owner);
}
template <typename T = float>
std::vector<T> values(const Tensor& tensor) {
  std::vector<T> out(static_cast<std::size_t>(tensor.elements()));
  EXPECT_TRUE(tensor.read<T>(out));
  return out;
}
template <typename T = float>
std::vector<T> values(const Result<Tensor>& tensor) {
  if (!tensor) {
    ADD_FAILURE() << tensor.error().message();
    return {};
  }
  return values<T>(*tensor);
}

/// Expects a failed Result with this code and a message that contains `text`.
template <typename T>
void expect_error(const Result<T>& result, ErrorCode code, const std::string& text) {
  ASSERT_FALSE(result.has_value()) << "expected: " << text;
  EXPECT_EQ(result.error().code(), code) << result.error().message();
  EXPECT_THAT(result.error().message(), ::testing::HasSubstr(text));
}

inline TensorSpec f32(const Shape& shape) { return {DType::kF32, shape}; }
inline TensorSpec i32(const Shape& shape) { return {DType::kI32, shape}; }

/// A plan made by hand: y = relu(x w) with x f32[2, 3] an input, w f32[3, 2] a parameter. The
/// product lies in the arena, and so does y.
inline Plan matmul_relu_plan() {
  const TensorSpec product = f32(Shape(2, 2));
  Plan plan;
  plan.bindings.resize(2);
  plan.bindings[0] = {
      .name = "x", .kind = ValueKind::kInput, .spec = f32(Shape(2, 3)), .constant = {}};
  plan.bindings[1] = {
      .name = "w", .kind = ValueKind::kParameter, .spec = f32(Shape(3, 2)), .constant = {}};
  plan.steps.resize(2);
  plan.steps[0] = {.op = MatMul{},
                   .inputs = {{.spec = f32(Shape(2, 3)), .binding = 0},
                              {.spec = f32(Shape(3, 2)), .binding = 1}},
                   .outputs = {{.spec = product}},
                   .workspace_offset = 128,
                   .workspace_bytes = 1 << 16,
                   .label = "layer"};
  plan.steps[1] = {.op = Unary{UnaryKind::kRelu},
                   .inputs = {{.spec = product}},
                   .outputs = {{.spec = product, .offset = 64}},
                   .label = "layer.relu"};
  plan.outputs = {{.name = "y", .operand = {.spec = product, .offset = 64}}};
  plan.arena_bytes = 128 + (1 << 16);
  return plan;
}

/// x = [[1, 2, 3], [4, 5, 6]] and w = [[1, -1], [0, 1], [-1, 0]], so that y = [[0, 1], [0, 1]].
inline Result<Tensor> matmul_relu_tensor(const PlanBinding& binding,
                                         const std::shared_ptr<MemoryOwner>& owner) {
  if (binding.name == "x") return floats(Shape(2, 3), {1, 2, 3, 4, 5, 6}, owner);
  return floats(Shape(3, 2), {1, -1, 0, 1, -1, 0}, owner);
}

/// The plan above, bound to `device`.
inline Result<Executable> bind_matmul_relu(Device& device) {
  return device.load(
      std::make_shared<const Plan>(matmul_relu_plan()),
      [&](const PlanBinding& binding) { return matmul_relu_tensor(binding, device.memory()); });
}

}  // namespace volta::test
