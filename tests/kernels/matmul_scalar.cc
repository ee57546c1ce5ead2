// The reference of matmul_scalar.h.
#include "matmul_scalar.h"

#include <cmath>
#include <numbers>

#include "kernels/cpu/element.h"
#include "kernels/cpu/matmul_plan.h"

namespace volta::test {
namespace {

float load_element(const View& view, std::int64_t i) {
  float x = 0;
  cpu::visit_float(view.dtype,
                   [&](auto element) { x = cpu::to_f32(view.as<const decltype(element)>()[i]); });
  return x;
}

float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kGelu:
      return 0.5f * x * std::erfc(-x / std::numbers::sqrt2_v<float>);
    case Activation::kGeluTanh: {
      const float inner = std::sqrt(2 / std::numbers::pi_v<float>) * (x + 0.044715f * x * x * x);
      return 0.5f * x * (1 + std::tanh(inner));
    }
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

}  // namespace

void matmul_scalar(const MatMul& op, const cpu::Args& args) noexcept {
  const auto p = cpu::matmul_problem(op, {args.inputs, args.outputs});
  const View& a = args.inputs[0];
  const View& b = args.inputs[1];
  const std::size_t residual_input = op.has_bias ? 3 : 2;
  float* c = args.outputs[0].as<float>();
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k) {
          const std::int64_t ai = op.transpose_a ? k * p.m + i : i * p.k + k;
          const std::int64_t bi = op.transpose_b ? j * p.k + k : k * p.n + j;
          sum += static_cast<double>(load_element(a, batch * p.m * p.k + ai)) *
                 static_cast<double>(load_element(b, batch * p.k * p.n + bi));
        }
        const std::int64_t index = (batch * p.m + i) * p.n + j;
        float x = static_cast<float>(sum);
        if (op.has_bias) x += args.inputs[2].as<const float>()[j];
        x = activate(op.activation, x);
        if (op.has_residual) x += args.inputs[residual_input].as<const float>()[index];
        c[index] = x;
      }
    }
  }
}

}  // namespace volta::test
