// The safetensors format: an 8-byte length, a JSON header, then the tensors' bytes
// (https://huggingface.co/docs/safetensors). Every file may be hostile: a size from the file is
// checked against the length of the file before data of that size is allocated or read. Parsing a
// header takes memory in proportion to the header's length, whatever its content.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

/// One tensor of a file, as its header describes it.
struct SafetensorsEntry {
  std::string name;
  TensorSpec spec;
  std::int64_t offset = 0;  ///< Offset in bytes in the data section.
};

/// A file mapped for reading. Copies share the mapping.
class SafetensorsFile {
 public:
  /// Maps and checks a file: the header has at most 16 MiB and is JSON without duplicate keys,
  /// types are known, sizes match shapes, tensors do not overlap, and they cover the data without a
  /// gap. kInvalidFile otherwise, with the names of the file and the tensor.
  static Result<SafetensorsFile> open(const std::string& path);

  /// Sorted by name.
  std::span<const SafetensorsEntry> entries() const { return entries_; }
  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsEntry* find(std::string_view name) const;
  /// The bytes of one of entries(), in the mapping. Valid while a copy of this object exists.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  /// Whether the file stayed unchanged since open(); call it after the last use of bytes() and
  /// map(). kInvalidFile when the file was truncated, changed or replaced.
  Status check_unchanged() const;
  /// One tensor as a read-only view of the mapped file, without a copy. It is a copy if the data is
  /// not aligned for its type. kNotFound.
  Result<Tensor> map(std::string_view name) const;
  /// Releases the memory behind a mapped tensor; see MappedFile::release.
  void release(std::string_view name) const;
  /// A copy of one tensor in `owner`'s memory. kNotFound, kOutOfMemory.
  Result<Tensor> load(std::string_view name,
                      const std::shared_ptr<MemoryOwner>& owner = host_memory()) const;
  /// Copies of all tensors. kInvalidFile when the file changed meanwhile, checked after each
  /// tensor; kInterrupted when `interrupted`, called before each tensor, returned true.
  Result<std::map<std::string, Tensor>> load_all(
      const std::shared_ptr<MemoryOwner>& owner = host_memory(),
      const Interruption& interrupted = {}) const;

 private:
  Result<const SafetensorsEntry*> entry(std::string_view name) const;

  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
  std::int64_t data_begin_ = 0;
};

/// The checks of open() for bytes in memory. Returns the entries of a file, the metadata and the
/// place where the data begins.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;
};
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   std::string_view name);

/// Writes a file tensor by tensor, so that the tensors need not be in memory together. create()
/// gets the specs, write() gets the bytes in the order of the names, and finish() puts the file in
/// place. Until then, and without it, `path` is unchanged. Move-only.
class SafetensorsWriter {
 public:
  /// kIo when the place cannot be written or is not a regular file, kInvalidArgument for encoded
  /// tensors, for sizes beyond the limit of a tensor, and for a header beyond that of open().
  /// `existing`: what finish() does with a file that has the name then.
  static Result<SafetensorsWriter> create(const std::string& path,
                                          const std::map<std::string, TensorSpec>& tensors,
                                          const std::map<std::string, std::string>& metadata = {},
                                          Existing existing = Existing::kReplace);
  SafetensorsWriter(SafetensorsWriter&& other) noexcept = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  /// Writes the next bytes. kIo; kInvalidArgument for more bytes than the specs have; kInterrupted
  /// when `interrupted`, called before each piece, returned true. After that the writer can only be
  /// destroyed.
  Status write(std::span<const std::byte> bytes, const Interruption& interrupted = {});
  /// Makes the file durable and renames it to `path`. kIo; kInvalidArgument if bytes are missing,
  /// or if a file at `path` is to be kept.
  Status finish();

 private:
  SafetensorsWriter(std::string path, FileWriter file, std::int64_t bytes, Existing existing)
      : path_(std::move(path)),
        file_(std::make_unique<FileWriter>(std::move(file))),
        missing_bytes_(bytes),
        existing_(existing) {}

  std::string path_;
  std::unique_ptr<FileWriter> file_;  ///< Null when finished or moved from.
  std::int64_t missing_bytes_ = 0;
  Existing existing_ = Existing::kReplace;
};

/// Writes tensors of any device, in the order of their names, in one atomic replacement of `path`.
/// kInterrupted as in SafetensorsWriter::write(); then `path` is unchanged.
Status write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                         const std::map<std::string, std::string>& metadata = {},
                         const Interruption& interrupted = {});

}  // namespace volta
