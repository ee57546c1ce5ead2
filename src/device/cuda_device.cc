// CudaDevice: finds a GPU, and the device that runs ops and plans on it.
#include "device/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "device/cuda_dispatch.h"
#include "device/cuda_memory.h"
#include "device/cuda_program.h"
#include "device/cuda_queue.h"
#include "graph/passes.h"
#include "ops/rules.h"

namespace volta {

namespace {

// "13.0" for CUDA's 13000.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The number of GPUs, at least 1; or why no GPU can be used at all.
Result<int> count_gpus() {
  constexpr std::string_view kInstead = "use the CPU (VOLTA_DEVICE=cpu, or --device cpu)";
  int gpus = 0;
  const cudaError_t error = cudaGetDeviceCount(&gpus);
  if (error == cudaSuccess && gpus > 0) return gpus;
  static_cast<void>(cudaGetLastError());
  int driver = 0, runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) {
    return fail(ErrorCode::kDevice,
                fmt::format("this machine has no NVIDIA driver (libcuda.so.1 cannot be loaded); "
                            "install one, or {}",
                            kInstead));
  }
  if (error == cudaErrorInsufficientDriver) {
    return fail(ErrorCode::kDevice,
                fmt::format("the NVIDIA driver supports CUDA {}, and this build needs {}; install "
                            "a newer driver, or {}",
                            version_text(driver), version_text(runtime), kInstead));
  }
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    return fail(
        ErrorCode::kDevice,
        fmt::format("the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES set?); {}", kInstead));
  }
  return cuda_error(error, "looking for GPUs");
}

std::vector<View> views_of(std::span<const TensorSpec> specs) {
  std::vector<View> views;
  views.reserve(specs.size());
  for (const TensorSpec& spec : specs) views.emplace_back(nullptr, spec);
  return views;
}

bool has_index_input(const OpCall& call) {
  return std::ranges::any_of(call.inputs,
                             [](const View& view) { return view.dtype == DType::kI32; });
}

class GpuDevice final : public Device {
 public:
  GpuDevice(std::shared_ptr<CudaQueue> queue, std::shared_ptr<MemoryOwner> memory, DeviceInfo info,
            std::function<bool()> interrupted)
      : queue_(std::move(queue)),
        memory_(std::move(memory)),
        results_(std::make_shared<PinnedMemory>(queue_)),
        info_(std::move(info)),
        interrupted_(std::move(interrupted)) {}

  DeviceInfo info() const override { return info_; }
  const std::shared_ptr<MemoryOwner>& memory() const override { return memory_; }
  std::shared_ptr<MemoryOwner> result_memory() const override { return results_; }
  bool interrupted() const override { return interrupted_ && interrupted_(); }
  Status synchronize() override { return queue_->wait(); }

  // A fault of a single op is found at once, because nothing keeps the op's name for later.
  Status run(const OpCall& call) override {
    if (call.may_stop) VOLTA_TRY(check_interrupted(*this));
    const bool may_fault = has_index_input(call);
    unsigned long long number = 0;
    if (may_fault) {
      VOLTA_TRY(number, queue_->add_calls({&call, 1}));
    }
    Status status = launch(call, number);
    if (!may_fault) return status;
    if (status) status = queue_->wait();
    queue_->remove_calls(number);
    return status;
  }

  bool supports(const Op& op, std::span<const TensorSpec> inputs) const override {
    return infer(op, inputs).has_value() && cuda_supports(op, inputs);
  }
  std::int64_t workspace_bytes(const Op& op, std::span<const TensorSpec> inputs,
                               std::span<const TensorSpec> outputs) const override {
    const std::vector<View> input_views = views_of(inputs);
    const std::vector<View> output_views = views_of(outputs);
    return cuda_workspace_bytes(op, {input_views, output_views}, queue_->context(0));
  }

