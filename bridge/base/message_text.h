// Values, lists, numbers of things and times as they stand in messages.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace torchbridge {

// A string literal with a place "{}" for each value: another number of places does not compile.
template <class... Values>
struct TextWithPlaces {
  template <std::size_t size>
  consteval TextWithPlaces(const char (&literal)[size]) : text(literal) {
    std::size_t places = 0;
    for (std::size_t i = 0; i + 1 < size; ++i) places += literal[i] == '{' && literal[i + 1] == '}';
    if (places != sizeof...(Values)) throw "expected a place {} for each value";
  }
  std::string_view text;
};

// `values`: as many as the text has places.
std::string replaced_places(std::string_view text, std::span<const std::string> values);

inline std::string value_text(std::string_view value) { return std::string(value); }
template <std::integral Number>
requires(!std::same_as<Number, bool> && !std::same_as<Number, char>) std::string
    value_text(Number value) {
  return std::to_string(value);
}

// formatted("rank {} of {}", 3, size): std::format of C++20's library, which g++ 12 does not have,
// for texts and integers alone.
template <class... Values>
requires(sizeof...(Values) > 0) std::string
    formatted(TextWithPlaces<std::type_identity_t<Values>...> text, const Values&... values) {
  const std::string texts[] = {value_text(values)...};
  return replaced_places(text.text, texts);
}

// "a, b, c": the words, or what `text_of` gives for each, with `between` after all that are not
// empty texts at the beginning.
template <class Words, class Text = std::identity>
std::string joined(const Words& words, std::string_view between, const Text& text_of = {}) {
  std::string text;
  for (const auto& word : words) {
    if (!text.empty()) text += between;
    text += std::invoke(text_of, word);
  }
  return text;
}

// "1 task", "4 tasks".
inline std::string counted(std::int64_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

// "0.5 s".
inline std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

}  // namespace torchbridge
