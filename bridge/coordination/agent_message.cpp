#include "bridge/coordination/agent_message.h"

#include <nlohmann/json.hpp>

#include "bridge/base/env_map.h"

namespace nlohmann {

// Nanoseconds since 1970.
template <>
struct adl_serializer<std::chrono::system_clock::time_point> {
  using SystemTime = std::chrono::system_clock::time_point;
  static void to_json(json& target, const SystemTime& time) {
    target = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  }
  static void from_json(const json& source, SystemTime& time) {
    time = SystemTime(std::chrono::nanoseconds(source.get<std::int64_t>()));
  }
};

template <>
struct adl_serializer<std::chrono::duration<double>> {
  static void to_json(json& target, const std::chrono::duration<double>& time) { target = time.count(); }
  static void from_json(const json& source, std::chrono::duration<double>& time) {
    time = std::chrono::duration<double>(source.get<double>());
  }
};

template <class T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& target, const std::optional<T>& value) { target = value ? json(*value) : json(); }
  static void from_json(const json& source, std::optional<T>& value) {
    value = source.is_null() ? std::nullopt : std::optional(source.get<T>());
  }
};

}  // namespace nlohmann

namespace torchbridge {

using Json = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Endpoint, host, port)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ErrorRecord, message, callstack, time)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerReport, rank, local_rank, pid, host, wait_status, time, not_before, clock,
                                   time_error, is_ended_by_agent, is_out_of_memory, is_stuck, health, error_file, error,
                                   log, log_end)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AttemptReport, restart_count, started, lifetime, failures, interruption)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunShape, min_nodes, max_nodes, active_nodes, max_restarts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Join, protocol, run_id, shape, host, pid, workers, order, node)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ready, store)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Failed, worker)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ended, report, can_restart, start_error, start_exit_code)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Leave, signal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Alive, clock, answered_clock)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StatusQuery, run_id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Welcome, keep_alive_interval, keep_alive_attempts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Rejected, reason, retry_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StartRound, round, run_id, node_rank, node_count, first_rank, world_size,
                                   first_local_rank, local_world_size, store, restart_count, max_restarts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StopWorkers, reason, after_grace)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EndRun, exit_code, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunStatus, json)

static void to_json(Json& json, const BeginExitBarrier&) { json = Json::object(); }
static void from_json(const Json&, BeginExitBarrier&) {}
static void to_json(Json& json, const Stopping&) { json = Json::object(); }
static void from_json(const Json&, Stopping&) {}

namespace {

// In the order of AgentMessage.
constexpr const char* kKinds[] = {
    "join",     "ready",       "failed",       "stopping",           "ended",   "leave", "alive", "status?", "welcome",
    "rejected", "start-round", "stop-workers", "begin-exit-barrier", "end-run", "status"};
static_assert(std::size(kKinds) == std::variant_size_v<AgentMessage>);

template <std::size_t... kIndex>
AgentMessage message_of(std::size_t index, const Json& body, std::index_sequence<kIndex...>) {
  AgentMessage message;
  ((kIndex == index ? void(message = body.get<std::variant_alternative_t<kIndex, AgentMessage>>()) : void()), ...);
  return message;
}

}  // namespace

std::string line_of(const AgentMessage& message) {
  Json json = std::visit([](const auto& body) { return Json(body); }, message);
  json["kind"] = kKinds[message.index()];
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

Result<AgentMessage> parse_message(std::string_view line) {
  const Error wrong{"'" + printable(line) + "': not a valid message of torchbridge run"};
  try {
    const Json json = Json::parse(line);
    const std::string kind = json.at("kind");
    for (std::size_t index = 0; index < std::size(kKinds); ++index) {
      if (kind == kKinds[index]) {
        return message_of(index, json, std::make_index_sequence<std::variant_size_v<AgentMessage>>());
      }
    }
  } catch (const Json::exception&) {
  }
  return wrong;
}

}  // namespace torchbridge
