// Running ops on devices and in double.
#include "ops/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "base/rng.h"
#include "device/cuda_device.h"
#include "kernels/cpu/matmul_plan.h"
#include "ops/rules.h"
#include "support/random.h"
#include "tensor/float16.h"

namespace volta::op_test {

const std::vector<cpu::Simd>& available_simd() {
  static const std::vector<cpu::Simd> list = [] {
    std::vector<cpu::Simd> some;
    for (const auto simd : {cpu::Simd::kSse4, cpu::Simd::kAvx2, cpu::Simd::kAvx512}) {
      if (cpu::simd_available(simd)) some.push_back(simd);
    }
    return some;
  }();
  return list;
}

CpuDevice& device(cpu::Simd simd, int threads) {
  static std::map<std::pair<cpu::Simd, int>, std::shared_ptr<CpuDevice>> devices;
  auto& known = devices[{simd, threads}];
  if (known == nullptr) known = *CpuDevice::create({.threads = threads, .simd = simd});
  return *known;
}

Device* gpu() {
  static const std::shared_ptr<Device> device = [] {
    auto made = CudaDevice::create();
    return made ? *std::move(made) : nullptr;
  }();
  return device.get();
}

namespace {

// Where element i of a tensor lies, in elements: written from the comment of Encoding.
std::size_t place(const TensorSpec& spec, std::size_t i) {
  if (spec.encoding.plain()) return i;
  const auto index = static_cast<std::int64_t>(i);
  const std::int64_t row = index / spec.shape[1], column = index % spec.shape[1];
  const std::int64_t k = spec.encoding.transposed ? column : row;
  const std::int64_t n = spec.encoding.transposed ? row : column;
  const std::int64_t width = spec.encoding.width;
  const std::int64_t group = spec.encoding.group;
  const std::int64_t groups = (spec.shape[spec.encoding.transposed ? 1 : 0] + group - 1) / group;
  const std::int64_t line = (n / width * groups + k / group) * width + n % width;
  return static_cast<std::size_t>(line * group + k % group);
}

template <typename T, typename Convert>
void fill_as(const Tensor& tensor, const Array& array, const Convert& convert) {
  const std::span<T> to = typed_span<T>(*tensor.host_bytes());
  std::ranges::fill(to, T{});  // What fills the last panel up.
  for (std::size_t i = 0; i < array.data.size(); ++i) {
    to[place(tensor.spec(), i)] = convert(array.data[i]);
  }
}

template <typename T, typename Convert>
std::vector<double> read_as(const Tensor& tensor, const Convert& convert) {
  const std::span<T> from = typed_span<T>(*tensor.host_bytes());
  std::vector<double> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.elements()); ++i) {
    values.push_back(convert(from[place(tensor.spec(), i)]));
  }
  return values;
}

template <typename T>
void fill(const Tensor& tensor, const Array& array) {
  fill_as<T>(tensor, array, [](double x) { return static_cast<T>(x); });
}

template <typename T>
std::vector<double> read(const Tensor& tensor) {
  return read_as<T>(tensor, [](T x) { return static_cast<double>(x); });
}

template <typename Convert>
std::vector<double> read_bits(const Tensor& tensor, const Convert& convert) {
  return read_as<std::uint16_t>(tensor, convert);
}

template <typename Convert>
void fill_bits(const Tensor& tensor, const Array& array, const Convert& convert) {
  fill_as<std::uint16_t>(tensor, array, [&](double x) { return convert(static_cast<float>(x)); });
}

}  // namespace

Tensor to_tensor(const Array& array) {
  Tensor tensor = *Tensor::empty(array.spec);
  switch (array.spec.dtype) {
    case DType::kF32:
      fill<float>(tensor, array);
      break;
    case DType::kBF16:
      fill_bits(tensor, array, bf16_from_f32);
      break;
    case DType::kF16:
      fill_bits(tensor, array, f16_from_f32);
      break;
    case DType::kI8:
      fill<std::int8_t>(tensor, array);
      break;
    case DType::kU8:
      fill<std::uint8_t>(tensor, array);
      break;
    case DType::kI32:
      fill<std::int32_t>(tensor, array);
      break;
    case DType::kI64:
      fill<std::int64_t>(tensor, array);
      break;
  }
  return tensor;
}

