// Checks a model folder or a .gguf file from end to end and says all that is wrong with it, not
// only the first thing: the config, the weights' names, shapes, types and values, the tokenizer.
// Holds no weights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// One thing that is wrong.
struct Finding {
  enum class Kind : std::uint8_t {
    kInvalid,        ///< A part is missing, damaged or unusable.
    kContradiction,  ///< Two parts are fine alone and do not fit each other.
  } kind = Kind::kInvalid;
  std::string where;  ///< The file.
  std::string what;
};

/// "invalid" or "contradiction".
std::string_view finding_name(Finding::Kind kind);

struct ModelCheck {
  std::vector<Finding> findings;  ///< Empty: the model is good.
  std::vector<std::string> weight_files;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  ///< Of the tensors whose values were looked at.
  bool has_tokenizer = false;
  bool adapter = false;  ///< The folder is a LoRA adapter's, not a model's.
};

/// Told several times a second how many bytes of weights are done, of so many; false ends the
/// check.
using CheckCallback = std::function<bool(std::int64_t bytes, std::int64_t all)>;

/// Checks the folder's
///   - config.json: an architecture that Volta knows, with sizes that make a model;
///   - model.safetensors, or its shards and their index: well-formed, every parameter there once,
///     in its shape and a float type, nothing else; no value a NaN or infinite; biases that the
///     architecture lacks zero; an output projection that the config calls tied equal to the
///     embedding;
///   - tokenizer.json, where there is one: readable, no id beyond the vocabulary, and it encodes
///     and decodes a text;
///   - generation_config.json and the end tokens of config.json: what load_generation_config()
///     takes, the begin and end tokens within the vocabulary;
///   - the chat template, where there is one: what load_chat_template() takes;
///   - the files that models made of this one take along: what read_carried_file() takes.
/// The values of tensors that do not fit the config are not read.
/// A folder with adapter_config.json and no config.json is an adapter: its config, its values, and
/// whether its tensors fit the config (find_adapter_flaws()) are checked; whether it fits its base
/// says verify_adapter_base(). Of a .gguf file the same is checked: architecture, tensors, values
/// (of quantised tensors as they are read), tokenizer, end tokens, chat template. Of a file that
/// changes while it is read the rest is left out, and that is a finding. kNotFound when there is no
/// such folder or file, kInterrupted when `go_on` said no, kOutOfMemory.
Result<ModelCheck> check_model(const std::string& model, ThreadPool& pool,
                               const CheckCallback& go_on = {});

}  // namespace volta
