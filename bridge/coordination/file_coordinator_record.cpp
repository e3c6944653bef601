#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/coordination/coordinator_record.h"
#include "bridge/host/own_file.h"
#include "bridge/net/address.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

// "<restarts> HOST:PORT\n", with " left" before the newline where the restarts are.
class FileCoordinatorRecord : public CoordinatorRecord {
 public:
  explicit FileCoordinatorRecord(std::string path) : path_(std::move(path)) {}

  Result<Holder> take_or_read(const Endpoint& own) override {
    for (;;) {
      auto opened = open_own();
      if (!opened) return opened.error();
      Socket file = std::move(*opened);
      if (flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return wrong(std::strerror(errno));
        const auto content = read(file);  // the agent that has locked it may be writing it
        return Holder{false, content ? content->coordinator : Endpoint{}};
      }
      if (!is_at_path(file.descriptor(), path_))
        continue;  // the run before this one has just removed it
      const auto content = read(file);
      if (!content) return content.error();
      file_ = std::move(file);
      content_ = {content->restarts, own};
      if (const auto written = write(); !written) {
        release();
        return written.error();
      }
      return Holder{true, own};
    }
  }
  int descriptor() const override { return -1; }
  void show_life() override {}
  int lease_process() const override { return -1; }
  void release() override { file_ = Socket(); }
  Result<Restarts> restarts() override { return content_.restarts; }
  Status set_restarts(const Restarts& restarts) override {
    content_.restarts = restarts;
    return write();
  }
  void remove() override {
    if (file_.open()) unlink(path_.c_str());
    release();
  }

 private:
  static constexpr std::string_view kLeft = " left\n";
  struct RecordContent {
    Restarts restarts;
    Endpoint coordinator;
  };

  Error wrong(const std::string& reason) const {
    return Error{
        formatted("--rdzv-endpoint '{}', with store_type=file: {}", printable(path_), reason)};
  }
  // In a folder such as /tmp another user may have made it before, or a link: what it names would
  // be believed.
  Result<Socket> open_own() const {
    const auto file = open_own_file(path_);
    return file ? Result<Socket>(Socket(*file)) : wrong(file.error().message);
  }
  Result<RecordContent> read(const Socket& file) const {
    char text[512];
    const ssize_t size = pread(file.descriptor(), text, sizeof text, 0);
    if (size < 0) return wrong(std::strerror(errno));
    if (size == 0) return RecordContent{};
    std::string line(text, static_cast<std::size_t>(size));
    const bool is_left = line.ends_with(kLeft);
    if (is_left) line.replace(line.size() - kLeft.size(), kLeft.size(), "\n");
    const auto space = line.find(' ');
    const auto restarts = parse_integer(line.substr(0, space), 0, INT32_MAX);
    const bool is_whole = space != line.npos && line.ends_with('\n');
    const auto coordinator = is_whole
                                 ? parse_endpoint(line.substr(space + 1, line.size() - space - 2))
                                 : Result<Endpoint>(Error{});
    const bool is_address = coordinator && is_numeric(coordinator->host) && coordinator->port > 0;
    if (!restarts || !is_address)
      return wrong(formatted("it contains '{}', not a coordinator's address", printable(line)));
    return RecordContent{{static_cast<int>(*restarts), is_left}, *coordinator};
  }
  Status write() const {
    const std::string text = std::to_string(content_.restarts.used) + " " +
                             with_port(content_.coordinator) +
                             (content_.restarts.is_left ? std::string(kLeft) : "\n");
    return rewrite(file_.descriptor(), text) ? Status(Ok{}) : wrong(std::strerror(errno));
  }

  std::string path_;
  Socket file_;  // locked
  RecordContent content_;
};

}  // namespace

std::unique_ptr<CoordinatorRecord> file_coordinator_record(const std::string& path) {
  return std::make_unique<FileCoordinatorRecord>(path);
}

}  // namespace torchbridge
