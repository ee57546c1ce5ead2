#include "train/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "io/token_rows.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 31;

// What a tokenizer cannot take is the file's fault, not the caller's.
std::unexpected<Error> in_file(const Error& error, const std::string& path) {
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", path, error.message()));
}

}  // namespace

bool is_example_file(std::string_view path) { return path.ends_with(".safetensors"); }

Result<Dataset> load_text(const std::string& path, std::string_view kind,
                          std::shared_ptr<const Tokenizer> tokenizer, double val_fraction) {
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxTextBytes));
  if (text.empty()) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{} is empty: choose a file with text", path));
  }
  Dataset data;
  data.path = path;
  data.bytes = static_cast<std::int64_t>(text.size());
  data.xxh3 = hex(hash64(text));
  if (tokenizer == nullptr) {
    auto made = make_tokenizer(kind, text);
    if (!made) return in_file(made.error(), path);
    tokenizer = *std::move(made);
  }
  auto ids = tokenizer->encode(text);
  if (!ids) return in_file(ids.error(), path);
  data.tokenizer = std::move(tokenizer);
  data.tokens = static_cast<std::int64_t>(ids->size());
  const auto split =
      static_cast<std::ptrdiff_t>(static_cast<double>(ids->size()) * (1.0 - val_fraction));
  data.validation =
      std::make_shared<const std::vector<std::int32_t>>(ids->begin() + split, ids->end());
  ids->resize(static_cast<std::size_t>(split));
  data.train = std::make_shared<const std::vector<std::int32_t>>(*std::move(ids));
  return data;
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
  return data;
}

}  // namespace volta