  // Memory bounds everything but products, so activations of 16 bits pay. A step of 256 rows would
  // leave most multiprocessors without work.
  InferenceChoices inference_choices(DType dtype) const override {
    constexpr std::int64_t kStepRows = 2048;
    // Measured on an H100 in bf16, as (a token's time) / (a prompt's time for each row): 300 for a
    // model of 8.0 billion parameters, 390 for 1.24 billion, 520 for 110 million. Products in f32
    // take ten times as long and read twice the bytes. With integers of 4 and 8 bits, 60 for 1.24
    // billion parameters; there up to 32 rows are multiplied by a kernel of their own
    // (quant_few.cu), and a step of 64 takes 2.5 to 4 times as long as one of 32.
    const bool wide = dtype == DType::kF32;
    return {.rounding = Rounding::kActivations,
            .cache = dtype,
            .step_rows = kStepRows,
            .costs = {.overhead_rows = wide ? 32 : 256},
            .integer_costs = {.overhead_rows = wide ? 32 : 64, .fast_rows = 32}};
  }
  // One launch rounds all weights of a training step.
  Result<Graph> lower(const Graph& graph) const override { return hoist_casts(graph); }

  // Weights keep the order of rows in which files store them.
  Encoding preferred_encoding(const Op& op, std::size_t input,
                              const TensorSpec& spec) const override {
    const auto* const product = std::get_if<MatMul>(&op);
    if (product == nullptr || input != 1 || spec.shape.rank() != 2) return {};
    if (!spec.encoding.quantized()) return {};
    Encoding rows = spec.encoding;
    rows.packing = Packing::kRows;
    rows.transposed = product->transpose_b;
    if (rows.block == 0) {
      rows.block = format_new_block(rows.quant, spec.shape[product->transpose_b ? 1 : 0]);
    }
    return accepts_encoding(op, input, rows) ? rows : Encoding{};
  }

  // The order of every sum follows from shapes and types alone.
  std::string kernel_parameters(const Op& op,
                                std::span<const TensorSpec> /*inputs*/) const override {
    const auto* const product = std::get_if<MatMul>(&op);
    if (product == nullptr) return {};
    std::string words = "MatMul: CUDA";
    if (product->out != DType::kF32) {
      words += fmt::format(", results in {}", dtype_name(product->out));
    }
    return words;
  }

 protected:
  Result<std::unique_ptr<Program>> compile(std::span<const OpCall> calls) override {
    return CudaProgram::create(queue_, memory_, calls, interrupted_);
  }

 private:
  Status launch(const OpCall& call, unsigned long long number) {
    VOLTA_TRY(queue_->select());
    const cudaError_t error =
        cuda_run(*call.op, {call.inputs, call.outputs, call.workspace}, queue_->context(number));
    if (error == cudaSuccess) [[likely]]
      return {};
    return cuda_error(error, describe(call));
  }

  std::shared_ptr<CudaQueue> queue_;
  std::shared_ptr<MemoryOwner> memory_;
  std::shared_ptr<MemoryOwner> results_;
  DeviceInfo info_;
  std::function<bool()> interrupted_;
};

Result<std::shared_ptr<Device>> open(const CudaDeviceOptions& options) {
  VOLTA_TRY(const int gpus, count_gpus());
  if (options.index < 0 || options.index >= gpus) {
    return fail(ErrorCode::kDevice,
                fmt::format("this machine has {}, with the numbers from 0", counted(gpus, "GPU")));
  }
  VOLTA_TRY(auto queue, CudaQueue::create(options.index));
  VOLTA_TRY(auto memory, CudaMemory::create(queue));
  cudaDeviceProp properties = {};
  VOLTA_TRY(cuda_status(cudaGetDeviceProperties(&properties, options.index),
                        "reading the GPU's properties"));
  const DeviceInfo info = {.id = fmt::format("cuda:{}", options.index),
                           .name = properties.name,
                           .isa = fmt::format("sm_{}", queue->architecture()),
                           .threads = 1,
                           .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
  return std::make_shared<GpuDevice>(std::move(queue), std::move(memory), info,
                                     options.interrupted);
}

}  // namespace

Status CudaDevice::usable() {
  if (const auto gpus = count_gpus(); !gpus) return std::unexpected(gpus.error());
  return {};
}

int CudaDevice::count() { return count_gpus().value_or(0); }

Result<std::shared_ptr<Device>> CudaDevice::create(const CudaDeviceOptions& options) {
  auto device = open(options);
  if (device) return device;
  return std::unexpected(
      std::move(device).error().with_context(fmt::format("CUDA device {}", options.index)));
}

}  // namespace volta
