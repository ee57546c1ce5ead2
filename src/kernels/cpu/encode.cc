// Encode: puts weights into panels and back. It runs once per weight. The case that matters is a
// row-major weight b[N, K] from a model folder that is packed for a model that only runs. Its
// panels are transposed with vectors, at a good part of the memory's speed. All other cases copy
// element by element, in blocks that stay in L1.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_pack-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

/// Packs the panel that begins with column `column` of the transpose of b[N, K], in units of four
/// bytes.
// SAFETY: the caller owns b and a whole panel of K units a column; they are only moved, so that
// their type does not matter to the vectors, and a load and a store of a float keep its bits.
void transpose_panel(const void* b, std::int64_t n, std::int64_t k, std::int64_t column,
                     void* panel) {
  const std::int64_t width = kPanelVectors * lanes(F32());
  pack_panel_transposed(static_cast<const float*>(b) + column * k, k, k,
                        std::min(width, n - column), static_cast<float*>(panel));
}

std::int64_t vector_panel_width() { return kPanelVectors * lanes(F32()); }

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

// Whether units of `bytes` may be read at this address. The 16-bit weights of a mapped file may
// begin in the middle of such a unit.
// SAFETY: the address is only looked at.
bool aligned(const void* data, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

// One plain matrix and its encoded form, element type T.
template <typename T>
struct Copy {
  T* plain;
  T* encoded;
  Encoding encoding;
  std::int64_t k, n;
  bool decode;
};

// Copies steps [k_begin, k_end) of the panel whose first column is `column`. `k_begin` begins a
// group.
template <typename T>
void copy_block(const Copy<T>& c, std::int64_t column, std::int64_t k_begin, std::int64_t k_end) {
  const std::int64_t columns = std::min<std::int64_t>(c.encoding.width, c.n - column);
  // SAFETY: element (k, column + j) of b, within both matrices.
  const std::int64_t k_step = c.encoding.transposed ? 1 : c.n;
  const std::int64_t j_step = c.encoding.transposed ? c.k : 1;
  const std::int64_t group = c.encoding.group;
  if (!c.decode) {
    T* begin = c.encoded + panel_index(c.encoding, c.k, k_begin, column);
    const std::int64_t steps = c.encoding.padded_k(k_end) - k_begin;
    std::fill_n(begin, steps * c.encoding.width, T{});
  }
  for (std::int64_t k = k_begin; k < k_end; ++k) {
    T* plain = c.plain + k * k_step + column * j_step;
    T* encoded = c.encoded + panel_index(c.encoding, c.k, k, column);
    for (std::int64_t j = 0; j < columns; ++j) {
      T& from = c.decode ? encoded[j * group] : plain[j * j_step];
      T& to = c.decode ? plain[j * j_step] : encoded[j * group];
      to = from;
    }
  }
}

template <typename T>
void copy_panel(const Copy<T>& c, std::int64_t panel, Simd simd) {
  const std::int64_t column = panel * c.encoding.width;
  const bool vectors = !c.decode && c.encoding.transposed && c.encoding.group * sizeof(T) == 4 &&
                       c.k % c.encoding.group == 0 && aligned(c.plain, 4) &&
                       c.encoding.width == VOLTA_SIMD_CALL(simd, vector_panel_width);
  if (vectors) {
    VOLTA_SIMD_CALL(simd, transpose_panel, c.plain, c.n, c.k / c.encoding.group, column,
                    c.encoded + panel_index(c.encoding, c.k, 0, column));
    return;
  }
  constexpr std::int64_t kBlockSteps = 64;  // At least a cache line of every row of a transpose.
  for (std::int64_t k = 0; k < c.k; k += kBlockSteps) {
    copy_block(c, column, k, std::min(c.k, k + kBlockSteps));
  }
}

template <typename T>
void encode(const Encode& op, const Args& args, const Context& context) {
  const View& x = args.inputs[0];
  const View& y = args.outputs[0];
  if (x.encoding == y.encoding) {  // Both are plain.
    split_blocks(context, x.shape.elements(), [&](std::int64_t begin, std::int64_t end) {
      std::copy(x.as<const T>() + begin, x.as<const T>() + end, y.as<T>() + begin);
    });
    return;
  }
  const bool decode = op.to.plain();
  const Encoding encoding = decode ? x.encoding : op.to;
  const Copy<T> copy{.plain = decode ? y.as<T>() : x.as<T>(),
                     .encoded = decode ? x.as<T>() : y.as<T>(),
                     .encoding = encoding,
                     .k = encoding.k(x.shape),
                     .n = encoding.n(x.shape),
                     .decode = decode};
  split_rows(context, encoding.panels(x.shape), copy.k * encoding.width,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t p = begin; p < end && !stops_here(context); ++p) {
                 copy_panel(copy, p, context.simd);
               }
             });
}

}  // namespace

std::int64_t workspace_bytes(const Encode&, const ArgShapes&, const Context&) { return 0; }

void run(const Encode& op, const Args& args, const Context& context) noexcept {
  if (op.to.quantized() || args.inputs[0].encoding.quantized()) {
    encode_quantized(op, args, context);
  } else if (dtype_size(args.inputs[0].dtype) == 4) {
    encode<std::uint32_t>(op, args, context);
  } else {
    encode<std::uint16_t>(op, args, context);
  }
}

}  // namespace volta::cpu
#endif
