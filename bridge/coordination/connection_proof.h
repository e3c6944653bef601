// The proof with which a connection between an agent and the coordinator begins: both have the key
// of the run, which is not sent.
//
//   coordinator:  "torchbridge-run 2 NONCE"      2 is kAgentProtocol
//   agent:        "agent NONCE PROOF"            `torchbridge status`: "status NONCE PROOF"
//   coordinator:  "coordinator PROOF"
//
// Both nonces are new for each connection, so that a proof that was seen is of no use later; the
// first word is part of what is proven, so that none serves for another. A man in the middle who
// passes all bytes on is not noticed: nothing is encrypted.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bridge/base/result.h"

namespace torchbridge {

inline constexpr int kAgentProtocol = 2;  // agents of two protocols do not run together

// What the agents of a run have in common, and others do not.
class RunKey {
 public:
  static RunKey of_token(std::string_view token);
  // Of a run without a token: no more than that the id is not sent to who does not know it.
  static RunKey of_run_id(std::string_view run_id);

  bool has_token() const { return has_token_; }
  // Of a party that `purpose` names, in a connection with these nonces.
  std::string proof(std::string_view purpose, std::string_view server_nonce,
                    std::string_view client_nonce) const;

 private:
  RunKey(std::string_view label, std::string_view secret, bool has_token);
  std::string key_;
  bool has_token_;
};

enum class ConnectionPurpose { kAgent, kStatus };

// Lines are without newlines.

// The coordinator's end of one connection.
class ServerProof {
 public:
  // `nonce`: random_token().
  explicit ServerProof(std::string nonce) : nonce_(std::move(nonce)) {}
  std::string challenge() const;

  struct Proven {
    ConnectionPurpose purpose = ConnectionPurpose::kAgent;
    std::string answer;
  };
  // Nothing where the line does not prove that the other end has the key.
  std::optional<Proven> check(const RunKey& key, std::string_view line) const;

 private:
  std::string nonce_;
};

// Whether the line is of the form of a proof, right or not: of an agent, and not of any program.
bool is_proof(std::string_view line);

// The protocol of the coordinator that sent this challenge; nothing for a line that is none.
std::optional<int> protocol_of(std::string_view challenge);

// The other end's.
class ClientProof {
 public:
  // REQUIRES: protocol_of(challenge) == kAgentProtocol. `nonce`: random_token().
  ClientProof(const RunKey& key, ConnectionPurpose purpose, std::string_view challenge,
              std::string nonce);
  const std::string& answer() const { return answer_; }
  // Whether the line proves that the other end has the key.
  bool is_coordinator(std::string_view line) const;

 private:
  std::string answer_, expected_;
};

// The coordinator at `endpoint` has closed the connection after the proof with `key`. It gives no
// reason to who has none.
Error refused_proof(const std::string& endpoint, const RunKey& key);

}  // namespace torchbridge
