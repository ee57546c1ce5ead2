// Every check that an op case drives, in f32 and with its activations in bf16.
//
// Value: each instruction set against the f64 reference, element by element, within the bound that
// the reference derives. Bits: 1, 2 and 3 threads, and rows alone or together, give the same bits.
// SixteenBits: what a case in 16 bits gives is what it gives in f32, rounded. InPlace: where
// may_alias allows it, the output in an input's memory has the same bits. Gradient: the graph that
// autodiff builds, in double, against finite differences of the reference; and the same graph on
// the device against it in double. Speed: recorded, not judged.
#include "ops/op_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <variant>

#include "base/rng.h"
#include "device/device.h"
#include "graph/plan.h"
#include "kernels/cpu/matmul_plan.h"
#include "ops/rules.h"
#include "ops/runner.h"
#include "support/random.h"

namespace volta::op_test {
namespace {

class OpCases : public ::testing::TestWithParam<std::size_t> {
 protected:
  const OpCase& c() const { return all_cases()[GetParam()]; }
};

void expect_same_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& expected,
                      const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::ranges::equal(bytes_of(got[i]), bytes_of(expected[i])))
        << what << ": result " << i << " has other bits";
  }
}

TEST_P(OpCases, Value) {
  const std::vector<Array> inputs = make_inputs(c());
  const std::vector<Array> expected = reference_results(c().op, inputs);
  for (const cpu::Simd simd : available_simd()) {
    const OpRun run = run_op(device(simd, 2), c().op, inputs);
    ASSERT_TRUE(run.status) << run.status.error().message();
    ASSERT_EQ(run.results.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expect_close(run.results[i], expected[i],
                   std::string(cpu::simd_name(simd)) + " result " + std::to_string(i));
    }
  }
}

TEST_P(OpCases, ThreadsDoNotChangeBits) {
  const std::vector<Array> inputs = make_inputs(c());
  for (const cpu::Simd simd : available_simd()) {
    const OpRun one = run_op(device(simd, 1), c().op, inputs);
    for (const int threads : {2, 3}) {
      const OpRun more = run_op(device(simd, threads), c().op, inputs);
      expect_same_bits(more.results, one.results,
                       std::string(cpu::simd_name(simd)) + " threads " + std::to_string(threads));
    }
  }
}

// Rows [begin, end) of the first axis.
Array some_rows(const Array& array, std::int64_t begin, std::int64_t end) {
  TensorSpec spec = array.spec;
  spec.shape.set(0, end - begin);
  Array part(spec);
  const std::int64_t size = array.size() / array.spec.shape[0];
  for (std::int64_t i = 0; i < part.size(); ++i) part[i] = array[begin * size + i];
  return part;
}

TEST_P(OpCases, RowsDoNotDependOnTheirNeighbours) {
  if (c().rows.empty()) return;
  const std::vector<Array> inputs = make_inputs(c());
  const std::int64_t rows = inputs[c().rows.front()].spec.shape[0];
  for (const cpu::Simd simd : available_simd()) {
    const OpRun whole = run_op(device(simd, 2), c().op, inputs);
    for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 1}, {rows - 1, rows}, {rows / 3, rows / 3 + (rows + 1) / 2}}) {
      std::vector<Array> part = inputs;
      for (const std::size_t i : c().rows) part[i] = some_rows(part[i], begin, end);
      const OpRun run = run_op(device(simd, 2), c().op, part);
      for (std::size_t i = 0; i < whole.results.size(); ++i) {
        const auto all = bytes_of(whole.results[i]);
        const std::size_t row = all.size() / static_cast<std::size_t>(rows);
        const auto wanted = all.subspan(static_cast<std::size_t>(begin) * row,
                                        static_cast<std::size_t>(end - begin) * row);
        ASSERT_TRUE(std::ranges::equal(bytes_of(run.results[i]), wanted))
            << cpu::simd_name(simd) << " rows [" << begin << ", " << end << ") of result " << i;
      }
    }
  }
}

TEST_P(OpCases, InPlaceGivesTheSameBits) {
  const std::vector<Array> inputs = make_inputs(c());
  for (const cpu::Simd simd : available_simd()) {
    const OpRun own = run_op(device(simd, 2), c().op, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!may_alias(c().op, i) || inputs[i].spec != own.outputs.front().spec()) continue;
      const OpRun lent = run_op(device(simd, 2), c().op, inputs, static_cast<int>(i));
      expect_same_bits(lent.outputs, own.outputs,
                       std::string(cpu::simd_name(simd)) + " in place of " + std::to_string(i));
    }
  }
}

