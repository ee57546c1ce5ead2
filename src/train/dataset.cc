#include "train/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "io/safetensors.h"

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
  constexpr std::string_view kName = "input_ids";
  VOLTA_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  VOLTA_TRY(const Tensor ids, file.load(kName));
  if (ids.dtype() != DType::kI64 || ids.shape().rank() != 2 || ids.shape()[0] < 1 ||
      ids.shape()[1] < 2) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} is {}; it must be i64[N, T + 1] with at least one row of two "
                            "tokens",
                            path, kName, to_string(ids.spec())));
  }
  VOLTA_TRY(const std::span<const std::int64_t> values, ids.values<std::int64_t>());
  Dataset data;
  data.path = path;
  data.examples = ids.shape()[0];
  data.example_length = ids.shape()[1] - 1;
  data.tokens = ids.elements();
  data.rows.reserve(values.size());
  for (const std::int64_t id : values) {
    if (id < 0 || id >= vocab_size) {
      const auto place = static_cast<std::int64_t>(data.rows.size());
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format(
              "{}: {}[{}, {}] is {}; ids must be from 0 to {} for this vocabulary (--vocab)", path,
              kName, place / ids.shape()[1], place % ids.shape()[1], id, vocab_size - 1));
    }
    data.rows.push_back(static_cast<std::int32_t>(id));
  }
  VOLTA_TRY(const MappedFile bytes, MappedFile::open(path));
  data.bytes = bytes.size();
  data.xxh3 = hex(hash64(bytes.bytes()));
  return data;
}

}  // namespace volta
