#include "trainer_template/runtime/rendezvous/store_probe.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/net/socket.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRetry{50}, kLookAgain{5000};
// A store that starts or ends closes connections without an answer; after so many in a row it is no
// store.
constexpr int kMaxHangUps = 20;

// What TCPStore's client sends first: VALIDATE with a magic number, then PING with a number that
// comes back.
constexpr unsigned char kValidate = 0, kPing = 13;
constexpr std::uint32_t kMagic = 0x3C85F7CE;

// Milliseconds for poll(), at least 1 so that a short rest does not become a busy loop.
int until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 1, 1'000'000));
}

enum class Handshake { kGood, kWrong, kNoAnswer, kHungUp };

Handshake handshake(int descriptor, Clock::time_point deadline, std::string& answer) {
  unsigned char question[10] = {kValidate, 0, 0, 0, 0, kPing, 0, 0, 0, 0};
  const auto nonce = static_cast<std::uint32_t>(getpid());
  std::memcpy(question + 1, &kMagic, 4);
  std::memcpy(question + 6, &nonce, 4);
  if (send(descriptor, question, sizeof question, MSG_NOSIGNAL) != sizeof question)
    return Handshake::kHungUp;

  answer.clear();
  while (answer.size() < 4) {
    pollfd ready{descriptor, POLLIN, 0};
    if (poll(&ready, 1, until(deadline)) <= 0) {
      if (Clock::now() < deadline) continue;
      return answer.empty() ? Handshake::kNoAnswer : Handshake::kWrong;
    }
    char bytes[64];
    const ssize_t got = recv(descriptor, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return answer.empty() ? Handshake::kHungUp : Handshake::kWrong;
    answer.append(bytes, got);
  }
  return answer.size() == 4 && std::memcmp(answer.data(), &nonce, 4) == 0 ? Handshake::kGood
                                                                          : Handshake::kWrong;
}

}  // namespace

StoreProbe wait_for_store(Endpoint address, milliseconds timeout, milliseconds answer_timeout,
                          const std::function<std::string()>& look_again) {
  const auto deadline = Clock::now() + timeout;
  auto next_look = Clock::now() + kLookAgain;
  StoreProbe probe{StoreAnswer::kUnreachable, "no answer"};
  for (int hang_ups = 0; Clock::now() < deadline; std::this_thread::sleep_for(kRetry)) {
    if (look_again && Clock::now() >= next_look) {
      address.host = look_again();
      next_look = Clock::now() + kLookAgain;
    }
    const auto until_then = look_again ? std::min(deadline, next_look) : deadline;
    const auto socket = connect_to(address, milliseconds(until(until_then)));
    if (!socket) {
      probe = {StoreAnswer::kUnreachable, socket.error().message};
      hang_ups = 0;
      continue;
    }
    std::string answer;
    switch (handshake(socket->descriptor(), std::min(deadline, Clock::now() + answer_timeout),
                      answer)) {
      case Handshake::kGood:
        return {StoreAnswer::kReady, ""};
      case Handshake::kWrong:
        return {StoreAnswer::kForeign, formatted("it answers '{}'", printable(answer))};
      case Handshake::kNoAnswer:
        return {StoreAnswer::kNoAnswer, ""};
      case Handshake::kHungUp:  // also a proxy in front of a store that is not there yet
        probe = {StoreAnswer::kUnreachable, "what listens there closes the connection"};
        if (!look_again && ++hang_ups == kMaxHangUps) return {StoreAnswer::kForeign, probe.detail};
    }
  }
  return probe;
}

}  // namespace torchbridge::train
