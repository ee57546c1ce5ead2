// What the attention tests share: operands as vectors, calls of the kernels, and a reference in
// double with error bounds derived from the rounding of f32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/cpu.h"

namespace volta::test {

/// One call of Attention: shapes and attributes.
struct AttentionCase {
  std::int64_t batch = 1, time = 1;
  std::int32_t heads = 1, kv_heads = 1, head_dim = 1, window = 0;
  bool packed = false;
  float dropout = 0.0f;
  float scale = 0.0f;  ///< 0: 1 / sqrt(head_dim)

  AttentionShape shape() const;
  std::int64_t group() const { return heads / kv_heads; }
  std::string name() const;
};

/// q, k, v (or their gradients) in rows [batch, time, heads * head_dim], whether or not the op gets
/// them packed.
struct Qkv {
  std::vector<float> q, k, v;
};

struct AttentionResult {
  std::vector<float> y, lse;
  bool operator==(const AttentionResult&) const = default;
};

/// A value in double and how far f32 arithmetic may lead away from it.
struct Bounded {
  double value = 0.0;
  double bound = 0.0;
};

inline constexpr std::int64_t kTestSeed = 1234567890123;
inline constexpr std::int64_t kTestStep = 42;
inline constexpr std::uint32_t kTestStream = 7;

std::vector<float> random_values(std::size_t count, std::uint32_t stream, float spread = 1.0f);
Qkv random_qkv(const AttentionCase& c, std::uint32_t stream = 1);
/// Rows q | k | v.
std::vector<float> pack_qkv(const AttentionCase& c, const Qkv& qkv);
Qkv unpack_qkv(const AttentionCase& c, const std::vector<float>& packed);

View view_of(std::vector<float>& values, const Shape& shape);
View view_of(std::vector<std::int32_t>& values, const Shape& shape);
View view_of(std::vector<std::int64_t>& values, const Shape& shape);

/// The instruction sets this machine can run.
std::vector<cpu::Simd> available_simd();
/// The name of a set as part of a test's name, which has no hyphens.
std::string simd_label(cpu::Simd simd);
ThreadPool make_pool(int threads);

/// Runs an op with a workspace of exactly the bytes it asks for, filled with NaN.
template <typename AnyOp>
void run_op(const AnyOp& op, std::vector<View> inputs, std::vector<View> outputs,
            const cpu::Context& context) {
  const std::int64_t bytes = cpu::workspace_bytes(op, {inputs, outputs}, context);
  struct alignas(64) Line {
    unsigned char bytes[64];
  };
  std::vector<Line> workspace(static_cast<std::size_t>((bytes + 63) / 64));
  for (Line& line : workspace) std::fill_n(line.bytes, 64, std::uint8_t{0xFF});
  const auto raw = std::as_writable_bytes(std::span(workspace));
  cpu::run(op, {inputs, outputs, raw.first(static_cast<std::size_t>(bytes))}, context);
}

AttentionResult run_attention(const AttentionCase& c, const Qkv& qkv, const cpu::Context& context);
Qkv run_attention_grad(const AttentionCase& c, const Qkv& qkv, const AttentionResult& forward,
                       const std::vector<float>& dy, const cpu::Context& context);

/// The factor of each weight [batch, heads, time, time]: 0 or 1 / (1 - p), from base/rng.h.
double dropout_factor(const AttentionCase& c, std::int64_t b, std::int64_t h, std::int64_t i,
                      std::int64_t j);

struct ReferenceResult {
  std::vector<Bounded> y, lse;
};
ReferenceResult reference_attention(const AttentionCase& c, const Qkv& qkv);

struct ReferenceGradients {
  std::vector<Bounded> dq, dk, dv;
};
ReferenceGradients reference_gradients(const AttentionCase& c, const Qkv& qkv,
                                       const std::vector<float>& dy);

/// Fails the test at the first value out of its bound.
void expect_near(const std::vector<float>& actual, const std::vector<Bounded>& expected,
                 const std::string& what);

}  // namespace volta::test
