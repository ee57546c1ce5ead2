// Converts the tokenizer files of a model folder to GGUF metadata.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/gguf/gguf_writer.h"

namespace volta {

/// The text of each tokenizer file in a model folder; empty for a missing file.
struct TokenizerFiles {
  std::string tokenizer;           ///< tokenizer.json
  std::string tokenizer_config;    ///< tokenizer_config.json
  std::string generation_config;   ///< generation_config.json
  std::string chat_template;       ///< chat_template.jinja; overrides tokenizer_config.json.
  std::string chat_template_json;  ///< chat_template.json; used if neither of them has one.
};
/// Reads the files of a folder. kIo; kInvalidFile for a file that exists and cannot be read.
Result<TokenizerFiles> read_tokenizer_files(const std::string& directory);

/// Adds tokenizer.json itself (under the key tokenizer.huggingface.json, from which Volta reads the
/// same ids back), the ids of special tokens, the chat template, and tokenizer.ggml.* for other
/// programs. Returns false when tokenizer.ggml.* cannot express the tokenizer (its model is not a
/// byte-level or SentencePiece BPE, or its split is unknown). In this case, and for a folder
/// without a tokenizer, tokenizer.ggml.model is "no_vocab", because llama.cpp does not load files
/// without that key. kInvalidFile for a tokenizer that does not fit vocab_size.
Result<bool> add_gguf_tokenizer(const TokenizerFiles& files, std::int64_t vocab_size,
                                GgufMetadata& metadata);

}  // namespace volta
