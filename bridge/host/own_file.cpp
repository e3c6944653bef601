#include "bridge/host/own_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

// The folders of the system where all may write. In a user namespace their owner has the number of
// nobody, as any other user outside has.
bool is_of_the_system(const std::string& folder) {
  constexpr std::string_view kFolders[] = {"/tmp", "/var/tmp", "/dev/shm"};
  return std::ranges::find(kFolders, folder) != std::end(kFolders);
}

Status check_folder(const std::string& folder) {
  struct stat found {};
  if (stat(folder.c_str(), &found) != 0) {
    return Error{formatted("folder '{}': {}", printable(folder), std::strerror(errno))};
  }
  // In a folder that all may write, the sticky bit keeps each user's files from the others.
  const bool is_sticky = (found.st_mode & S_ISVTX) != 0;
  if (is_sticky && is_of_the_system(folder)) return Ok{};
  const mode_t bits = is_sticky ? 0 : kWrite;
  const std::string other = access_of_others(bits, found);
  if (other.empty()) return Ok{};
  return Error{
      formatted("its folder '{}' {}, so that another user may replace the file: give a file in a "
                "folder that this user alone can write",
                printable(folder), other)};
}

Status check_file(const struct stat& file) {
  if (S_ISLNK(file.st_mode)) return Error{"it is a symbolic link: give the file itself"};
  if (!S_ISREG(file.st_mode)) return Error{"it is no file"};
  // Who can read a file can lock it (flock), and hold up all who do the same.
  const std::string other = access_of_others(kReadOrWrite, file);
  if (other.empty()) return Ok{};
  return Error{
      formatted("it {}: give a file that this user alone can read and write (chmod 600)", other)};
}

}  // namespace

std::string access_of_others(mode_t bits, const struct stat& file) {
  if (file.st_uid != geteuid() && file.st_uid != 0)
    return formatted("belongs to uid {}", file.st_uid);
  if ((file.st_mode & bits) == 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "has the mode %04o",
                static_cast<unsigned>(file.st_mode & 07777));
  return text;
}

Result<int> open_own_file(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder =
      slash == path.npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
  if (const auto checked = check_folder(folder); !checked) return checked.error();
  const int file =
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
  const int error = errno;
  struct stat found {};
  if (file < 0) {
    const bool is_there = lstat(path.c_str(), &found) == 0;
    const auto checked = is_there ? check_file(found) : Status(Ok{});
    return checked ? Error{std::strerror(error)} : checked.error();
  }
  const auto checked =
      fstat(file, &found) == 0 ? check_file(found) : Status(Error{std::strerror(errno)});
  if (checked) return file;
  close(file);
  return checked.error();
}

bool is_at_path(int file, const std::string& path) {
  struct stat opened {
  }, named{};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

bool rewrite(int file, std::string_view text) {
  return pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
         ftruncate(file, static_cast<off_t>(text.size())) == 0 && fdatasync(file) == 0;
}

}  // namespace torchbridge
