#include "formats/gguf/ggml_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/memory.h"
#include "tensor/float16.h"
#include "tensor/weight_format.h"

namespace volta {
namespace {

constexpr std::array kTypes = {
    GgmlTypeInfo{GgmlType::kF32, "F32", 1, 4},
    GgmlTypeInfo{GgmlType::kF16, "F16", 1, 2},
    GgmlTypeInfo{GgmlType::kBF16, "BF16", 1, 2},
    GgmlTypeInfo{GgmlType::kQ8_0, "Q8_0", 32, 2 + 32},
    GgmlTypeInfo{GgmlType::kQ4_0, "Q4_0", 32, 2 + 16},
    GgmlTypeInfo{GgmlType::kQ4_1, "Q4_1", 32, 2 + 2 + 16},
    GgmlTypeInfo{GgmlType::kQ5_0, "Q5_0", 32, 2 + 4 + 16},
    GgmlTypeInfo{GgmlType::kQ5_1, "Q5_1", 32, 2 + 2 + 4 + 16},
    GgmlTypeInfo{GgmlType::kQ4_K, "Q4_K", 256, 2 + 2 + 12 + 128},
    GgmlTypeInfo{GgmlType::kQ5_K, "Q5_K", 256, 2 + 2 + 12 + 32 + 128},
    GgmlTypeInfo{GgmlType::kQ6_K, "Q6_K", 256, 128 + 64 + 16 + 2},
};

// The names by ggml's numbers; empty for a number that is no longer used.
constexpr std::array<std::string_view, 42> kNames = {
    "F32",     "F16",   "Q4_0",   "Q4_1",  "",      "",       "Q5_0", "Q5_1",    "Q8_0",
    "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K", "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",   "I16",     "I32",
    "I64",     "F64",   "IQ1_M",  "BF16",  "",      "",       "",     "TQ1_0",   "TQ2_0",
    "",        "",      "",       "MXFP4", "NVFP4", "Q1_0"};

// The bytes of one block. Offsets count from its first byte.
class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint32_t operator[](std::size_t i) const {
    return std::to_integer<std::uint32_t>(bytes_[i]);
  }
  std::uint16_t u16(std::size_t i) const {
    return static_cast<std::uint16_t>((*this)[i] | ((*this)[i + 1] << 8));
  }
  float half(std::size_t i) const { return f32_from_f16(u16(i)); }
  std::span<const std::byte> bytes() const { return bytes_; }
  Bytes from(std::size_t i) const { return Bytes(bytes_.subspan(i)); }

