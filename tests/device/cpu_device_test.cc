// CpuDevice: options and environment, every op through the dispatch on every instruction set and
// number of threads, index errors, and use from several threads.
#include "device/cpu_device.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/file.h"
#include "device/helpers.h"
#include "device/op_samples.h"
#include "device/tensor_ops.h"
#include "kernels/cpu/matmul_parameters.h"
#include "ops/rules.h"
#include "support/scoped_env.h"
#include "support/temp_dir.h"
#include "tensor/float16.h"

namespace volta {
namespace {

using test::expect_error;
using test::floats;
using test::ints;
using test::ScopedEnv;

TEST(CpuDevice, SaysWhatItIs) {
  const auto device = test::cpu(3);
  const DeviceInfo info = device->info();
  EXPECT_EQ(info.id, "cpu");
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.isa, cpu::simd_name(device->simd()));
  EXPECT_EQ(info.threads, 3);
  EXPECT_EQ(device->threads(), 3);
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_EQ(device->memory(), host_memory());
  EXPECT_TRUE(device->synchronize());
}

TEST(CpuDevice, TheEnvironmentForcesTheInstructionSet) {
  const auto create = [](const char* word) {
    const ScopedEnv env("VOLTA_SIMD", word);
    return CpuDevice::create();
  };
  EXPECT_EQ((*create(nullptr))->simd(), cpu::best_simd());
  EXPECT_EQ((*create(""))->simd(), cpu::best_simd());
  for (const cpu::Simd simd : cpu::kAllSimd) {
    const auto made = create(cpu::simd_name(simd));
    if (cpu::simd_available(simd)) {
      ASSERT_TRUE(made) << made.error().message();
      EXPECT_EQ((*made)->simd(), simd);
      EXPECT_EQ((*made)->info().isa, cpu::simd_name(simd));
    } else {
      expect_error(made, ErrorCode::kUnsupported,
                   std::string("cannot run ") + cpu::simd_name(simd));
    }
  }
  for (const char* word : {"avx", "AVX2", "neon", " sse4"}) {
    expect_error(create(word), ErrorCode::kInvalidArgument,
                 "VOLTA_SIMD: '" + std::string(word) + "' is no instruction set");
  }
  const ScopedEnv env("VOLTA_SIMD", "nonsense");  // An explicit choice does not look there.
  EXPECT_TRUE(CpuDevice::create({.simd = cpu::Simd::kSse4}));
}

TEST(CpuDevice, TakesATableOfItsOwnInstructionSet) {
  EXPECT_EQ((*CpuDevice::create())->tuning(), nullptr);
  const auto table = std::make_shared<cpu::MatMulTuning>();
  EXPECT_EQ((*CpuDevice::create({.tuning = table}))->tuning(), table);
  // A tile of wider vectors: its kernel would write where nothing is.
  const auto wide = std::make_shared<cpu::MatMulTuning>();
  wide->set({.m = 1, .n = 64, .k = 32},
            cpu::MatMulParameters{.k_block = 64, .m_block = 32, .n_block = 256, .tile = {1, 256}});
  expect_error(CpuDevice::create({.simd = cpu::Simd::kSse4, .tuning = wide}),
               ErrorCode::kInvalidArgument, "parameters that no kernel of sse4 takes");
}

// Whatever lies where the tuner keeps its files, making a device neither reads nor renames it.
TEST(CpuDevice, TouchesNoFile) {
  const test::TempDir dir;
  const ScopedEnv place("VOLTA_CACHE_DIR", dir.path().c_str());
  const ScopedEnv unset("VOLTA_TUNING", "no word of its own");
  EXPECT_TRUE(CpuDevice::create());
  EXPECT_TRUE(list_directory(dir.path())->empty());
}

// A device with odd parameters for every shape gives the bits of one with the defaults.
TEST(CpuDevice, TuningChangesNoBit) {
  for (const cpu::Simd simd : test::simds()) {
    const auto tuning = std::make_shared<cpu::MatMulTuning>();
    const auto panel = cpu::default_parameters(simd, 100).tile.columns;
    for (const std::int64_t m : {1, 8, 64}) {
      tuning->set(
          {.packed = false, .threads = 2, .m = m, .n = 100, .k = 100},
          cpu::MatMulParameters{.k_block = 24, .m_block = 5, .n_block = panel, .tile = {1, panel}});
    }
    const auto odd = CpuDevice::create({.threads = 2, .simd = simd, .tuning = tuning});
    ASSERT_TRUE(odd);
    const auto usual = test::cpu(2, simd);
    for (const std::int64_t m : {1, 7, 50}) {
      const Tensor a = test::wave(Shape(m, 100)), b = test::wave(Shape(100, 101));
      EXPECT_EQ(test::values(tensor_ops::matmul(**odd, a, b)),
                test::values(tensor_ops::matmul(*usual, a, b)));
    }
  }
}

TEST(CpuDevice, TheEnvironmentSetsTheThreads) {
  const ScopedEnv env("VOLTA_NUM_THREADS", "3");
  EXPECT_EQ((*CpuDevice::create())->threads(), 3);
  EXPECT_EQ((*CpuDevice::create({.threads = 1}))->threads(), 1);
  const ScopedEnv bad("VOLTA_NUM_THREADS", "many");
  expect_error(CpuDevice::create(), ErrorCode::kInvalidArgument, "VOLTA_NUM_THREADS");
  expect_error(CpuDevice::create({.threads = -2}), ErrorCode::kInvalidArgument, "-2");
}

// What an op made: outputs, and the inputs it wrote, as bytes.
using Bytes = std::vector<std::vector<std::byte>>;

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  EXPECT_TRUE(tensor.read_bytes(bytes));
  return bytes;
}

