#include "interpreter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <stdexcept>

#include "tensor/float16.h"

namespace volta::testing {
namespace {

float rounded(float x, DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return f32_from_bf16(bf16_from_f32(x));
    case DType::kF16:
      return f32_from_f16(f16_from_f32(x));
    case DType::kF32:
      return x;
    default:
      return std::nearbyint(x);
  }
}

// Elements to bytes and back, as memory holds them.
void store(const Array& array, std::span<std::byte> bytes) {
  const auto size = static_cast<std::size_t>(dtype_size(array.spec.dtype));
  for (std::size_t i = 0; i < array.data.size(); ++i) {
    const float x = array.data[i];
    const auto put = [&](auto value) { std::memcpy(&bytes[i * size], &value, sizeof(value)); };
    switch (array.spec.dtype) {
      case DType::kF32:
        put(x);
        break;
      case DType::kBF16:
        put(bf16_from_f32(x));
        break;
      case DType::kF16:
        put(f16_from_f32(x));
        break;
      case DType::kI32:
        put(static_cast<std::int32_t>(x));
        break;
      default:
        throw std::runtime_error("interpreter: dtype");
    }
  }
}

Array load(const TensorSpec& spec, std::span<const std::byte> bytes) {
  Array array{spec, std::vector<float>(static_cast<std::size_t>(spec.shape.elements()))};
  const auto size = static_cast<std::size_t>(dtype_size(spec.dtype));
  for (std::size_t i = 0; i < array.data.size(); ++i) {
    const auto get = [&](auto value) {
      std::memcpy(&value, &bytes[i * size], sizeof(value));
      return value;
    };
    switch (spec.dtype) {
      case DType::kF32:
        array.data[i] = get(float{});
        break;
      case DType::kBF16:
        array.data[i] = f32_from_bf16(get(std::uint16_t{}));
        break;
      case DType::kF16:
        array.data[i] = f32_from_f16(get(std::uint16_t{}));
        break;
      case DType::kI32:
        array.data[i] = static_cast<float>(get(std::int32_t{}));
        break;
      default:
        throw std::runtime_error("interpreter: dtype");
    }
  }
  return array;
}

double unary(UnaryKind kind, double alpha, double x) {
  switch (kind) {
    case UnaryKind::kNone:
      return x;
    case UnaryKind::kScale:
      return alpha * x;
    case UnaryKind::kExp:
      return std::exp(x);
    case UnaryKind::kLog:
      return std::log(x);
    case UnaryKind::kSqrt:
      return std::sqrt(x);
    case UnaryKind::kSquare:
      return x * x;
    case UnaryKind::kReciprocal:
      return 1 / x;
    case UnaryKind::kTanh:
      return std::tanh(x);
    case UnaryKind::kRelu:
      return std::max(x, 0.0);
    case UnaryKind::kGelu:
      return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
    case UnaryKind::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1 + std::tanh(inner));
    }
    case UnaryKind::kSilu:
      return x / (1 + std::exp(-x));
  }
  return 0;
}

// One product of a [m, k] (as the flags say) at offset a0 with b at offset b0.
void multiply(const MatMul& op, const Array& a, const Array& b, Array& c, std::size_t product,
              std::size_t m, std::size_t n, std::size_t k) {
  const std::size_t a0 = product * m * k;
  const std::size_t b0 = product * k * n;
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t l = 0; l < k; ++l) {
        const float x = a.data[a0 + (op.transpose_a ? l * m + i : i * k + l)];
        const float y = b.data[b0 + (op.transpose_b ? j * k + l : l * n + j)];
        sum += static_cast<double>(x) * static_cast<double>(y);
      }
      c.data[product * m * n + i * n + j] = static_cast<float>(sum);
    }
  }
}

class Evaluator {
 public:
  Evaluator(std::span<Array> inputs, std::vector<Array>& outputs) : in_(inputs), out_(outputs) {}

