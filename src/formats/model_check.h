// Checks a model folder or a .gguf file completely and reports every problem, not only the first
// one: in the config, in the names, shapes, types and values of the weights, and in the tokenizer.
// Does not keep weights in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// One problem.
struct Finding {
  enum class Kind : std::uint8_t {
    kInvalid,        ///< A part is missing, damaged or unusable.
    kContradiction,  ///< Two parts are valid on their own but contradict each other.
  } kind = Kind::kInvalid;
  std::string where;  ///< The file.
  std::string what;
};

/// "invalid" or "contradiction".
std::string_view finding_name(Finding::Kind kind);

struct ModelCheck {
  std::vector<Finding> findings;  ///< Empty: the model is good.
  std::vector<std::string> weight_files;
  std::int64_t tensors = 0;  ///< In the files.
  /// Of these, the ones that the model does not read: biases of zeros and masks that other programs
  /// expect in a file.
  std::int64_t not_read = 0;
  std::int64_t bytes = 0;  ///< The size of the tensors whose values were checked.
  bool has_tokenizer = false;
  bool adapter = false;  ///< The folder holds a LoRA adapter, not a model.
};

/// Called before each piece of about 32 MiB of weights, and during work on the tokenizer, with the
/// bytes of weights that were checked and their total. The check stops when it returns false.
using CheckCallback = std::function<bool(std::int64_t bytes, std::int64_t all)>;

/// Checks these parts of a folder:
///   - config.json: Volta supports the architecture, and its sizes are valid.
///   - model.safetensors, or its shards and their index: the files are well-formed. Every parameter
///     is there once, in its shape and in a float type, and there is nothing else. No value is NaN
///     or infinite. Biases that the architecture lacks are zero. An output projection equals the
///     embedding if the config says that they are tied.
///   - tokenizer.json, if present: it can be read, has no id beyond the vocabulary, and encodes and
///     decodes a text.
///   - generation_config.json and the end tokens of config.json: ModelSource::generation_config()
///     accepts them, and the begin and end tokens are in the vocabulary.
///   - the chat template, if present: ModelSource::chat_template() accepts it, and it makes a
///     prompt of a user's message, alone or after a system message.
///   - the files that derived models get copies of: read_carried_file() accepts them.
/// The values of tensors that do not fit the config are not read.
/// A folder with adapter_config.json and without config.json is an adapter. Its config and its
/// values are checked, and whether its tensors fit its config (find_adapter_flaws()).
/// verify_adapter_base() checks whether it fits its base model. The same parts of a .gguf file are
/// checked: architecture, tensors, values (quantised tensors after dequantising), tokenizer, end
/// tokens, chat template. If a file changes while it is read, that is a finding, and the rest of
/// the file is skipped. kNotFound when there is no such folder or file, kInterrupted when `go_on`
/// returned false, kOutOfMemory.
Result<ModelCheck> check_model(const std::string& model, ThreadPool& pool,
                               const CheckCallback& go_on = {});

}  // namespace volta
