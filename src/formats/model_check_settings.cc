// The part of check_model() for the files beside the weights.
#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "base/file.h"
#include "formats/carried_files.h"
#include "formats/generation_config.h"
#include "formats/model_check_parts.h"
#include "formats/model_source.h"
#include "text/chat_prompt.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace volta {

Result<bool> check_tokenizer(const ModelSource& model, const TransformerConfig* config,
                             const ReadingCount& reading, Findings& findings) {
  const auto interrupted = [&reading] { return !reading.ask(); };
  const auto tokenizer = model.tokenizer(interrupted);
  if (!tokenizer && tokenizer.error().code() == ErrorCode::kNotFound) return false;
  const Status works = tokenizer ? try_tokenizer(**tokenizer) : std::unexpected(tokenizer.error());
  if (!works && works.error().code() == ErrorCode::kInterrupted) {
    return std::unexpected(works.error());
  }
  if (!works) findings.invalid("tokenizer.json", works.error());
  if (!tokenizer) return false;
  const std::int64_t vocab = (*tokenizer)->vocab_size();
  if (config == nullptr || vocab <= config->vocab_size) return true;
  findings.contradiction("tokenizer.json",
                         fmt::format("it has ids up to {}, the model's vocabulary ids 0 to {}",
                                     vocab - 1, config->vocab_size - 1));
  return true;
}

namespace {

constexpr std::string_view kGenerationConfig = "generation_config.json";

void check_token(std::string_view where, const TransformerConfig* config, std::string_view key,
                 std::int32_t id, Findings& findings) {
  if (config == nullptr || id < config->vocab_size) return;
  findings.contradiction(std::string(where),
                         fmt::format("{} is {}; the model's vocabulary has ids 0 to {}", key, id,
                                     config->vocab_size - 1));
}

void check_end_tokens(std::string_view where, const TransformerConfig* config,
                      std::span<const std::int32_t> ids, Findings& findings) {
  for (const std::int32_t id : ids) check_token(where, config, "eos_token_id", id, findings);
}

}  // namespace

void check_generation_config(const ModelSource& model, const TransformerConfig* config,
                             Findings& findings) {
  const bool reported = config == nullptr;  // What is wrong with config.json, or a .gguf file.
  const auto own = model.own_generation_config();
  if (own) {
    if (own->begin_token) {
      check_token(kGenerationConfig, config, "bos_token_id", *own->begin_token, findings);
    }
    check_end_tokens(kGenerationConfig, config, own->end_tokens, findings);
  } else if (model.gguf() == nullptr || !reported) {
    findings.invalid(std::string(kGenerationConfig), own.error());
  }
  const auto more = model.end_tokens_of_config();
  if (more) {
    check_end_tokens("config.json", config, *more, findings);
  } else if (!reported) {
    findings.invalid("config.json", more.error());
  }
}

namespace {

// Renders the prompts of plain conversations until one succeeds: some templates require a system
// message. If all fail, returns the first error, which is that of a user's message alone.
Status try_chat_template(const ChatTemplate& chat_template, const ReadingCount& reading) {
  ChatOptions options;
  options.interrupted = [&reading] { return !reading.ask(); };
  const JsonValue user = make_message("user", "Hi");
  const auto prompt = make_chat_prompt(chat_template, {user}, options);
  if (prompt) return {};
  if (prompt.error().code() != ErrorCode::kInterrupted) {
    const JsonValue system = make_message("system", "Be brief.");
    const auto longer = make_chat_prompt(chat_template, {system, user}, options);
    if (longer) return {};
    if (longer.error().code() == ErrorCode::kInterrupted) return std::unexpected(longer.error());
  }
  return std::unexpected(prompt.error());
}

}  // namespace

Status check_chat_template(const ModelSource& model, const ReadingCount& reading,
                           Findings& findings) {
  const auto parsed = model.chat_template();
  if (!parsed && parsed.error().code() == ErrorCode::kNotFound) return {};
  const Status works =
      parsed ? try_chat_template(*parsed, reading) : std::unexpected(parsed.error());
  if (works) return {};
  if (works.error().code() == ErrorCode::kInterrupted) return works;
  const std::string own = "chat_template.jinja";
  findings.invalid(path_exists(join_path(model.path(), own)) ? own : "tokenizer_config.json",
                   works.error());
  return {};
}

void check_carried_files(const std::string& directory, Findings& findings) {
  const auto names = carried_file_names();
  std::vector<std::string_view> all(names.begin(), names.end());
  all.emplace_back("config.json");
  for (const std::string_view name : all) {
    const auto text = read_carried_file(directory, name);
    const bool told =
        std::ranges::find(findings.list(), name, &Finding::where) != findings.list().end();
    if (text || told) continue;
    if (text.error().code() == ErrorCode::kOutOfMemory) {
      return findings.invalid(std::string(name), text.error());
    }
    findings.invalid(std::string(name),
                     fmt::format("{} (quantize, merge and train --init refuse to copy it)",
                                 text.error().message()));
  }
}

}  // namespace volta
