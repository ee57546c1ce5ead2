// GGUF files for tests: by hand, byte by byte, and the committed ones.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/memory.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_writer.h"
#include "support/shared_data.h"

namespace volta::test {

/// Little-endian bytes, appended.
class GgufBytes {
 public:
  template <typename T>
  GgufBytes& number(T value) {
    bytes_ += as_text(object_bytes(value));
    return *this;
  }
  GgufBytes& u32(std::uint32_t value) { return number(value); }
  GgufBytes& u64(std::uint64_t value) { return number(value); }
  GgufBytes& text(std::string_view value) {
    u64(value.size());
    bytes_ += value;
    return *this;
  }
  GgufBytes& raw(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  GgufBytes& header(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    return raw("GGUF").u32(version).u64(tensors).u64(keys);
  }
  /// An f32 tensor of one dimension, unless another type is given.
  GgufBytes& tensor(std::string_view name, std::uint64_t size, std::uint64_t offset,
                    std::uint32_t type = 0) {
    return text(name).u32(1).u64(size).u32(type).u64(offset);
  }
  /// Up to the alignment, and so many bytes of data.
  GgufBytes& data(std::size_t size, std::size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment + size, '\0');
    return *this;
  }
  const std::string& bytes() const { return bytes_; }
  Result<GgufFile> parse() const { return GgufFile::parse(as_bytes(bytes_), "file"); }

 private:
  std::string bytes_;
};

/// A file of metadata and f32 zeros, in memory that lives as long as this.
class GgufSample {
 public:
  GgufMetadata metadata;
  std::vector<std::pair<std::string, Shape>> tensors;

  Result<GgufFile> parse() {
    GgufBytes out;
    out.header(tensors.size(), metadata.count()).raw(metadata.bytes());
    std::uint64_t offset = 0;
    for (const auto& [name, shape] : tensors) {
      out.text(name).u32(static_cast<std::uint32_t>(shape.rank()));
      for (int axis = shape.rank(); axis-- > 0;) {
        out.u64(static_cast<std::uint64_t>(shape[axis]));
      }
      out.u32(0).u64(offset);
      offset += static_cast<std::uint64_t>(shape.elements() * 4 + 31) / 32 * 32;
    }
    bytes_ = out.data(offset).bytes();
    return GgufFile::parse(as_bytes(bytes_), "sample");
  }

 private:
  std::string bytes_;
};

inline std::string gguf_data(std::string_view name) {
  return source_path("tests/formats/data/gguf_" + std::string(name));
}
inline nlohmann::json gguf_goldens() {
  std::ifstream file(gguf_data("goldens.json"));
  EXPECT_TRUE(file);
  return nlohmann::json::parse(file);
}
inline GgufFile open_gguf(const std::string& path) {
  auto file = GgufFile::open(path);
  if (!file) {
    ADD_FAILURE() << file.error().message();
    std::abort();
  }
  return *std::move(file);
}

}  // namespace volta::test
