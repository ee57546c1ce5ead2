// The other way round: a folder's tokenizer files as GGUF metadata.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/gguf/gguf_writer.h"

namespace volta {

/// What a model folder says about its tokenizer: the texts of the files, empty where one is
/// missing.
struct TokenizerFiles {
  std::string tokenizer;           ///< tokenizer.json
  std::string tokenizer_config;    ///< tokenizer_config.json
  std::string generation_config;   ///< generation_config.json
  std::string chat_template;       ///< chat_template.jinja; wins over tokenizer_config.json's.
  std::string chat_template_json;  ///< chat_template.json; counts where neither has one.
};
/// Those of a folder. kIo, kInvalidFile for one that is there and cannot be read.
Result<TokenizerFiles> read_tokenizer_files(const std::string& directory);

/// Adds tokenizer.json itself (tokenizer.huggingface.json, by which Volta reads the same ids back),
/// special ids, the chat template, and tokenizer.ggml.* for other programs. False when
/// tokenizer.ggml.* cannot say what the tokenizer does (a model that is no byte-level or
/// SentencePiece BPE, an unknown split): then, and for a folder without one, it says that there is
/// none, since llama.cpp loads no file that says nothing. kInvalidFile for a tokenizer that does
/// not fit vocab_size.
Result<bool> add_gguf_tokenizer(const TokenizerFiles& files, std::int64_t vocab_size,
                                GgufMetadata& metadata);

}  // namespace volta
