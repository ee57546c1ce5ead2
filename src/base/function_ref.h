// FunctionRef<R(Args...)>: a reference to a callable, for passing it as an argument without
// ownership or allocation. It must not outlive the call to which it is passed. To store a callable,
// use a std::function.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace [[gnu::visibility("default")]] volta {

template <typename Signature>
class FunctionRef;

/// A reference to any callable with the given signature. It is two words, trivially copyable and
/// never empty.
template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  /// Refers to `callable`, which must exist until the last call through this object.
  template <typename F>
    requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> &&
             std::is_invocable_r_v<R, F&, Args...> &&
             !std::is_function_v<std::remove_reference_t<F>>)
  FunctionRef(F&& callable) noexcept  // NOLINT(google-explicit-constructor): lambdas convert.
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return std::invoke(*static_cast<std::remove_reference_t<F>*>(object),
                             std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace volta
