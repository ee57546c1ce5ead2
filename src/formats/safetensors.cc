#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace volta {
namespace {

// A tensor has 7 values with its names, so these are some 75,000 tensors.
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{16} << 20;
constexpr std::int64_t kMaxHeaderValues = std::int64_t{512} << 10;
constexpr std::size_t kMaxTensorName = 4096;
constexpr std::int64_t kMaxArray = 64;  // Elements: dimensions and offsets are few.
constexpr std::size_t kDataAlignment = 64;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array kTypes = {
    TypeName{"F32", DType::kF32}, TypeName{"BF16", DType::kBF16}, TypeName{"F16", DType::kF16},
    TypeName{"I8", DType::kI8},   TypeName{"U8", DType::kU8},     TypeName{"I32", DType::kI32},
    TypeName{"I64", DType::kI64},
};

Result<DType> parse_type(const JsonRef& tensor) {
  VOLTA_TRY(const std::string name, tensor.get_string("dtype"));
  for (const TypeName& type : kTypes) {
    if (type.name == name) return type.dtype;
  }
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: unknown type '{}'; Volta reads F32, BF16, F16, I8, U8, I32 and I64",
                          tensor.path(), name));
}

std::string_view type_name(DType dtype) {
  for (const TypeName& type : kTypes) {
    if (type.dtype == dtype) return type.name;
  }
  return "?";
}

Result<SafetensorsEntry> parse_entry(const std::string& name, const JsonRef& ref) {
  SafetensorsEntry entry{.name = name, .spec = {}};
  VOLTA_TRY(entry.spec.dtype, parse_type(ref));
  VOLTA_TRY(const JsonRef shape, ref.member("shape"));
  VOLTA_TRY(const auto dims, shape.elements());
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} dimensions; at most {} are possible",
                                                     shape.path(), dims.size(), kMaxRank));
  }
  for (const JsonRef& dim : dims) {
    VOLTA_TRY(const std::int64_t value, dim.as_int(0, kMaxTensorBytes));
    entry.spec.shape.push_back(value);
  }
  if (auto ok = check_spec(entry.spec); !ok) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", ref.path(), ok.error().message()));
  }
  VOLTA_TRY(const JsonRef offsets, ref.member("data_offsets"));
  VOLTA_TRY(const auto ends, offsets.elements());
  if (ends.size() != 2) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected [begin, end]", offsets.path()));
  }
  VOLTA_TRY(entry.offset, ends.front().as_int(0, kMaxTensorBytes));
  VOLTA_TRY(const std::int64_t end, ends.back().as_int(0, kMaxTensorBytes));
  if (end - entry.offset != entry.spec.bytes()) {
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("{}: [{}, {}] are {} bytes, but {} needs {}", offsets.path(), entry.offset, end,
                    end - entry.offset, to_string(entry.spec), entry.spec.bytes()));
  }
  return entry;
}

// The data must be long enough for all tensors in the header.
Status check_size(const SafetensorsHeader& header, std::int64_t data_bytes, std::string_view file) {
  std::int64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    end = std::max(end, entry.offset + entry.spec.bytes());
  }
  if (end <= data_bytes) return {};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: truncated: its header needs {} bytes, the file has {}; copy or "
                          "download it again",
                          file, header.data_begin + end, header.data_begin + data_bytes));
}

// The tensors must cover the data without overlaps and gaps.
Status check_layout(std::span<const SafetensorsEntry> entries, std::int64_t data_bytes,
                    std::string_view file) {
  std::vector<const SafetensorsEntry*> order;
  for (const SafetensorsEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->offset, a->spec.bytes()) < std::pair(b->offset, b->spec.bytes());
  });
  std::int64_t end = 0;
  for (const SafetensorsEntry* entry : order) {
    if (entry->offset != end) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: tensor '{}' begins at byte {} of the data, expected {}: tensors "
                              "overlap or leave a hole",
                              file, entry->name, entry->offset, end));
    }
    end += entry->spec.bytes();
  }
  if (end != data_bytes) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: the tensors take {} bytes, the file has {}; it is truncated or "
                            "damaged",
                            file, end, data_bytes));
  }
  return {};
}

