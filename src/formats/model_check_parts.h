// The parts of check_model() (formats/model_check.h) and what they share. Each part looks at some
// of a model's files and adds what is wrong with them to the findings. For model_check*.cc only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/parallel.h"
#include "base/result.h"
#include "formats/gguf/gguf_file.h"
#include "formats/model_check.h"
#include "formats/non_finite.h"
#include "formats/safetensors.h"
#include "formats/tensor_names.h"
#include "nn/transformer_config.h"

namespace volta {

/// What is wrong with one model, in the order in which it was found.
class Findings {
 public:
  /// `model`: the folder or .gguf file. In the latter, every finding is of that file.
  explicit Findings(const std::string& model);

  void invalid(std::string where, std::string what);
  /// A lack of memory says nothing about the model: it is kept in out_of_memory() instead.
  void invalid(std::string where, const Error& error);
  void contradiction(std::string where, std::string what);

  const std::vector<Finding>& list() const { return list_; }
  const std::optional<Error>& out_of_memory() const { return out_of_memory_; }

 private:
  void add(Finding::Kind kind, std::string where, std::string what);

  std::string only_file_;  ///< The .gguf file's name; empty for a folder.
  std::vector<Finding> list_;
  std::optional<Error> out_of_memory_;
};

/// Counts the bytes of weights that were looked at, and asks now and then whether to go on.
class ReadingCount {
 public:
  explicit ReadingCount(const CheckCallback& go_on) : go_on_(go_on) {}

  std::int64_t bytes() const { return bytes_; }
  void expect(std::int64_t bytes) { expected_ += bytes; }
  /// kInterrupted when the answer was no.
  Status ask() const;

  /// Walks over `size` bytes of a mapped file in pieces of whole units, and counts them. Asks
  /// before each. kInvalidFile after the first piece that was read while the file changed.
  template <typename File>
  Status in_pieces(const File& file, std::int64_t size, std::int64_t unit,
                   FunctionRef<void(std::int64_t begin, std::int64_t length)> look) {
    const std::int64_t piece = std::max<std::int64_t>(kPieceBytes / unit, 1) * unit;
    for (std::int64_t begin = 0; begin < size; begin += piece) {
      VOLTA_TRY(ask());
      const std::int64_t length = std::min(piece, size - begin);
      look(begin, length);
      VOLTA_TRY(file.check_unchanged());
      bytes_ += length;
    }
    return {};
  }

 private:
  static constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;

  const CheckCallback& go_on_;
  std::int64_t bytes_ = 0;
  std::int64_t expected_ = 0;  ///< Bytes that will be looked at.
};

/// Safetensors files: their tensors against the config, and their values. In
/// model_check_weights.cc.
class WeightsCheck {
 public:
  WeightsCheck(Findings& findings, ReadingCount& reading, ThreadPool& pool)
      : findings_(findings), reading_(reading), pool_(pool) {}

  /// Opens the weights of a model folder.
  void open(const std::string& directory);
  /// Takes a file that is open already.
  void add(SafetensorsFile file) { files_.push_back(std::move(file)); }
  /// Whether every parameter of the config is there, as it must be, and nothing else.
  void check_structure(const TransformerConfig& config);
  /// Looks at the values of all tensors that fit. The rest of a file that changes meanwhile is not
  /// read: it belongs to neither the old content nor the new. `config` may be null. Adds the files
  /// and tensors to `out`.
  Status check_values(const TransformerConfig* config, ModelCheck& out);

  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  /// A tensor that a parameter is read from.
  struct Source {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  void open_one_by_one(const std::string& directory, const Error& first_error);
  void check_parameter(const ParameterInfo& info);
  void check_entry(const TensorNames& names, const SafetensorsFile& file,
                   const SafetensorsEntry& entry);
  void check_filler(const std::string& where, const SafetensorsEntry& entry,
                    std::span<const std::byte> bytes);
  Status check_file(const SafetensorsFile& file, const TransformerConfig* config, ModelCheck& out);
  Status check_tensor(const SafetensorsFile& file, const SafetensorsEntry& entry);
  Status check_tied_output(const SafetensorsFile& file, const SafetensorsEntry& entry);

  Findings& findings_;
  ReadingCount& reading_;
  ThreadPool& pool_;
  std::vector<SafetensorsFile> files_;
  bool complete_ = false;                      ///< All files of the weights could be opened.
  std::map<std::string, Source> sources_;      ///< By parameter.
  std::set<const SafetensorsEntry*> misfits_;  ///< Reported, and of no use.
};

/// Adds a finding where a tensor has values that are NaN or infinite. `tensor` is its name and
/// type; `values` and `element` are the words for what was counted.
void report_non_finite(Findings& findings, const std::string& where, const std::string& tensor,
                       const NonFinite& found, std::string_view values, std::string_view element);
/// The values of a .gguf file's tensors, of quantised ones as they are read.
Status check_gguf_values(const GgufFile& file, Findings& findings, ReadingCount& reading,
                         ThreadPool& pool, ModelCheck& out);

// The files beside the weights, in model_check_settings.cc. `config` is null where it is not known.

/// tokenizer.json; true when there is one that can be read.
Result<bool> check_tokenizer(const std::string& model, const TransformerConfig* config,
                             const ReadingCount& reading, Findings& findings);
/// generation_config.json, and the begin and end tokens wherever they are named.
void check_generation_config(const std::string& model, const TransformerConfig* config,
                             Findings& findings);
void check_chat_template(const std::string& model, Findings& findings);
/// The files that are copied into models made of this one, which must not lead out of the folder.
void check_carried_files(const std::string& directory, Findings& findings);

/// Whether a folder is an adapter's, and not a model's.
bool is_adapter_folder(const std::string& directory);
/// An adapter's config and tensors; in model_check_adapter.cc.
Status check_adapter_folder(const std::string& directory, Findings& findings, ReadingCount& reading,
                            ThreadPool& pool, ModelCheck& out);

}  // namespace volta
