// ModelSource: a model on disk, opened once. It answers every question about the model: the
// architecture, the weights, the tokenizer, the chat template and the generation settings, in the
// same way for a folder and for a .gguf file. open_model() (train/open_model.h) also takes names in
// the hub's cache and folders of training runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/work_budget.h"
#include "formats/generation_config.h"
#include "nn/transformer.h"
#include "nn/transformer_config.h"
#include "nn/weight_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace [[gnu::visibility("default")]] volta {

class GgufFile;

/// A model folder in the layout of the Hugging Face hub, or a .gguf file. Its parts are read when
/// they are asked for, so a folder that lacks some of them can still be asked for the others. Of a
/// folder, config.json is read once, by open(). A .gguf file is mapped once, and every answer is an
/// error if the file has changed since. Copies share what is open.
class ModelSource {
 public:
  /// Opens the model at `path`. A .gguf file is checked as GgufFile::open() checks it. A folder
  /// is not checked here: if it has no config.json, config() reports that.
  static Result<ModelSource> open(const std::string& path);

  const std::string& path() const { return path_; }
  /// The .gguf file; null for a folder.
  const GgufFile* gguf() const { return gguf_.get(); }

  /// The architecture. kNotFound for a folder without config.json, and the errors of
  /// parse_model_config() or gguf_config().
  Result<TransformerConfig> config() const;
  /// The weights, found by their names and checked for their shapes, but not read. `config` is that
  /// of config().
  Result<std::unique_ptr<WeightSource>> weights(const TransformerConfig& config) const;
  /// Loads the model onto a device. The weights become f32, or, with options.packed, the form for
  /// inference only (see WeightOptions). kInterrupted soon after the device received a request to
  /// stop.
  Result<Transformer> load(std::shared_ptr<Device> device, const WeightOptions& options = {}) const;

  /// The tokenizer. kNotFound when there is none, and the errors of parse_tokenizer().
  Result<std::shared_ptr<const Tokenizer>> tokenizer(Interruption interrupted = {}) const;
  /// Checks ids that this model's own tokenizer has. kInvalidFile, naming the files, when one of
  /// them is not below `vocab_size`, that of config(): then the files contradict each other.
  Status check_own_ids(std::span<const std::int32_t> ids, std::int64_t vocab_size) const;
  /// The chat template: that of chat_template.jinja, else of tokenizer_config.json, else of
  /// chat_template.json; of a .gguf file, that of its metadata. kNotFound when there is none, and
  /// the errors of ChatTemplate::parse().
  Result<ChatTemplate> chat_template() const;
  /// The template in another file, with the special tokens of this model.
  Result<ChatTemplate> chat_template_from(const std::string& file) const;

  /// The settings of generation_config.json, which may be absent, and the end tokens of
  /// config.json. A .gguf file has the settings that a conversion to a folder would write.
  /// kInvalidFile, with the file and the id, for an end token outside a vocabulary of `vocab_size`,
  /// which would never end a text.
  Result<GenerationConfig> generation_config(std::int64_t vocab_size) const;
  /// The two parts of it, whose ids are not checked: the settings of generation_config.json (or of
  /// a .gguf file) alone, and the end tokens of config.json alone (none without that file).
  Result<GenerationConfig> own_generation_config() const;
  Result<std::vector<std::int32_t>> end_tokens_of_config() const;

 private:
  struct Document;
  ModelSource() = default;
  std::string place(std::string_view name) const;
  Result<std::optional<std::string>> read(std::string_view name) const;
  Result<std::optional<Document>> document(std::string_view name) const;
  Result<ChatTemplate::SpecialTokens> special_tokens(
      const std::optional<Document>& tokenizer_config) const;

  std::string path_;
  std::shared_ptr<const GgufFile> gguf_;
  Result<std::string> config_json_;  // Of a folder: the text of config.json.
};

}  // namespace volta
