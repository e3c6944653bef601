#include "bridge/host/sysfs.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "bridge/base/env_map.h"

namespace torchbridge {

Error in_file(const std::string& path, const Error& error) {
  return Error{path + ": " + error.message};
}

Result<std::vector<std::string>> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  std::vector<std::string> names;
  if (!entries && is_missing(errno)) return names;
  if (!entries) return in_file(folder, {std::strerror(errno)});
  while (const dirent* entry = readdir(entries.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int> numbered(std::string_view name, std::string_view prefix) {
  constexpr int kMaxNumber = 65535;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto number = parse_integer(name.substr(prefix.size()), 0, kMaxNumber);
  return number ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

}  // namespace torchbridge
