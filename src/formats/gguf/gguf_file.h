// The GGUF format (versions 2 and 3, little-endian): metadata by key, then tensor descriptions,
// then aligned tensor data (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Every file
// may be hostile: each count and size is checked against the number of bytes left before it is
// used. Strings and arrays are not copied; they are views of the mapping. Knows no architecture.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "formats/gguf/ggml_types.h"
#include "tensor/buffer.h"
#include "tensor/shape.h"

namespace [[gnu::visibility("default")]] volta {

/// The types of metadata values, with their numbers in the file.
enum class GgufValueType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

/// One metadata value; a view of the file.
struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;
  GgufValueType element = GgufValueType::kUint8;  ///< For an array.
  std::int64_t count = 1;                         ///< The length of an array; 1 otherwise.
  std::span<const std::byte> bytes;  ///< The bytes after the type, or after an array's count.
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

/// One tensor in the file's description. `shape` is in Volta's order, outermost axis first; the
/// file lists the innermost axis first.
struct GgufTensor {
  std::string_view name;
  GgmlType type = GgmlType::kF32;
  Shape shape;
  std::int64_t offset = 0;  ///< Offset in bytes in the file.
  std::int64_t bytes = 0;
};

/// A file mapped for reading. Copies share the mapping. The views that the functions return point
/// into it.
class GgufFile {
 public:
  /// Maps and checks a file: the version is known, keys and names are unique, types are known,
  /// sizes match shapes, and all data is inside the file without overlaps. kInvalidFile otherwise,
  /// with the place; kUnsupported for other byte orders, versions and tensor types, and for parts
  /// of a split model.
  static Result<GgufFile> open(const std::string& path);
  /// The same for bytes that `owner` keeps alive. Without `owner`, they must outlive the file.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, const std::string& name,
                                std::shared_ptr<const MappedFile> owner = nullptr);

  const std::string& path() const { return path_; }
  std::uint32_t version() const { return version_; }
  /// Metadata is sorted by key, tensors are sorted by name.
  std::span<const GgufEntry> metadata() const { return metadata_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;

  /// Metadata by key. kInvalidFile when it has another type or is out of range, and when it is
  /// missing and there is no fallback. Integers of every width are accepted, also as floats. An
  /// array of equal numbers (one per layer) counts as that number.
  Result<std::int64_t> get_int(std::string_view key, std::int64_t min, std::int64_t max) const;
  Result<std::int64_t> get_int_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                                  std::int64_t max) const;
  Result<double> get_float(std::string_view key) const;
  Result<double> get_float_or(std::string_view key, double fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const;
  /// Arrays; empty when the key is missing.
  Result<std::vector<std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;
  Result<std::vector<std::int32_t>> get_ints(std::string_view key) const;

  /// Reads values [first, first + values.size()) of a tensor of this file in row-major order, as
  /// f32. The range must be inside the tensor and consist of whole blocks.
  void read_values(const GgufTensor& tensor, std::int64_t first, std::span<float> values) const;
  /// All bytes of a tensor of this file.
  std::span<const std::byte> tensor_bytes(const GgufTensor& tensor) const {
    return bytes_.subspan(static_cast<std::size_t>(tensor.offset),
                          static_cast<std::size_t>(tensor.bytes));
  }
  /// A read-only view of a tensor's bytes in the mapping, which it keeps alive. kInvalidArgument
  /// when the file was parsed without a mapping.
  Result<DeviceBuffer> map(const GgufTensor& tensor) const;
  /// Releases the memory behind a tensor; see MappedFile::release.
  void release(const GgufTensor& tensor) const;
  /// Whether the file stayed unchanged since open(); call it after the last use of the views.
  /// kInvalidFile when the file was truncated, changed or replaced.
  Status check_unchanged() const;

 private:
  GgufFile() = default;
  std::unexpected<Error> wrong(std::string_view key, std::string_view expected) const;

  std::string path_;
  std::uint32_t version_ = 0;
  std::shared_ptr<const MappedFile> owner_;
  std::span<const std::byte> bytes_;
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
};

/// Whether a path is read as a GGUF file: its name ends in .gguf (in any case), or it is a regular
/// file whose first four bytes are "GGUF". False for a folder.
bool is_gguf_path(const std::string& path);

/// The alignment of tensor data if general.alignment is missing.
inline constexpr std::int64_t kGgufAlignment = 32;

}  // namespace volta
