#include "bridge/coordination/run_status.h"

#include <poll.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "bridge/base/json_depth.h"
#include "bridge/base/message_text.h"
#include "bridge/base/visible_text.h"
#include "bridge/coordination/agent_message.h"
#include "bridge/coordination/line_connection.h"
#include "bridge/net/address.h"
#include "bridge/net/peer_user.h"
#include "bridge/net/random_token.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kStatusDepth = 4;  // of the coordinator's JSON: object, nodes, node

// OrderedJson looks for a key among all others of its object.
bool has_large_object(const nlohmann::json& value) {
  constexpr std::size_t kMostMembers = 100;  // the coordinator's have about ten
  if (value.is_object() && value.size() > kMostMembers) return true;
  return value.is_structured() && std::ranges::any_of(value, has_large_object);
}

// Nothing where it is another text.
std::optional<OrderedJson> parse_status(const std::string& text) {
  if (is_json_deeper_than(kStatusDepth, text) ||
      has_large_object(nlohmann::json::parse(text, nullptr, false)))
    return std::nullopt;
  auto parsed = OrderedJson::parse(text, nullptr, false);
  return parsed.is_object() ? std::optional(std::move(parsed)) : std::nullopt;
}

// A line of the coordinator; an error where none comes.
Result<std::string> next_line(LineConnection& connection, std::vector<std::string>& lines,
                              Clock::time_point deadline) {
  while (lines.empty()) {
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd entry{connection.descriptor(), POLLIN, 0};
    if (rest.count() <= 0 || poll(&entry, 1, static_cast<int>(rest.count())) <= 0)
      return Error{"does not answer"};
    auto received = connection.receive(kLongestStatus);
    if (!received) return received.error();
    lines = std::move(*received);
  }
  std::string line = std::move(lines.front());
  lines.erase(lines.begin());
  return line;
}

std::string text_of(const OrderedJson& object, const char* name) {
  constexpr std::size_t kLongest = 4096;
  return visible_line(object.at(name).get_ref<const std::string&>(), kLongest);
}

std::string ranks_of(const OrderedJson& node) {
  const auto first = node.at("first_rank").get<std::int64_t>(),
             workers = node.at("workers").get<std::int64_t>();
  if (first < 0) return "-";
  return std::to_string(first) + (workers <= 1 ? "" : "-" + std::to_string(first + (workers - 1)));
}

std::string number_of(const OrderedJson& object, const char* key) {
  return std::to_string(object.at(key).get<std::int64_t>());
}

// The cell as wide as `width`, its text at the left end, or at the right one.
std::string left_aligned(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}
std::string right_aligned(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string table_of(const OrderedJson& run) {
  const std::string run_id = text_of(run, "run_id"),
                    named = run_id == RunOptions().rdzv_id ? "" : formatted(" (run {})", run_id);
  std::string text = formatted("{}{}: {}, round {}, restarts {} of {}, coordinated by {}\n",
                               text_of(run, "program"), named, text_of(run, "phase"),
                               number_of(run, "round"), number_of(run, "restarts"),
                               number_of(run, "max_restarts"), text_of(run, "coordinator"));
  std::size_t width = std::string("NODE").size();
  for (const OrderedJson& node : run.at("nodes"))
    width = std::max(width, text_of(node, "host").size());
  constexpr std::size_t kPid = 8, kState = 8, kGroup = 10;
  const auto add = [&](const std::string& host, const std::string& pid, const std::string& state,
                       const std::string& group, const std::string& ranks) {
    text += left_aligned(host, width) + " " + right_aligned(pid, kPid) + "  " +
            left_aligned(state, kState) + " " + right_aligned(group, kGroup) + "  " + ranks + "\n";
  };
  add("NODE", "PID", "STATE", "GROUP_RANK", "RANKS");
  for (const OrderedJson& node : run.at("nodes")) {
    const auto group = node.at("node_rank").get<std::int64_t>();
    add(text_of(node, "host"), number_of(node, "pid"), text_of(node, "state"),
        group < 0 ? "-" : std::to_string(group), ranks_of(node));
  }
  const std::string failure = text_of(run, "last_failure");
  if (!failure.empty()) text += formatted("last failure: {}\n", failure);
  return text;
}

}  // namespace

Result<std::string> ask_run_status(const Endpoint& coordinator, const RunKey& key,
                                   std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const auto address = numeric_address(coordinator.host);
  if (!address) return address.error();
  auto socket = connect_to({*address, coordinator.port}, timeout);
  if (!socket) return socket.error();
  LineConnection connection(std::move(*socket));
  std::vector<std::string> lines;
  const std::string target = coordinator.host + ":" + std::to_string(coordinator.port);
  const Error wrong{
      formatted("{} does not answer as a coordinator of torchbridge run does", target)};

  const auto challenge = next_line(connection, lines, deadline);
  if (!challenge || protocol_of(*challenge) != kAgentProtocol) return wrong;
  // Before the answer, after which the coordinator closes the connection.
  if (!key.has_token() && user_of_peer(connection.descriptor()) == PeerUser::kAnotherUser)
    return Error{target + " is another user's port"};
  std::string nonce = random_token();
  if (nonce.empty()) return Error{"the kernel of this node has no random numbers yet"};
  const ClientProof proof(key, ConnectionPurpose::kStatus, *challenge, std::move(nonce));
  connection.send(proof.answer() + "\n");
  const auto answer = next_line(connection, lines, deadline);
  if (!answer) return refused_proof(target, key);
  if (!proof.is_coordinator(*answer)) return wrong;
  const auto line = next_line(connection, lines, deadline);
  const auto message = line ? parse_message(*line) : Result<AgentMessage>(line.error());
  const auto* status = message ? std::get_if<RunStatus>(&*message) : nullptr;
  const auto json = status ? parse_status(status->json) : std::nullopt;
  if (!json) return wrong;
  return json->dump(2, ' ', true) + "\n";
}

Result<std::string> run_status_table(const std::string& json) {
  const Error wrong{
      "the coordinator's answer is not that of this torchbridge: install one version on all nodes"};
  const auto run = parse_status(json);
  if (!run) return wrong;
  try {
    return table_of(*run);
  } catch (const OrderedJson::exception&) {
    return wrong;
  }
}

}  // namespace torchbridge
