// The CPU backend's entry points: one `run` per op, on raw views. Kernels allocate nothing, never
// fail and never throw. infer checked shapes and types when the plan was made. Kernels know ops and
// views, not tensors, graphs or devices.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/parallel.h"
#include "ops/op.h"
#include "tensor/view.h"

namespace [[gnu::visibility("default")]] volta {
namespace cpu {

/// The sets of instructions that kernels use. Each one includes those before it. A result may
/// differ in its last bits from set to set, and never within one.
enum class Simd : std::uint8_t {
  kSse4,          ///< The portable path (x86-64-v2, no FMA).
  kAvx2,          ///< AVX2 and FMA.
  kAvx512NoVnni,  ///< AVX-512 F, CD, BW, DQ and VL.
  kAvx512,        ///< With VNNI, for products of integers.
  kAvx512Bf16,    ///< With AVX512_BF16, for products of two bf16 operands.
  kAmx,           ///< With AMX tiles, for products of two bf16 operands instead of AVX512_BF16.
};
inline constexpr std::array kAllSimd = {Simd::kSse4,   Simd::kAvx2,       Simd::kAvx512NoVnni,
                                        Simd::kAvx512, Simd::kAvx512Bf16, Simd::kAmx};

/// The fastest one on this machine. A set with AVX512_BF16 but without AMX is chosen on AMD's CPUs
/// only, because Intel's multiply pairs of bf16 at half the speed of f32 (Sapphire Rapids).
Simd best_simd();
/// Whether this machine can run `simd`. For kAmx, the first call asks the system for the permission
/// to use tiles.
bool simd_available(Simd simd);
/// "sse4", "avx2", "avx512-novnni", "avx512", "avx512-bf16", "amx".
const char* simd_name(Simd simd);
/// Whether this CPU has AMX, but the system does not let programs use it.
bool amx_refused();

constexpr bool has_avx512(Simd simd) { return simd >= Simd::kAvx512NoVnni; }
constexpr bool has_vnni(Simd simd) { return simd >= Simd::kAvx512; }

class MatMulTuning;

/// What a kernel gets besides its operands.
struct Context {
  Simd simd = Simd::kSse4;
  ThreadPool* pool = nullptr;  ///< Never null.
  /// Set to 1 + the index of the offending element if an index tensor holds a value out of range.
  /// The kernel then uses a defined value (zeros, or it skips the row).
  std::atomic<std::int64_t>* bad_index = nullptr;
  /// Tuned parameters for some matrix products (matmul_parameters.h); may be null.
  const MatMulTuning* tuning = nullptr;
  /// A callback for kernels that prepare whole weights (Cast, Encode), which take seconds. They
  /// call it between blocks. If it returns true, they set `stopped` and leave their output
  /// unfinished. Both are null if the result is always needed.
  const std::function<bool()>* interrupted = nullptr;
  std::atomic<bool>* stopped = nullptr;
};

/// The operands of one op, in the order of its comment in ops/op.h.
struct Args {
  std::span<const View> inputs;
  std::span<const View> outputs;
  std::span<std::byte> workspace;  ///< At least workspace_bytes(), 64-byte aligned.
};

/// The shapes of the operands, for workspace sizes.
struct ArgShapes {
  std::span<const View> inputs;  ///< Data pointers are null.
  std::span<const View> outputs;
};

}  // namespace cpu
}  // namespace volta

// The kernels themselves are for devices, not for users of the library.
namespace volta::cpu {

// run(), and the number of scratch bytes that it needs (0 if none). Both are in the file of the
// op's kernel. There is no default, because a forgotten size would let a kernel write past its
// workspace.
#define VOLTA_DECLARE_CPU_KERNEL(Name)                                         \
  void run(const Name& op, const Args& args, const Context& context) noexcept; \
  std::int64_t workspace_bytes(const Name& op, const ArgShapes& shapes, const Context& context);
VOLTA_OPS(VOLTA_DECLARE_CPU_KERNEL)
#undef VOLTA_DECLARE_CPU_KERNEL

}  // namespace volta::cpu
