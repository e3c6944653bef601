#include "bridge/supervision/worker_report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "bridge/base/json_depth.h"
#include "bridge/base/message_text.h"
#include "bridge/net/socket.h"
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
  const auto since_epoch =
      std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
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
    return Error{formatted("cannot read the error file '{}': {}", path, reason)};
  };
  const Socket file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat found {};
  if (!file.open() || fstat(file.descriptor(), &found) != 0)
    return cannot_read(std::strerror(errno));
  if (!S_ISREG(found.st_mode)) return cannot_read("it is not a regular file");
  FileContent content{"", time_of(found.st_mtim)};
  const int error = read_bytes(file.descriptor(), content.text);
  return error == 0 ? Result<FileContent>(std::move(content)) : cannot_read(std::strerror(error));
}

// Discarded where the text is no JSON. Without a callback, with which the parser is quadratic.
json parse(const std::string& text) { return json::parse(text, nullptr, false); }

// Of JSON that was cut off at kMaxSize: the beginning of its message. Of another text, that text.
std::string shown(const std::string& text) {
  constexpr std::size_t kShown = 4096;
  std::string_view rest = text;
  const auto take = [&](std::string_view word) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  };
  bool has_name = false;
  while (take("{")) has_name = take("\"message\"") && take(":");
  if (text.size() < kMaxSize || !has_name || !take("\"")) return text;
  std::size_t end = 0;
  while (end < std::min(kShown, rest.size()) && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
  // An escape, or a character, that is cut in two is left out.
  for (std::string part(rest.substr(0, end)); !part.empty(); part.pop_back()) {
    const json message = parse("\"" + part + "\"");
    if (message.is_string()) return message.get<std::string>() + "...";
  }
  return text;
}

// The member of that name; null where `object` is no object, or has none.
const json* member(const json* object, const char* name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(name);
  return found != object->end() ? &*found : nullptr;
}

const std::string* text_of(const json* value) {
  return value != nullptr ? value->get_ptr<const json::string_t*>() : nullptr;
}

constexpr std::streamoff kLogTail = 8192;  // bytes
constexpr std::size_t kLogLines = 20;

// What a terminal shows of it: a progress bar's last state.
void keep_last_state(std::string& line) {
  if (line.ends_with('\r')) line.pop_back();
  line.erase(0, line.rfind('\r') + 1);
}

std::string lines_at_end(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (path.empty() || size <= 0) return "";
  file.seekg(std::max<std::streamoff>(0, size - kLogTail));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::deque<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    keep_last_state(line);
    lines.push_back(std::move(line));
    if (lines.size() > kLogLines) lines.pop_front();
  }
  return joined(lines, "\n");
}

// A handler of the agent's signal may end the worker by an exit code of its own, with or without an
// error file.
bool is_answer_to_signal(const WorkerProcess& worker, const std::optional<ErrorRecord>& error) {
  if (!worker.signalled || !WIFEXITED(worker.wait_status)) return false;
  return !wants_requeue(worker.wait_status) && (!error || error->time >= *worker.signalled);
}

}  // namespace

std::optional<ErrorRecord> read_error_record(const std::string& path,
                                             system_clock::time_point not_before) {
  auto content = read_regular_file(path);
  if (!content || content->text.empty() || content->time + kTick <= not_before) return std::nullopt;
  const json file = parse(content->text);
  const json* outer = member(&file, "message");
  const std::string* message = text_of(outer);  // the older form
  const json* holder = message != nullptr ? &file : outer;
  if (message == nullptr) message = text_of(member(outer, "message"));
  const std::string* callstack = text_of(member(member(holder, "extraInfo"), "py_callstack"));
  const std::string other = message == nullptr && callstack == nullptr ? shown(content->text) : "";
  if (message == nullptr) message = callstack != nullptr ? callstack : &other;
  return ErrorRecord{*message, callstack != nullptr ? *callstack : *message, content->time};
}

Status copy_error_record(const std::string& from, const std::string& to, int exit_code) {
  const auto content = read_regular_file(from);
  if (!content) return content.error();
  json file = parse(content->text);
  // dump() calls itself at each level, and it may be a megabyte of brackets.
  const bool is_deep = is_json_deeper_than(kMaxDepth, content->text);
  if (is_deep || member(&file, "message") == nullptr)
    return write_error_file(to, shown(content->text));
  if (exit_code != 0 && file["message"].is_object()) file["message"]["errorCode"] = exit_code;
  return write_error_json(
      to, file.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace));
}

WorkerReport report_of(const WorkerProcess& worker, const std::string& host,
                       std::chrono::system_clock::time_point not_before) {
  WorkerReport report;
  report.rank = worker.rank;
  report.local_rank = worker.local_rank;
  report.pid = worker.pid;
  report.host = report.clock = host;
  // One that is stuck has got it.
  report.wait_status = worker.is_running ? SIGKILL : worker.wait_status;
  report.is_stuck = worker.is_running;
  report.health = worker.health;
  report.log = worker.error_log;
  report.error = read_error_record(worker.error_file, not_before);
  report.is_ended_by_agent = worker.is_ended_by_agent || is_answer_to_signal(worker, report.error);
  // It failed when it wrote the file, and may have taken a while to end. A signal from outside may
  // be reaped late, after what it caused; abort() is the worker's own, as when it loses its peers.
  report.time = report.error ? std::min(report.error->time, worker.time) : worker.time;
  const bool is_from_outside =
      WIFSIGNALED(worker.wait_status) && WTERMSIG(worker.wait_status) != SIGABRT;
  report.not_before = is_from_outside && !report.error ? worker.not_before : report.time;
  if (report.error) report.error_file = worker.error_file;
  return report;
}

std::string read_log_end(const WorkerReport& worker) {
  return is_consequence(worker) ? "" : lines_at_end(worker.log);
}

}  // namespace torchbridge
