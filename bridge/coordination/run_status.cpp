#include "bridge/coordination/run_status.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "bridge/coordination/agent_message.h"
#include "bridge/coordination/line_connection.h"
#include "bridge/net/address.h"

namespace torchbridge {
namespace {

std::string ranks_of(const nlohmann::json& node) {
  const int first = node.at("first_rank"), workers = node.at("workers");
  if (first < 0) return "-";
  return std::to_string(first) + (workers == 1 ? "" : "-" + std::to_string(first + workers - 1));
}

}  // namespace

Result<std::string> ask_run_status(const Endpoint& coordinator, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto address = numeric_address(coordinator.host);
  if (!address) return address.error();
  auto socket = connect_to({*address, coordinator.port}, timeout);
  if (!socket) return socket.error();
  LineConnection connection(std::move(*socket));
  connection.send(line_of(StatusQuery{}));
  const Error wrong{coordinator.host + ":" + std::to_string(coordinator.port) +
                    " does not answer as a coordinator of torchbridge run does"};
  for (;;) {
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{connection.descriptor(), POLLIN, 0};
    if (rest.count() <= 0 || poll(&entry, 1, static_cast<int>(rest.count())) <= 0) return wrong;
    const auto lines = connection.receive(kLongestLine);
    if (!lines) return wrong;
    if (lines->empty()) continue;
    const auto message = parse_message(lines->front());
    if (!message || !std::holds_alternative<RunStatus>(*message)) return wrong;
    return std::get<RunStatus>(*message).json;
  }
}

std::string run_status_table(const std::string& json) {
  const nlohmann::json run = nlohmann::json::parse(json);
  const std::string program = run.at("program"), run_id = run.at("run_id"), phase = run.at("phase");
  std::string text = program + " (run " + run_id + "): " + phase + ", round " + run.at("round").dump() + ", restarts " +
                     run.at("restarts").dump() + " of " + run.at("max_restarts").dump() + ", coordinated by " +
                     run.at("coordinator").get<std::string>() + "\n";
  std::size_t width = std::string("NODE").size();
  for (const nlohmann::json& node : run.at("nodes")) width = std::max(width, node.at("host").get<std::string>().size());
  const auto add = [&](const std::string& host, const std::string& pid, const std::string& state,
                       const std::string& group, const std::string& ranks) {
    char line[512];
    std::snprintf(line, sizeof line, "%-*s %8s  %-8s %10s  %s\n", static_cast<int>(width), host.c_str(), pid.c_str(),
                  state.c_str(), group.c_str(), ranks.c_str());
    text += line;
  };
  add("NODE", "PID", "STATE", "GROUP_RANK", "RANKS");
  for (const nlohmann::json& node : run.at("nodes")) {
    const int group = node.at("node_rank");
    add(node.at("host"), node.at("pid").dump(), node.at("state"), group < 0 ? "-" : std::to_string(group),
        ranks_of(node));
  }
  const std::string failure = run.at("last_failure");
  if (!failure.empty()) text += "last failure: " + failure + "\n";
  return text;
}

}  // namespace torchbridge
