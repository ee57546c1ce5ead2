// CpuDevice runs ops with the kernels of kernels/cpu on this machine's processors. It owns the
// thread pool and chooses the instruction set, and passes both to the kernels. It knows nothing
// about models.
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
  /// Number of threads to compute with. 0 means VOLTA_NUM_THREADS if it is set, otherwise all
  /// processors that this process may use.
  int threads = 0;
  /// The instruction set to use. If it is empty, VOLTA_SIMD (a name of simd_name()) decides. If
  /// that is not set either, the best one of this machine is used.
  std::optional<cpu::Simd> simd = {};
  /// Tuned parameters for some matrix products, for the same instruction set. Null means that every
  /// product uses the defaults. open_device() (tuner/open_device.h) passes what `volta tune` found
  /// for this CPU. Tuning does not change a single bit of the results.
  std::shared_ptr<const cpu::MatMulTuning> tuning = {};
  /// A callback that returns true when work should stop with kInterrupted. It is called before each
  /// step of a plan that may be given up at that point (OpCall::may_stop), and between blocks of
  /// long work (Device::interrupted()). It must be quick, allocate nothing and be safe to call from
  /// any thread, including the threads of this device. If it is empty, work is never interrupted.
  std::function<bool()> interrupted = {};
};

/// The instruction set that a device created with `wanted` uses. If `wanted` is empty, VOLTA_SIMD
/// decides; if that is not set, the best one of this machine is used. Errors are those of
/// CpuDevice::create.
Result<cpu::Simd> choose_simd(std::optional<cpu::Simd> wanted);

/// The CPU backend. Its memory is the process's own (host_memory()). Several threads may use a
/// device at once; they share its thread pool.
class CpuDevice final : public Device {
 public:
  /// Reads and writes no file. kInvalidArgument for an absurd number of threads, for a
  /// VOLTA_NUM_THREADS that is not a number, for a VOLTA_SIMD that names no instruction set, and
  /// for tuned parameters that no kernel of this instruction set supports. kUnsupported for an
  /// instruction set that this machine lacks.
  static Result<std::shared_ptr<CpuDevice>> create(const CpuDeviceOptions& options = {});

  DeviceInfo info() const override { return info_; }
  const std::shared_ptr<MemoryOwner>& memory() const override { return memory_; }
  /// kInvalidArgument, naming the op, its label and the element, if an index tensor holds a value
  /// out of range. The outputs are defined even then.
  Status run(const OpCall& call) override;
  bool interrupted() const override { return interrupted_ && interrupted_(); }
  bool supports(const Op& op, std::span<const TensorSpec> inputs) const override;
  std::int64_t workspace_bytes(const Op& op, std::span<const TensorSpec> inputs,
                               std::span<const TensorSpec> outputs) const override;
  /// Panels for a rank-2 weight of a MatMul; the plain encoding for everything else.
  Encoding preferred_encoding(const Op& op, std::size_t input,
                              const TensorSpec& spec) const override;
  /// Products in bf16 pay off on CPUs that multiply bf16 faster than f32: with AMX, and with AMD's
  /// AVX512_BF16. Activations in 16 bits never pay off, because other ops convert them to f32 and
  /// back.
  std::string compute_drawback(DType dtype, Rounding rounding, bool decodes) const override;
  /// For a MatMul: how it sums over K, and its result type if that is not f32. Empty for other ops.
  std::string kernel_parameters(const Op& op, std::span<const TensorSpec> inputs) const override;

  /// The instruction set that the kernels of this device use.
  cpu::Simd simd() const { return simd_; }
  int threads() const { return pool_.threads(); }
  /// The tuned parameters of its matrix products; null if there are none.
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