  void operator()(const Unary& op) {
    for (std::size_t i = 0; i < size(); ++i) y()[i] = apply(op.kind, op.alpha, x(0)[i]);
  }
  void operator()(const UnaryGrad& op) {  // Central differences are enough here.
    for (std::size_t i = 0; i < size(); ++i) {
      const double h = 1e-4;
      const double x0 = static_cast<double>(x(0)[i]);
      const double slope =
          (unary(op.kind, op.alpha, x0 + h) - unary(op.kind, op.alpha, x0 - h)) / (2 * h);
      y()[i] = static_cast<float>(slope * static_cast<double>(x(1)[i]));
    }
  }
  void operator()(const Binary& op) {
    for (std::size_t i = 0; i < size(); ++i) {
      const float a = x(0)[i];
      const float b = x(1)[i % x(1).size()];
      y()[i] = op.kind == BinaryKind::kAdd   ? a + b
               : op.kind == BinaryKind::kSub ? a - b
               : op.kind == BinaryKind::kMul ? a * b
                                             : a / b;
    }
  }
  void operator()(const MatMul& op) {
    const Shape& a = in_[0].spec.shape;
    const Shape& b = in_[1].spec.shape;
    const auto columns = static_cast<std::size_t>(out_[0].spec.shape.columns());
    const std::int64_t products = op.batched ? a.product(0, a.rank() - 2) : 1;
    const auto count = static_cast<std::size_t>(products);
    const std::size_t rows = size() / columns / count;
    const std::size_t inner = static_cast<std::size_t>(a.elements()) / rows / count;
    if (static_cast<std::size_t>(b.elements()) != inner * columns * count) {
      throw std::runtime_error("interpreter: matmul sizes");
    }
    for (std::size_t i = 0; i < count; ++i) {
      multiply(op, in_[0], in_[1], out_[0], i, rows, columns, inner);
    }
    const auto& bias = x(2 < in_.size() ? 2 : 0);
    const auto& residual = x(in_.size() - 1);
    for (std::size_t i = 0; i < size(); ++i) {
      float& c = y()[i];
      if (op.has_bias) c += bias[i % columns];
      if (op.activation != Activation::kNone) c = apply(op.activation, 1, c);
      if (op.has_residual) c += residual[i];
    }
  }
  void operator()(const Reduce& op) {
    const Shape& shape = in_[0].spec.shape;
    const auto inner = static_cast<std::size_t>(shape.product(op.end, shape.rank()));
    const auto count = static_cast<std::size_t>(shape.product(op.begin, op.end));
    for (std::size_t i = 0; i < size(); ++i) {
      const std::size_t first = i / inner * count * inner + i % inner;
      double sum = 0;
      float largest = x(0)[first];
      for (std::size_t j = 0; j < count; ++j) {
        sum += static_cast<double>(x(0)[first + j * inner]);
        largest = std::max(largest, x(0)[first + j * inner]);
      }
      if (op.kind == ReduceKind::kMean) sum /= static_cast<double>(count);
      y()[i] = op.kind == ReduceKind::kMax ? largest : static_cast<float>(sum);
    }
  }
  void operator()(const Expand& op) {
    const int added = op.shape.rank() - in_[0].spec.shape.rank();
    const auto inner =
        static_cast<std::size_t>(op.shape.product(op.begin + added, op.shape.rank()));
    const auto count = static_cast<std::size_t>(op.shape.product(op.begin, op.begin + added));
    for (std::size_t i = 0; i < size(); ++i) {
      y()[i] = op.scale * x(0)[i / (inner * count) * inner + i % inner];
    }
  }
  void operator()(const Reshape&) { y() = x(0); }
  void operator()(const Permute& op) {
    const Shape& from = in_[0].spec.shape;
    const Shape& to = out_[0].spec.shape;
    for (std::size_t i = 0; i < size(); ++i) {
      std::int64_t rest = static_cast<std::int64_t>(i);
      std::size_t source = 0;
      for (int axis = to.rank() - 1; axis >= 0; --axis) {
        const int from_axis = op.perm[static_cast<std::size_t>(axis)];
        source +=
            static_cast<std::size_t>(rest % to[axis] * from.product(from_axis + 1, from.rank()));
        rest /= to[axis];
      }
      y()[i] = x(0)[source];
    }
  }
  void operator()(const Slice& op) {
    const Shape& shape = in_[0].spec.shape;
    const auto inner = static_cast<std::size_t>(shape.product(op.axis + 1, shape.rank()));
    const auto length = static_cast<std::size_t>(op.length);
    for (std::size_t i = 0; i < size(); ++i) {
      const std::size_t outer = i / inner / length;
      const std::size_t at = i / inner % length + static_cast<std::size_t>(op.begin);
      y()[i] = x(0)[(outer * static_cast<std::size_t>(shape[op.axis]) + at) * inner + i % inner];
    }
  }
  void operator()(const Pad& op) {
    const Shape& shape = in_[0].spec.shape;
    const auto inner = static_cast<std::size_t>(shape.product(op.axis + 1, shape.rank()));
    const auto length = static_cast<std::size_t>(shape[op.axis]);
    const std::size_t padded = length + static_cast<std::size_t>(op.before + op.after);
    for (std::size_t i = 0; i < x(0).size(); ++i) {
      const std::size_t outer = i / inner / length;
      const std::size_t at = i / inner % length + static_cast<std::size_t>(op.before);
      y()[(outer * padded + at) * inner + i % inner] = x(0)[i];
    }
  }
  void operator()(const Cast& op) {
    for (std::size_t i = 0; i < size(); ++i) y()[i] = rounded(x(0)[i], op.to);
  }
  void operator()(const Norm& op) {  // kRms only.
    const auto columns = static_cast<std::size_t>(in_[0].spec.shape.columns());
    for (std::size_t row = 0; row < size() / columns; ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < columns; ++i) {
        const double value = static_cast<double>(x(0)[row * columns + i]);
        sum += value * value;
      }
      const double scale =
          1 / std::sqrt(sum / static_cast<double>(columns) + static_cast<double>(op.eps));
      for (std::size_t i = 0; i < columns; ++i) {
        y()[row * columns + i] =
            static_cast<float>(static_cast<double>(x(0)[row * columns + i]) * scale) * x(1)[i];
      }
      out_[1].data[row * 2] = 0;
      out_[1].data[row * 2 + 1] = static_cast<float>(scale);
    }
  }
  void operator()(const Accumulate& op) {
    for (std::size_t i = 0; i < x(0).size(); ++i) in_[0].data[i] += op.scale * x(1)[i];
  }
  void operator()(const Fill& op) { std::ranges::fill(in_[0].data, op.value); }
  template <typename AnyOp>
  void operator()(const AnyOp&) {
    throw std::runtime_error("interpreter: op");
  }

 private:
  static float apply(UnaryKind kind, float alpha, float x) {
    return static_cast<float>(unary(kind, static_cast<double>(alpha), static_cast<double>(x)));
  }
  const std::vector<float>& x(std::size_t i) const { return in_[i].data; }
  std::vector<float>& y() { return out_[0].data; }
  std::size_t size() const { return out_[0].data.size(); }

  std::span<Array> in_;
  std::vector<Array>& out_;
};

}  // namespace