std::vector<double> to_doubles(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return read<float>(tensor);
    case DType::kBF16:
      return read_bits(tensor, f32_from_bf16);
    case DType::kF16:
      return read_bits(tensor, f32_from_f16);
    case DType::kI8:
      return read<std::int8_t>(tensor);
    case DType::kU8:
      return read<std::uint8_t>(tensor);
    case DType::kI32:
      return read<std::int32_t>(tensor);
    case DType::kI64:
      break;
  }
  return read<std::int64_t>(tensor);
}

std::span<const std::byte> bytes_of(const Tensor& tensor) { return *tensor.host_bytes(); }

namespace {

std::vector<TensorSpec> specs_of(const std::vector<Array>& arrays) {
  std::vector<TensorSpec> specs;
  for (const Array& array : arrays) specs.push_back(array.spec);
  return specs;
}

// A tensor in the device's memory whose bytes are all 0xFF.
Tensor poisoned_tensor(Device& device, const TensorSpec& spec, bool shift) {
  const std::int64_t offset = shift ? dtype_size(spec.dtype) : 0;
  DeviceBuffer block = *DeviceBuffer::allocate(device.memory(), spec.bytes() + offset);
  EXPECT_TRUE(block.fill(0, block.bytes(), std::byte{0xFF}));
  return *Tensor::from_buffer(std::make_shared<DeviceBuffer>(std::move(block)), offset, spec);
}

Tensor placed_tensor(Device& device, const Tensor& host, bool shift) {
  if (host.bytes() == 0) return *host.clone_to(device.memory());
  Tensor tensor = poisoned_tensor(device, host.spec(), shift);
  EXPECT_TRUE(tensor.buffer()->write(tensor.offset(), bytes_of(host)));
  return tensor;
}

// A kernel that writes more than it asked for meets these bytes behind its workspace.
constexpr std::int64_t kGuardBytes = 4096;

void expect_intact_guard(const DeviceBuffer& workspace, std::int64_t needed, const Op& op) {
  std::vector<std::byte> guard(kGuardBytes);
  EXPECT_TRUE(workspace.read(needed, guard));
  EXPECT_TRUE(std::ranges::all_of(guard, [](std::byte b) { return b == std::byte{0xFF}; }))
      << to_string(op) << " writes behind its workspace of " << needed << " bytes";
}

}  // namespace

bool supported(const Device& device, const Op& op, const std::vector<Array>& inputs) {
  return device.supports(op, specs_of(inputs));
}

OpRun run_op_on(Device& device, const Op& op, const std::vector<Array>& inputs,
                const Placement& placement) {
  OpRun run;
  const std::vector<TensorSpec> specs = specs_of(inputs);
  std::vector<View> in, out;
  std::vector<Tensor> before;
  for (const Array& input : inputs) {
    before.push_back(to_tensor(input));
    run.inputs.push_back(placed_tensor(device, before.back(), placement.shift));
    in.push_back(run.inputs.back().view());
  }
  const std::vector<TensorSpec> output_specs = *infer(op, specs);
  for (const TensorSpec& spec : output_specs) {
    if (placement.lend >= 0 && run.outputs.empty()) {
      run.outputs.push_back(run.inputs[static_cast<std::size_t>(placement.lend)]);
    } else if (spec.bytes() == 0) {
      run.outputs.push_back(*Tensor::empty(spec, device.memory()));
    } else {
      run.outputs.push_back(poisoned_tensor(device, spec, placement.shift));
    }
    out.push_back(run.outputs.back().view());
  }
  const std::int64_t needed = device.workspace_bytes(op, specs, output_specs);
  DeviceBuffer workspace = *DeviceBuffer::allocate(device.memory(), needed + kGuardBytes);
  EXPECT_TRUE(workspace.fill(0, workspace.bytes(), std::byte{0xFF}));
  run.status = device.run(
      {.op = &op,
       .inputs = in,
       .outputs = out,
       .workspace = {static_cast<std::byte*>(workspace.data()), static_cast<std::size_t>(needed)},
       .label = "case"});
  if (run.status) run.status = device.synchronize();
  expect_intact_guard(workspace, needed, op);
  for (Tensor& output : run.outputs) output = *output.clone_to();
  for (Tensor& input : run.inputs) input = *input.clone_to();
  run.results = run.outputs;
  const std::uint32_t written = writes(op, inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (writes_input(written, i)) {
      run.results.push_back(run.inputs[i]);
    } else if (static_cast<int>(i) != placement.lend) {
      EXPECT_TRUE(std::ranges::equal(bytes_of(run.inputs[i]), bytes_of(before[i])))
          << to_string(op) << " writes its input " << i << ", and its effects do not say so";
    }
  }
  return run;
}