Result<std::map<std::string, std::string>> parse_metadata(const JsonRef& ref) {
  const JsonValue::Object* object = ref.node().if_object();
  std::map<std::string, std::string> metadata;
  if (object == nullptr) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected an object", ref.path()));
  }
  for (const auto& [key, value] : *object) {
    const std::string* text = value.if_string();
    if (text == nullptr) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: '{}' is {}, expected a string",
                                                       ref.path(), key, value.type_name()));
    }
    metadata.emplace(key, *text);
  }
  return metadata;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   std::string_view name) {
  const auto damaged = [&](std::string what) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", name, what));
  };
  if (file.size() < 8) {
    return damaged(fmt::format("{} bytes are too short for a safetensors file", file.size()));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > file.size() - 8) {
    return damaged(
        fmt::format("the header claims {} bytes, the file has {}; it is truncated or no "
                    "safetensors file",
                    length, file.size() - 8));
  }
  if (length > kMaxHeaderBytes) {
    return damaged(
        fmt::format("the header has {} bytes, more than the {} allowed", length, kMaxHeaderBytes));
  }
  const auto header_bytes = file.subspan(8, static_cast<std::size_t>(length));
  if (header_bytes.empty() || header_bytes.front() != std::byte{'{'}) {
    return damaged("the header is not a JSON object");
  }
  const JsonLimits limits{.max_bytes = kMaxHeaderBytes,
                          .max_values = kMaxHeaderValues,
                          .max_array = kMaxArray,
                          .max_depth = 8};
  VOLTA_TRY(const JsonValue json, parse_json(as_text(header_bytes), name, limits));
  const JsonValue::Object* object = json.if_object();
  if (object == nullptr) return damaged("the header is not a JSON object");
  SafetensorsHeader header;
  header.data_begin = static_cast<std::int64_t>(8 + length);
  const auto data_bytes = static_cast<std::int64_t>(file.size()) - header.data_begin;
  const JsonRef root(json, name);
  for (const auto& [key, value] : *object) {
    const JsonRef ref = root.at(value);  // member() would take linear time per key.
    if (key == "__metadata__") {
      VOLTA_TRY(header.metadata, parse_metadata(ref));
      continue;
    }
    if (key.empty() || key.size() > kMaxTensorName)
      return damaged("a tensor name is empty or too long");
    VOLTA_TRY(SafetensorsEntry entry, parse_entry(key, ref));
    header.entries.push_back(std::move(entry));
  }
  VOLTA_TRY(check_size(header, data_bytes, name));
  VOLTA_TRY(check_layout(header.entries, data_bytes, name));
  std::sort(header.entries.begin(), header.entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return header;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  VOLTA_TRY(MappedFile mapped, MappedFile::open(path));
  auto parsed = parse_safetensors_header(mapped.bytes(), path);
  VOLTA_TRY(mapped.check_unchanged());  // A clearer error than that of parsing a partial file.
  VOLTA_TRY(SafetensorsHeader header, std::move(parsed));
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = std::make_shared<const MappedFile>(std::move(mapped));
  file.entries_ = std::move(header.entries);
  file.metadata_ = std::move(header.metadata);
  file.data_begin_ = header.data_begin;
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const SafetensorsEntry& e, std::string_view n) { return e.name < n; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

Status SafetensorsFile::check_unchanged() const { return file_->check_unchanged(); }

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_->bytes().subspan(static_cast<std::size_t>(data_begin_ + entry.offset),
                                static_cast<std::size_t>(entry.spec.bytes()));
}

Result<const SafetensorsEntry*> SafetensorsFile::entry(std::string_view name) const {
  if (const SafetensorsEntry* found = find(name)) return found;
  return fail(ErrorCode::kNotFound, fmt::format("{} has no tensor '{}'", path_, name));
}

Result<Tensor> SafetensorsFile::map(std::string_view name) const {
  VOLTA_TRY(const SafetensorsEntry* entry, this->entry(name));
  const std::int64_t offset = data_begin_ + entry->offset;
  if (offset % dtype_size(entry->spec.dtype) != 0) return load(name);
  VOLTA_TRY(DeviceBuffer buffer, DeviceBuffer::map(file_, offset, entry->spec.bytes()));
  return Tensor::from_buffer(std::make_shared<DeviceBuffer>(std::move(buffer)), 0, entry->spec);
}

void SafetensorsFile::release(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry != nullptr) file_->release(data_begin_ + entry->offset, entry->spec.bytes());
}

