// The safetensors format: an 8-byte length, a JSON header, then the tensors' bytes
// (https://huggingface.co/docs/safetensors). Every file is hostile: no data is allocated or read
// from a size that was not checked against the file, and parsing a header takes memory in
// proportion to the header's own length, whatever it says.
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
  std::int64_t offset = 0;  ///< Bytes into the data section.
};

/// A file mapped for reading. Copies share the mapping.
class SafetensorsFile {
 public:
  /// Maps and checks a file: header at most 100 MB, JSON, no duplicate keys, known types, sizes
  /// that match shapes, no overlap, no hole, nothing after the last tensor. kInvalidFile otherwise,
  /// with the file and the tensor named.
  static Result<SafetensorsFile> open(const std::string& path);

  /// Sorted by name.
  std::span<const SafetensorsEntry> entries() const { return entries_; }
  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsEntry* find(std::string_view name) const;
  /// The bytes of one of entries(), in the mapping: valid while a copy of this lives.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  /// What bytes() and map() gave was the file's content all the time: asked after the last use of
  /// them. kInvalidFile when the file was cut, changed or replaced since open().
  Status check_unchanged() const;
  /// One tensor without a copy, where it lies in the mapped file: to be read only. A copy where the
  /// file has it at an odd place. kNotFound.
  Result<Tensor> map(std::string_view name) const;
  /// Gives back the memory behind what was mapped; see MappedFile::release.
  void release(std::string_view name) const;
  /// A copy of one tensor in `owner`'s memory. kNotFound, kOutOfMemory.
  Result<Tensor> load(std::string_view name,
                      const std::shared_ptr<MemoryOwner>& owner = host_memory()) const;
  /// Copies of all of them. kInvalidFile when the file changed meanwhile, kInterrupted when
  /// `interrupted` said so: both are asked after each tensor.
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

/// The checks of open() on bytes: the entries of a file, their metadata and where the data begins.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;
};
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   std::string_view name);

/// A file that is written tensor by tensor, so that nobody has to hold all of it: made with the
/// specs, given the bytes in the order of the names, put in place by finish(). Until then, and
/// without it, `path` stays as it was. Move-only.
class SafetensorsWriter {
 public:
  /// kIo when the place cannot be written or is something else than a regular file,
  /// kInvalidArgument for encoded tensors and sizes beyond what a tensor may have.
  static Result<SafetensorsWriter> create(const std::string& path,
                                          const std::map<std::string, TensorSpec>& tensors,
                                          const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(SafetensorsWriter&& other) noexcept = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  /// The next bytes. kIo; kInvalidArgument for more than the specs say; kInterrupted when
  /// `interrupted` said so, which is asked before each piece: then the file can only be dropped.
  Status write(std::span<const std::byte> bytes, const Interruption& interrupted = {});
  /// Makes the file durable and gives it its name. kIo; kInvalidArgument while bytes are missing.
  Status finish();

 private:
  SafetensorsWriter(std::string path, FileWriter file, std::int64_t bytes)
      : path_(std::move(path)),
        file_(std::make_unique<FileWriter>(std::move(file))),
        missing_bytes_(bytes) {}

  std::string path_;
  std::unique_ptr<FileWriter> file_;  ///< Null when finished, or moved away.
  std::int64_t missing_bytes_ = 0;
};

/// Writes tensors of any device, in the order of their names, in one atomic replacement of `path`.
/// kInterrupted as SafetensorsWriter::write(); then `path` is as it was.
Status write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                         const std::map<std::string, std::string>& metadata = {},
                         const Interruption& interrupted = {});

}  // namespace volta
