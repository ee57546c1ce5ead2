// Sizes of metadata values in a GGUF file. Internal to gguf_file.cc and gguf_values.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace volta {

/// The size in bytes of a value of this type (a number of GgufValueType); 0 for strings and arrays;
/// nothing for an unknown type.
std::optional<std::size_t> gguf_value_size(std::uint32_t type);

}  // namespace volta