// A graph of the case's op, a random linear functional of its first output, and the gradients of
// that by the differentiable inputs.
struct GradientGraph {
  Graph graph;
  std::vector<Array> bound;  ///< The inputs of the op, then the functional's weights.
  std::vector<ValueId> gradients;
  /// The output that holds each gradient: both inputs of an addition have the same one.
  std::vector<std::string> names;
};

Result<GradientGraph> build(const OpCase& c, const std::vector<Array>& inputs) {
  GradientGraph made;
  made.bound = inputs;
  std::vector<ValueId> ids, wrt;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    VOLTA_TRY(const ValueId id, made.graph.input("x" + std::to_string(i), inputs[i].spec));
    ids.push_back(id);
  }
  for (const std::size_t i : c.differentiable) wrt.push_back(ids[i]);
  VOLTA_TRY(const auto outputs, made.graph.add(c.op, ids));
  const TensorSpec spec = made.graph.spec(outputs.front());
  Array weights(spec);
  RandomSequence random({.seed = 1, .stream = 99});
  for (double& w : weights.data) w = round_to(spec.dtype, test::next_double(random) * 2 - 1);
  made.bound.push_back(weights);
  VOLTA_TRY(const ValueId w, made.graph.input("w", spec));
  VOLTA_TRY(ValueId loss, made.graph.add_one(Binary{BinaryKind::kMul}, {outputs.front(), w}));
  if (spec.shape.rank() > 0) {
    VOLTA_TRY(loss, made.graph.add_one(Reduce{ReduceKind::kSum, 0, spec.shape.rank()}, {loss}));
  } else if (spec.dtype != DType::kF32) {
    VOLTA_TRY(loss, made.graph.add_one(Cast{DType::kF32}, {loss}));
  }
  VOLTA_TRY(made.gradients, differentiate(made.graph, loss, wrt));
  for (std::size_t i = 0; i < made.gradients.size(); ++i) {
    const auto same = std::ranges::find(made.gradients, made.gradients[i]) - made.gradients.begin();
    made.names.push_back("g" + std::to_string(same));
    if (same == static_cast<std::ptrdiff_t>(i)) {
      VOLTA_TRY(made.graph.output(made.names[i], made.gradients[i]));
    }
  }
  VOLTA_TRY(verify(made.graph));
  return made;
}

// The functional and the sum of the sizes of its terms.
std::pair<double, double> functional(const OpCase& c, std::vector<Array> inputs,
                                     const Array& weights) {
  const std::vector<Array> outputs = reference::run(c.op, inputs);
  double sum = 0.0, size = 0.0;
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    sum += weights[i] * outputs.front()[i];
    size += std::abs(weights[i] * outputs.front()[i]);
  }
  return {sum, size};
}

// The derivative along `direction` of input `which`, by five-point central differences. With h =
// 3e-4 the truncation h^4 f''''' / 30 is near 3e-16 f''''' and the rounding in f64 near 1e-12 of
// the functional's size.
double difference(const OpCase& c, const std::vector<Array>& inputs, const Array& weights,
                  std::size_t which, const std::vector<double>& direction) {
  constexpr double kStep = 3e-4;
  const auto at = [&](double steps) {
    std::vector<Array> moved = inputs;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      moved[which].data[i] += steps * kStep * direction[i];
    }
    return functional(c, std::move(moved), weights).first;
  };
  return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep);
}

void check_against_differences(const OpCase& c, const std::vector<Array>& inputs,
                               const Array& weights, std::size_t which, const Array& gradient) {
  const double size = functional(c, inputs, weights).second;
  double largest = 0.0, total = 0.0;
  for (const double g : gradient.data) {
    largest = std::max(largest, std::abs(g));
    total += std::abs(g);
  }
  // Attributes that a rule computes (the 1/n of a mean) are rounded to f32.
  constexpr double kAttribute = 2 * reference::kUnit;
  // Elements spread over the input, then one direction through all of them at once.
  constexpr std::size_t kElements = 24;
  const std::size_t n = gradient.data.size();
  for (std::size_t k = 0; k < std::min(n, kElements); ++k) {
    const std::size_t i = n <= kElements ? k : (k * 7919 + 13) % n;
    std::vector<double> direction(n);
    direction[i] = 1.0;
    ASSERT_NEAR(gradient.data[i], difference(c, inputs, weights, which, direction),
                kAttribute * largest + 1e-8 * size + 1e-12)
        << "input " << which << " element " << i;
  }
  RandomSequence random({.seed = 2, .stream = 5});
  std::vector<double> direction(n);
  double along = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    direction[i] = test::next_double(random) * 2 - 1;
    along += direction[i] * gradient.data[i];
  }
  ASSERT_NEAR(along, difference(c, inputs, weights, which, direction),
              kAttribute * total + 1e-8 * size + 1e-12)
      << "input " << which << " along a random direction";
}

