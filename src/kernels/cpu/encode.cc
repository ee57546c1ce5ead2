// Encode: weights into panels and back. Plain copies, cut into blocks that stay in L1; it runs once
// a weight.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

namespace volta::cpu {
namespace {

// One plain matrix [rows, columns] and its encoded form, element type T.
template <typename T>
struct Copy {
  T* plain;
  T* encoded;
  Encoding encoding;
  std::int64_t k, n;
  bool decode;
};

// Steps [k_begin, k_end) of the panel whose first column is `column`.
template <typename T>
void copy_block(const Copy<T>& c, std::int64_t column, std::int64_t k_begin, std::int64_t k_end) {
  const std::int64_t width = c.encoding.width;
  const std::int64_t columns = std::min(width, c.n - column);
  T* panel = c.encoded + column * c.k;
  // SAFETY: element (k, column + j) of b, within both matrices.
  const std::int64_t k_step = c.encoding.transposed ? 1 : c.n;
  const std::int64_t j_step = c.encoding.transposed ? c.k : 1;
  for (std::int64_t k = k_begin; k < k_end; ++k) {
    T* plain = c.plain + k * k_step + column * j_step;
    T* encoded = panel + k * width;
    if (c.decode) {
      for (std::int64_t j = 0; j < columns; ++j) plain[j * j_step] = encoded[j];
    } else {
      for (std::int64_t j = 0; j < columns; ++j) encoded[j] = plain[j * j_step];
      std::fill(encoded + columns, encoded + width, T{});
    }
  }
}

template <typename T>
void copy(const Copy<T>& c, const Context& context) {
  constexpr std::int64_t kBlockSteps = 64;  // A cache line or more of every row of a transpose.
  const std::int64_t width = c.encoding.width;
  split_rows(context, ceil_div(c.n, width), c.k * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      for (std::int64_t k = 0; k < c.k; k += kBlockSteps) {
        copy_block(c, panel * width, k, std::min(c.k, k + kBlockSteps));
      }
    }
  });
}

template <typename T>
void encode(const Encode& op, const Args& args, const Context& context) {
  const View& x = args.inputs[0];
  const View& y = args.outputs[0];
  if (x.encoding == y.encoding) {  // Both plain.
    split_elements(context, x.shape.elements(), [&](std::int64_t begin, std::int64_t end) {
      std::copy(x.as<const T>() + begin, x.as<const T>() + end, y.as<T>() + begin);
    });
    return;
  }
  const bool decode = op.to.plain();
  const Encoding encoding = decode ? x.encoding : op.to;
  copy<T>({.plain = decode ? y.as<T>() : x.as<T>(),
           .encoded = decode ? x.as<T>() : y.as<T>(),
           .encoding = encoding,
           .k = encoding.k(x.shape),
           .n = encoding.n(x.shape),
           .decode = decode},
          context);
}

}  // namespace

void run(const Encode& op, const Args& args, const Context& context) noexcept {
  if (dtype_size(args.inputs[0].dtype) == 4) {
    encode<std::uint32_t>(op, args, context);
  } else {
    encode<std::uint16_t>(op, args, context);
  }
}

}  // namespace volta::cpu
