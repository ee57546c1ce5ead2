// CpuDevice: options, the choice of instruction set, loaded plans, and single ops.
#include "device/cpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/cpu.h"
#include "base/environment.h"
#include "device/cpu_dispatch.h"
#include "kernels/cpu/matmul_plan.h"
#include "kernels/cpu/matmul_tile.h"
#include "ops/rules.h"

namespace volta {

namespace {

Result<cpu::Simd> parse_simd(std::string_view word) {
  for (const cpu::Simd simd : cpu::kAllSimd) {
    if (word == cpu::simd_name(simd)) return simd;
  }
  std::string names;
  for (const cpu::Simd simd : cpu::kAllSimd) {
    if (!names.empty()) names += simd == cpu::kAllSimd.back() ? " or " : ", ";
    names += cpu::simd_name(simd);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("VOLTA_SIMD: '{}' is no instruction set; choose {}", word, names));
}

// Parameters that no kernel supports could make a kernel write out of bounds.
Status check_tuning(const cpu::MatMulTuning* tuning, cpu::Simd simd) {
  if (tuning == nullptr || tuning->valid(simd)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the tuning holds parameters that no kernel of {} takes (a tile that is "
                          "not one of its tile_shapes()?)",
                          cpu::simd_name(simd)));
}

std::vector<View> views_of(std::span<const TensorSpec> specs) {
  std::vector<View> views;
  views.reserve(specs.size());
  for (const TensorSpec& spec : specs) views.emplace_back(nullptr, spec);
  return views;
}

// `element` of the op's index tensor was out of range. If the op has only one index tensor, the
// error also reports the value.
std::unexpected<Error> fail_bad_index(const OpCall& call, std::int64_t element) {
  const View* index = nullptr;
  int count = 0;
  for (const View& input : call.inputs) {
    if (input.dtype != DType::kI32) continue;
    index = &input;
    ++count;
  }
  std::string value;
  if (count == 1 && element < index->shape.elements()) {
    // SAFETY: the view holds i32 in host memory and `element` is inside it.
    value = fmt::format(" ({})", index->as<const std::int32_t>()[element]);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: element {} of its index tensor{} is out of range", describe(call),
                          element, value));
}

}  // namespace

Result<cpu::Simd> choose_simd(std::optional<cpu::Simd> wanted) {
  if (!wanted) {
    const std::string_view word = environment("VOLTA_SIMD");
    if (word.empty()) return cpu::best_simd();
    VOLTA_TRY(wanted, parse_simd(word));
  }
  if (!cpu::simd_available(*wanted)) {
    const bool refused = *wanted == cpu::Simd::kAmx && cpu::amx_refused();
    return fail(ErrorCode::kUnsupported,
                fmt::format("this machine cannot run {}{}; the best it has is {} (see VOLTA_SIMD)",
                            cpu::simd_name(*wanted),
                            refused ? ", because the system does not permit the CPU's tiles" : "",
                            cpu::simd_name(cpu::best_simd())));
  }
  return *wanted;
}

// The calls of a plan with their kernels, and the context in which they run.
class CpuDevice::CpuProgram final : public Program {
 public:
  CpuProgram(const CpuDevice& device, std::span<const OpCall> calls)
      : Program(calls.size()),
        device_(device),
        calls_(calls),
        context_(device.context(&bad_index_)) {
    kernels_.reserve(calls.size());
    for (const OpCall& call : calls) {
      kernels_.push_back(
          cpu_prepare(*call.op, {call.inputs, call.outputs, call.workspace}, context_));
    }
  }

  Status submit_step(std::size_t step) override {
    const OpCall& call = calls_[step];
    VOLTA_TRY(device_.check_stop(call));
    kernels_[step].run(context_);
    const std::int64_t bad = bad_index_.load(std::memory_order_relaxed);
    if (bad == 0) [[likely]]
      return {};
    bad_index_.store(0, std::memory_order_relaxed);
    return fail_bad_index(call, bad - 1);
  }

 private:
  const CpuDevice& device_;
  std::span<const OpCall> calls_;
  std::atomic<std::int64_t> bad_index_ = 0;
  cpu::Context context_;
  std::vector<CpuKernel> kernels_;
};

Result<std::shared_ptr<CpuDevice>> CpuDevice::create(const CpuDeviceOptions& options) {
  VOLTA_TRY(const cpu::Simd simd, choose_simd(options.simd));
  VOLTA_TRY(check_tuning(options.tuning.get(), simd));
  VOLTA_TRY(ThreadPool pool, ThreadPool::create(options.threads));
  return std::shared_ptr<CpuDevice>(
      new CpuDevice(std::move(pool), simd, options.tuning, options.interrupted));
}

CpuDevice::CpuDevice(ThreadPool pool, cpu::Simd simd,
                     std::shared_ptr<const cpu::MatMulTuning> tuning,
                     std::function<bool()> interrupted)
    : pool_(std::move(pool)),
      simd_(simd),
      tuning_(std::move(tuning)),
      interrupted_(std::move(interrupted)),
      memory_(host_memory()) {
  const CpuInfo machine = cpu_info();
  const MemoryLimits limits = cgroup_memory_limits();
  info_ = {
      .id = "cpu",
      .name = machine.model,
      .isa = cpu::simd_name(simd),
      .threads = pool_.threads(),
      .memory_bytes = std::min(machine.memory_bytes, limits.memory.value_or(machine.memory_bytes))};
}