OpRun run_op(CpuDevice& device, const Op& op, const std::vector<Array>& inputs, int lend) {
  std::vector<Array> encoded = inputs;
  for (Array& input : encoded) {
    // Cases do not know the device: its panels have a width of their own.
    if (!input.spec.encoding.plain() && !std::holds_alternative<Encode>(op)) {
      input.spec.encoding = cpu::panel_encoding(input.spec.dtype, input.spec.encoding.transposed,
                                                device.simd(), input.spec.encoding);
    }
  }
  return run_op_on(device, op, encoded, {.lend = lend});
}

std::vector<Array> reference_results(const Op& op, std::vector<Array> inputs) {
  std::vector<Array> results = reference::run(op, inputs);
  const std::uint32_t written = writes(op, inputs.size());
  for (std::size_t i = 0; i < inputs.size() && i < 32; ++i) {
    if ((written >> i & 1u) != 0) results.push_back(inputs[i]);
  }
  return results;
}

void expect_close(const Tensor& got, const Array& expected, const std::string& what) {
  ASSERT_EQ(got.spec(), expected.spec) << what;
  // Subnormal results are rounded to multiples of 2^-149, a few times over.
  constexpr double kTiny = 0x1p-140;
  const std::vector<double> values = to_doubles(got);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double want = expected.data[i];
    const double allowed = expected.error[i] > 0 ? expected.error[i] + kTiny : expected.error[i];
    const double largest = std::numeric_limits<float>::max();
    bool good = std::abs(values[i] - want) <= allowed;
    if (std::isnan(want)) good = std::isnan(values[i]);
    if (std::isinf(want)) good = values[i] == want;
    // Near the end of the range both answers are right.
    if (is_float(got.dtype()) && std::isfinite(want) && std::abs(want) > largest / 2) {
      good = good || std::isinf(values[i]);
    }
    ASSERT_TRUE(good) << what << ": element " << i << " of " << to_string(expected.spec) << " is "
                      << values[i] << ", not " << want << " +- " << allowed << " (off by "
                      << std::abs(values[i] - want) / allowed << " bounds)";
  }
}

std::vector<Array> interpret(const Graph& graph, const std::vector<Array>& bound,
                             RandomSequence* noise) {
  std::vector<Array> values;
  std::size_t next = 0;
  for (const Value& value : graph.values()) {
    Array& array = values.emplace_back(value.spec);
    if (value.kind == ValueKind::kConstant) {
      array.data = to_doubles(value.constant);
    } else if (value.kind != ValueKind::kIntermediate) {
      array.data = bound[next++].data;
    }
  }
  for (const Node& node : graph.nodes()) {
    std::vector<Array> inputs;
    for (const ValueId id : node.inputs)
      inputs.push_back(values[static_cast<std::size_t>(id.index)]);
    std::vector<Array> outputs = reference::run(node.op, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (noise != nullptr) {
        for (std::size_t j = 0; j < outputs[i].data.size(); ++j) {
          outputs[i].data[j] += (test::next_double(*noise) < 0.5 ? -1 : 1) * outputs[i].error[j];
        }
      }
      values[static_cast<std::size_t>(node.outputs[i].index)] = outputs[i];
    }
  }
  return values;
}

}  // namespace volta::op_test
