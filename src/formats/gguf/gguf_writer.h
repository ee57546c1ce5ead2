// Writes GGUF files (version 3): metadata is collected, then tensors are handed over one by one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "formats/gguf/gguf_file.h"

namespace volta {

/// Metadata in the file's format. Keys must be unique.
class GgufMetadata {
 public:
  void add_string(std::string_view key, std::string_view text);
  void add_u32(std::string_view key, std::uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_strings(std::string_view key, std::span<const std::string> texts);
  void add_floats(std::string_view key, std::span<const float> values);
  void add_ints(std::string_view key, std::span<const std::int32_t> values);

  std::uint64_t count() const { return count_; }
  std::string_view bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, GgufValueType type);
  void begin_array(std::string_view key, GgufValueType element, std::size_t count);

  std::uint64_t count_ = 0;
  std::string bytes_;
};

/// A tensor to be written; `shape` has the outermost axis first. A row is a whole number of blocks.
struct GgufTensorSpec {
  std::string name;
  GgmlType type = GgmlType::kF32;
  Shape shape;
  std::int64_t bytes() const;
};

/// Writes a file in one atomic replacement of `path`. write_data(i, sink) is called in order; it
/// passes the bytes of tensors[i] to `sink`, in pieces. kInternal when their number is not bytes().
/// `existing`: what happens to a file that has the name when the new one is complete.
using GgufSink = FunctionRef<Status(std::span<const std::byte>)>;
Status write_gguf(const std::string& path, const GgufMetadata& metadata,
                  std::span<const GgufTensorSpec> tensors,
                  FunctionRef<Status(std::size_t, GgufSink)> write_data,
                  Existing existing = Existing::kReplace);

}  // namespace volta
