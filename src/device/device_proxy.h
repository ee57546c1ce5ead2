// DeviceProxy: the base class of devices that wrap another one. It forwards every call. A derived
// class overrides what it changes, most often load_plan() (to listen to the executable) and run().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace [[gnu::visibility("default")]] volta {

class DeviceProxy : public Device {
 public:
  DeviceInfo info() const override { return inner_->info(); }
  const std::shared_ptr<MemoryOwner>& memory() const override { return inner_->memory(); }
  std::shared_ptr<MemoryOwner> result_memory() const override { return inner_->result_memory(); }
  Status run(const OpCall& call) override { return inner_->run(call); }
  bool interrupted() const override { return inner_->interrupted(); }
  Status synchronize() override { return inner_->synchronize(); }
  bool supports(const Op& op, std::span<const TensorSpec> inputs) const override {
    return inner_->supports(op, inputs);
  }
  std::int64_t workspace_bytes(const Op& op, std::span<const TensorSpec> inputs,
                               std::span<const TensorSpec> outputs) const override {
    return inner_->workspace_bytes(op, inputs, outputs);
  }
  std::string kernel_parameters(const Op& op, std::span<const TensorSpec> inputs) const override {
    return inner_->kernel_parameters(op, inputs);
  }
  Encoding preferred_encoding(const Op& op, std::size_t input,
                              const TensorSpec& spec) const override {
    return inner_->preferred_encoding(op, input, spec);
  }
  std::string compute_drawback(DType dtype, Rounding rounding, bool decodes) const override {
    return inner_->compute_drawback(dtype, rounding, decodes);
  }
  InferenceChoices inference_choices(DType dtype) const override {
    return inner_->inference_choices(dtype);
  }
  std::int32_t streams() const override { return inner_->streams(); }
  Result<Graph> lower(const Graph& graph) const override { return inner_->lower(graph); }
  Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) override {
    return inner_->evaluate(op, inputs);
  }

 protected:
  /// `inner` must not be null.
  explicit DeviceProxy(std::shared_ptr<Device> inner) : inner_(std::move(inner)) {}
  Result<Executable> load_plan(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                               std::shared_ptr<DeviceBuffer> arena) override {
    return inner_->load(std::move(plan), lookup, std::move(arena));
  }
  const std::shared_ptr<Device>& inner() const { return inner_; }

 private:
  std::shared_ptr<Device> inner_;
};

}  // namespace volta
