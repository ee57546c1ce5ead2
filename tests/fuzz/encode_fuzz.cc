// Any bytes as text for one small tokenizer of each kind; the first byte picks it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/text.h"
#include "text/tokenizer.h"

namespace {

constexpr std::string_view kBpe =
    R"("model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"ab":3,"\u0120":4,"\u0120ab":5,)"
    R"("\u00c3":6,"\u00a9":7,"\u00c3\u00a9":8},"merges":["a b","\u0120 ab","\u00c3 \u00a9"]})";
constexpr std::array<std::string_view, 5> kParts = {
    R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true},"decoder":{"type":"ByteLevel"},)",
    R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\s?\\p{L}+|[^\\p{L}]"},"behavior":"MergedWithNext","invert":false},{"type":"Digits"},{"type":"Punctuation"},{"type":"ByteLevel"}]},"decoder":{"type":"ByteLevel"},)",
    R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"BertNormalizer"},{"type":"Strip"}]},"pre_tokenizer":{"type":"Metaspace","replacement":"_"},"decoder":{"type":"WordPiece"},)",
    R"("normalizer":{"type":"NFD"},"pre_tokenizer":{"type":"Whitespace"},"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":"a","start":1,"stop":2}]},)",
    R"("added_tokens":[{"id":9,"content":"ab ","lstrip":true,"rstrip":true},{"id":10,"content":"b","single_word":true,"normalized":false}],"normalizer":{"type":"NFC"},)"};

std::shared_ptr<const volta::Tokenizer> make(std::size_t i) {
  const std::string json = "{" + std::string(kParts[i]) + std::string(kBpe) + "}";
  auto tokenizer = volta::parse_tokenizer(json, "fuzz");
  if (!tokenizer) __builtin_trap();
  return *tokenizer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::array<std::shared_ptr<const volta::Tokenizer>, kParts.size()> tokenizers = {
      make(0), make(1), make(2), make(3), make(4)};
  const std::string input(data, data + size);
  if (input.empty()) return 0;
  const auto& tokenizer = tokenizers[static_cast<unsigned char>(input[0]) % tokenizers.size()];
  const auto ids = tokenizer->encode(std::string_view(input).substr(1));
  if (!ids) return 0;
  for (const std::int32_t id : *ids) {
    if (id < 0 || id >= tokenizer->vocab_size()) __builtin_trap();
  }
  volta::StreamDecoder decoder(tokenizer);
  std::string out;
  for (const std::int32_t id : *ids) {
    const std::string piece = decoder.push(id);
    if (volta::find_invalid_utf8(piece)) __builtin_trap();
    out += piece;
  }
  if (out + decoder.finish() != tokenizer->decode(*ids)) __builtin_trap();
  return 0;
}
