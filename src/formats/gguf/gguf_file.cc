#include "formats/gguf/gguf_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/arithmetic.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/text.h"
#include "formats/gguf/gguf_name.h"
#include "formats/gguf/gguf_values.h"

namespace volta {
namespace {

constexpr std::string_view kGgufMagic = "GGUF";  // The first bytes of a file.
constexpr std::uint64_t kMaxTensors = 1 << 20;
constexpr std::uint64_t kMaxKeys = 1 << 16;
constexpr std::uint64_t kMaxGgufName = 4096;
constexpr std::uint32_t kMaxDims = 4;            // As in ggml.
constexpr int kMaxDepth = 8;                     // Of nested arrays.
constexpr std::uint64_t kMaxElements = 1 << 24;  // In all arrays together.
constexpr std::int64_t kMaxAlignment = std::int64_t{1} << 20;
// The minimum size of a key with its value, and of a tensor's description.
constexpr std::size_t kLeastEntry = 8 + 4 + 1;
constexpr std::size_t kLeastTensor = 8 + 4 + 8 + 4 + 8;

static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies");

// Reads bytes from front to back. Every error message contains the position.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  std::size_t place() const { return place_; }
  std::size_t left() const { return bytes_.size() - place_; }

  std::unexpected<Error> damaged(std::string_view what) const {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: byte {}: {}", name_, place_, what));
  }

  template <typename T>
  Result<T> number() {
    VOLTA_TRY(const auto bytes, take(sizeof(T)));
    T value{};
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  Result<std::span<const std::byte>> take(std::uint64_t count) {
    if (count > left()) {
      return damaged(
          fmt::format("{} bytes are claimed, {} are left; the file is truncated or "
                      "damaged",
                      count, left()));
    }
    const auto bytes = bytes_.subspan(place_, static_cast<std::size_t>(count));
    place_ += static_cast<std::size_t>(count);
    return bytes;
  }

  Result<std::string_view> string() {
    VOLTA_TRY(const auto length, number<std::uint64_t>());
    VOLTA_TRY(const auto bytes, take(length));
    return as_text(bytes);
  }

  // Reads a value of the type, after checking that all its bytes are inside the file.
  Result<GgufValue> value(std::uint32_t type, int depth = 0) {
    const auto size = gguf_value_size(type);
    if (!size) return damaged(fmt::format("metadata has no value type {}", type));
    GgufValue out{.type = static_cast<GgufValueType>(type), .bytes = {}};
    if (out.type == GgufValueType::kArray) return array(depth);
    const std::size_t begin = place_;
    if (out.type == GgufValueType::kString) {
      VOLTA_TRY(string());
    } else {
      VOLTA_TRY(take(*size));
    }
    out.bytes = bytes_.subspan(begin, place_ - begin);
    return out;
  }

 private:
  Result<GgufValue> array(int depth) {
    if (depth >= kMaxDepth) return damaged(fmt::format("arrays nest deeper than {}", kMaxDepth));
    VOLTA_TRY(const auto type, number<std::uint32_t>());
    VOLTA_TRY(const auto count, number<std::uint64_t>());
    const auto size = gguf_value_size(type);
    if (!size) return damaged(fmt::format("metadata has no value type {}", type));
    const std::uint64_t least = *size != 0 ? *size : 8;  // A string's length; an array needs more.
    if (count > left() / least) {
      return damaged(fmt::format("an array claims {} values, {} bytes are left", count, left()));
    }
    if (count > elements_left_) {  // The size of a sparse file does not limit the count.
      return damaged(fmt::format("its arrays have more than {} values", kMaxElements));
    }
    elements_left_ -= count;
    const std::size_t begin = place_;
    if (*size != 0) {
      VOLTA_TRY(take(count * *size));
    } else {
      for (std::uint64_t i = 0; i < count; ++i) VOLTA_TRY(value(type, depth + 1));
    }
    return GgufValue{.type = GgufValueType::kArray,
                     .element = static_cast<GgufValueType>(type),
                     .count = static_cast<std::int64_t>(count),
                     .bytes = bytes_.subspan(begin, place_ - begin)};
  }

  std::span<const std::byte> bytes_;
  std::string_view name_;
  std::size_t place_ = 0;
  std::uint64_t elements_left_ = kMaxElements;
};

struct Header {
  std::uint32_t version = 0;
  std::uint64_t tensors = 0, keys = 0;
};

Result<Header> read_header(Cursor& in, std::string_view name) {
  const auto unsupported = [&](std::string what) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", name, what));
  };
  VOLTA_TRY(const auto magic, in.take(4));
  if (as_text(magic) != kGgufMagic) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: this is no GGUF file", name));
  }
  Header header;
  VOLTA_TRY(header.version, in.number<std::uint32_t>());
  if (header.version != 0 && (header.version & 0xFFFFu) == 0) {
    return unsupported("a big-endian GGUF file; Volta reads little-endian ones");
  }
  if (header.version != 2 && header.version != 3) {
    return unsupported(fmt::format("GGUF version {}; Volta reads 2 and 3", header.version));
  }
  VOLTA_TRY(header.tensors, in.number<std::uint64_t>());
  VOLTA_TRY(header.keys, in.number<std::uint64_t>());
  if (header.tensors > kMaxTensors || header.tensors > in.left() / kLeastTensor) {
    return in.damaged(
        fmt::format("{} tensors are claimed, {} bytes are left", header.tensors, in.left()));
  }
  if (header.keys > kMaxKeys || header.keys > in.left() / kLeastEntry) {
    return in.damaged(
        fmt::format("{} metadata keys are claimed, {} bytes are left", header.keys, in.left()));
  }
  return header;
}

