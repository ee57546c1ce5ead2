// Dataset: the file that a run trains on, checked and converted to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "train/data.h"

namespace [[gnu::visibility("default")]] volta {

/// Token ids to train on and to validate with.
struct Dataset {
  std::string path;
  std::int64_t bytes = 0;  ///< Of the file.
  std::string xxh3;        ///< Of the file; compared when a run is resumed.

  std::shared_ptr<const Tokenizer> tokenizer;  ///< Null for ready-made examples without one.
  std::int64_t tokens = 0;                     ///< In the whole file.
  // From a text: the first part is for training, the rest for validation (may be empty).
  std::shared_ptr<const std::vector<std::int32_t>> train;
  std::shared_ptr<const std::vector<std::int32_t>> validation;
  // From X.safetensors: `examples` rows of example_length + 1 ids.
  std::vector<std::int32_t> rows;
  std::int64_t examples = 0;
  std::int64_t example_length = 0;

  bool has_examples() const { return examples > 0; }
};

/// True for a path that ends in .safetensors: ready-made examples.
bool is_example_file(std::string_view path);

/// Reads a text and splits it into training and validation tokens. When `tokenizer` is null,
/// make_tokenizer() makes one of `kind` from the text, and `interrupted` can stop it (see
/// parse_tokenizer()). Errors name the file and the remedy: kNotFound, kIo; kInvalidFile for a
/// folder or device, an empty text, text that is not UTF-8 (except with the byte tokenizer) and
/// characters that a given tokenizer lacks.
Result<Dataset> load_text(const std::string& path, std::string_view kind,
                          std::shared_ptr<const Tokenizer> tokenizer, double val_fraction,
                          Interruption interrupted = {});

/// A text to evaluate a model on.
struct HeldOutText {
  std::vector<std::int32_t> tokens;
  std::int64_t bytes = 0;  ///< Length of the text that the tokens encode.
};
/// The whole text with the special tokens that the tokenizer puts around it. With a `fraction`
/// below 1, only the tokens that load_text() would keep for validation. The errors of load_text(),
/// kInvalidFile for fewer than two tokens, and kInvalidArgument for a fraction outside (0, 1].
Result<HeldOutText> load_held_out_text(const std::string& path, const Tokenizer& tokenizer,
                                       double fraction = 1.0);

/// kInvalidArgument when the training or the validation part is shorter than `time` + 1 tokens.
Status check_lengths(const Dataset& data, std::int64_t time);

/// Reads the tensor `input_ids` [N, T + 1] of X.safetensors; every id must be in [0, vocab_size).
/// The errors of load_token_rows().
Result<Dataset> load_examples(const std::string& path, std::int64_t vocab_size);

}  // namespace volta
