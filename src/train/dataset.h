// Dataset: the file that a run learns from, checked and turned into token ids.
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
  std::string xxh3;        ///< Of the file: another one gives other numbers.

  std::shared_ptr<const Tokenizer> tokenizer;  ///< Null for ready-made examples without one.
  std::int64_t tokens = 0;                     ///< In the whole file.
  // From text: the beginning is for training, the rest for validation (may be empty).
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

/// Reads a text and splits it into training and validation tokens. `tokenizer` null: one of `kind`
/// is made from the text, and asks `interrupted` (see parse_tokenizer()). Errors name the file and
/// the remedy: kNotFound, kIo, kInvalidFile for a folder or device, an empty text, text that is not
/// UTF-8 (any tokenizer but that of bytes), characters that a given tokenizer lacks.
Result<Dataset> load_text(const std::string& path, std::string_view kind,
                          std::shared_ptr<const Tokenizer> tokenizer, double val_fraction,
                          Interruption interrupted = {});

/// A text to evaluate a model on.
struct HeldOutText {
  std::vector<std::int32_t> tokens;
  std::int64_t bytes = 0;  ///< Of the text that the tokens stand for.
};
/// The whole text with the special tokens that the tokenizer puts around it; with a `fraction`
/// below 1 only the tokens that load_text() would keep for validation. Errors as load_text() has
/// them, and kInvalidFile for fewer than two tokens.
Result<HeldOutText> load_held_out_text(const std::string& path, const Tokenizer& tokenizer,
                                       double fraction = 1.0);

/// kInvalidArgument when the training or the validation part is shorter than `time` + 1 tokens.
Status check_lengths(const Dataset& data, std::int64_t time);

/// Reads X.safetensors: its tensor `input_ids` [N, T + 1], every id in [0, vocab_size); errors as
/// load_token_rows() has them.
Result<Dataset> load_examples(const std::string& path, std::int64_t vocab_size);

}  // namespace volta