Result<Tensor> SafetensorsFile::load(std::string_view name,
                                     const std::shared_ptr<MemoryOwner>& owner) const {
  VOLTA_TRY(const SafetensorsEntry* entry, this->entry(name));
  VOLTA_TRY(Tensor tensor, Tensor::empty(entry->spec, owner));
  VOLTA_TRY(tensor.write_bytes(bytes(*entry)));
  VOLTA_TRY(check_unchanged());
  return tensor;
}

Result<std::map<std::string, Tensor>> SafetensorsFile::load_all(
    const std::shared_ptr<MemoryOwner>& owner, const Interruption& interrupted) const {
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& entry : entries_) {
    if (interrupted && interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
    VOLTA_TRY(Tensor tensor, load(entry.name, owner));
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

namespace {

// The length and the header of a file that holds these tensors one after the other.
std::string header_text(const std::map<std::string, TensorSpec>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  JsonWriter header;
  header.begin_object();
  if (!metadata.empty()) {
    header.key("__metadata__").begin_object();
    for (const auto& [key, value] : metadata) header.field(key, value);
    header.end_object();
  }
  std::int64_t offset = 0;
  for (const auto& [name, spec] : tensors) {
    header.key(name).begin_object().field("dtype", type_name(spec.dtype));
    header.key("shape").begin_array();
    for (int i = 0; i < spec.shape.rank(); ++i) header.value(spec.shape[i]);
    header.end_array().key("data_offsets").begin_array();
    header.value(offset).value(offset + spec.bytes()).end_array().end_object();
    offset += spec.bytes();
  }
  header.end_object();
  std::string text = std::move(header).take();
  text.append((kDataAlignment - (8 + text.size()) % kDataAlignment) % kDataAlignment, ' ');
  const std::uint64_t length = text.size();
  return std::string(as_text(object_bytes(length))) + text;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(
    const std::string& path, const std::map<std::string, TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata, Existing existing) {
  std::int64_t bytes = 0;
  for (const auto& [name, spec] : tensors) {
    if (auto ok = check_spec(spec); !ok || !spec.encoding.plain()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor '{}' {} cannot be written{}{}", name, to_string(spec),
                              ok ? "" : ": ", ok ? "" : ok.error().message()));
    }
    bytes += spec.bytes();
  }
  const std::string header = header_text(tensors, metadata);
  if (header.size() > kMaxHeaderBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}': the names of {} tensors and the metadata take {} bytes, more "
                            "than the {} of a header",
                            path, tensors.size(), header.size(), kMaxHeaderBytes));
  }
  VOLTA_TRY(FileWriter file, FileWriter::open_temporary(path));
  SafetensorsWriter writer(path, std::move(file), bytes, existing);
  VOLTA_TRY(writer.file_->write(header));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_) return;
  // The written bytes are not needed, so failures to close and remove the file do not matter.
  const Status closed = file_->close();
  const Status removed = remove_all(file_->path());
  static_cast<void>(closed), static_cast<void>(removed);
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes, const Interruption& interrupted) {
  if (!file_ || std::ssize(bytes) > missing_bytes_) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has room for {} more bytes, not for {}", path_,
                            file_ ? missing_bytes_ : 0, bytes.size()));
  }
  missing_bytes_ -= std::ssize(bytes);
  if (!interrupted) return file_->write(bytes);
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
    VOLTA_TRY(file_->write(bytes.subspan(at, std::min(kPiece, bytes.size() - at))));
  }
  return {};
}

Status SafetensorsWriter::finish() {
  if (!file_ || missing_bytes_ > 0) {
    return fail(ErrorCode::kInvalidArgument,
                file_ ? fmt::format("'{}' lacks {} bytes", path_, missing_bytes_)
                      : fmt::format("'{}' is finished", path_));
  }
  VOLTA_TRY(file_->sync());
  VOLTA_TRY(file_->close());
  VOLTA_TRY(rename_path(file_->path(), path_, existing_));
  file_.reset();
  return {};
}

Status write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                         const std::map<std::string, std::string>& metadata,
                         const Interruption& interrupted) {
  std::map<std::string, TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.emplace(name, tensor.spec());
  VOLTA_TRY(SafetensorsWriter file, SafetensorsWriter::create(path, specs, metadata));
  for (const auto& [name, tensor] : tensors) {
    VOLTA_TRY(const Tensor host,
              tensor.host_accessible() ? Result<Tensor>(tensor) : tensor.clone_to());
    VOLTA_TRY(const auto bytes, host.host_bytes());
    VOLTA_TRY(file.write(bytes, interrupted));
  }
  return file.finish();
}

}  // namespace volta
