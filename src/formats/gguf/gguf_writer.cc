#include "formats/gguf/gguf_writer.h"

#include <fmt/format.h>

#include <array>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/memory.h"

namespace volta {
namespace {

template <typename T>
void append(std::string& out, T value) {
  out += as_text(object_bytes(value));
}

void append_text(std::string& out, std::string_view text) {
  append<std::uint64_t>(out, text.size());
  out += text;
}

constexpr std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, kGgufAlignment); }

std::string header(const GgufMetadata& metadata, std::span<const GgufTensorSpec> tensors) {
  std::string out = "GGUF";
  append<std::uint32_t>(out, 3);
  append<std::uint64_t>(out, tensors.size());
  append<std::uint64_t>(out, metadata.count());
  out += metadata.bytes();
  std::int64_t offset = 0;
  for (const GgufTensorSpec& tensor : tensors) {
    append_text(out, tensor.name);
    append<std::uint32_t>(out, static_cast<std::uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank(); axis-- > 0;) {
      append<std::uint64_t>(out, static_cast<std::uint64_t>(tensor.shape[axis]));
    }
    append<std::uint32_t>(out, static_cast<std::uint32_t>(tensor.type));
    append<std::uint64_t>(out, static_cast<std::uint64_t>(offset));
    offset = aligned(offset + tensor.bytes());
  }
  out.resize(static_cast<std::size_t>(aligned(std::ssize(out))), '\0');
  return out;
}

}  // namespace

void GgufMetadata::begin(std::string_view key, GgufValueType type) {
  ++count_;
  append_text(bytes_, key);
  append(bytes_, static_cast<std::uint32_t>(type));
}

void GgufMetadata::begin_array(std::string_view key, GgufValueType element, std::size_t count) {
  begin(key, GgufValueType::kArray);
  append(bytes_, static_cast<std::uint32_t>(element));
  append<std::uint64_t>(bytes_, count);
}

void GgufMetadata::add_string(std::string_view key, std::string_view text) {
  begin(key, GgufValueType::kString);
  append_text(bytes_, text);
}

void GgufMetadata::add_u32(std::string_view key, std::uint32_t value) {
  begin(key, GgufValueType::kUint32);
  append(bytes_, value);
}

void GgufMetadata::add_f32(std::string_view key, float value) {
  begin(key, GgufValueType::kFloat32);
  append(bytes_, value);
}

void GgufMetadata::add_bool(std::string_view key, bool value) {
  begin(key, GgufValueType::kBool);
  append<std::uint8_t>(bytes_, value ? 1 : 0);
}

void GgufMetadata::add_strings(std::string_view key, std::span<const std::string> texts) {
  begin_array(key, GgufValueType::kString, texts.size());
  for (const std::string& text : texts) append_text(bytes_, text);
}

void GgufMetadata::add_floats(std::string_view key, std::span<const float> values) {
  begin_array(key, GgufValueType::kFloat32, values.size());
  bytes_ += as_text(std::as_bytes(values));
}

void GgufMetadata::add_ints(std::string_view key, std::span<const std::int32_t> values) {
  begin_array(key, GgufValueType::kInt32, values.size());
  bytes_ += as_text(std::as_bytes(values));
}

std::int64_t GgufTensorSpec::bytes() const {
  const GgmlTypeInfo& info = ggml_type_info(type);
  return shape.elements() / info.block_values * info.block_bytes;
}

Status write_gguf(const std::string& path, const GgufMetadata& metadata,
                  std::span<const GgufTensorSpec> tensors,
                  FunctionRef<Status(std::size_t, GgufSink)> write_data, Existing existing) {
  VOLTA_TRY(FileWriter file, FileWriter::open_temporary(path));
  const auto write = [&]() -> Status {
    VOLTA_TRY(file.write(header(metadata, tensors)));
    constexpr std::array<std::byte, kGgufAlignment> kZeros{};
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::int64_t begin = file.size();
      const auto sink = [&](std::span<const std::byte> bytes) { return file.write(bytes); };
      VOLTA_TRY(write_data(i, sink));
      if (file.size() - begin != tensors[i].bytes()) {
        return fail(ErrorCode::kInternal,
                    fmt::format("tensor '{}' was written with {} bytes, not {}", tensors[i].name,
                                file.size() - begin, tensors[i].bytes()));
      }
      const auto padding = static_cast<std::size_t>(aligned(file.size()) - file.size());
      VOLTA_TRY(file.write(std::span(kZeros).first(padding)));
    }
    VOLTA_TRY(file.sync());
    VOLTA_TRY(file.close());
    return rename_path(file.path(), path, existing);
  };
  Status written = write();
  if (!written) {
    Status removed = remove_all(file.path());  // The first error is reported.
    static_cast<void>(removed);
  }
  return written;
}

}  // namespace volta
