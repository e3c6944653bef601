// What the test programs of the MPI backend share: one line on stderr for each unmet expectation,
// and their number.
#pragma once

#include <cstdio>
#include <string>

#include <c10/util/Exception.h>

inline int failures = 0, rank = 0, size = 1;

inline void fail(const std::string& what) {
  ++failures;
  std::fprintf(stderr, "rank %d of %d: FAILED: %s\n", rank, size, what.c_str());
}
inline void expect(bool fact, const std::string& what) {
  if (!fact) fail(what);
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The text of what `call` throws; empty where it does not.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}
