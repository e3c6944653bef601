// Small files and folders of the kernel, as those of sysfs, read whole.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge {

// Whether the errno means that a file or folder does not exist, or was removed while it was read.
bool is_missing(int error);

// The content without the newlines at its end; nothing where there is no such file. An error names
// the file: it cannot be read, or is longer than `limit` bytes.
Result<std::optional<std::string>> read_text(const std::string& path, std::size_t limit = 1 << 16);

// The error with the file's path in front.
Error in_file(const std::string& path, const Error& error);

// The names in a folder, sorted, without those that start with a dot; none where there is no such
// folder.
Result<std::vector<std::string>> names_in(const std::string& folder);

// N of "nodeN" or "cpuN"; nothing for other names, such as "cpufreq".
std::optional<int> numbered(std::string_view name, std::string_view prefix);

// The value of `path`, parsed; `missing` where there is no such file.
template <class Parse,
          class Value = std::decay_t<decltype(*std::declval<Parse>()(std::string_view()))>>
Result<Value> read_value(const std::string& path, Parse parse, Value missing) {
  const auto text = read_text(path);
  if (!text) return text.error();
  if (!*text) return missing;
  auto value = parse(std::string_view(**text));
  if (!value) return in_file(path, value.error());
  return std::move(*value);
}

}  // namespace torchbridge
