#include "bridge/run_values/error_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>

#include "bridge/base/json_depth.h"
#include "bridge/base/visible_text.h"
#include "bridge/worker/write_error_file.h"

namespace torchbridge {
namespace {

using nlohmann::json;
using std::chrono::system_clock;

constexpr std::size_t kMaxSize = 1 << 20;
constexpr int kMaxDepth = 16;                   // torch's form has three levels
constexpr std::chrono::milliseconds kTick{10};  // of the kernel's clock for files

struct FileContent {
  std::string text;
  system_clock::time_point time;
};

system_clock::time_point time_of(const timespec& time) {
  const auto since_epoch = std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  return system_clock::time_point(std::chrono::duration_cast<system_clock::duration>(since_epoch));
}

// All of the file, or its first kMaxSize bytes. Returns 0, or an errno.
int read_bytes(int file, std::string& text) {
  char chunk[1 << 14];
  while (text.size() < kMaxSize) {
    const ssize_t count = read(file, chunk, std::min(sizeof chunk, kMaxSize - text.size()));
    if (count == 0) break;
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) text.append(chunk, static_cast<std::size_t>(count));
  }
  return 0;
}

Result<FileContent> read_regular_file(const std::string& path) {
  const auto cannot_read = [&](const char* reason) {
    return Error{"cannot read the error file '" + path + "': " + reason};
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return cannot_read(std::strerror(errno));
  struct stat found {};
  FileContent content;
  int error = fstat(file, &found) == 0 ? 0 : errno;
  const bool is_regular = S_ISREG(found.st_mode);
  if (error == 0 && is_regular) error = read_bytes(file, content.text);
  close(file);
  if (error != 0) return cannot_read(std::strerror(error));
  if (!is_regular) return cannot_read("it is not a regular file");
  content.time = time_of(found.st_mtim);
  return content;
}

// Discarded where the text is no JSON. Without a callback, with which the parser is quadratic.
json parse(const std::string& text) { return json::parse(text, nullptr, false); }

// The member of that name; null where `object` is no object, or has none.
const json* member(const json* object, const char* name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(name);
  return found != object->end() ? &*found : nullptr;
}

const std::string* text_of(const json* value) {
  return value != nullptr ? value->get_ptr<const json::string_t*>() : nullptr;
}

}  // namespace

std::optional<ErrorRecord> read_error_record(const std::string& path, system_clock::time_point not_before) {
  auto content = read_regular_file(path);
  if (!content || content->text.empty() || content->time + kTick <= not_before) return std::nullopt;
  const json file = parse(content->text);
  const json* outer = member(&file, "message");
  const std::string* message = text_of(outer);  // the older form
  const json* holder = message != nullptr ? &file : outer;
  if (message == nullptr) message = text_of(member(outer, "message"));
  const std::string* callstack = text_of(member(member(holder, "extraInfo"), "py_callstack"));
  if (message == nullptr) message = callstack != nullptr ? callstack : &content->text;
  return ErrorRecord{*message, callstack != nullptr ? *callstack : *message, content->time};
}

Status copy_error_record(const std::string& from, const std::string& to, int exit_code) {
  const auto content = read_regular_file(from);
  if (!content) return content.error();
  json file = parse(content->text);
  // dump() calls itself at each level, and it may be a megabyte of brackets.
  const bool is_deep = is_json_deeper_than(kMaxDepth, content->text);
  if (is_deep || member(&file, "message") == nullptr) return write_error_file(to, content->text);
  if (exit_code != 0 && file["message"].is_object()) file["message"]["errorCode"] = exit_code;
  return write_error_json(to, file.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace));
}

}  // namespace torchbridge
