#include "trainer_template/runtime/output/output_file.h"

#include <fcntl.h>

#include <cerrno>
#include <system_error>

#include "bridge/net/socket.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/file_support.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

fs::path free_name(const fs::path& file) {
  std::error_code ignored;
  for (int number = 1;; ++number) {
    const fs::path name = file.string() + ".aside-" + std::to_string(number);
    if (!fs::exists(fs::symlink_status(name, ignored))) return name;
  }
}

// The caller truncates the original next: without the sync a power cut could lose both.
std::error_code copy_synced(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) return error;
  const Socket copy(open(to.c_str(), O_RDONLY | O_CLOEXEC));
  return {copy.open() ? sync_descriptor(copy.descriptor()) : errno, std::generic_category()};
}

}  // namespace

void back_up(const fs::path& file, const std::string& reason, const char* option) {
  fs::path copy;
  std::error_code error;
  do {
    copy = free_name(file);
    error = copy_synced(file, copy);
  } while (error == std::errc::file_exists);  // another process took the name
  if (error) {
    std::error_code ignored;
    fs::remove(copy, ignored);
    throw cannot_open(file,
                      formatted("it {} and cannot be copied to '{}' ({})", reason, copy.string(),
                                error.message()),
                      option);
  }
  print_message(formatted("'{}' {}: copied to '{}'", file.string(), reason, copy.string()));
}

}  // namespace torchbridge::train
