// Short ways to write specs in tests of the rules, and a graph that only records.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/rules.h"

namespace volta {

using Dims = std::initializer_list<std::int64_t>;
inline Shape shape_of(Dims dims) {
  Shape shape;
  for (const std::int64_t dim : dims) shape.push_back(dim);
  return shape;
}
inline TensorSpec f32(const Shape& shape) { return {DType::kF32, shape}; }
inline TensorSpec f32(Dims dims) { return f32(shape_of(dims)); }
inline TensorSpec bf16(Dims dims) { return {DType::kBF16, shape_of(dims)}; }
inline TensorSpec f16(Dims dims) { return {DType::kF16, shape_of(dims)}; }
/// `spec` in panels; `transposed` for the b of a MatMul with transpose_b.
inline TensorSpec in_panels(TensorSpec spec, bool transposed, std::int32_t width = 16,
                            std::int32_t group = 1) {
  spec.encoding = {Packing::kPanels, transposed, width, group};
  return spec;
}
inline TensorSpec i32(const Shape& shape) { return {DType::kI32, shape}; }
inline TensorSpec i32(Dims dims) { return i32(shape_of(dims)); }
inline TensorSpec i64(Dims dims) { return {DType::kI64, shape_of(dims)}; }
inline TensorSpec rng_spec() { return i64({2}); }

/// A GraphBuilder that keeps specs and the texts of the ops added.
class RecordingGraph final : public GraphBuilder {
 public:
  ValueId leaf(const TensorSpec& spec) {
    specs.push_back(spec);
    return {static_cast<std::int32_t>(specs.size()) - 1};
  }
  Result<std::vector<ValueId>> add(const Op& op, std::span<const ValueId> inputs) override {
    if (fail_after == 0) return fail(ErrorCode::kOutOfMemory, "recording graph: full");
    if (fail_after > 0) --fail_after;
    std::vector<TensorSpec> in;
    for (const ValueId id : inputs) in.push_back(specs[static_cast<std::size_t>(id.index)]);
    VOLTA_TRY(auto out, infer(op, in));
    ops.push_back(to_string(op));
    std::vector<ValueId> ids;
    for (const TensorSpec& spec : out) ids.push_back(leaf(spec));
    return ids;
  }
  TensorSpec spec(ValueId value) const override {
    return specs[static_cast<std::size_t>(value.index)];
  }
  Result<ValueId> filled(const Shape& shape, float) override { return leaf(f32(shape)); }

  std::vector<TensorSpec> specs;
  std::vector<std::string> ops;
  int fail_after = -1;  ///< When >= 0: that many more adds succeed.
};

/// The gradient of one op on `inputs`, recorded. Empty flags mean: everything wanted; every output
/// but the first has no gradient.
struct RecordedGradient {
  RecordingGraph graph;
  std::vector<ValueId> inputs, outputs, output_grads;
  Result<Gradients> grads = Gradients();

  RecordedGradient(const Op& op, const std::vector<TensorSpec>& specs, std::vector<bool> want = {},
                   std::vector<bool> given = {}, int fail_after = -1) {
    for (const TensorSpec& spec : specs) inputs.push_back(graph.leaf(spec));
    outputs = *graph.add(op, inputs);
    graph.ops.clear();
    graph.fail_after = fail_after;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const bool has = given.empty() ? i == 0 : given[i];
      const Shape shape = graph.spec(outputs[i]).shape;
      output_grads.push_back(has ? graph.leaf(f32(shape)) : ValueId());
    }
    // vector<bool> has no span.
    const auto flags = std::make_unique<bool[]>(specs.size() + 1);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      flags[i] = want.empty() ? is_float(specs[i].dtype) : want[i];
    }
    grads = gradient(op, {graph, inputs, outputs, output_grads,
                          std::span<const bool>(flags.get(), specs.size())});
  }
};

}  // namespace volta
