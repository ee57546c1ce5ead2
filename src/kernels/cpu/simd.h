// Which instruction set runs a kernel, and how a leaf file offers one body for all of them.
// Highway compiles a leaf file once per instruction set, into the namespaces N_SSE4, N_AVX2 and
// N_AVX3; the device's Context says which one to call. Highway's own process-wide dispatch is not
// used: two devices of one process may run different sets.
//
// A leaf file looks like this (copy it; softmax.cc as an example):
//
//   // What the kernel computes and how. It must not know ...
//   #include "kernels/cpu/cpu.h"      // All plain headers first: what is included after
//   #include "base/parallel.h"        // foreach_target must be an -inl.h.
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cc"  // This file, relative to src/.
//   #include "hwy/foreach_target.h"   // Includes this file again for every other target.
//   #include "hwy/highway.h"
//   #include "kernels/cpu/math-inl.h"  // Loads, stores, exp, tanh, ... (in this namespace).
//   #include "kernels/cpu/simd.h"
//
//   HWY_BEFORE_NAMESPACE();           // Nothing but kernels between BEFORE and AFTER.
//   namespace volta::cpu::HWY_NAMESPACE {
//   namespace {                       // Leaf files share N_AVX3; keep their helpers apart.
//
//   void softmax_rows(const float* x, float* y, std::int64_t columns, float scale) {
//     const F32 d;                    // ScalableTag<float>; Lanes(d) is 4, 8 or 16.
//     std::int64_t i = 0;
//     for (; i + lanes(d) <= columns; i += lanes(d)) hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i);
//     if (i < columns) store_n(d, f(load_n(d, x + i, columns - i)), y + i, columns - i);
//   }
//
//   }  // namespace
//   void softmax(const Softmax& op, const Args& args, const Context& context) {
//     // Lambdas that use vectors need HWY_ATTR: clang gives them no target otherwise.
//     parallel_for(*context.pool, 0, rows, grain, [&](std::int64_t b, std::int64_t e) HWY_ATTR {
//       ...
//     });
//   }
//   }  // namespace volta::cpu::HWY_NAMESPACE
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace volta::cpu {
//   void run(const Softmax& op, const Args& args, const Context& context) noexcept {
//     VOLTA_SIMD_CALL(context.simd, softmax, op, args, context);
//   }
//   }  // namespace volta::cpu
//   #endif
//
// The selected function's parameters are plain types (no vectors), the same in every namespace. It
// may be a template instance when its argument list has no comma: softmax<float>.
#pragma once

#include "hwy/detect_targets.h"
#include "kernels/cpu/cpu.h"

// VOLTA_SIMD_SELECT(simd, function): a pointer to the function of the namespace that `simd` names.
// The target of the whole binary (SSE4, unless it is built for a newer baseline) needs no test.
#if (HWY_TARGETS & HWY_AVX3) && HWY_STATIC_TARGET != HWY_AVX3
#define VOLTA_SIMD_IF_AVX512(simd, function) ::volta::cpu::has_avx512(simd) ? &N_AVX3::function:
#else
#define VOLTA_SIMD_IF_AVX512(simd, function)
#endif
#if (HWY_TARGETS & HWY_AVX2) && HWY_STATIC_TARGET != HWY_AVX2
#define VOLTA_SIMD_IF_AVX2(simd, function) (simd) == ::volta::cpu::Simd::kAvx2 ? &N_AVX2::function:
#else
#define VOLTA_SIMD_IF_AVX2(simd, function)
#endif
#define VOLTA_SIMD_SELECT(simd, function)                                    \
  (VOLTA_SIMD_IF_AVX512(simd, function) VOLTA_SIMD_IF_AVX2(simd, function) & \
   HWY_STATIC_DISPATCH(function))

/// Calls `function` of the namespace that `simd` names, inside `#if HWY_ONCE` of a leaf file.
#define VOLTA_SIMD_CALL(simd, function, ...) VOLTA_SIMD_SELECT(simd, function)(__VA_ARGS__)
