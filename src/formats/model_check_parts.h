// The parts of check_model() (formats/model_check.h) and their shared types. Each part checks some
// of a model's files and adds the problems to the findings. For model_check*.cc only.
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
#include "formats/model_source.h"
#include "formats/non_finite.h"
#include "formats/safetensors.h"
#include "formats/tensor_names.h"
#include "nn/transformer_config.h"

namespace volta {

/// The problems of one model, in the order in which they were found.
class Findings {
 public:
  /// `only_file`: the name of a .gguf file, which is the place of all findings in it; empty for a
  /// folder.
  explicit Findings(std::string only_file) : only_file_(std::move(only_file)) {}

  void invalid(std::string where, std::string what);
  /// A lack of memory is not a problem of the model: that error goes to out_of_memory().
  void invalid(std::string where, const Error& error);
  void contradiction(std::string where, std::string what);

  const std::vector<Finding>& list() const { return list_; }
  const std::optional<Error>& out_of_memory() const { return out_of_memory_; }

 private:
  void add(Finding::Kind kind, std::string where, std::string what);

  std::string only_file_;
  std::vector<Finding> list_;
  std::optional<Error> out_of_memory_;
};

/// Counts the bytes of weights that were checked, and calls the caller's callback regularly.
class ReadingCount {
 public:
  explicit ReadingCount(const CheckCallback& go_on) : go_on_(go_on) {}

  std::int64_t bytes() const { return bytes_; }
  void expect(std::int64_t bytes) { expected_ += bytes; }
  /// kInterrupted when the callback returned false.
  Status ask() const;

  /// Calls `look` for `size` bytes of a mapped file, in pieces that are multiples of `unit` bytes,
  /// and counts the bytes. Calls ask() before each piece. kInvalidFile if the file changed, checked
  /// after each piece.
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
  std::int64_t expected_ = 0;  ///< Bytes that will be checked.
};

/// Checks safetensors files: their tensors against the config, and their values. Implemented in
/// model_check_weights.cc.
class WeightsCheck {
 public:
  WeightsCheck(Findings& findings, ReadingCount& reading, ThreadPool& pool)
      : findings_(findings), reading_(reading), pool_(pool) {}

  /// Opens the weights of a model folder.
  void open(const std::string& directory);
  /// Adds a file that is open already.
  void add(SafetensorsFile file) { files_.push_back(std::move(file)); }
  /// Checks that the tensors are the parameters of the config, with the right shapes and types.
  void check_structure(const TransformerConfig& config);
  /// Checks the values of all tensors that fit the config, and adds the files and tensors to `out`.
  /// If a file changes meanwhile, the rest of it is skipped, because its bytes may be a mix of old
  /// and new content. `config` may be null.
  Status check_values(const TransformerConfig* config, ModelCheck& out);

  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  /// The tensor that holds a parameter.
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
  std::set<const SafetensorsEntry*> misfits_;  ///< Reported already; they are skipped.
  std::int64_t not_read_ = 0;                  ///< Fillers and masks: see ModelCheck.
};

/// Adds a finding if a tensor has values that are NaN or infinite. `tensor` is its name and type.
/// `values` and `element` are the nouns for the message, e.g. "scales" and "block".
void report_non_finite(Findings& findings, const std::string& where, const std::string& tensor,
                       const NonFinite& found, std::string_view values, std::string_view element);
/// Checks the values of a .gguf file's tensors, quantised ones after dequantising.
Status check_gguf_values(const GgufFile& file, Findings& findings, ReadingCount& reading,
                         ThreadPool& pool, ModelCheck& out);

// Checks of the files beside the weights, in model_check_settings.cc. `config` is null when it is
// not known.

/// Checks tokenizer.json; true when there is one and it can be read.
Result<bool> check_tokenizer(const ModelSource& model, const TransformerConfig* config,
                             const ReadingCount& reading, Findings& findings);
/// Checks generation_config.json, and the begin and end tokens in all files that name them.
void check_generation_config(const ModelSource& model, const TransformerConfig* config,
                             Findings& findings);
/// Checks that the chat template can be read and makes a prompt of a plain conversation.
/// kInterrupted when the callback returned false.
Status check_chat_template(const ModelSource& model, const ReadingCount& reading,
                           Findings& findings);
/// Checks the files of a folder that derived models get copies of. They must not be links out of
/// the folder.
void check_carried_files(const std::string& directory, Findings& findings);

/// Whether a folder holds an adapter and not a model.
bool is_adapter_folder(const std::string& directory);
/// Checks an adapter's config and tensors; in model_check_adapter.cc.
Status check_adapter_folder(const std::string& directory, Findings& findings, ReadingCount& reading,
                            ThreadPool& pool, ModelCheck& out);

}  // namespace volta