Result<std::vector<GgufEntry>> read_metadata(Cursor& in, std::uint64_t count) {
  std::vector<GgufEntry> entries;
  entries.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufEntry entry;
    VOLTA_TRY(entry.key, in.string());
    if (entry.key.empty() || entry.key.size() > kMaxGgufName || find_invalid_utf8(entry.key)) {
      return in.damaged("a metadata key is empty, too long or not UTF-8");
    }
    VOLTA_TRY(const auto type, in.number<std::uint32_t>());
    VOLTA_TRY(entry.value, in.value(type));
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.key < b.key; });
  const auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                        [](auto& a, auto& b) { return a.key == b.key; });
  if (twice != entries.end()) {
    return in.damaged(fmt::format("metadata key '{}' is there twice", twice->key));
  }
  return entries;
}

// The size in bytes of a tensor with these dimensions, innermost first; nullopt when it exceeds
// `most` bytes or a row is not a whole number of blocks.
std::optional<std::int64_t> tensor_bytes(const GgmlTypeInfo& info,
                                         std::span<const std::uint64_t> dims, std::uint64_t most) {
  const auto block = static_cast<std::uint64_t>(info.block_values);
  if (dims.empty() || dims.front() % block != 0) return std::nullopt;
  std::uint64_t blocks = most / static_cast<std::uint64_t>(info.block_bytes);  // Blocks that fit.
  std::uint64_t count = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const std::uint64_t dim = i == 0 ? dims[i] / block : dims[i];
    if (dim == 0 || dim > blocks) return std::nullopt;
    blocks /= dim;
    count *= dim;
  }
  return static_cast<std::int64_t>(count) * info.block_bytes;
}

Result<GgufTensor> read_tensor(Cursor& in) {
  GgufTensor tensor;
  VOLTA_TRY(tensor.name, in.string());
  if (tensor.name.empty() || tensor.name.size() > kMaxGgufName || find_invalid_utf8(tensor.name)) {
    return in.damaged("a tensor name is empty, too long or not UTF-8");
  }
  VOLTA_TRY(const auto rank, in.number<std::uint32_t>());
  if (rank == 0 || rank > kMaxDims) {
    return in.damaged(fmt::format("tensor '{}' has {} dimensions; 1 to {} are possible",
                                  tensor.name, rank, kMaxDims));
  }
  std::vector<std::uint64_t> dims;
  for (std::uint32_t i = 0; i < rank; ++i) {
    VOLTA_TRY(const auto dim, in.number<std::uint64_t>());
    dims.push_back(dim);
  }
  VOLTA_TRY(const auto number, in.number<std::uint32_t>());
  VOLTA_TRY(const auto offset, in.number<std::uint64_t>());
  const auto info = find_ggml_type(number);
  if (!info) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("tensor '{}' is of type {}; Volta reads {}", tensor.name,
                            ggml_type_name(number), known_ggml_types()));
  }
  tensor.type = info->type;
  // For now the size of the whole file is the limit. The place of the data is known only after the
  // last tensor.
  const auto bytes = tensor_bytes(*info, dims, in.place() + in.left());
  if (!bytes || offset > in.place() + in.left()) {
    return in.damaged(
        fmt::format("tensor '{}' ({} [{}] at {}) does not fit the file or is not made "
                    "of whole blocks",
                    tensor.name, info->name, fmt::join(dims, ", "), offset));
  }
  tensor.bytes = *bytes;
  tensor.offset = static_cast<std::int64_t>(offset);
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    tensor.shape.push_back(static_cast<std::int64_t>(*dim));
  }
  return tensor;
}

