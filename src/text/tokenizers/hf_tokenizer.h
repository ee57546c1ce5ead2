// A tokenizer of the Hugging Face hub, from its tokenizer.json or from its parts: added tokens,
// normalizer, pre-tokenizer, model, post-processor and decoder, in this order. Returns the same ids
// and the same text as Hugging Face tokenizers, except that "truncation" and "padding" are ignored;
// they are up to the code that builds batches.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizer.h"
#include "text/tokenizers/added_tokens.h"
#include "text/tokenizers/decoder.h"
#include "text/tokenizers/model.h"
#include "text/tokenizers/normalizer.h"
#include "text/tokenizers/post_processor.h"
#include "text/tokenizers/pre_tokenizer.h"
#include "text/tokenizers/tokenizer_parts.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/word_cache.h"

namespace volta::tokenizers {

class HfTokenizer final : public Tokenizer {
 public:
  /// Makes a tokenizer from a parsed tokenizer.json. `text` is the text of that file, `config` the
  /// folder's tokenizer_config.json if it exists (with further added tokens and the token that ends
  /// a text). `interrupted` is called regularly, both here and in all later work of the tokenizer.
  /// kInvalidFile, kUnsupported, kInterrupted.
  static Result<std::shared_ptr<const Tokenizer>> parse(const JsonRef& json, std::string text,
                                                        const std::optional<JsonRef>& config,
                                                        Interruption interrupted);
  /// Makes a tokenizer from its parts, with the ids and the text of the tokenizer that parse()
  /// makes of their tokenizer_json(). `name` names the file in messages, `merges_name` the list of
  /// merges. parts.split must outlive the tokenizer. The errors of parse().
  static Result<std::shared_ptr<const Tokenizer>> create(
      TokenizerParts parts, Vocabulary vocabulary, std::span<const BpeMerge> merges,
      std::string_view merges_name, std::string name, Interruption interrupted);

  std::string_view kind() const override { return kind_; }
  std::int64_t vocab_size() const override;
  /// Invalid UTF-8 in the text is read as U+FFFD.
  Result<std::vector<std::int32_t>> encode(std::string_view text) const override;
  Result<std::vector<std::int32_t>> encode_quoted(const QuotedText& prompt) const override;
  Result<std::vector<std::int32_t>> encode_prompt(std::string_view text) const override;
  std::string_view token_bytes(std::int32_t id) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string decode_all(std::span<const std::int32_t> ids) const override;
  std::unique_ptr<TextStream> stream() const override;
  std::optional<std::int32_t> end_token() const override { return end_token_; }
  /// The file's unchanged content, or what tokenizer_json() makes of the parts.
  std::string to_json() const override;

 private:
  class Stream;

  Status build(const TokenizerParts& parts, std::string_view merges_name, Vocabulary vocabulary,
               std::span<const BpeMerge> merges, WorkBudget& budget);
  Status parse_pipeline(const JsonRef& json, WorkBudget& budget);
  Status parse_added_tokens(const JsonRef& json, WorkBudget& budget);
  Status parse_config(const JsonRef& config, WorkBudget& budget);
  Status find_control_words();
  void store_token_bytes();
  struct Encoding;  // One call of encode().
  Result<std::vector<std::int32_t>> encode_text(std::string_view text,
                                                std::span<const TextRange> quoted) const;
  Status encode_text(std::string_view text, std::span<const TextRange> quoted, Encoding& out) const;
  Status encode_segment(std::string_view text, bool at_start, std::span<const TextRange> quoted,
                        Encoding& out) const;
  Status encode_words(std::string_view text, bool at_start, bool quotes, Encoding& out) const;
  bool has_control(std::span<const std::int32_t> ids) const;
  Status encode_without_control(std::string_view word, Encoding& out) const;
  // The string of a token for the decoder; nullopt when it is skipped.
  std::optional<std::string_view> token_text(std::int32_t id, bool skip_special) const;
  std::string run_decoder(std::span<const std::int32_t> ids, bool skip_special) const;

  std::string kind_;
  std::string name_;  // For messages.
  std::string json_;
  std::optional<TokenizerParts> parts_;  // Without json_.
  Interruption interrupted_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<Model> model_;
  PostProcessor post_processor_;
  Decoder decoder_;
  AddedTokens added_;
  Trie control_words_;  // Control tokens of the model's vocabulary.
  std::optional<std::int32_t> end_token_;
  // With a byte-level decoder: the bytes of all tokens in sequence, and the offset of each token.
  std::string bytes_;
  std::vector<std::size_t> byte_places_;

  // One call at a time uses the cache. A call on another thread meanwhile works without it.
  mutable std::mutex cache_mutex_;
  mutable WordCache cache_;
};

}  // namespace volta::tokenizers
