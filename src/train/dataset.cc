#include "train/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "formats/token_rows.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 31;

// A text that a tokenizer cannot encode is an error in the file, not in the caller's arguments.
std::unexpected<Error> in_file(const Error& error, const std::string& path) {
  const bool callers = error.code() == ErrorCode::kInvalidArgument;
  return fail(callers ? ErrorCode::kInvalidFile : error.code(),
              fmt::format("{}: {}", path, error.message()));
}

Result<std::string> read_text(const std::string& path) {
  VOLTA_TRY(std::string text, read_text_file(path, kMaxTextBytes));
  if (!text.empty()) return text;
  return fail(ErrorCode::kInvalidFile, fmt::format("{} is empty: choose a file with text", path));
}

// A Hugging Face tokenizer reads each byte that is not UTF-8 as U+FFFD, so the model would learn or
// score a different text. The byte tokenizer takes any file.
Status check_utf8(const std::string& text, const Tokenizer& tokenizer, const std::string& path) {
  if (tokenizer.kind() == "byte") return {};
  const auto invalid = find_invalid_utf8(text);
  if (!invalid) return {};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: byte {} of the text is not UTF-8; convert it, e.g. with iconv", path,
                          *invalid));
}

// Where the last `fraction` of the tokens begins.
std::ptrdiff_t split_place(std::size_t tokens, double fraction) {
  return static_cast<std::ptrdiff_t>(static_cast<double>(tokens) * (1.0 - fraction));
}

}  // namespace

bool is_example_file(std::string_view path) { return path.ends_with(".safetensors"); }

Result<Dataset> load_text(const std::string& path, std::string_view kind,
                          std::shared_ptr<const Tokenizer> tokenizer, double val_fraction,
                          Interruption interrupted) {
  VOLTA_TRY(const std::string text, read_text(path));
  Dataset data;
  data.path = path;
  data.bytes = static_cast<std::int64_t>(text.size());
  data.xxh3 = hex(hash64(text));
  if (tokenizer == nullptr) {
    auto made = make_tokenizer(kind, text, std::move(interrupted));
    // Errors in a tokenizer's file already name that file.
    const bool of_text = !made && made.error().code() == ErrorCode::kInvalidArgument;
    if (!made) return of_text ? in_file(made.error(), path) : std::unexpected(made.error());
    tokenizer = *std::move(made);
  }
  VOLTA_TRY(check_utf8(text, *tokenizer, path));
  auto ids = tokenizer->encode(text);
  if (!ids) return in_file(ids.error(), path);
  data.tokenizer = std::move(tokenizer);
  data.tokens = static_cast<std::int64_t>(ids->size());
  const std::ptrdiff_t split = split_place(ids->size(), val_fraction);
  data.validation =
      std::make_shared<const std::vector<std::int32_t>>(ids->begin() + split, ids->end());
  ids->resize(static_cast<std::size_t>(split));
  data.train = std::make_shared<const std::vector<std::int32_t>>(*std::move(ids));
  return data;
}

Result<HeldOutText> load_held_out_text(const std::string& path, const Tokenizer& tokenizer,
                                       double fraction) {
  if (!(fraction > 0.0 && fraction <= 1.0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--val-fraction {}: the part of the text must be above 0 and at most 1",
                            fraction));
  }
  VOLTA_TRY(const std::string text, read_text(path));
  VOLTA_TRY(check_utf8(text, tokenizer, path));
  const bool whole = fraction == 1.0;
  auto ids = whole ? tokenizer.encode_prompt(text) : tokenizer.encode(text);
  if (!ids) return in_file(ids.error(), path);
  ids->erase(ids->begin(), ids->begin() + split_place(ids->size(), fraction));
  if (ids->size() < 2) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} tokens to evaluate; two are needed, one to begin with and one "
                            "to predict: give a longer text or a larger --val-fraction",
                            path, ids->size()));
  }
  HeldOutText held_out{.tokens = *std::move(ids), .bytes = std::ssize(text)};
  if (!whole) held_out.bytes = std::ssize(tokenizer.decode(held_out.tokens));
  return held_out;
}

Status check_lengths(const Dataset& data, std::int64_t time) {
  const auto train = static_cast<std::int64_t>(data.train->size());
  const auto validation = static_cast<std::int64_t>(data.validation->size());
  if (train <= time) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} of its {} tokens are for training; a context of {} needs at "
                            "least {}. Use a longer text or a shorter context",
                            data.path, train, data.tokens, time, time + 1));
  }
  if (validation > 0 && validation <= time) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} of its {} tokens are for validation; a context of {} needs at "
                            "least {}. Use a longer text, a shorter context, or --val-fraction 0 "
                            "for no validation",
                            data.path, validation, data.tokens, time, time + 1));
  }
  return {};
}

Result<Dataset> load_examples(const std::string& path, std::int64_t vocab_size) {
  VOLTA_TRY(TokenRows rows, load_token_rows(path, vocab_size, 2));  // One token and its successor.
  Dataset data;
  data.path = path;
  data.examples = rows.count;
  data.example_length = rows.length - 1;
  data.tokens = std::ssize(rows.ids);
  data.rows = std::move(rows.ids);
  VOLTA_TRY(const MappedFile bytes, MappedFile::open(path));
  data.bytes = bytes.size();
  data.xxh3 = hex(hash64(bytes.bytes()));
  VOLTA_TRY(bytes.check_unchanged());
  return data;
}

}  // namespace volta