// Converts offsets in the data to offsets in the file. Checks that every tensor is aligned, inside
// the file, and does not overlap another one.
Status place_tensors(std::vector<GgufTensor>& tensors, std::int64_t data_begin,
                     std::int64_t file_bytes, std::int64_t alignment, std::string_view name) {
  const auto refuse = [&](const GgufTensor& tensor, std::string_view what) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: tensor '{}' {}", name, tensor.name, what));
  };
  std::sort(tensors.begin(), tensors.end(), [](auto& a, auto& b) { return a.offset < b.offset; });
  std::int64_t end = data_begin;
  for (GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      return refuse(tensor, fmt::format("begins at byte {} of the data, no multiple of {}",
                                        tensor.offset, alignment));
    }
    tensor.offset += data_begin;
    if (tensor.offset < end) return refuse(tensor, "overlaps another one");
    if (tensor.offset > file_bytes || tensor.bytes > file_bytes - tensor.offset) {
      return refuse(tensor, fmt::format("takes {} bytes from byte {}, the file has {}; it is "
                                        "truncated or damaged",
                                        tensor.bytes, tensor.offset, file_bytes));
    }
    end = tensor.offset + tensor.bytes;
  }
  std::sort(tensors.begin(), tensors.end(), [](auto& a, auto& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(tensors.begin(), tensors.end(),
                                        [](auto& a, auto& b) { return a.name == b.name; });
  return twice == tensors.end() ? Status() : refuse(*twice, "is there twice");
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::string& path) {
  VOLTA_TRY(MappedFile mapped, MappedFile::open(path));
  const auto owner = std::make_shared<const MappedFile>(std::move(mapped));
  auto file = parse(owner->bytes(), path, owner);
  VOLTA_TRY(owner->check_unchanged());  // A clearer error than that of parsing a partial file.
  return file;
}

Status GgufFile::check_unchanged() const {
  return owner_ == nullptr ? Status() : owner_->check_unchanged();
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& name,
                                 std::shared_ptr<const MappedFile> owner) {
  Cursor in(bytes, name);
  VOLTA_TRY(const Header header, read_header(in, name));
  GgufFile file;
  file.path_ = name;
  file.version_ = header.version;
  file.owner_ = std::move(owner);
  file.bytes_ = bytes;
  VOLTA_TRY(file.metadata_, read_metadata(in, header.keys));
  VOLTA_TRY(const auto parts, file.get_int_or("split.count", 1, 0, 1 << 20));
  if (parts > 1) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: one of {} parts of a model; join them first (llama-gguf-split "
                            "--merge)",
                            name, parts));
  }
  VOLTA_TRY(const std::int64_t alignment,
            file.get_int_or("general.alignment", kGgufAlignment, 1, kMaxAlignment));
  if (!std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    return in.damaged(fmt::format("general.alignment is {}, no power of two", alignment));
  }
  file.tensors_.reserve(static_cast<std::size_t>(header.tensors));
  for (std::uint64_t i = 0; i < header.tensors; ++i) {
    auto tensor = read_tensor(in);
    if (!tensor) {
      const bool placed = tensor.error().code() == ErrorCode::kInvalidFile;
      if (placed) return std::unexpected(std::move(tensor).error());
      return std::unexpected(std::move(tensor).error().with_context(name));
    }
    file.tensors_.push_back(*tensor);
  }
  const auto place = static_cast<std::int64_t>(in.place());
  VOLTA_TRY(place_tensors(file.tensors_, round_up(place, alignment),
                          static_cast<std::int64_t>(bytes.size()), alignment, name));
  return file;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](auto& t, std::string_view n) { return t.name < n; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

Result<std::vector<std::string_view>> GgufFile::get_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::vector<std::string_view>();
  if (value->type != GgufValueType::kArray || value->element != GgufValueType::kString) {
    return wrong(key, "an array of strings");
  }
  std::vector<std::string_view> strings;
  strings.reserve(static_cast<std::size_t>(value->count));
  Cursor in(value->bytes, path_);
  for (std::int64_t i = 0; i < value->count; ++i) {
    VOLTA_TRY(const auto text, in.string());
    if (find_invalid_utf8(text)) {
      return wrong(key, fmt::format("UTF-8 at position {}", i));
    }
    strings.push_back(text);
  }
  return strings;
}

void GgufFile::read_values(const GgufTensor& tensor, std::int64_t first,
                           std::span<float> values) const {
  const GgmlTypeInfo& info = ggml_type_info(tensor.type);
  const std::int64_t begin = first / info.block_values * info.block_bytes;
  const std::int64_t length = std::ssize(values) / info.block_values * info.block_bytes;
  dequantize(tensor.type,
             tensor_bytes(tensor).subspan(static_cast<std::size_t>(begin),
                                          static_cast<std::size_t>(length)),
             values);
}

Result<DeviceBuffer> GgufFile::map(const GgufTensor& tensor) const {
  if (owner_ == nullptr) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} is not mapped", path_));
  }
  return DeviceBuffer::map(owner_, tensor.offset, tensor.bytes);
}

void GgufFile::release(const GgufTensor& tensor) const {
  if (owner_ != nullptr) owner_->release(tensor.offset, tensor.bytes);
}

bool is_gguf_path(const std::string& path) {
  if (is_directory(path)) return false;
  if (has_gguf_name(path)) return true;
  if (!file_size(path)) return false;  // Not a file: bytes that are read from a pipe would be lost.
  const auto file = open_file(path, O_RDONLY | O_CLOEXEC, "open");
  std::array<std::byte, kGgufMagic.size()> magic{};
  if (!file) return false;
  const auto bytes = read_up_to(file->get(), magic, path);
  return bytes && *bytes == std::ssize(magic) && as_text(magic) == kGgufMagic;
}

}  // namespace volta
