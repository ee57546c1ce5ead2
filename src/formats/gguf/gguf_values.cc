// Metadata of a GGUF file as typed values: the getters of GgufFile. The file itself is parsed in
// gguf_file.cc.
#include "formats/gguf/gguf_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "formats/gguf/gguf_file.h"

namespace volta {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes) {
  T value{};
  if (bytes.size() >= sizeof(T)) std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

std::optional<std::int64_t> as_int(GgufValueType type, std::span<const std::byte> bytes) {
  switch (type) {
    case GgufValueType::kUint8:
      return load<std::uint8_t>(bytes);
    case GgufValueType::kInt8:
      return load<std::int8_t>(bytes);
    case GgufValueType::kUint16:
      return load<std::uint16_t>(bytes);
    case GgufValueType::kInt16:
      return load<std::int16_t>(bytes);
    case GgufValueType::kUint32:
      return load<std::uint32_t>(bytes);
    case GgufValueType::kInt32:
      return load<std::int32_t>(bytes);
    case GgufValueType::kInt64:
      return load<std::int64_t>(bytes);
    case GgufValueType::kUint64: {
      const auto value = load<std::uint64_t>(bytes);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return std::numeric_limits<std::int64_t>::max();  // Larger than every limit of a caller.
      }
      return static_cast<std::int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> as_float(GgufValueType type, std::span<const std::byte> bytes) {
  if (type == GgufValueType::kFloat32) return load<float>(bytes);
  if (type == GgufValueType::kFloat64) return load<double>(bytes);
  if (const auto integer = as_int(type, bytes)) return static_cast<double>(*integer);
  return std::nullopt;
}

// A number, or an array whose elements all equal that number.
template <typename Read>
auto one_number(const GgufValue& value, Read read) -> decltype(read(value.type, value.bytes)) {
  if (value.type != GgufValueType::kArray) return read(value.type, value.bytes);
  const auto size = static_cast<std::size_t>(
      gguf_value_size(static_cast<std::uint32_t>(value.element)).value_or(0));
  if (size == 0 || value.count == 0) return std::nullopt;
  const auto first = read(value.element, value.bytes.first(size));
  for (std::size_t i = 1; first && i < static_cast<std::size_t>(value.count); ++i) {
    if (read(value.element, value.bytes.subspan(i * size, size)) != first) return std::nullopt;
  }
  return first;
}

}  // namespace

std::optional<std::size_t> gguf_value_size(std::uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return std::nullopt;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = std::lower_bound(metadata_.begin(), metadata_.end(), key,
                                      [](auto& e, std::string_view k) { return e.key < k; });
  return found != metadata_.end() && found->key == key ? &found->value : nullptr;
}

std::unexpected<Error> GgufFile::wrong(std::string_view key, std::string_view expected) const {
  return fail(
      ErrorCode::kInvalidFile,
      fmt::format("{}: metadata '{}' {}", path_, key,
                  find(key) == nullptr ? "is missing" : fmt::format("is not {}", expected)));
}

Result<std::int64_t> GgufFile::get_int(std::string_view key, std::int64_t min,
                                       std::int64_t max) const {
  const GgufValue* value = find(key);
  const auto number = value == nullptr ? std::nullopt : one_number(*value, as_int);
  if (number && *number >= min && *number <= max) return *number;
  return wrong(key, fmt::format("an integer from {} to {}", min, max));
}

Result<std::int64_t> GgufFile::get_int_or(std::string_view key, std::int64_t fallback,
                                          std::int64_t min, std::int64_t max) const {
  if (find(key) == nullptr) return fallback;
  return get_int(key, min, max);
}

Result<double> GgufFile::get_float(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto number = value == nullptr ? std::nullopt : one_number(*value, as_float);
  if (number && std::isfinite(*number)) return *number;
  return wrong(key, "a finite number");
}

Result<double> GgufFile::get_float_or(std::string_view key, double fallback) const {
  if (find(key) == nullptr) return fallback;
  return get_float(key);
}

Result<bool> GgufFile::get_bool_or(std::string_view key, bool fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  if (value->type != GgufValueType::kBool) return wrong(key, "a boolean");
  return load<std::uint8_t>(value->bytes) != 0;
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr || value->type != GgufValueType::kString) return wrong(key, "a string");
  const std::string_view text = as_text(value->bytes.subspan(8));
  if (find_invalid_utf8(text)) return wrong(key, "UTF-8");
  return text;
}

Result<std::string_view> GgufFile::get_string_or(std::string_view key,
                                                 std::string_view fallback) const {
  if (find(key) == nullptr) return fallback;
  return get_string(key);
}

Result<std::vector<float>> GgufFile::get_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::vector<float>();
  if (value->type != GgufValueType::kArray || value->element != GgufValueType::kFloat32) {
    return wrong(key, "an array of 32-bit floats");
  }
  std::vector<float> numbers(static_cast<std::size_t>(value->count));
  std::ranges::copy(value->bytes, std::as_writable_bytes(std::span(numbers)).begin());
  return numbers;
}

Result<std::vector<std::int32_t>> GgufFile::get_ints(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::vector<std::int32_t>();
  if (value->type != GgufValueType::kArray ||
      (value->element != GgufValueType::kInt32 && value->element != GgufValueType::kUint32)) {
    return wrong(key, "an array of 32-bit integers");
  }
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(value->count));
  std::ranges::copy(value->bytes, std::as_writable_bytes(std::span(numbers)).begin());
  return numbers;
}

}  // namespace volta
