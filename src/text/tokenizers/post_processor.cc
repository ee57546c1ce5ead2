#include "text/tokenizers/post_processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "text/tokenizers/limits.h"
#include "text/tokenizers/vocabulary.h"

namespace volta::tokenizers {
namespace {

// Limits on all templates together: the number of copies of a sequence, and of additional ids.
// Templates in use have one copy and a few ids.
constexpr std::size_t kMaxCopies = 8;
constexpr std::size_t kMaxSpecialIds = 1024;

// The ids of a special token of a template: "special_tokens": {"<s>": {"ids": [1], ...}}.
Status append_special(const JsonRef& json, const std::string& name,
                      std::vector<std::int32_t>& out) {
  VOLTA_TRY(const JsonRef tokens, json.member("special_tokens"));
  VOLTA_TRY(const JsonRef token, tokens.member(name));
  VOLTA_TRY(const JsonRef list, token.member("ids"));
  VOLTA_TRY(const auto ids, list.elements());
  for (const JsonRef& id : ids) {
    VOLTA_TRY(const std::int64_t value, id.as_int(0, kMaxTokenId - 1));
    out.push_back(static_cast<std::int32_t>(value));
  }
  return {};
}

// "cls": ["[CLS]", 101]
Result<std::int32_t> get_token(const JsonRef& json, std::string_view key) {
  VOLTA_TRY(const JsonRef pair, json.member(key));
  VOLTA_TRY(const auto parts, pair.elements());
  if (parts.size() != 2) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: expected a token and its id", pair.path()));
  }
  VOLTA_TRY(const std::int64_t id, parts[1].as_int(0, kMaxTokenId - 1));
  return static_cast<std::int32_t>(id);
}

}  // namespace

Result<PostProcessor> PostProcessor::parse(const JsonRef& json) {
  PostProcessor processor;
  VOLTA_TRY(processor.parse_into(json, 0));
  return processor;
}

PostProcessor PostProcessor::around(std::optional<std::int32_t> before,
                                    std::optional<std::int32_t> after) {
  PostProcessor processor;
  std::vector<std::int32_t>& parts = processor.templates_.emplace_back();
  if (before) parts.push_back(*before);
  parts.push_back(kSequence);
  if (after) parts.push_back(*after);
  return processor;
}

Status PostProcessor::parse_into(const JsonRef& json, int depth) {
  VOLTA_TRY(const std::string type, json.get_string("type"));
  if (type == "Sequence") {
    if (depth == kMaxDepth) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: nested too deeply", json.path()));
    }
    VOLTA_TRY(const JsonRef list, json.member("processors"));
    VOLTA_TRY(const auto parts, list.elements());
    for (const JsonRef& part : parts) VOLTA_TRY(parse_into(part, depth + 1));
  } else if (type == "TemplateProcessing") {
    VOLTA_TRY(const JsonRef single, json.member("single"));
    VOLTA_TRY(const auto pieces, single.elements());
    std::vector<std::int32_t> ids;
    for (const JsonRef& piece : pieces) {
      if (ids.size() > kMaxTemplateParts) break;  // An error below.
      VOLTA_TRY(const auto special, piece.optional_member("SpecialToken"));
      if (special) {
        VOLTA_TRY(const std::string name, special->get_string("id"));
        VOLTA_TRY(append_special(json, name, ids));
      } else {
        VOLTA_TRY(piece.member("Sequence"));
        ids.push_back(kSequence);
      }
    }
    VOLTA_TRY(add(std::move(ids), json));
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    VOLTA_TRY(const std::int32_t begin, get_token(json, "cls"));
    VOLTA_TRY(const std::int32_t end, get_token(json, "sep"));
    VOLTA_TRY(add({begin, kSequence, end}, json));
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets only.
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: post-processor {} is not supported", json.path(), type));
  }
  return {};
}

// Adds a template, unless it would lengthen a sequence too much.
Status PostProcessor::add(std::vector<std::int32_t> ids, const JsonRef& json) {
  if (ids.size() > kMaxTemplateParts || std::ssize(templates_) >= kMaxSteps) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: at most {} templates of {} parts are allowed", json.path(),
                            kMaxSteps, kMaxTemplateParts));
  }
  templates_.push_back(std::move(ids));
  std::size_t copies = 1;
  std::size_t special = 0;
  for (const auto& parts : templates_) {
    const auto sequences = static_cast<std::size_t>(std::ranges::count(parts, kSequence));
    copies *= sequences;
    special = special * sequences + (parts.size() - sequences);
  }
  if (copies <= kMaxCopies && special <= kMaxSpecialIds) return {};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: the templates of the post_processor repeat a text {} times and add "
                          "{} ids; at most {} and {} are allowed",
                          json.path(), copies, special, kMaxCopies, kMaxSpecialIds));
}

std::vector<std::int32_t> PostProcessor::process(std::vector<std::int32_t> ids) const {
  for (const auto& parts : templates_) {
    std::vector<std::int32_t> out;
    for (const std::int32_t part : parts) {
      if (part == kSequence) {
        out.insert(out.end(), ids.begin(), ids.end());
      } else {
        out.push_back(part);
      }
    }
    ids = std::move(out);
  }
  return ids;
}

}  // namespace volta::tokenizers
