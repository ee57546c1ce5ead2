#include "random_graph.h"

#include <algorithm>
#include <array>
#include <string>

#include "build.h"

namespace volta::testing {
namespace {

class RandomGraph {
 public:
  RandomGraph() {
    pool_.push_back(must(graph_.input("x", {DType::kF32, Shape(2, 3, 4)})));
    pool_.push_back(must(graph_.input("y", {DType::kF32, Shape(6, 4)})));
    pool_.push_back(must(graph_.parameter("p", {DType::kF32, Shape(4)})));
  }

  void step(std::uint32_t number) {
    number_ = number;
    const std::uint32_t kind = draw(14);
    const ValueId a = pool_[draw(pool_.size())];
    const ValueId b = pool_[draw(pool_.size())];
    const Shape shape = graph_.spec(a).shape;
    switch (kind) {
      case 0:
      case 1:
        return add(Unary{kSafe[draw(kSafe.size())], 0.5f}, {a});
      case 2:
        return add(Binary{static_cast<BinaryKind>(draw(3))}, {a, fits(b, shape) ? b : a});
      case 3:
      case 4:
        return product(a);
      case 5:
        return reduce(a);
      case 6:
        if (shape.elements() > 64 || shape.rank() > 3) return;
        return add(Expand{.shape = prepended(shape, 1 + draw(3)), .begin = 0, .scale = 0.5f}, {a});
      case 7:
        return add(Reshape{reshaped(shape)}, {a});
      case 8:
        return rearrange(a);
      case 9:
        return add(Binary{BinaryKind::kMul},
                   {a, must(graph_.filled(draw(2) == 0 ? Shape() : shape, 0.75f))});
      case 10:
        return write(a);
      case 11:
        return repeat();
      case 12:
        return norm(a);
      default:
        return fold();
    }
  }

  Graph finish(std::uint32_t number) {
    number_ = number;
    std::vector<ValueId> wanted{pool_.back()};
    for (int i = 0; i < 8; ++i) {
      wanted.push_back(pool_[draw(pool_.size())]);
      number_ += wanted.size() * 2654435761u;  // Eight draws need more digits than one number has.
    }
    for (const ValueId id : wanted) {
      // A value that is an output already is refused, which is fine.
      (void)graph_.output("out" + std::to_string(graph_.outputs().size()), id);
    }
    return std::move(graph_);
  }

 private:
  static constexpr std::array kSafe = {UnaryKind::kScale,    UnaryKind::kTanh, UnaryKind::kRelu,
                                       UnaryKind::kGelu,     UnaryKind::kSilu, UnaryKind::kSquare,
                                       UnaryKind::kGeluTanh, UnaryKind::kTanh};

  std::uint32_t draw(std::size_t bound) {
    const auto n = static_cast<std::uint32_t>(bound);
    const std::uint32_t result = number_ % n;
    number_ /= n;
    return result;
  }

  void add(const Op& op, const std::vector<ValueId>& inputs) {
    graph_.set_scope("n" + std::to_string(graph_.nodes().size()));
    for (const ValueId id : must(graph_.add(op, inputs))) pool_.push_back(id);
  }

  bool fits(ValueId b, const Shape& shape) const {
    const Shape& other = graph_.spec(b).shape;
    if (other.elements() == 1) return true;
    if (other.rank() > shape.rank()) return false;
    for (int i = 1; i <= other.rank(); ++i) {
      if (other[-i] != shape[-i]) return false;
    }
    return true;
  }

  ValueId parameter(const std::string& stem, const Shape& shape) {
    const std::string name = stem + to_string(shape);
    if (const auto known = graph_.find(name)) return *known;
    return must(graph_.parameter(name, {DType::kF32, shape}));
  }

