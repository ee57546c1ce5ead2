// Result<T>: a value or an Error. The only way a Volta function reports failure.
#pragma once

#include <expected>
#include <utility>

#include "base/error.h"

namespace [[gnu::visibility("default")]] volta {

/// A T, or an Error. Never call .value(): use VOLTA_TRY, or test and dereference.
template <typename T>
using Result = std::expected<T, Error>;

/// Success, or an Error.
using Status = Result<void>;

/// The failed state of any Result: `return fail(ErrorCode::kIo, fmt::format(...));`
[[nodiscard]] inline std::unexpected<Error> fail(ErrorCode code, std::string message) {
  return std::unexpected<Error>(Error(code, std::move(message)));
}

}  // namespace volta

#define VOLTA_CONCAT_INNER(a, b) a##b
#define VOLTA_CONCAT(a, b) VOLTA_CONCAT_INNER(a, b)

// VOLTA_TRY(expr);           returns expr's error from the enclosing function, if it has one.
// VOLTA_TRY(auto x, expr);   the same, and otherwise initialises x with the value.
#define VOLTA_TRY_STATUS(expr)                                     \
  do {                                                             \
    auto volta_try_status = (expr);                                \
    if (!volta_try_status) [[unlikely]] {                          \
      return std::unexpected(std::move(volta_try_status).error()); \
    }                                                              \
  } while (false)
#define VOLTA_TRY_ASSIGN_INNER(tmp, decl, expr)     \
  auto tmp = (expr);                                \
  if (!tmp) [[unlikely]]                            \
    return std::unexpected(std::move(tmp).error()); \
  decl = *std::move(tmp)
#define VOLTA_TRY_ASSIGN(decl, expr) \
  VOLTA_TRY_ASSIGN_INNER(VOLTA_CONCAT(volta_try_, __COUNTER__), decl, expr)
#define VOLTA_TRY_PICK(a, b, name, ...) name
#define VOLTA_TRY(...) VOLTA_TRY_PICK(__VA_ARGS__, VOLTA_TRY_ASSIGN, VOLTA_TRY_STATUS)(__VA_ARGS__)
