// Tokenizers in GGUF metadata: written out as the tokenizer.json and tokenizer_config.json that
// Hugging Face would have, so that Volta has one way to read a tokenizer.
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

/// How byte-level BPE splits a text into words, as tokenizer.ggml.pre names it.
struct GgufPreTokenizer {
  std::string_view name;
  std::string_view split;      ///< The pattern of a Split; empty: GPT-2's own.
  bool digits = false;         ///< Each digit is a word, before anything else.
  bool ignore_merges = false;  ///< A word that is a token is that token.
  bool nfc = false;            ///< Text is normalised first.
  bool adds_bos = false;       ///< Unless tokenizer.ggml.add_bos_token says otherwise.
};
/// Null for a name that Volta does not know.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);
/// The first known name with this pattern and digits, and with these merges if there is one; null
/// when there is none.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view split, bool digits,
                                                bool ignore_merges);

/// The ids of special tokens, where the metadata has them.
struct GgufTokenIds {
  std::optional<std::int32_t> bos, eos, eot, unk, pad;
};
/// kInvalidFile for an id outside the vocabulary.
Result<GgufTokenIds> gguf_token_ids(const GgufFile& file);

/// The key that names the kind of tokenizer, and its value where there is none.
inline constexpr std::string_view kGgufTokenizerModel = "tokenizer.ggml.model";
inline constexpr std::string_view kGgufNoTokenizer = "no_vocab";

/// The tokenizer as tokenizer.json: tokenizer.huggingface.json where the file has it, otherwise
/// made of tokenizer.ggml.* (models gpt2, with a known tokenizer.ggml.pre, and llama). kNotFound
/// when the file has no tokenizer; kUnsupported for another model or pre-tokenizer, naming the
/// known ones; kInterrupted.
Result<std::string> gguf_tokenizer_json(const GgufFile& file, Interruption interrupted = {});
/// tokenizer_config.json: special tokens and the chat template.
Result<std::string> gguf_tokenizer_config(const GgufFile& file);
/// generation_config.json: the tokens that begin and end a text; empty when the file names none.
Result<std::string> gguf_generation_config(const GgufFile& file);
/// tokenizer.json and tokenizer_config.json, parsed. `interrupted`: as for parse_tokenizer().
Result<std::shared_ptr<const Tokenizer>> gguf_tokenizer(const GgufFile& file,
                                                        Interruption interrupted = {});

}  // namespace volta
