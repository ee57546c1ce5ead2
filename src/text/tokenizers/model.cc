#include "text/tokenizers/model.h"

#include <fmt/format.h>

#include "text/tokenizers/bpe.h"
#include "text/tokenizers/unigram.h"
#include "text/tokenizers/wordpiece.h"

namespace volta::tokenizers {
namespace {

// Old files do not name the model, so its fields determine it.
Result<std::string> model_type(const JsonRef& json) {
  VOLTA_TRY(std::string type, json.get_string_or("type", ""));
  if (!type.empty()) return type;
  VOLTA_TRY(const JsonRef vocab, json.member("vocab"));
  if (json.node().find("merges") != nullptr) return "BPE";
  if (vocab.node().if_array() != nullptr) return "Unigram";
  if (json.node().find("continuing_subword_prefix") != nullptr) return "WordPiece";
  return "WordLevel";
}

}  // namespace

Result<Vocabulary> read_vocabulary(const JsonRef& json, WorkBudget& budget) {
  VOLTA_TRY(const JsonRef vocab, json.member("vocab"));
  const JsonValue::Object* tokens = vocab.node().if_object();
  if (tokens == nullptr) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected an object", vocab.path()));
  }
  Vocabulary vocabulary;
  for (const auto& [token, value] : *tokens) {
    VOLTA_TRY(budget.spend(kStepsPerToken, "model"));
    const std::int64_t* id = value.if_int();
    if (auto ok = vocabulary.add(token, id == nullptr ? -1 : *id); !ok) {
      return std::unexpected(std::move(ok).error().with_context(vocab.path()));
    }
  }
  return vocabulary;
}

Result<std::unique_ptr<Model>> parse_model(const JsonRef& json, bool byte_words,
                                           WorkBudget& budget) {
  VOLTA_TRY(const std::string type, model_type(json));
  if (type == "BPE") return Bpe::parse(json, byte_words, budget);
  if (type == "Unigram") return Unigram::parse(json, budget);
  if (type == "WordPiece") return WordPiece::parse(json, budget);
  if (type == "WordLevel") return WordLevel::parse(json, budget);
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: model {}; Volta knows BPE, Unigram, WordPiece and WordLevel",
                          json.path(), type));
}

bool takes_byte_words(const JsonRef& json) {
  const auto set = [&](std::string_view key) {
    const JsonValue* value = json.node().find(key);
    if (value == nullptr || value->is_null()) return false;
    const std::string* text = value->if_string();
    const bool* flag = value->if_bool();
    return (text != nullptr && !text->empty()) || (flag != nullptr && *flag);
  };
  const auto type = model_type(json);
  return type && *type == "BPE" && !set("continuing_subword_prefix") &&
         !set("end_of_word_suffix") && !set("byte_fallback");
}

}  // namespace volta::tokenizers
