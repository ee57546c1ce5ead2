// prepack: which weights get an encoding, and which must stay as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build.h"
#include "graph/passes.h"
#include "interpreter.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::must;

/// Likes panels of 8 for every factor b that can have them.
class PanelBackend : public testing::TestBackend {
 public:
  Encoding preferred_encoding(const Op& op, std::size_t input,
                              const TensorSpec& spec) const override {
    const auto* matmul = std::get_if<MatMul>(&op);
    if (matmul == nullptr || spec.shape.rank() != 2) return {};
    const Encoding panels{Packing::kPanels, matmul->transpose_b, 8};
    return accepts_encoding(op, input, panels) ? panels : Encoding{};
  }
};

TensorSpec spec_of(const Graph& graph, const char* name) { return graph.spec(*graph.find(name)); }

TEST(Prepack, EncodesWhatOnlyProductsRead) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 4))));
  const ValueId ids = must(graph.input("ids", {DType::kI32, Shape(2)}));
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  const ValueId turned = must(graph.parameter("turned", f32(Shape(9, 4))));
  const ValueId tied = must(graph.parameter("tied", f32(Shape(9, 4))));
  const ValueId y = add(graph, MatMul{}, {x, w});
  const ValueId rows = add(graph, Embedding{}, {tied, ids});
  const ValueId sum = add(graph, Binary{BinaryKind::kAdd}, {y, rows});
  must(graph.output("a", add(graph, MatMul{.transpose_b = true}, {sum, turned})));
  must(graph.output("b", add(graph, MatMul{.transpose_b = true}, {sum, tied})));
  PanelBackend backend;
  const Graph packed = must(prepack(graph, backend));
  must(verify(packed));
  EXPECT_EQ(spec_of(packed, "w").encoding, (Encoding{Packing::kPanels, false, 8}));
  EXPECT_EQ(spec_of(packed, "turned").encoding, (Encoding{Packing::kPanels, true, 8}));
  EXPECT_EQ(spec_of(packed, "tied").encoding, (Encoding{Packing::kPanels, true, 8}));
  EXPECT_TRUE(spec_of(packed, "x").encoding.plain());
  EXPECT_EQ(testing::ops(packed), testing::ops(graph));
  // A second time there is nothing left to do.
  EXPECT_EQ(to_text(must(prepack(packed, backend))), to_text(packed));
}

TEST(Prepack, NarrowsWhatItPacks) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 4))));
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  const ValueId bias = must(graph.parameter("bias", f32(Shape(4))));
  must(graph.output("y", add(graph, MatMul{.has_bias = true}, {x, w, bias})));
  PanelBackend backend;
  const Graph packed = must(prepack(graph, backend, {.dtype = DType::kBF16}));
  EXPECT_EQ(to_string(spec_of(packed, "w")), "bf16[4, 4] in panels of 8");
  EXPECT_EQ(to_string(spec_of(packed, "bias")), "f32[4]");
  EXPECT_EQ(testing::ops(must(set_compute_dtype(packed, DType::kBF16))), "Cast MatMul");
}

// A backend without panels, such as a GPU's, reads plain rows of the narrower type.
TEST(Prepack, NarrowsRowsWhereNoPanelsAreLiked) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 4))));
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  const ValueId added = must(graph.parameter("added", f32(Shape(2, 4))));
  const ValueId y = add(graph, MatMul{}, {x, w});
  must(graph.output("y", add(graph, Binary{BinaryKind::kAdd}, {y, added})));
  testing::TestBackend backend;
  const Graph narrow = must(prepack(graph, backend, {.dtype = DType::kBF16}));
  EXPECT_EQ(to_string(spec_of(narrow, "w")), "bf16[4, 4]");
  EXPECT_EQ(to_string(spec_of(narrow, "added")), "f32[2, 4]");
  EXPECT_EQ(to_text(must(prepack(graph, backend))), to_text(graph));
}

TEST(Prepack, LeavesWhatOthersNeed) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(4, 4))));
  const auto weight = [&](const char* name) {
    return must(graph.parameter(name, f32(Shape(4, 4))));
  };
  const ValueId both = weight("both"), read = weight("read"), left = weight("left");
  const ValueId written = weight("written"), shown = weight("shown"), idle = weight("idle");
  const auto output = [&](const char* name, ValueId value) { must(graph.output(name, value)); };
  output("1", add(graph, MatMul{}, {x, both}));  // As it is, and transposed.
  output("2", add(graph, MatMul{.transpose_b = true}, {x, both}));
  output("3", add(graph, MatMul{}, {x, read}));  // A pointwise op reads it, too.
  output("4", add(graph, Unary{UnaryKind::kExp}, {read}));
  output("5", add(graph, MatMul{}, {left, x}));  // It is the left factor.
  output("6", add(graph, MatMul{}, {x, written}));
  testing::write(graph, Fill{0.0f}, {written});
  output("7", add(graph, MatMul{}, {x, shown}));  // The host wants to see it.
  output("8", shown);
  (void)idle;
  PanelBackend backend;
  EXPECT_EQ(to_text(must(prepack(graph, backend))), to_text(graph));
}

TEST(SetParameterSpecs, EveryReaderMustAcceptThem) {
  Graph graph;
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  must(graph.output("y", add(graph, Unary{UnaryKind::kExp}, {w})));
  const auto packed = set_parameter_specs(graph, [](const Value& value) {
    TensorSpec spec = value.spec;
    spec.encoding = {Packing::kPanels, false, 8};
    return spec;
  });
  EXPECT_THAT(testing::message(packed), ::testing::HasSubstr("input 0 in plain rows"));
}

// What a file stores as blocks stays so where a row is looked up, and becomes f32 where an op needs
// values; a format that was only asked for changes nothing there.
TEST(Prepack, StoredBlocksStayWhereRowsAreLookedUp) {
  Graph graph;
  const ValueId ids = must(graph.input("ids", {DType::kI32, Shape(2)}));
  const ValueId table = must(graph.parameter("table", f32(Shape(9, 256))));
  const ValueId added = must(graph.parameter("added", f32(Shape(2, 256))));
  const ValueId rows = add(graph, Embedding{}, {table, ids});
  must(graph.output("sum", add(graph, Binary{BinaryKind::kAdd}, {rows, added})));
  testing::TestBackend backend;
  for (const Quant quant : {Quant::kInt8, Quant::kInt4, Quant::kQ4K, Quant::kQ5K, Quant::kQ6K}) {
    const Encoding stored{.transposed = true, .quant = quant, .block = kMaxBlock};
    const Graph packed = must(prepack(graph, backend, [&](const Value& value) {
      TensorSpec spec = value.spec;
      spec.encoding = stored;
      return spec;
    }));
    EXPECT_EQ(spec_of(packed, "table").encoding, stored);
    EXPECT_TRUE(spec_of(packed, "added").encoding.plain());
  }
  EXPECT_EQ(to_text(must(prepack(graph, backend, {.quant = Quant::kInt8}))), to_text(graph));
}

}  // namespace
}  // namespace volta