 private:
  std::span<const std::byte> bytes_;
};

void put_u16(std::span<std::byte> out, std::size_t i, std::uint16_t value) {
  out[i] = static_cast<std::byte>(value & 0xFFu);
  out[i + 1] = static_cast<std::byte>(value >> 8);
}

// Values i and i + 16 of a block of 32 share byte i: value i has the low four bits, the other the
// high ones.
std::uint32_t nibble(const Bytes& packed, std::size_t i) {
  return i < 16 ? packed[i] & 0xFu : packed[i - 16] >> 4;
}

// Bit i of the 32 high bits of Q5_0 and Q5_1, as bit 4 of a value.
std::uint32_t fifth_bit(const Bytes& bits, std::size_t i) {
  return ((bits[i / 8] >> (i % 8)) & 1u) << 4;
}

void read_q4_1(const Bytes& block, std::span<float> out) {
  const float scale = block.half(0), least = block.half(2);
  for (std::size_t i = 0; i < 32; ++i) {
    out[i] = scale * static_cast<float>(nibble(block.from(4), i)) + least;
  }
}

void read_q5_0(const Bytes& block, std::span<float> out) {
  const float scale = block.half(0);
  for (std::size_t i = 0; i < 32; ++i) {
    const std::uint32_t q = nibble(block.from(6), i) | fifth_bit(block.from(2), i);
    out[i] = scale * static_cast<float>(static_cast<int>(q) - 16);
  }
}

void read_q5_1(const Bytes& block, std::span<float> out) {
  const float scale = block.half(0), least = block.half(2);
  for (std::size_t i = 0; i < 32; ++i) {
    const std::uint32_t q = nibble(block.from(8), i) | fifth_bit(block.from(4), i);
    out[i] = scale * static_cast<float>(q) + least;
  }
}

void read_block(GgmlType type, const Bytes& block, std::span<float> out) {
  if (const Quant quant = ggml_quant(type); quant != Quant::kNone) {
    const auto bytes = static_cast<std::size_t>(ggml_type_info(type).block_bytes);
    WeightBlock taken_apart;
    read_stored_block(quant, block.bytes().first(bytes), taken_apart);
    return decode_block(quant, taken_apart, out);
  }
  switch (type) {
    case GgmlType::kQ4_1:
      return read_q4_1(block, out);
    case GgmlType::kQ5_0:
      return read_q5_0(block, out);
    case GgmlType::kQ5_1:
      return read_q5_1(block, out);
    default:
      break;  // dequantize() reads types without blocks; Volta's formats are read above.
  }
}

std::unexpected<Error> cannot_hold(float value, std::string_view type) {
  return fail(ErrorCode::kNonFinite,
              fmt::format("value {} cannot be stored as {}; choose f32{}", value, type,
                          std::isfinite(value) ? " or bf16" : ""));
}

// 1 / scale; 0 for a block of zeros, whose scale is 0.
float inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

// The integer part of `value`, limited to the range 0 to 15. Callers add 0.5 or 8.5 to round.
std::uint32_t round_to_nibble(float value) {
  if (!(value > 0.0f)) return 0;
  return value >= 15.0f ? 15u : static_cast<std::uint32_t>(value);
}

void put_nibbles(std::span<const float> values, std::span<std::byte> out, float least,
                 float inverse_scale, float offset) {
  const auto at = [&](std::size_t i) {
    return round_to_nibble((values[i] - least) * inverse_scale + offset);
  };
  for (std::size_t i = 0; i < 16; ++i) out[i] = static_cast<std::byte>(at(i) | (at(i + 16) << 4));
}

void write_q8_0(std::span<const float> values, std::span<std::byte> out) {
  float largest = 0.0f;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float scale = largest / 127.0f;
  const float by = inverse(scale);
  put_u16(out, 0, f16_from_f32(scale));
  for (std::size_t i = 0; i < 32; ++i) {
    const float q = std::clamp(std::round(values[i] * by), -127.0f, 127.0f);
    out[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(q));
  }
}

void write_q4_0(std::span<const float> values, std::span<std::byte> out) {
  const float largest = *std::max_element(  // The first one of the largest magnitude.
      values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  const float scale = largest / -8.0f;
  put_u16(out, 0, f16_from_f32(scale));
  put_nibbles(values, out.subspan(2), 0.0f, inverse(scale), 8.5f);
}

void write_q4_1(std::span<const float> values, std::span<std::byte> out) {
  const auto [least, largest] = std::minmax_element(values.begin(), values.end());
  const float scale = (*largest - *least) / 15.0f;
  put_u16(out, 0, f16_from_f32(scale));
  put_u16(out, 2, f16_from_f32(*least));
  put_nibbles(values, out.subspan(4), *least, inverse(scale), 0.5f);
}

// A scale that is infinite in F16 would make all values of the block infinite.
bool fits_f16(std::uint16_t bits) { return (bits & 0x7C00u) != 0x7C00u; }

Status write_blocks(const GgmlTypeInfo& info, std::span<const float> values,
                    std::span<std::byte> blocks) {
  const auto count = static_cast<std::size_t>(info.block_values);
  const auto bytes = static_cast<std::size_t>(info.block_bytes);
  for (std::size_t i = 0; i < values.size() / count; ++i) {
    const auto in = values.subspan(i * count, count);
    const auto out = blocks.subspan(i * bytes, bytes);
    const auto bad = std::find_if(in.begin(), in.end(), [](float v) { return !std::isfinite(v); });
    if (bad != in.end()) return cannot_hold(*bad, info.name);
    if (info.type == GgmlType::kQ8_0) write_q8_0(in, out);
    if (info.type == GgmlType::kQ4_0) write_q4_0(in, out);
    if (info.type == GgmlType::kQ4_1) write_q4_1(in, out);
    const Bytes written{std::span<const std::byte>(out)};
    if (!fits_f16(written.u16(0)) || (info.type == GgmlType::kQ4_1 && !fits_f16(written.u16(2)))) {
      return cannot_hold(*std::max_element(in.begin(), in.end()), info.name);
    }
  }
  return {};
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::optional<GgmlTypeInfo> find_ggml_type(std::uint32_t number) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (static_cast<std::uint32_t>(info.type) == number) return info;
  }
  return std::nullopt;
}

std::optional<GgmlTypeInfo> find_ggml_type(std::string_view name) {
  const auto same = [](char a, char b) { return upper(a) == upper(b); };
  for (const GgmlTypeInfo& info : kTypes) {
    if (std::ranges::equal(info.name, name, same)) return info;
  }
  return std::nullopt;
}

const GgmlTypeInfo& ggml_type_info(GgmlType type) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (info.type == type) return info;
  }
  return kTypes.front();
}