struct Outcome {
  std::vector<Tensor> tensors;
  Bytes bytes;
};

Outcome outcome_of(Device& device, std::size_t sample_index) {
  const test::OpSample sample = test::op_samples()[sample_index];
  auto outputs = tensor_ops::apply(device, sample.op, sample.inputs);
  Outcome outcome;
  if (!outputs) {
    ADD_FAILURE() << outputs.error().message();
    return outcome;
  }
  outcome.tensors = *std::move(outputs);
  const std::uint32_t written = writes(sample.op, sample.inputs.size());
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    if (writes_input(written, i)) outcome.tensors.push_back(sample.inputs[i]);
  }
  for (const Tensor& tensor : outcome.tensors) outcome.bytes.push_back(bytes_of(tensor));
  return outcome;
}

std::vector<float> as_floats(const Tensor& tensor) {
  if (tensor.dtype() == DType::kF32) return test::values(tensor);
  const auto device = test::cpu(1);
  return test::values(tensor_ops::cast(*device, tensor, DType::kF32));
}

TEST(CpuDevice, RunsEveryOpWithTheSameBitsOnAnyNumberOfThreads) {
  const std::size_t count = test::op_samples().size();
  for (const cpu::Simd simd : test::simds()) {
    const auto one = test::cpu(1, simd);
    const auto three = test::cpu(3, simd);
    for (std::size_t i = 0; i < count; ++i) {
      SCOPED_TRACE(to_string(test::op_samples()[i].op) + " on " + cpu::simd_name(simd));
      const Outcome a = outcome_of(*one, i);
      const Outcome b = outcome_of(*three, i);
      EXPECT_FALSE(a.bytes.empty());
      EXPECT_EQ(a.bytes, b.bytes);
      for (const Tensor& tensor : a.tensors) {
        if (!is_float(tensor.dtype())) continue;
        for (const float value : as_floats(tensor)) EXPECT_TRUE(std::isfinite(value));
      }
    }
  }
}

TEST(CpuDevice, InstructionSetsAgree) {
  const std::size_t count = test::op_samples().size();
  const auto portable = test::cpu(1, cpu::Simd::kSse4);
  for (const cpu::Simd simd : test::simds()) {
    const auto device = test::cpu(2, simd);
    for (std::size_t i = 0; i < count; ++i) {
      SCOPED_TRACE(to_string(test::op_samples()[i].op) + " on " + cpu::simd_name(simd));
      const Outcome a = outcome_of(*portable, i);
      const Outcome b = outcome_of(*device, i);
      ASSERT_EQ(a.tensors.size(), b.tensors.size());
      for (std::size_t j = 0; j < a.tensors.size(); ++j) {
        ASSERT_EQ(a.tensors[j].spec(), b.tensors[j].spec());
        if (is_float(a.tensors[j].dtype())) {
          EXPECT_THAT(as_floats(b.tensors[j]),
                      ::testing::Pointwise(::testing::FloatNear(2e-5f), as_floats(a.tensors[j])));
        } else {
          EXPECT_EQ(a.bytes[j], b.bytes[j]);
        }
      }
    }
  }
}