// Runs the gradient graph on a device; one tensor a differentiable input.
Result<std::vector<Tensor>> run_gradients(const GradientGraph& made, CpuDevice& device) {
  VOLTA_TRY(Plan plan, make_plan(made.graph, device));
  const auto lookup = [&](const PlanBinding& binding) -> Result<Tensor> {
    if (binding.name == "w") return to_tensor(made.bound.back());
    return to_tensor(made.bound[static_cast<std::size_t>(std::stoi(binding.name.substr(1)))]);
  };
  VOLTA_TRY(Executable bound, device.load(std::make_shared<const Plan>(std::move(plan)), lookup));
  VOLTA_TRY(bound.run());
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < made.gradients.size(); ++i) {
    VOLTA_TRY(Tensor gradient, bound.output(made.names[i]));
    VOLTA_TRY(gradient, gradient.clone_to());
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

// Every node of the graph may be off by its op's bound. How far that leads the gradient away is
// found by running the graph in double with each node's result moved to a random end of its bound;
// actual rounding stays well inside, so four times the largest deviation seen is a safe limit, and
// one that grows with nothing but the bounds and the graph.
std::vector<double> allowed_deviation(const GradientGraph& made, const std::vector<Array>& exact) {
  std::vector<double> allowed(made.gradients.size());
  for (std::uint32_t sample = 0; sample < 4; ++sample) {
    RandomSequence noise({.seed = 3, .stream = sample});
    const std::vector<Array> noisy = interpret(made.graph, made.bound, &noise);
    for (std::size_t i = 0; i < allowed.size(); ++i) {
      const auto at = static_cast<std::size_t>(made.gradients[i].index);
      for (std::size_t j = 0; j < exact[at].data.size(); ++j) {
        allowed[i] = std::max(allowed[i], 4 * std::abs(noisy[at].data[j] - exact[at].data[j]));
      }
    }
  }
  return allowed;
}

TEST_P(OpCases, Gradient) {
  if (c().differentiable.empty()) return;
  const std::vector<Array> inputs = make_inputs(c());
  const auto made = build(c(), inputs);
  ASSERT_TRUE(made) << made.error().message();
  const std::vector<Array> exact = interpret(made->graph, made->bound, nullptr);
  for (std::size_t i = 0; i < made->gradients.size(); ++i) {
    const Array& gradient = exact[static_cast<std::size_t>(made->gradients[i].index)];
    ASSERT_EQ(gradient.spec, f32(inputs[c().differentiable[i]].spec.shape));
    check_against_differences(c(), inputs, made->bound.back(), c().differentiable[i], gradient);
  }
  const std::vector<double> allowed = allowed_deviation(*made, exact);
  for (const cpu::Simd simd : available_simd()) {
    const auto got = run_gradients(*made, device(simd, 2));
    ASSERT_TRUE(got) << got.error().message();
    for (std::size_t i = 0; i < got->size(); ++i) {
      Array expected = exact[static_cast<std::size_t>(made->gradients[i].index)];
      std::ranges::fill(expected.error, allowed[i]);
      expect_close((*got)[i], expected, std::string(cpu::simd_name(simd)) + " gradient");
    }
  }
}

// The inputs in f32, where they are not encoded.
std::vector<Array> widened(std::vector<Array> inputs) {
  for (Array& input : inputs) {
    if (is_float(input.spec.dtype) && input.spec.encoding.plain()) input.spec.dtype = DType::kF32;
  }
  return inputs;
}

// Whether `got` holds the elements of another tensor, rounded to its type by tensor/float16.h.
void expect_rounded(const Tensor& got, const Tensor& wide, const std::string& what) {
  ASSERT_EQ(got.shape(), wide.shape());
  const std::vector<double> values = to_doubles(got);
  const std::vector<double> exact = to_doubles(wide);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double wanted = round_to(got.dtype(), exact[i]);
    const bool equal = values[i] == wanted && std::signbit(values[i]) == std::signbit(wanted);
    ASSERT_TRUE(equal || (std::isnan(wanted) && std::isnan(values[i])))
        << what << ": element " << i << " is " << values[i] << ", not " << wanted << ", which is "
        << exact[i] << " rounded";
  }
}