std::string ggml_type_name(std::uint32_t number) {
  if (number < kNames.size() && !kNames[number].empty()) return std::string(kNames[number]);
  return fmt::format("number {}", number);
}

std::string known_ggml_types() {
  std::string names;
  for (const GgmlTypeInfo& info : kTypes) {
    names += names.empty() ? "" : &info == &kTypes.back() ? " and " : ", ";
    names += info.name;
  }
  return names;
}

Quant ggml_quant(GgmlType type) {
  switch (type) {
    case GgmlType::kQ8_0:
      return Quant::kInt8;
    case GgmlType::kQ4_0:
      return Quant::kInt4;
    case GgmlType::kQ4_K:
      return Quant::kQ4K;
    case GgmlType::kQ5_K:
      return Quant::kQ5K;
    case GgmlType::kQ6_K:
      return Quant::kQ6K;
    default:
      return Quant::kNone;
  }
}

void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> values) {
  const Bytes bytes(blocks);
  switch (type) {
    case GgmlType::kF32:
      std::ranges::copy(blocks.first(values.size_bytes()), std::as_writable_bytes(values).begin());
      return;
    case GgmlType::kF16:
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = bytes.half(2 * i);
      return;
    case GgmlType::kBF16:
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = f32_from_bf16(bytes.u16(2 * i));
      return;
    default:
      break;
  }
  const GgmlTypeInfo& info = ggml_type_info(type);
  const auto count = static_cast<std::size_t>(info.block_values);
  const auto size = static_cast<std::size_t>(info.block_bytes);
  for (std::size_t i = 0; i < values.size() / count; ++i) {
    read_block(type, bytes.from(i * size), values.subspan(i * count, count));
  }
}

bool can_quantize(GgmlType type) {
  return type == GgmlType::kF32 || type == GgmlType::kF16 || type == GgmlType::kBF16 ||
         type == GgmlType::kQ8_0 || type == GgmlType::kQ4_0 || type == GgmlType::kQ4_1;
}

Status quantize(GgmlType type, std::span<const float> values, std::span<std::byte> blocks) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  switch (type) {
    case GgmlType::kF32:
      std::ranges::copy(std::as_bytes(values), blocks.begin());
      return {};
    case GgmlType::kF16:
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint16_t bits = f16_from_f32(values[i]);
        if (!fits_f16(bits) && std::isfinite(values[i])) return cannot_hold(values[i], info.name);
        put_u16(blocks, 2 * i, bits);
      }
      return {};
    case GgmlType::kBF16:
      for (std::size_t i = 0; i < values.size(); ++i) {
        put_u16(blocks, 2 * i, bf16_from_f32(values[i]));
      }
      return {};
    case GgmlType::kQ8_0:
    case GgmlType::kQ4_0:
    case GgmlType::kQ4_1:
      return write_blocks(info, values, blocks);
    default:
      return fail(ErrorCode::kUnsupported,
                  fmt::format("Volta reads {} and does not write it", info.name));
  }
}

}  // namespace volta