TEST(CpuDevice, SupportsWhatInferAccepts) {
  const auto device = test::cpu();
  for (const test::OpSample& sample : test::op_samples()) {
    std::vector<TensorSpec> specs;
    for (const Tensor& input : sample.inputs) specs.push_back(input.spec());
    EXPECT_TRUE(device->supports(sample.op, specs)) << to_string(sample.op);
    const auto outputs = infer(sample.op, specs);
    ASSERT_TRUE(outputs);
    EXPECT_GE(device->workspace_bytes(sample.op, specs, *outputs), 0) << to_string(sample.op);
  }
  const std::array wrong = {TensorSpec{DType::kI8, Shape(2)}};
  EXPECT_FALSE(device->supports(Unary{}, wrong));
}

TEST(CpuDevice, TellsWhatFixesTheBitsOfAProduct) {
  const auto device = test::cpu();
  const std::array specs = {test::f32(Shape(2, 3, 1000)), TensorSpec{DType::kBF16, Shape(9, 1000)}};
  const std::string words = device->kernel_parameters(MatMul{.transpose_b = true}, specs);
  EXPECT_EQ(words, "MatMul: one sum over K");
  const std::array more_rows = {test::f32(Shape(64, 1000)), specs[1]};
  EXPECT_EQ(device->kernel_parameters(MatMul{.transpose_b = true}, more_rows), words);
  EXPECT_EQ(test::cpu(1)->kernel_parameters(MatMul{.transpose_b = true}, specs), words);
  // Whoever goes on with a run must learn that its products were rounded otherwise.
  EXPECT_EQ(device->kernel_parameters(MatMul{.transpose_b = true, .out = DType::kBF16}, specs),
            words + ", results in bf16");
  EXPECT_EQ(device->kernel_parameters(Softmax{}, {specs.data(), 1}), "");
}

// What is converted costs time on every CPU: 16-bit activations everywhere, and products where the
// instruction set multiplies no bf16.
TEST(CpuDevice, SaysWhereSixteenBitsCanBeSlower) {
  for (const cpu::Simd simd : test::simds()) {
    const auto device = test::cpu(1, simd);
    for (const Rounding rounding : {Rounding::kProducts, Rounding::kActivations}) {
      EXPECT_EQ(device->compute_drawback(DType::kF32, rounding, true), "");
      EXPECT_EQ(device->compute_drawback(DType::kF16, rounding, true),
                fmt::format("this CPU's {} kernels convert f16 to f32 and multiply that",
                            cpu::simd_name(simd)));
    }
    EXPECT_NE(device->compute_drawback(DType::kBF16, Rounding::kActivations, false), "");
    if (simd == cpu::Simd::kAmx) {
      EXPECT_EQ(device->compute_drawback(DType::kBF16, Rounding::kProducts, true), "");
      EXPECT_EQ(test::cpu(8, simd)->compute_drawback(DType::kBF16, Rounding::kProducts, true),
                "with many threads, decoding one sequence may be slower than in f32");
      EXPECT_EQ(test::cpu(8, simd)->compute_drawback(DType::kBF16, Rounding::kProducts, false), "");
    }
    if (simd >= cpu::Simd::kAvx512Bf16) continue;
    EXPECT_EQ(device->compute_drawback(DType::kBF16, Rounding::kProducts, true),
              fmt::format("this CPU's {} kernels convert bf16 to f32 and multiply that",
                          cpu::simd_name(simd)));
  }
}

