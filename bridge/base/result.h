// The outcome of something that can fail: a value, or one message meant for the user.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace torchbridge {

// The message names the input, its value, what was expected and, where known, what to try. It is
// one line without a newline at its end.
struct Error {
  std::string message;
  // Another process of the job reports it: this one prints nothing.
  bool reported_elsewhere = false;
  // Other processes of the job may not have the error: this node reports it.
  bool only_here = false;

  static Error elsewhere() { return {"another process of the job reports the reason", true}; }
};

// Holds a T or an Error. Propagate with `if (!r) return r.error();`.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }

  // REQUIRES: the result holds a value.
  T& operator*() & { return *value(); }
  const T& operator*() const& { return *const_cast<Result*>(this)->value(); }
  T&& operator*() && { return std::move(*value()); }
  T* operator->() { return value(); }
  const T* operator->() const { return const_cast<Result*>(this)->value(); }

  // REQUIRES: the result holds an error.
  const Error& error() const {
    assert(state_.index() == 1);
    return *std::get_if<1>(&state_);
  }

 private:
  T* value() {
    assert(state_.index() == 0);
    return std::get_if<0>(&state_);
  }
  std::variant<T, Error> state_;
};

// For functions that have nothing to return but may fail: `return Ok{};`.
struct Ok {};
using Status = Result<Ok>;

}  // namespace torchbridge
