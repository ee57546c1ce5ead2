// Tokenizers in GGUF metadata, and the tokenizer_config.json and generation_config.json that say
// the same in a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "formats/gguf/gguf_file.h"
#include "text/tokenizer.h"

namespace volta {

/// A way to split text into words for byte-level BPE, by its name in tokenizer.ggml.pre.
struct GgufPreTokenizer {
  std::string_view name;
  std::string_view split;      ///< The pattern of the words.
  bool digits = false;         ///< First, each digit becomes a word of its own.
  bool ignore_merges = false;  ///< A word that is a token is not split further.
  bool nfc = false;            ///< Text is converted to NFC first.
  bool adds_bos = false;       ///< The default of tokenizer.ggml.add_bos_token.
};
/// Null for a name that Volta does not know.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);
/// The first name with this pattern and `digits`. A name with the same `ignore_merges` takes
/// precedence. Null when there is none.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view split, bool digits,
                                                bool ignore_merges);

/// The ids of special tokens that the metadata contains.
struct GgufTokenIds {
  std::optional<std::int32_t> bos, eos, eot, unk, pad;
};
/// kInvalidFile for an id outside the vocabulary.
Result<GgufTokenIds> gguf_token_ids(const GgufFile& file);

/// The key for the kind of tokenizer, and its value in files without a tokenizer.
inline constexpr std::string_view kGgufTokenizerModel = "tokenizer.ggml.model";
inline constexpr std::string_view kGgufNoTokenizer = "no_vocab";

/// The key for a whole tokenizer.json.
inline constexpr std::string_view kGgufTokenizerJson = "tokenizer.huggingface.json";

/// tokenizer_config.json with the special tokens and the chat template.
Result<std::string> gguf_tokenizer_config(const GgufFile& file);
/// generation_config.json with the begin, end and padding tokens; empty when there are none.
Result<std::string> gguf_generation_config(const GgufFile& file);
/// The tokenizer: of the file's tokenizer.huggingface.json if it has one, otherwise of
/// tokenizer.ggml.* (models gpt2, with a known tokenizer.ggml.pre, and llama). Its to_json() is its
/// tokenizer.json. kNotFound when the file has no tokenizer; kUnsupported for another model or
/// pre-tokenizer, with a list of the known ones. `interrupted`: as in parse_tokenizer().
Result<std::shared_ptr<const Tokenizer>> gguf_tokenizer(const GgufFile& file,
                                                        Interruption interrupted = {});

}  // namespace volta