TEST(CpuDevice, BadIndicesNameOpLabelAndElement) {
  const auto device = test::cpu();
  const Op op = Embedding{};
  const Tensor table = floats(Shape(2, 1), {1, 2});
  const Tensor ids = ints(Shape(4), {0, 1, 7, 1});
  const Tensor out = floats(Shape(4, 1), {0, 0, 0, 0});
  const std::array inputs = {table.view(), ids.view()};
  const std::array outputs = {out.view()};
  const OpCall call = {.op = &op, .inputs = inputs, .outputs = outputs, .label = "wte"};
  expect_error(device->run(call), ErrorCode::kInvalidArgument,
               "Embedding 'wte': element 2 of its index tensor (7) is out of range");
  EXPECT_THAT(test::values(out), ::testing::ElementsAre(1, 2, 0, 2));  // Defined all the same.

  // Two index tensors: which one it was is not known, so no value is told.
  const AttentionShape shape = {.heads = 1, .kv_heads = 1, .head_dim = 4, .scale = 1.0f};
  const Shape rows(2, 4);
  const std::vector<Tensor> append = {test::wave(rows),
                                      test::wave(rows),
                                      test::wave(key_cache_shape(1, 1, 4)),
                                      test::wave(value_cache_shape(1, 1, 4)),
                                      ints(Shape(2), {63, 64}),
                                      ints(Shape(2), {0, 0}),
                                      ints(Shape(1), {2}),
                                      ints(Shape(1, 1), {0})};
  expect_error(tensor_ops::apply(*device, KvAppend{shape}, append), ErrorCode::kInvalidArgument,
               "of its index tensor is out of range");
}

TEST(CpuDevice, ServesSeveralThreadsAtOnce) {
  const auto device = test::cpu(2);
  std::array<bool, 4> right{};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      auto bound = test::bind_matmul_relu(*device);
      bool ok = bound.has_value();
      for (int i = 0; ok && i < 50; ++i) ok = bound->run().has_value();
      right[t] = ok && test::values(bound->output("y")) == std::vector<float>{0, 1, 0, 1};
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ::testing::Each(true));
}

// A plan is given up before a step, but not once a parameter has changed.
TEST(CpuDevice, APlanCanBeInterrupted) {
  int asked = 0, allowed = 0;
  const auto device =
      *CpuDevice::create({.threads = 1, .interrupted = [&] { return ++asked > allowed; }});
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound) << bound.error().message();
  expect_error(bound->run(), ErrorCode::kInterrupted, "step 1 of 2: interrupted");
  allowed = 2;
  expect_error(bound->run(), ErrorCode::kInterrupted, "step 2 of 2");
  allowed = 100;
  EXPECT_TRUE(bound->run());
  const int before = asked;
  ASSERT_TRUE(device->run(OpCall(bound->calls()[0].op, bound->calls()[0].inputs,
                                 bound->calls()[0].outputs, bound->calls()[0].workspace)));
  EXPECT_EQ(asked, before);  // A single op is no plan.
}

// Preparing a large weight ends within a block, not when all of it is done.
TEST(CpuDevice, PreparingAWeightCanBeInterrupted) {
  std::atomic<int> asked = 0;
  int allowed = 0;
  const auto device =
      *CpuDevice::create({.threads = 1, .interrupted = [&] { return ++asked > allowed; }});
  const Tensor weight = *Tensor::zeros({DType::kF32, Shape(4096, 1024)});
  TensorSpec integers = weight.spec();
  integers.encoding.quant = Quant::kInt8;
  const MatMul op{.transpose_b = true};
  TensorSpec panels = weight.spec();
  panels.encoding = device->preferred_encoding(op, 1, weight.spec());
  integers.encoding = device->preferred_encoding(op, 1, integers);
  ASSERT_FALSE(panels.encoding.plain());
  ASSERT_TRUE(integers.encoding.quantized());
  for (const TensorSpec& spec : {TensorSpec{DType::kBF16, weight.shape()}, panels, integers}) {
    allowed = 1 << 20;
    asked = 0;
    ASSERT_TRUE(tensor_ops::as_spec(*device, weight, spec)) << to_string(spec);
    EXPECT_GE(asked, 4) << to_string(spec);
    allowed = 2;
    asked = 0;
    expect_error(tensor_ops::as_spec(*device, weight, spec), ErrorCode::kInterrupted,
                 "interrupted");
    EXPECT_EQ(asked, 3) << to_string(spec);
  }
}

}  // namespace
}  // namespace volta