cpu::Context CpuDevice::context(std::atomic<std::int64_t>* bad_index) const {
  cpu::Context context;
  context.simd = simd_;
  context.pool = &pool_;
  context.tuning = tuning_.get();
  context.bad_index = bad_index;
  return context;
}

Status CpuDevice::check_stop(const OpCall& call) const {
  if (call.may_stop && interrupted_ && interrupted_()) [[unlikely]] {
    return fail(ErrorCode::kInterrupted, "interrupted");
  }
  return {};
}

Status CpuDevice::run(const OpCall& call) {
  VOLTA_TRY(check_stop(call));
  std::atomic<std::int64_t> bad_index = 0;
  std::atomic<bool> stopped = false;
  cpu::Context context = this->context(&bad_index);
  if (call.may_stop && interrupted_) {
    context.interrupted = &interrupted_;
    context.stopped = &stopped;
  }
  cpu_dispatch(*call.op, {call.inputs, call.outputs, call.workspace}, context);
  if (stopped.load(std::memory_order_relaxed)) [[unlikely]] {
    return fail(ErrorCode::kInterrupted, "interrupted");
  }
  const std::int64_t bad = bad_index.load(std::memory_order_relaxed);
  if (bad != 0) [[unlikely]]
    return fail_bad_index(call, bad - 1);
  return {};
}

Result<std::unique_ptr<Program>> CpuDevice::compile(std::span<const OpCall> calls) {
  return std::make_unique<CpuProgram>(*this, calls);
}

bool CpuDevice::supports(const Op& op, std::span<const TensorSpec> inputs) const {
  // Panels for the kernels of another instruction set do not fit this one's vectors.
  const bool ours = std::ranges::all_of(inputs, [&](const TensorSpec& spec) {
    return spec.encoding.packing == Packing::kRows ||
           spec.encoding ==
               cpu::panel_encoding(spec.dtype, spec.encoding.transposed, simd_, spec.encoding);
  });
  // A product reads integers in panels.
  const bool rows = std::holds_alternative<MatMul>(op) && inputs.size() > 1 &&
                    inputs[1].encoding.quantized() && inputs[1].encoding.packing == Packing::kRows;
  return ours && !rows && infer(op, inputs).has_value();
}

std::int64_t CpuDevice::workspace_bytes(const Op& op, std::span<const TensorSpec> inputs,
                                        std::span<const TensorSpec> outputs) const {
  const std::vector<View> input_views = views_of(inputs);
  const std::vector<View> output_views = views_of(outputs);
  return cpu_workspace_bytes(op, {input_views, output_views}, context(nullptr));
}

Encoding CpuDevice::preferred_encoding(const Op& op, std::size_t input,
                                       const TensorSpec& spec) const {
  const auto* matmul = std::get_if<MatMul>(&op);
  if (matmul == nullptr || spec.shape.rank() != 2) return {};
  Encoding stored = spec.encoding;
  if (stored.quantized() && stored.block == 0) {
    stored.block = format_new_block(stored.quant, spec.shape[matmul->transpose_b ? 1 : 0]);
  }
  const Encoding panels = cpu::panel_encoding(spec.dtype, matmul->transpose_b, simd_, stored);
  return accepts_encoding(op, input, panels) ? panels : Encoding{};
}

// From this many threads on, one sequence decodes more slowly in bf16 with AMX than in f32 (16
// threads of a Sapphire Rapids: 0.82 to 0.95 of its speed; with 4 threads it does not).
constexpr int kManyThreads = 8;

// In the time of an f32 multiply-add, VDPBF16PS does twice the work on Zen 5, and half of it on
// Sapphire Rapids, where only VOLTA_SIMD can select it.
std::string CpuDevice::compute_drawback(DType dtype, Rounding rounding, bool decodes) const {
  if (dtype == DType::kF32) return {};
  const cpu::Multiplier multiplier = cpu::multiplier(dtype, dtype, simd_);
  if (multiplier == cpu::Multiplier::kFma) {
    return fmt::format("this CPU's {} kernels convert {} to f32 and multiply that", info_.isa,
                       dtype_name(dtype));
  }
  if (multiplier == cpu::Multiplier::kBf16Dot && cpu::best_simd() != simd_) {
    return "this CPU's bf16 dot product is not known to be faster than its f32 multiply-add";
  }
  if (rounding == Rounding::kProducts) {
    const bool slow = decodes && multiplier == cpu::Multiplier::kAmx && threads() >= kManyThreads;
    return slow ? "with many threads, decoding one sequence may be slower than in f32" : "";
  }
  return "all ops but matrix products convert activations to f32 and back on a CPU";
}

// A kernel might have a choice of how it sums. A product of floats is one chain of multiply-adds
// over K; with integers, the blocks follow from the weight's type and K. A 16-bit result is
// reported, because runs in bf16 once kept all results in f32.
std::string CpuDevice::kernel_parameters(const Op& op, std::span<const TensorSpec> inputs) const {
  const auto* const product = std::get_if<MatMul>(&op);
  if (product == nullptr) return {};
  std::string words = "MatMul: one sum over K";
  switch (cpu::multiplier(inputs[0].dtype, inputs[1].dtype, simd_)) {
    case cpu::Multiplier::kFma:
      break;
    case cpu::Multiplier::kBf16Dot:
      words += ", bf16 by pairs";
      break;
    case cpu::Multiplier::kAmx:
      words += ", bf16 by tiles";
      break;
  }
  if (product->out != DType::kF32)
    words += fmt::format(", results in {}", dtype_name(product->out));
  return words;
}

}  // namespace volta
