#include "bridge/coordination/connection_proof.h"

#include <algorithm>

#include "bridge/base/constant_time.h"
#include "bridge/base/env_map.h"
#include "bridge/base/hex_text.h"
#include "bridge/base/hmac_sha256.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/core/agent_command.h"
#include "bridge/net/random_token.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {
namespace {

constexpr std::string_view kGreeting = "torchbridge-run", kCoordinator = "coordinator";
constexpr std::string_view kPurposes[] = {"agent", "status"};  // in the order of ConnectionPurpose
constexpr std::size_t kProofSize = 64;

bool is_hex(std::string_view text, std::size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// "PURPOSE NONCE PROOF".
struct ClientLine {
  ConnectionPurpose purpose;
  std::string_view nonce, proof;
};

std::optional<ClientLine> parse_client_line(std::string_view line) {
  const auto purpose = std::ranges::find(kPurposes, take_until(line, ' '));
  const auto nonce = take_until(line, ' ');
  if (purpose == std::end(kPurposes) || !is_hex(nonce, kTokenSize) || !is_hex(line, kProofSize))
    return std::nullopt;
  return ClientLine{static_cast<ConnectionPurpose>(purpose - kPurposes), nonce, line};
}

struct Challenge {
  int protocol = 0;
  std::string_view nonce;
};

std::optional<Challenge> parse_challenge(std::string_view line) {
  if (take_until(line, ' ') != kGreeting) return std::nullopt;
  constexpr int kMost = 1'000'000;
  const auto protocol = parse_integer(take_until(line, ' '), 1, kMost);
  if (!protocol) return std::nullopt;
  return Challenge{static_cast<int>(*protocol), line};
}

}  // namespace

RunKey::RunKey(std::string_view label, std::string_view secret, bool has_token)
    : key_(hmac_sha256(label, secret)), has_token_(has_token) {}

RunKey RunKey::of_token(std::string_view token) { return {"torchbridge run, token", token, true}; }

RunKey RunKey::of_run_id(std::string_view run_id) { return {"torchbridge run, id", run_id, false}; }

std::string RunKey::proof(std::string_view purpose, std::string_view server_nonce,
                          std::string_view client_nonce) const {
  std::string text = "torchbridge run, protocol " + std::to_string(kAgentProtocol);
  for (const std::string_view part : {purpose, server_nonce, client_nonce})
    text.append("\n").append(part);
  return hex_of(hmac_sha256(key_, text));
}

std::string ServerProof::challenge() const {
  return std::string(kGreeting) + " " + std::to_string(kAgentProtocol) + " " + nonce_;
}

std::optional<ServerProof::Proven> ServerProof::check(const RunKey& key,
                                                      std::string_view line) const {
  const auto client = parse_client_line(line);
  if (!client) return std::nullopt;
  const std::string_view purpose = kPurposes[static_cast<int>(client->purpose)];
  if (!is_equal_in_constant_time(client->proof, key.proof(purpose, nonce_, client->nonce)))
    return std::nullopt;
  return Proven{client->purpose,
                std::string(kCoordinator) + " " + key.proof(kCoordinator, nonce_, client->nonce)};
}

bool is_proof(std::string_view line) { return parse_client_line(line).has_value(); }

std::optional<int> protocol_of(std::string_view line) {
  const auto challenge = parse_challenge(line);
  if (!challenge ||
      (challenge->protocol == kAgentProtocol && !is_hex(challenge->nonce, kTokenSize))) {
    return std::nullopt;
  }
  return challenge->protocol;
}

ClientProof::ClientProof(const RunKey& key, ConnectionPurpose purpose, std::string_view line,
                         std::string nonce) {
  const std::string_view name = kPurposes[static_cast<int>(purpose)],
                         server_nonce = parse_challenge(line)->nonce;
  answer_ = std::string(name) + " " + nonce + " " + key.proof(name, server_nonce, nonce);
  expected_ = std::string(kCoordinator) + " " + key.proof(kCoordinator, server_nonce, nonce);
}

Error refused_proof(const std::string& endpoint, const RunKey& key) {
  if (key.has_token()) {
    return Error{
        formatted("{} does not accept the token given here: the coordinator has another one, or "
                  "none: give all nodes the same --rdzv-token-file or {}",
                  endpoint, kTokenVariable)};
  }
  return Error{
      formatted("{} does not accept the run id given here: the coordinator has another one, or a "
                "token, or is another user's: give all nodes the same --rdzv-id, and the same "
                "--rdzv-token-file or {}",
                endpoint, kTokenVariable)};
}

bool ClientProof::is_coordinator(std::string_view line) const {
  return is_equal_in_constant_time(line, expected_);
}

}  // namespace torchbridge
