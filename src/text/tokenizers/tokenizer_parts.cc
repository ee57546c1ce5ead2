#include "text/tokenizers/tokenizer_parts.h"

#include <utility>

namespace volta::tokenizers {
namespace {

void write_parts_added_tokens(JsonWriter& json, std::span<const AddedToken> tokens) {
  json.key("added_tokens").begin_array();
  for (const AddedToken& token : tokens) {
    json.begin_object().field("id", token.id).field("content", token.content);
    json.field("single_word", token.single_word).field("lstrip", token.lstrip);
    json.field("rstrip", token.rstrip).field("normalized", token.normalized);
    json.field("special", token.special).end_object();
  }
  json.end_array();
}

void write_replace(JsonWriter& json, std::string_view from, std::string_view to) {
  json.begin_object().field("type", "Replace").key("pattern").begin_object();
  json.field("String", from).end_object().field("content", to).end_object();
}

void write_normalizer(JsonWriter& json, const TokenizerParts& parts) {
  json.key("normalizer");
  if (parts.form == TokenizerParts::Form::kByteLevel) {
    if (!parts.nfc) {
      json.null();
      return;
    }
    json.begin_object().field("type", "NFC").end_object();
    return;
  }
  json.begin_object().field("type", "Sequence").key("normalizers").begin_array();
  if (parts.space_prefix) {
    json.begin_object().field("type", "Prepend").field("prepend", kVisibleSpace).end_object();
  }
  write_replace(json, " ", kVisibleSpace);
  json.end_array().end_object();
}

void write_pre_tokenizer(JsonWriter& json, const TokenizerParts& parts) {
  json.key("pre_tokenizer");
  if (parts.form == TokenizerParts::Form::kSpaces) {
    json.null();
    return;
  }
  const bool gpt2 = parts.split == kGpt2Pattern;
  if (gpt2 && !parts.digits) return write_byte_level(json, true);
  json.begin_object().field("type", "Sequence").key("pretokenizers").begin_array();
  if (parts.digits) {
    json.begin_object().field("type", "Digits").field("individual_digits", true).end_object();
  }
  if (!gpt2) {
    json.begin_object().field("type", "Split").key("pattern").begin_object();
    json.field("Regex", parts.split).end_object().field("behavior", "Isolated");
    json.field("invert", false).end_object();
  }
  write_byte_level(json, gpt2);
  json.end_array().end_object();
}

// Writes the template [before] text [after], and the same with two texts for a pair.
void write_post_processor(JsonWriter& json, const TokenizerParts& parts,
                          const Vocabulary& vocabulary) {
  json.key("post_processor");
  if (!parts.before && !parts.after) {
    json.null();
    return;
  }
  const auto write_token = [&](const std::optional<std::int32_t>& id) {
    if (!id) return;
    json.begin_object().key("SpecialToken").begin_object();
    json.field("id", vocabulary.token(*id)).field("type_id", 0).end_object().end_object();
  };
  json.begin_object().field("type", "TemplateProcessing");
  for (const auto& [key, texts] :
       {std::pair<std::string_view, std::string_view>{"single", "A"}, {"pair", "AB"}}) {
    json.key(key).begin_array();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      write_token(parts.before);
      json.begin_object().key("Sequence").begin_object().field("id", texts.substr(i, 1));
      json.field("type_id", 0).end_object().end_object();
      write_token(parts.after);
    }
    json.end_array();
  }
  json.key("special_tokens").begin_object();
  const auto describe = [&](std::int32_t id) {
    const std::string_view token = vocabulary.token(id);
    json.key(token).begin_object().field("id", token);
    json.key("ids").begin_array().value(id).end_array();
    json.key("tokens").begin_array().value(token).end_array().end_object();
  };
  if (parts.before) describe(*parts.before);
  if (parts.after && parts.after != parts.before) describe(*parts.after);
  json.end_object().end_object();
}

void write_decoder(JsonWriter& json, const TokenizerParts& parts) {
  json.key("decoder");
  if (parts.form == TokenizerParts::Form::kByteLevel) return write_byte_level(json, true);
  json.begin_object().field("type", "Sequence").key("decoders").begin_array();
  write_replace(json, kVisibleSpace, " ");
  json.begin_object().field("type", "ByteFallback").end_object();
  json.begin_object().field("type", "Fuse").end_object();
  if (parts.space_prefix) {
    json.begin_object().field("type", "Strip").field("content", " ").field("start", 1);
    json.field("stop", 0).end_object();
  }
  json.end_array().end_object();
}

void write_text_or_null(JsonWriter& json, std::string_view key, std::string_view text) {
  json.key(key);
  text.empty() ? json.null() : json.value(text);
}

void write_model(JsonWriter& json, const BpeSettings& model, const Vocabulary& vocabulary,
                 std::span<const BpeMerge> merges) {
  json.key("model").begin_object().field("type", "BPE").key("dropout").null();
  write_text_or_null(json, "unk_token", model.unknown);
  write_text_or_null(json, "continuing_subword_prefix", model.prefix);
  write_text_or_null(json, "end_of_word_suffix", model.suffix);
  json.field("fuse_unk", model.fuse_unknown).field("byte_fallback", model.byte_fallback);
  json.field("ignore_merges", model.ignore_merges).key("vocab").begin_object();
  for (std::int32_t id = 0; id < vocabulary.end_id(); ++id) {
    if (vocabulary.contains(id)) json.field(vocabulary.token(id), id);
  }
  json.end_object().key("merges").begin_array();
  for (const auto& [left, right] : merges) {
    json.begin_array().value(left).value(right).end_array();
  }
  json.end_array().end_object();
}

}  // namespace

std::string tokenizer_json(const TokenizerParts& parts, const Vocabulary& vocabulary,
                           std::span<const BpeMerge> merges, int indent) {
  JsonWriter json(indent);
  json.begin_object().field("version", "1.0").key("truncation").null().key("padding").null();
  write_parts_added_tokens(json, parts.added_tokens);
  write_normalizer(json, parts);
  write_pre_tokenizer(json, parts);
  write_post_processor(json, parts, vocabulary);
  write_decoder(json, parts);
  write_model(json, parts.model, vocabulary, merges);
  json.end_object();
  return std::move(json).take() + "\n";
}

void write_byte_level(JsonWriter& json, bool splits) {
  json.begin_object().field("type", "ByteLevel").field("add_prefix_space", false);
  json.field("trim_offsets", true).field("use_regex", splits).end_object();
}

}  // namespace volta::tokenizers
