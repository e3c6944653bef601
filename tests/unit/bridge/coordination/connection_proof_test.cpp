#include "bridge/coordination/connection_proof.h"

#include <gtest/gtest.h>

using namespace torchbridge;

namespace {

const std::string kServerNonce(32, 'a'), kClientNonce(32, 'b');
const RunKey kProofKey = RunKey::of_token("0123456789abcdef");

std::string agent_line(const RunKey& key, ConnectionPurpose purpose = ConnectionPurpose::kAgent) {
  return ClientProof(key, purpose, ServerProof(kServerNonce).challenge(), kClientNonce).answer();
}

TEST(ConnectionProof, IsMadeByBothEndsThatHaveTheKey) {
  const ServerProof server(kServerNonce);
  ASSERT_EQ(protocol_of(server.challenge()), kAgentProtocol);
  for (const auto purpose : {ConnectionPurpose::kAgent, ConnectionPurpose::kStatus}) {
    const ClientProof client(kProofKey, purpose, server.challenge(), kClientNonce);
    EXPECT_TRUE(is_proof(client.answer()));
    const auto proven = server.check(kProofKey, client.answer());
    ASSERT_TRUE(proven);
    EXPECT_EQ(proven->purpose, purpose);
    EXPECT_TRUE(client.is_coordinator(proven->answer));
  }
}

TEST(ConnectionProof, IsNoneWithAnotherKey) {
  const ServerProof server(kServerNonce);
  for (const RunKey& other :
       {RunKey::of_token("0123456789abcdeg"), RunKey::of_run_id("0123456789abcdef")}) {
    EXPECT_TRUE(is_proof(agent_line(other)));
    EXPECT_FALSE(server.check(kProofKey, agent_line(other)));
    const ClientProof client(kProofKey, ConnectionPurpose::kAgent, server.challenge(),
                             kClientNonce);
    EXPECT_FALSE(client.is_coordinator(server.check(other, agent_line(other))->answer));
  }
}

TEST(ConnectionProof, HoldsForItsConnectionAndPurposeAlone) {
  const std::string seen = agent_line(kProofKey);
  EXPECT_TRUE(ServerProof(kServerNonce).check(kProofKey, seen));
  EXPECT_FALSE(ServerProof(std::string(32, 'c')).check(kProofKey, seen)) << "a replay";
  const std::string of_status = agent_line(kProofKey, ConnectionPurpose::kStatus);
  EXPECT_FALSE(
      ServerProof(kServerNonce).check(kProofKey, "agent" + of_status.substr(of_status.find(' '))));
  // What an agent sends is no proof of a coordinator.
  const ClientProof client(kProofKey, ConnectionPurpose::kAgent,
                           ServerProof(kServerNonce).challenge(), kClientNonce);
  EXPECT_FALSE(client.is_coordinator("coordinator" + seen.substr(seen.rfind(' '))));
}

TEST(ConnectionProof, DoesNotContainTheToken) {
  const std::string lines =
      agent_line(kProofKey) +
      ServerProof(kServerNonce).check(kProofKey, agent_line(kProofKey))->answer;
  EXPECT_EQ(lines.find("0123456789abcdef"), lines.npos);
}

TEST(ConnectionProof, OfAnotherFormIsNone) {
  const std::string good = agent_line(kProofKey), proof = good.substr(good.rfind(' '));
  for (const std::string& line :
       {std::string(), std::string("agent"), "coordinator " + kClientNonce + proof,
        "agent " + kClientNonce, good + " ", good + "0", good.substr(0, good.size() - 1),
        "agent " + std::string(32, 'B') + proof, "agent " + kClientNonce + "\n" + proof,
        std::string(4096, 'a')}) {
    EXPECT_FALSE(is_proof(line)) << line;
    EXPECT_FALSE(ServerProof(kServerNonce).check(kProofKey, line)) << line;
  }
  for (const std::string& line :
       {std::string(), std::string("torchbridge-run"), std::string("torchbridge-run 2"),
        "torchbridge-run x " + kServerNonce, "torchbridge-run 2 " + kServerNonce + "0",
        "torchbridge-run 0 " + kServerNonce, "HTTP/1.1 400 Bad Request " + kServerNonce}) {
    EXPECT_FALSE(protocol_of(line)) << line;
  }
  EXPECT_EQ(protocol_of("torchbridge-run 3 of a form that is not known here"), 3);
}

TEST(RefusedProof, NamesWhatIsToBeTheSame) {
  EXPECT_EQ(refused_proof("n0:1", kProofKey).message,
            "n0:1 does not accept the token given here: the coordinator has another one, or none: "
            "give all nodes the "
            "same --rdzv-token-file or TORCHBRIDGE_RDZV_TOKEN");
  EXPECT_NE(
      refused_proof("n0:1", RunKey::of_run_id("x")).message.find("does not accept the run id"),
      std::string::npos);
}

}  // namespace
