#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include <nlohmann/json.hpp>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/coordination/coordinator_record.h"
#include "bridge/coordination/http_client.h"
#include "bridge/net/address.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// RFC 4648, as etcd's gateway takes keys and values.
constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(const std::string& bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j)
      text += i + j <= bytes.size() ? kLetters[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string from_base64(const std::string& text) {
  std::string bytes;
  unsigned group = 0;
  int bits = 0;
  for (const char c : text) {
    const char* at = std::strchr(kLetters, c);
    if (c == '\0' || c == '=' || at == nullptr) break;
    group = group << 6 | static_cast<unsigned>(at - kLetters);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 255);
  }
  return bytes;
}

// The member where it is a text; else empty. What etcd holds is of whoever may write there.
std::string text_in(const json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The requests are those of etcd's API reference, version 3 (etcd.io, "gRPC gateway").
class EtcdRecord : public CoordinatorRecord {
 public:
  EtcdRecord(EtcdSettings settings, std::unique_ptr<HttpClient> http)
      : settings_(std::move(settings)), http_(std::move(http)) {}
  ~EtcdRecord() override { end_lease_process(); }

  // A key that does not exist has create_revision 0.
  Result<Holder> take_or_read(const Endpoint& own) override {
    const auto lease = request("lease/grant", {{"TTL", settings_.lease}});
    if (!lease) return lease.error();
    lease_ = text_in(*lease, "ID");
    if (lease_.empty()) return Error{formatted("etcd: {} grants no lease", settings_.url)};
    const std::string key = to_base64(settings_.prefix + "coordinator");
    const json put = {{"request_put",
                       {{"key", key},
                        {"value", to_base64(own.host + " " + std::to_string(own.port))},
                        {"lease", lease_}}}};
    const json compare = {{"target", "CREATE"}, {"key", key}, {"create_revision", "0"}};
    const auto taken = request("kv/txn", {{"compare", {compare}},
                                          {"success", {put}},
                                          {"failure", {{{"request_range", {{"key", key}}}}}}});
    if (!taken) return taken.error();
    const auto succeeded = taken->find("succeeded");
    if (succeeded != taken->end() && *succeeded == true) {
      if (const auto kept = start_lease_process(); !kept) return kept.error();
      return Holder{true, own};
    }
    (void)request("lease/revoke", {{"ID", lease_}});
    return Holder{false, endpoint_in(*taken)};
  }
  int descriptor() const override { return lease_socket_.descriptor(); }
  void show_life() override {
    const auto now = Clock::now();
    if (!life_.open() || now < life_shown_ + std::chrono::milliseconds(200)) return;
    life_shown_ = now;
    // A full pipe, or a process that has ended: descriptor() shows it.
    (void)!write(life_.descriptor(), "", 1);
  }
  int lease_process() const override { return lease_process_; }
  void release() override {
    end_lease_process();
    (void)request("lease/revoke", {{"ID", lease_}});
  }
  // "<restarts>", with " left" behind it where they are.
  Result<Restarts> restarts() override {
    const std::string key = settings_.prefix + "restarts";
    const auto range = request("kv/range", {{"key", to_base64(key)}});
    if (!range) return range.error();
    const auto found = range->find("kvs");
    if (found == range->end() || !found->is_array() || found->empty()) return Restarts{};
    const std::string value = from_base64(text_in(found->front(), "value"));
    const auto space = value.find(' ');
    const auto used = parse_integer(value.substr(0, space), 0, INT32_MAX);
    const bool is_left = space != value.npos;
    if (!used || (is_left && value.substr(space) != kLeft)) {
      return Error{
          formatted("etcd: key '{}' contains '{}', not a number of restarts: remove the key",
                    printable(key), printable(value))};
    }
    return Restarts{static_cast<int>(*used), is_left};
  }
  Status set_restarts(const Restarts& restarts) override {
    const std::string value = std::to_string(restarts.used) + (restarts.is_left ? kLeft : "");
    const auto put = request(
        "kv/put", {{"key", to_base64(settings_.prefix + "restarts")}, {"value", to_base64(value)}});
    if (!put) return put.error();
    return Ok{};
  }
  void remove() override {
    (void)request("kv/deleterange", {{"key", to_base64(settings_.prefix + "restarts")}});
    release();
  }

 private:
  static constexpr char kLeft[] = " left";

  Result<json> request(const std::string& path, const json& body) {
    const bool has_token = !token_.empty();
    if (const auto authenticated = authenticate(); !authenticated) return authenticated.error();
    auto answer = http_->post(settings_.url + "/v3/" + path, body.dump(), token_);
    if (!answer && has_token) {  // tokens expire, after five minutes by default
      token_.clear();
      if (const auto authenticated = authenticate(); !authenticated) return authenticated.error();
      answer = http_->post(settings_.url + "/v3/" + path, body.dump(), token_);
    }
    if (!answer) return Error{"etcd: " + answer.error().message};
    json parsed = json::parse(*answer, nullptr, false);
    if (!parsed.is_object())
      return Error{formatted("etcd: {} answers '{}'", settings_.url, printable(*answer))};
    return parsed;
  }

  Status authenticate() {
    if (settings_.user.empty() || !token_.empty()) return Ok{};
    const auto answer =
        http_->post(settings_.url + "/v3/auth/authenticate",
                    json{{"name", settings_.user}, {"password", settings_.password}}.dump(), "");
    if (!answer) return Error{"etcd: " + answer.error().message};
    const json parsed = json::parse(*answer, nullptr, false);
    token_ = text_in(parsed, "token");
    return Ok{};
  }

  // Port 0 where it was removed meanwhile, or is not what an agent writes.
  static Endpoint endpoint_in(const json& answer) {
    const json* value = &answer;
    for (const char* name : {"responses", "response_range", "kvs"}) {
      const auto found = value->is_object() ? value->find(name) : value->end();
      if (found == value->end()) return {};
      value = &*found;
      if (!value->is_array()) continue;
      if (value->empty()) return {};
      value = &value->front();
    }
    const std::string text = from_base64(text_in(*value, "value"));
    const auto space = text.find(' ');
    const auto port = parse_integer(text.substr(std::min(space, text.size() - 1) + 1), 1, 65535);
    const std::string host = text.substr(0, space);
    if (!port || !is_numeric(host)) return {};
    return {host, static_cast<int>(*port)};
  }

  // A process of its own renews the lease, as the agent must not wait for etcd. It ends when etcd
  // has not answered for half of the lease, so that the agent stops before another one takes its
  // place.
  Status start_lease_process() {
    int ends[2], life[2];
    const auto failed = [] {
      return Error{formatted("cannot keep etcd's lease: {}", std::strerror(errno))};
    };
    if (pipe2(ends, O_CLOEXEC) != 0) return failed();
    lease_socket_ = Socket(ends[0]);
    const Socket own_end(ends[1]);
    if (pipe2(life, O_CLOEXEC | O_NONBLOCK) != 0) return failed();
    const Socket life_of_agent(life[0]);
    life_ = Socket(life[1]);
    const pid_t parent = getpid();
    lease_process_ = fork();
    if (lease_process_ < 0) return failed();
    if (lease_process_ > 0) return Ok{};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) keep_lease(own_end.descriptor(), life_of_agent.descriptor());
    _exit(0);
  }

  void keep_lease(int kept_descriptor, int life_of_agent) {
    for (int descriptor = STDERR_FILENO + 1; descriptor < 1024; ++descriptor) {
      // Not the listener and the members' connections.
      if (descriptor != kept_descriptor && descriptor != life_of_agent) close(descriptor);
    }
    auto http = HttpClient::open(
        {settings_.ca_cert, settings_.cert, settings_.key, std::max(1, settings_.lease / 8)});
    if (!http) return;
    http_ = std::move(*http);
    auto last = Clock::now(), alive = last;
    for (;;) {
      char bytes[64];
      while (read(life_of_agent, bytes, sizeof bytes) > 0) alive = Clock::now();
      if (Clock::now() - alive > std::chrono::seconds(settings_.lease + 1))
        return;  // it is stopped
      const auto asked = Clock::now();
      const auto kept = request("lease/keepalive", {{"ID", lease_}});
      if (kept && text_in(kept->value("result", json()), "TTL").empty()) return;  // it has expired
      if (kept) last = asked;
      if (Clock::now() - last >= std::chrono::milliseconds(settings_.lease * 500)) return;
      poll(nullptr, 0, std::max(100, settings_.lease * 1000 / 8));
    }
  }

  void end_lease_process() {
    lease_socket_ = Socket();
    life_ = Socket();
    if (lease_process_ <= 0) return;
    kill(lease_process_, SIGKILL);
    waitpid(lease_process_, nullptr, 0);
    lease_process_ = -1;
  }

  EtcdSettings settings_;
  std::unique_ptr<HttpClient> http_;
  std::string token_, lease_;
  pid_t lease_process_ = -1;
  Socket lease_socket_, life_;
  Clock::time_point life_shown_;
};

}  // namespace

Result<std::unique_ptr<CoordinatorRecord>> etcd_coordinator_record(const EtcdSettings& settings) {
  auto http = HttpClient::open({settings.ca_cert, settings.cert, settings.key, settings.timeout});
  if (!http) return http.error();
  return std::unique_ptr<CoordinatorRecord>(
      std::make_unique<EtcdRecord>(settings, std::move(*http)));
}

}  // namespace torchbridge