TEST_P(OpCases, SixteenBitsAreTheF32OpRounded) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const auto narrow = in_sixteen_bits(c(), dtype);
    if (!narrow) continue;
    const std::vector<Array> inputs = make_inputs(*narrow);
    for (const cpu::Simd simd : available_simd()) {
      // Other instructions than multiply-adds round in another way: then bf16 is read both times.
      const bool pairs = std::holds_alternative<MatMul>(c().op) &&
                         cpu::multiplier(inputs[0].spec.dtype, inputs[1].spec.dtype, simd) !=
                             cpu::Multiplier::kFma;
      std::vector<Array> wide = widened(inputs);
      if (pairs) std::copy_n(inputs.begin(), 2, wide.begin());
      const OpRun got = run_op(device(simd, 2), narrow->op, inputs);
      const OpRun expected = run_op(device(simd, 2), c().op, wide);
      ASSERT_TRUE(got.status) << got.status.error().message();
      ASSERT_EQ(got.results.size(), expected.results.size());
      for (std::size_t i = 0; i < got.results.size(); ++i) {
        expect_rounded(got.results[i], expected.results[i],
                       std::string(cpu::simd_name(simd)) + " " + std::string(dtype_name(dtype)) +
                           " result " + std::to_string(i));
      }
    }
  }
}

TEST_P(OpCases, Speed) {
  const std::vector<Array> inputs = make_inputs(c());
  CpuDevice& best = device(cpu::best_simd(), 1);
  const OpRun first = run_op(best, c().op, inputs);
  std::vector<View> in, out;
  std::vector<TensorSpec> specs, output_specs;
  for (const Tensor& tensor : first.inputs) {
    in.push_back(tensor.view());
    specs.push_back(tensor.spec());
  }
  for (const Tensor& tensor : first.outputs) {
    out.push_back(tensor.view());
    output_specs.push_back(tensor.spec());
  }
  std::vector<std::byte> storage(
      static_cast<std::size_t>(best.workspace_bytes(c().op, specs, output_specs)) + 64);
  void* aligned = storage.data();
  std::size_t space = storage.size();
  std::align(64, space - 64, aligned, space);
  const OpCall call = {.op = &c().op,
                       .inputs = in,
                       .outputs = out,
                       .workspace = {static_cast<std::byte*>(aligned), storage.size() - 64},
                       .label = "speed"};
  using Clock = std::chrono::steady_clock;
  double fastest = 1e9;
  const auto deadline = Clock::now() + std::chrono::milliseconds(1);
  do {
    const auto begin = Clock::now();
    ASSERT_TRUE(best.run(call));
    fastest =
        std::min(fastest, std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  } while (Clock::now() < deadline);
  RecordProperty("op", to_string(c().op));
  RecordProperty("nanoseconds", static_cast<int>(fastest));
  const OpCost estimate = cost(c().op, specs, output_specs);
  RecordProperty("flops", std::to_string(estimate.flops));
  RecordProperty("bytes", std::to_string(estimate.bytes));
}

std::string case_name(const ::testing::TestParamInfo<std::size_t>& info) {
  return full_name(all_cases()[info.param]);
}

INSTANTIATE_TEST_SUITE_P(All, OpCases, ::testing::Range(std::size_t{0}, all_cases().size()),
                         case_name);

// The ops whose float operands are f32 by the rule have no case in 16 bits, and no others: Cast and
// Encode have cases for every pair of types.
TEST(OpCaseList, CoversEveryOpIn16Bits) {
  std::vector<int> count(kOpCount);
  for (const OpCase& c : all_cases()) count[c.op.index()] += c.sixteen_bits ? 1 : 0;
  const std::vector<Op> none = {GlobalNorm{}, AdamW{}, Sgd{},   Accumulate{},
                                Fill{},       Cast{},  Encode{}};
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const bool expected = std::ranges::none_of(none, [&](const Op& op) { return op.index() == i; });
    EXPECT_EQ(count[i] > 0, expected) << kOpNames[i];
  }
}

// Linking proves that every op has a function of cases; this, that none of them is empty.
TEST(OpCaseList, CoversEveryOp) {
  std::vector<int> count(kOpCount);
  for (const OpCase& c : all_cases()) ++count[c.op.index()];
  for (std::size_t i = 0; i < kOpCount; ++i) EXPECT_GT(count[i], 0) << kOpNames[i];
}

}  // namespace
}  // namespace volta::op_test