  // A product with any part of an epilogue after it.
  void product(ValueId a) {
    const Shape shape = graph_.spec(a).shape;
    if (shape.rank() < 2) return;
    const std::int64_t n = 1 + draw(4);
    const bool transpose = draw(2) == 1;
    const ValueId w = transpose ? parameter("v", Shape(n, shape.columns()))
                                : parameter("w", Shape(shape.columns(), n));
    add(MatMul{.transpose_b = transpose}, {a, w});
    if (draw(6) == 0) add(Fill{0.5f}, {w});  // Has no output: the product stays the last value.
    if (draw(2) == 1) add(Binary{}, {pool_.back(), parameter("b", Shape(n))});
    if (draw(2) == 1) add(Unary{kSafe[draw(kSafe.size())], 0.5f}, {pool_.back()});
    const ValueId c = pool_.back();
    const auto residual = std::ranges::find_if(
        pool_, [&](ValueId id) { return id != c && graph_.spec(id) == graph_.spec(c); });
    if (draw(2) == 1 && residual != pool_.end()) {
      if (draw(2) == 1) return add(Binary{}, {*residual, c});
      add(Binary{}, {c, *residual});
    }
  }

  void reduce(ValueId a) {
    const int rank = graph_.spec(a).shape.rank();
    if (rank == 0) return;
    const auto begin = static_cast<std::int32_t>(draw(static_cast<std::size_t>(rank)));
    const auto kind = static_cast<ReduceKind>(draw(3));
    add(Reduce{kind, begin,
               begin + 1 + static_cast<std::int32_t>(draw(static_cast<std::size_t>(rank - begin)))},
        {a});
  }

  static Shape prepended(const Shape& shape, std::int64_t first) {
    Shape result(first);
    for (int i = 0; i < shape.rank(); ++i) result.push_back(shape[i]);
    return result;
  }

  Shape reshaped(const Shape& shape) {
    const std::int64_t n = shape.elements();
    const std::int64_t rows = 1 + draw(4);
    if (n % rows != 0 || draw(3) == 0) return Shape(n);
    return Shape(rows, n / rows);
  }

  void rearrange(ValueId a) {
    const Shape shape = graph_.spec(a).shape;
    if (shape.rank() < 2) return;
    if (draw(3) == 0) {
      Permute permute;
      for (int i = 0; i < shape.rank(); ++i) {
        permute.perm[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(shape.rank() - 1 - i);
      }
      return add(permute, {a});
    }
    if (draw(2) == 0) return add(Slice{0, shape[0] - 1, 1}, {a});
    if (shape.elements() < 100) add(Pad{1, 1, 0}, {a});
  }

  // A write to a state between equal reads of it, one of them through a reshape.
  void write(ValueId a) {
    const std::string name = "s" + to_string(graph_.spec(a).shape);
    auto state = graph_.find(name);
    if (!state) state = must(graph_.state(name, graph_.spec(a)));
    add(Reshape{Shape(graph_.spec(a).shape.elements())}, {*state});
    const ValueId flat = pool_.back();
    if (draw(2) == 0) add(Unary{UnaryKind::kTanh}, {*state});
    if (draw(3) == 0 || *state == a) {
      add(Fill{0.25f}, {*state});
    } else {
      add(Accumulate{0.5f}, {*state, a});
    }
    pool_.push_back(*state);
    if (draw(2) == 0) add(Unary{UnaryKind::kTanh}, {*state});
    if (draw(2) == 0) add(Unary{UnaryKind::kSquare}, {flat});
  }

  void repeat() {
    if (graph_.nodes().empty()) return;
    const Node node = graph_.nodes()[draw(graph_.nodes().size())];
    add(node.op, node.inputs);
  }

  void norm(ValueId a) {
    const Shape shape = graph_.spec(a).shape;
    if (shape.rank() == 0) return;
    add(Norm{.kind = NormKind::kRms}, {a, parameter("n", Shape(shape.columns()))});
  }

  // Something to fold.
  void fold() {
    const ValueId constant = must(graph_.filled(Shape(2, 3), static_cast<float>(draw(3))));
    add(Unary{UnaryKind::kTanh}, {constant});
    if (draw(2) == 0) add(Reshape{Shape(6)}, {pool_.back()});
    if (draw(2) == 0)
      add(Norm{.kind = NormKind::kRms}, {constant, must(graph_.filled(Shape(3), 1.5f))});
  }

  Graph graph_;
  std::vector<ValueId> pool_;
  std::uint32_t number_ = 0;
};

}  // namespace

Graph random_graph(const std::vector<std::uint32_t>& tape) {
  RandomGraph builder;
  for (const std::uint32_t number : tape) builder.step(number);
  return builder.finish(tape.empty() ? 0 : tape.back());
}

}  // namespace volta::testing
