#include <torchbridge/train/store_address.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/net/address.h>
#include <torchbridge/net/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSilence{10'000};
constexpr milliseconds kRetry{50};
constexpr int kHangUps = 20;  // so often in a row may a connection be closed unanswered: a store that starts or ends does that

// What TCPStore's client sends first: VALIDATE with a magic number, then PING with a number that comes back.
constexpr unsigned char kValidate = 0, kPing = 13;
constexpr std::uint32_t kMagic = 0x3C85F7CE;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// The address as connect() wants it; null where `host` is not a numeric address.
AddressList socket_address(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return AddressList(error == 0 ? list : nullptr);
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address && address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address && address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

// The first that is of the same family, IPv4 or IPv6.
std::optional<std::string> outer_address_like(const std::string& loopback) {
  const auto is_ipv6 = [](const std::string& address) { return address.find(':') != std::string::npos; };
  for (const std::string& address : local_addresses()) {
    if (is_ipv6(address) == is_ipv6(loopback)) return address;
  }
  return std::nullopt;
}

// Milliseconds for poll(), at least 1 so that a short rest does not become a busy loop.
int until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 1, 1'000'000));
}

// Nothing, or the reason why nobody is there.
std::optional<std::string> connect_to(int descriptor, const addrinfo& address, Clock::time_point deadline) {
  if (connect(descriptor, address.ai_addr, address.ai_addrlen) == 0) return std::nullopt;
  if (errno != EINPROGRESS) return std::strerror(errno);
  pollfd ready{descriptor, POLLOUT, 0};
  if (poll(&ready, 1, until(deadline)) <= 0) return "no answer to the connection";
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return std::strerror(error);
  return std::nullopt;
}

enum class Handshake { kGood, kWrong, kSilent, kHungUp };

Handshake shake_hands(int descriptor, Clock::time_point deadline, std::string& answer) {
  unsigned char question[10] = {kValidate, 0, 0, 0, 0, kPing, 0, 0, 0, 0};
  const auto nonce = static_cast<std::uint32_t>(getpid());
  std::memcpy(question + 1, &kMagic, 4);
  std::memcpy(question + 6, &nonce, 4);
  if (send(descriptor, question, sizeof question, MSG_NOSIGNAL) != sizeof question) return Handshake::kHungUp;

  answer.clear();
  while (answer.size() < 4) {
    pollfd ready{descriptor, POLLIN, 0};
    if (poll(&ready, 1, until(deadline)) <= 0) {
      if (Clock::now() < deadline) continue;
      return answer.empty() ? Handshake::kSilent : Handshake::kWrong;
    }
    char bytes[64];
    const ssize_t got = recv(descriptor, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return answer.empty() ? Handshake::kHungUp : Handshake::kWrong;
    answer.append(bytes, got);
  }
  return answer.size() == 4 && std::memcmp(answer.data(), &nonce, 4) == 0 ? Handshake::kGood : Handshake::kWrong;
}

}  // namespace

bool is_own_address(const std::string& numeric_address) {
  const std::vector<std::string> own = local_addresses();
  return is_loopback(numeric_address) || std::find(own.begin(), own.end(), numeric_address) != own.end();
}

Result<std::string> address_towards(const std::string& numeric_address, bool several_nodes) {
  constexpr int kAnyPort = 9;
  const AddressList list = socket_address(numeric_address, kAnyPort);
  if (!list) return Error{"'" + printable(numeric_address) + "' is not a numeric address"};
  // Connecting a datagram socket sends nothing; it only asks the routing table.
  const Socket socket(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!socket.open() || connect(socket.descriptor(), list->ai_addr, list->ai_addrlen) != 0 ||
      getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return Error{"there is no route to MASTER_ADDR " + numeric_address + ": " + std::strerror(errno)};
  }
  std::string address = text_of(reinterpret_cast<const sockaddr*>(&own));
  if (several_nodes && is_loopback(address)) {
    if (auto outer = outer_address_like(address)) return *outer;
  }
  return address;
}

StoreProbe wait_for_store(const Endpoint& address, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  StoreProbe probe{StoreAnswer::kNobody, "nobody answers"};
  const AddressList list = socket_address(address.host, address.port);
  if (!list) return {StoreAnswer::kNobody, "not a numeric address"};

  for (int hang_ups = 0; Clock::now() < deadline; std::this_thread::sleep_for(kRetry)) {
    const Socket socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (auto reason = connect_to(socket.descriptor(), *list, deadline)) {
      probe = {StoreAnswer::kNobody, *reason};
      hang_ups = 0;
      continue;
    }
    std::string answer;
    switch (shake_hands(socket.descriptor(), std::min(deadline, Clock::now() + kSilence), answer)) {
      case Handshake::kGood:
        return {StoreAnswer::kReady, ""};
      case Handshake::kWrong:
        return {StoreAnswer::kForeign, "it answers '" + printable(answer) + "'"};
      case Handshake::kSilent:
        return {StoreAnswer::kForeign, "it accepts the connection and says nothing"};
      case Handshake::kHungUp:
        probe = {StoreAnswer::kNobody, "it closes the connection"};
        if (++hang_ups >= kHangUps) return {StoreAnswer::kForeign, probe.detail};
    }
  }
  return probe;
}

}  // namespace torchbridge::train
