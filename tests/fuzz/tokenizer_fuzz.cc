// Any bytes as a tokenizer.json, as text to encode, and as tokens that arrive one by one.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"
#include "text/tokenizer.h"

namespace {

void check_round_trip(const volta::Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text);
  if (ids && tokenizer.decode(*ids) != text) __builtin_trap();
}

// What is true of every tokenizer, whatever it leaves out of a text or puts into it.
void check(const std::shared_ptr<const volta::Tokenizer>& tokenizer, std::string_view text) {
  const auto ids = tokenizer->encode_prompt(text);
  if (!ids) return;
  for (const std::int32_t id : *ids) {
    if (id < 0 || id >= (1 << 22)) __builtin_trap();
  }
  volta::StreamDecoder decoder(tokenizer);
  std::string out;
  for (const std::int32_t id : *ids) {
    const std::string piece = decoder.push(id);
    if (volta::find_invalid_utf8(piece)) __builtin_trap();
    out += piece;
  }
  out += decoder.finish();
  const bool own = tokenizer->kind() == "byte" || tokenizer->kind() == "char";
  if (!own && out != tokenizer->decode(*ids)) __builtin_trap();
  if (own) check_round_trip(*tokenizer, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto parsed = volta::parse_tokenizer(text, "fuzz");
  if (parsed) {
    check(*parsed, text);
    if (!volta::parse_tokenizer((*parsed)->to_json(), "again")) __builtin_trap();
  }
  const auto made = volta::make_char_tokenizer(text);
  if (made) check_round_trip(**made, text);
  const auto bytes = volta::make_byte_tokenizer();
  check_round_trip(*bytes, text);
  volta::StreamDecoder decoder(bytes);
  std::string out;
  for (const char c : text) out += decoder.push(static_cast<unsigned char>(c));
  out += decoder.finish();
  if (volta::find_invalid_utf8(out)) __builtin_trap();
  if (!volta::find_invalid_utf8(text) && out != text) __builtin_trap();
  return 0;
}
