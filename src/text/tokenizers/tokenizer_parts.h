// A plain description of the BPE tokenizers that Volta makes itself, from the lists of a .gguf file
// and by training, and its tokenizer.json. HfTokenizer::create() makes a tokenizer of it, without
// that text. Knows no file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizers/added_tokens.h"
#include "text/tokenizers/bpe.h"
#include "text/tokenizers/split_scanner.h"
#include "text/tokenizers/vocabulary.h"

namespace volta::tokenizers {

/// SentencePiece's character for a space.
inline constexpr std::string_view kVisibleSpace = "\u2581";

/// Everything but the vocabulary and the merges, which belong to the model.
struct TokenizerParts {
  enum class Form : std::uint8_t {
    kByteLevel,  ///< A pattern splits the text, and words are bytes (GPT-2).
    kSpaces,     ///< The text is one word, and U+2581 stands for each space (SentencePiece).
  };
  Form form = Form::kByteLevel;
  // Of kByteLevel.
  bool nfc = false;     ///< Text is converted to NFC first.
  bool digits = false;  ///< Each digit becomes a word before the pattern is applied.
  std::string_view split = kGpt2Pattern;  ///< Must live as long as these parts.
  // Of kSpaces.
  bool space_prefix = true;  ///< U+2581 is also put before a text.

  std::vector<AddedToken> added_tokens{};
  std::optional<std::int32_t> before{}, after{};  ///< The tokens around a text.
  std::optional<std::int32_t> end{};              ///< The token that ends a text.
  BpeSettings model{};
};

/// The content of a tokenizer.json for a tokenizer with these parts. `indent`: as in JsonWriter.
std::string tokenizer_json(const TokenizerParts& parts, const Vocabulary& vocabulary,
                           std::span<const BpeMerge> merges, int indent = 0);

/// Writes a "ByteLevel", which is a pre-tokenizer or a decoder. `splits`: with GPT-2's pattern.
void write_byte_level(JsonWriter& json, bool splits);

}  // namespace volta::tokenizers
