// CpuDevice: runs ops with the kernels of kernels/cpu on this machine's processors. It owns the
// thread pool and the choice of instruction set; the kernels get both handed in. It knows no model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/parallel.h"
#include "base/result.h"
#include "device/device.h"
#include "kernels/cpu/cpu.h"

namespace [[gnu::visibility("default")]] volta {

struct CpuDeviceOptions {
  /// Threads to compute with; 0: VOLTA_NUM_THREADS where set, otherwise all this process may use.
  int threads = 0;
  /// The instruction set; empty: VOLTA_SIMD (sse4, avx2 or avx512) where set, otherwise the best
  /// one of this machine.
  std::optional<cpu::Simd> simd = {};
  /// Better choices for some matrix products, made for the same instruction set; null: the defaults
  /// for all. open_device() (tuner/open_device.h) passes what `volta tune` found for this CPU.
  /// Results are the same, bit for bit.
  std::shared_ptr<const cpu::MatMulTuning> tuning = {};
  /// Asked whether to stop with kInterrupted: before each step of a plan that may be given up there
  /// (OpCall::may_stop), and between blocks of long work (Device::interrupted()). Must be quick,
  /// allocate nothing and be safe to call from any thread, this device's own among them. Empty:
  /// never.
  std::function<bool()> interrupted = {};
};

/// The instruction set that a device made with `wanted` uses: VOLTA_SIMD's where `wanted` is empty,
/// and the best one of this machine where that is not set. The errors of CpuDevice::create.
Result<cpu::Simd> choose_simd(std::optional<cpu::Simd> wanted);

/// The CPU backend. Its memory is the process's own (host_memory()). Safe to use from several
/// threads at once; they share the pool.
class CpuDevice final : public Device {
 public:
  /// Reads and writes no file. kInvalidArgument for an absurd number of threads, a
  /// VOLTA_NUM_THREADS that is no number, a VOLTA_SIMD that is no instruction set or a table that
  /// was made for another one; kUnsupported for an instruction set that this machine lacks.
  static Result<std::shared_ptr<CpuDevice>> create(const CpuDeviceOptions& options = {});

  DeviceInfo info() const override { return info_; }
  const std::shared_ptr<MemoryOwner>& memory() const override { return memory_; }
  /// kInvalidArgument, naming op, label and element, when an index tensor holds a value out of
  /// range; the outputs are defined even then.
  Status run(const OpCall& call) override;
  bool interrupted() const override { return interrupted_ && interrupted_(); }
  bool supports(const Op& op, std::span<const TensorSpec> inputs) const override;
  std::int64_t workspace_bytes(const Op& op, std::span<const TensorSpec> inputs,
                               std::span<const TensorSpec> outputs) const override;
  /// The weight of a MatMul, and a table that is one too, in panels.
  Encoding preferred_encoding(const Op& op, std::size_t input,
                              const TensorSpec& spec) const override;
  /// Products in bf16 pay where the CPU's dot product of bf16 is known to be faster than its f32
  /// multiply-add; 16-bit activations never do, because other ops convert them to f32 and back.
  std::string compute_drawback(DType dtype, Rounding rounding) const override;
  /// Of a MatMul how it sums; of other ops nothing.
  std::string kernel_parameters(const Op& op, std::span<const TensorSpec> inputs) const override;

  /// The instruction set that its kernels use.
  cpu::Simd simd() const { return simd_; }
  int threads() const { return pool_.threads(); }
  /// What its matrix products were tuned to; null: nothing.
  const std::shared_ptr<const cpu::MatMulTuning>& tuning() const { return tuning_; }

 protected:
  Result<std::unique_ptr<Program>> compile(std::span<const OpCall> calls) override;

 private:
  class CpuProgram;
  CpuDevice(ThreadPool pool, cpu::Simd simd, std::shared_ptr<const cpu::MatMulTuning> tuning,
            std::function<bool()> interrupted);
  cpu::Context context(std::atomic<std::int64_t>* bad_index) const;
  Status check_stop(const OpCall& call) const;

  mutable ThreadPool pool_;
  cpu::Simd simd_;
  std::shared_ptr<const cpu::MatMulTuning> tuning_;
  std::function<bool()> interrupted_;
  std::shared_ptr<MemoryOwner> memory_;
  DeviceInfo info_;
};

}  // namespace volta
