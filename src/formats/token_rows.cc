#include "formats/token_rows.h"

#include <fmt/format.h>

#include <span>
#include <string_view>

#include "formats/safetensors.h"

namespace volta {
namespace {

constexpr std::string_view kName = "input_ids";

template <typename T>
Status append_checked(TokenRows& rows, std::span<const T> values, std::int64_t vocab_size) {
  rows.ids.reserve(values.size());
  for (const T id : values) {
    if (id < 0 || id >= vocab_size) {
      const std::int64_t place = std::ssize(rows.ids);
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}[{}, {}] is {}; ids must be from 0 to {} for this vocabulary",
                              kName, place / rows.length, place % rows.length, id, vocab_size - 1));
    }
    rows.ids.push_back(static_cast<std::int32_t>(id));
  }
  return {};
}

Status append_checked(TokenRows& rows, const Tensor& ids, std::int64_t vocab_size) {
  if (ids.dtype() == DType::kI32) {
    VOLTA_TRY(const auto values, ids.values<std::int32_t>());
    return append_checked(rows, values, vocab_size);
  }
  VOLTA_TRY(const auto values, ids.values<std::int64_t>());
  return append_checked(rows, values, vocab_size);
}

}  // namespace

Result<TokenRows> load_token_rows(const std::string& path, std::int64_t vocab_size,
                                  std::int64_t min_length) {
  VOLTA_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  const SafetensorsEntry* entry = file.find(kName);
  if (entry == nullptr) {
    return fail(ErrorCode::kNotFound, fmt::format("{} has no tensor '{}'", path, kName));
  }
  const Shape& shape = entry->spec.shape;
  const bool integers = entry->spec.dtype == DType::kI64 || entry->spec.dtype == DType::kI32;
  if (!integers || shape.rank() != 2 || shape[0] < 1 || shape[1] < min_length) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} is {}; it must be i64 or i32 [rows, tokens], at least one row "
                            "of length {}",
                            path, kName, to_string(entry->spec), min_length));
  }
  VOLTA_TRY(const Tensor ids, file.load(kName));
  TokenRows rows{.ids = {}, .count = shape[0], .length = shape[1]};
  if (auto ok = append_checked(rows, ids, vocab_size); !ok) {
    return std::unexpected(std::move(ok).error().with_context(path));
  }
  return rows;
}

}  // namespace volta
