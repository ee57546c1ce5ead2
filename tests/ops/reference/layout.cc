// The ops that only move elements, and row lookups, in double. All exact but EmbeddingGrad's sums.
#include "ops/reference/reference.h"

namespace volta::reference {

namespace {

// `index` of an element as coordinates of `shape`, and back.
std::vector<std::int64_t> coordinates(const Shape& shape, std::int64_t index) {
  std::vector<std::int64_t> at(static_cast<std::size_t>(shape.rank()));
  for (int i = shape.rank() - 1; i >= 0; --i) {
    at[static_cast<std::size_t>(i)] = index % shape[i];
    index /= shape[i];
  }
  return at;
}

std::int64_t index_of(const Shape& shape, const std::vector<std::int64_t>& at) {
  std::int64_t index = 0;
  for (int i = 0; i < shape.rank(); ++i) index = index * shape[i] + at[static_cast<std::size_t>(i)];
  return index;
}

}  // namespace

void compute(const Reshape&, Call& call) { call.out[0].data = call.in[0].data; }

void compute(const Permute& op, Call& call) {
  const Shape& x = call.in[0].spec.shape;
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    const auto to = coordinates(call.out[0].spec.shape, i);
    auto from = to;
    for (std::size_t axis = 0; axis < to.size(); ++axis) {
      from[static_cast<std::size_t>(op.perm[axis])] = to[axis];
    }
    call.out[0][i] = call.in[0][index_of(x, from)];
  }
}

void compute(const Slice& op, Call& call) {
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    auto at = coordinates(call.out[0].spec.shape, i);
    at[static_cast<std::size_t>(op.axis)] += op.begin;
    call.out[0][i] = call.in[0][index_of(call.in[0].spec.shape, at)];
  }
}

void compute(const Pad& op, Call& call) {
  for (std::int64_t i = 0; i < call.in[0].size(); ++i) {
    auto at = coordinates(call.in[0].spec.shape, i);
    at[static_cast<std::size_t>(op.axis)] += op.before;
    call.out[0][index_of(call.out[0].spec.shape, at)] = call.in[0][i];
  }
}

void compute(const Embedding&, Call& call) {
  const std::int64_t width = call.in[0].spec.shape[1];
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    const auto row = static_cast<std::int64_t>(call.in[1][i / width]);
    call.out[0][i] = call.in[0][row * width + i % width];
  }
}

void compute(const EmbeddingGrad& op, Call& call) {
  const std::int64_t width = call.in[1].spec.shape[-1];
  for (std::int64_t row = 0; row < op.rows; ++row) {
    for (std::int64_t c = 0; c < width; ++c) {
      Sum sum;
      for (std::int64_t i = 0; i < call.in[0].size(); ++i) {
        if (static_cast<std::int64_t>(call.in[0][i]) == row) sum.add(call.in[1][i * width + c]);
      }
      call.out[0].set(row * width + c, sum.value(), sum.bounded().error);
    }
  }
}

}  // namespace volta::reference
