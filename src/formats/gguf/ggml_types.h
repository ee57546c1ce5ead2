// The element types of GGUF tensors, as defined by ggml: the number of values and bytes in a block,
// and the conversion of blocks to f32 and back. Knows nothing of files and tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/weight_format.h"

namespace [[gnu::visibility("default")]] volta {

/// The types that Volta knows, with ggml's numbers.
enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;          ///< "Q4_K"
  std::int64_t block_values = 1;  ///< A row is a whole number of blocks.
  std::int64_t block_bytes = 0;
};

/// Nullopt for a type that Volta does not know.
std::optional<GgmlTypeInfo> find_ggml_type(std::uint32_t number);
/// Finds a type by its name in upper or lower case: "q8_0".
std::optional<GgmlTypeInfo> find_ggml_type(std::string_view name);
const GgmlTypeInfo& ggml_type_info(GgmlType type);
/// "IQ4_XS", or "number 77" for a number that is not a type of ggml either.
std::string ggml_type_name(std::uint32_t number);
/// "F32, F16, ...", for messages.
std::string known_ggml_types();

/// The format (tensor/weight_format.h) that stores the same blocks, of block_values values. kNone
/// when Volta has no such format or the type has no blocks.
Quant ggml_quant(GgmlType type);

/// Loops over a tensor convert kGgmlPiece values per call, a multiple of every block, and check for
/// an interruption every kGgmlPiecesPerCheck calls, which take a few milliseconds.
inline constexpr std::int64_t kGgmlPiece = 4096;
inline constexpr std::int64_t kGgmlPiecesPerCheck = 256;

/// Converts whole blocks to f32 as ggml defines each format, with products and sums rounded to f32
/// in ggml's order. `blocks` holds values.size() / block_values blocks.
void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> values);

/// Whether quantize() supports the type.
bool can_quantize(GgmlType type);
/// Converts f32 to whole blocks, bit-equal to ggml's reference: F32, F16, BF16, Q8_0, Q4_0, Q4_1.
/// kNonFinite for a value that the type cannot hold: NaN or infinity in blocks, or a finite value
/// beyond the range of F16.
Status quantize(GgmlType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace volta
