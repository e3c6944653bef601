// Words for exec.
#pragma once

#include <string>
#include <vector>

// With a null pointer at the end; for as long as `words` are there.
inline std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> list;
  for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}