std::vector<Array> evaluate_op(const Op& op, std::span<Array> inputs) {
  std::vector<TensorSpec> specs;
  for (const Array& input : inputs) specs.push_back(input.spec);
  const auto inferred = infer(op, specs);
  if (!inferred) throw std::runtime_error(inferred.error().message());
  std::vector<Array> outputs;
  for (const TensorSpec& spec : *inferred) {
    outputs.push_back({spec, std::vector<float>(static_cast<std::size_t>(spec.shape.elements()))});
  }
  std::visit(Evaluator(inputs, outputs), op);
  for (Array& output : outputs) {
    for (float& x : output.data) x = rounded(x, output.spec.dtype);
  }
  return outputs;
}

Arrays run_graph(const Graph& graph, Arrays& bindings) {
  std::vector<Array> values(graph.values().size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Value& value = graph.values()[i];
    if (value.kind == ValueKind::kIntermediate) continue;
    values[i] = value.kind == ValueKind::kConstant ? load(value.spec, *value.constant.host_bytes())
                                                   : bindings.at(value.name);
  }
  for (const Node& node : graph.nodes()) {
    std::vector<Array> inputs;
    for (const ValueId id : node.inputs) {
      inputs.push_back(values[static_cast<std::size_t>(id.index)]);
    }
    const std::vector<Array> outputs = evaluate_op(node.op, inputs);
    const std::uint32_t written = writes(node.op, inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if ((written >> i & 1u) != 0) {
        values[static_cast<std::size_t>(node.inputs[i].index)] = inputs[i];
      }
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      values[static_cast<std::size_t>(node.outputs[i].index)] = outputs[i];
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Value& value = graph.values()[i];
    if (value.kind == ValueKind::kState || value.kind == ValueKind::kParameter) {
      bindings.at(value.name) = values[i];
    }
  }
  Arrays outputs;
  for (const GraphOutput& output : graph.outputs()) {
    outputs[output.name] = values[static_cast<std::size_t>(output.value.index)];
  }
  return outputs;
}

Arrays run_plan(const Plan& plan, Arrays& bindings) {
  std::vector<std::size_t> order(plan.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return run_plan(plan, bindings, order);
}

Arrays run_plan(const Plan& plan, Arrays& bindings, std::span<const std::size_t> order) {
  std::vector<std::byte> arena(static_cast<std::size_t>(plan.arena_bytes), std::byte{0xA5});
  const auto bytes_at = [&](std::int64_t offset, std::int64_t length) {
    return std::span(arena).subspan(static_cast<std::size_t>(offset),
                                    static_cast<std::size_t>(length));
  };
  const auto read = [&](const PlanOperand& operand) -> Array {
    if (operand.binding < 0) {
      return load(operand.spec, bytes_at(operand.offset, operand.spec.bytes()));
    }
    const PlanBinding& binding = plan.bindings[static_cast<std::size_t>(operand.binding)];
    Array array = binding.kind == ValueKind::kConstant
                      ? load(binding.spec, *binding.constant.host_bytes())
                      : bindings.at(binding.name);
    array.spec = operand.spec;  // A reshape of a binding is the binding.
    return array;
  };
  for (const std::size_t number : order) {
    const PlanStep& step = plan.steps[number];
    std::vector<Array> inputs;
    for (const PlanOperand& operand : step.inputs) inputs.push_back(read(operand));
    std::ranges::fill(bytes_at(step.workspace_offset, step.workspace_bytes), std::byte{0x5A});
    const std::vector<Array> outputs = evaluate_op(step.op, inputs);
    const std::uint32_t written = writes(step.op, inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if ((written >> i & 1u) == 0) continue;
      bindings.at(plan.bindings.at(static_cast<std::size_t>(step.inputs[i].binding)).name) =
          inputs[i];
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const PlanOperand& operand = step.outputs[i];
      store(outputs[i], bytes_at(operand.offset, operand.spec.bytes()));
    }
  }
  Arrays outputs;
  for (const PlanOutput& output : plan.outputs) outputs[output.name] = read(output.operand);
  return outputs;
}

Arrays make_bindings(const Graph& graph) {
  Arrays bindings;
  for (const Value& value : graph.values()) {
    if (value.kind == ValueKind::kIntermediate || value.kind == ValueKind::kConstant) continue;
    Array array{value.spec, {}};
    const std::size_t start = std::hash<std::string>()(value.name) % 1000;
    for (std::int64_t i = 0; i < value.spec.shape.elements(); ++i) {
      const double wave = std::sin(static_cast<double>(start) + 1.7 * static_cast<double>(i));
      array.data.push_back(rounded(static_cast<float>(wave), value.spec.dtype));
    }
    bindings[value.name] = std::move(array);
  }
  return bindings;
}

std::map<std::string, std::vector<std::uint32_t>> bits(const Arrays& arrays) {
  std::map<std::string, std::vector<std::uint32_t>> result;
  for (const auto& [name, array] : arrays) {
    for (const float x : array.data) {
      result[name].push_back(std::isnan(x) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(x));
    }
  }
  return result;
}

Result<std::vector<Tensor>> TestBackend::evaluate(const Op& op, std::span<const Tensor> inputs) {
  ++evaluated;
  std::vector<Array> arrays;
  for (const Tensor& input : inputs) {
    VOLTA_TRY(const auto bytes, input.host_bytes());
    arrays.push_back(load(input.spec(), bytes));
  }
  std::vector<Tensor> results;
  for (const Array& array : evaluate_op(op, arrays)) {
    VOLTA_TRY(Tensor tensor, Tensor::empty(array.spec));
    VOLTA_TRY(const auto bytes, tensor.host_bytes());
    store(array, bytes);
    results.push_back(std::move(tensor));
  }
  if (after_evaluate) return after_evaluate(std::move(results));
  return results;
}

}  // namespace volta::testing
