#include "bridge/coordination/agent_message.h"

#include <sys/wait.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include <nlohmann/json.hpp>

#include "bridge/base/env_map.h"
#include "bridge/base/json_depth.h"
#include "bridge/base/message_text.h"
#include "bridge/base/visible_text.h"
#include "bridge/core/launch_facts.h"
#include "bridge/net/address.h"

namespace nlohmann {

// Nanoseconds since 1970.
template <>
struct adl_serializer<std::chrono::system_clock::time_point> {
  static void to_json(json& target, const std::chrono::system_clock::time_point& time) {
    target = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  }
};

template <>
struct adl_serializer<std::chrono::duration<double>> {
  static void to_json(json& target, const std::chrono::duration<double>& time) {
    target = time.count();
  }
};

template <class T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& target, const std::optional<T>& value) {
    target = value ? json(*value) : json();
  }
};

}  // namespace nlohmann

namespace torchbridge {

using Json = nlohmann::json;

#define TORCHBRIDGE_TO_JSON(Type, ...)                                       \
  static void to_json(Json& nlohmann_json_j, const Type& nlohmann_json_t) {  \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__)) \
  }
TORCHBRIDGE_TO_JSON(Endpoint, host, port)
TORCHBRIDGE_TO_JSON(ErrorRecord, message, callstack)
TORCHBRIDGE_TO_JSON(WorkerReport, rank, local_rank, pid, host, wait_status, time, not_before, clock,
                    time_error, is_ended_by_agent, is_out_of_memory, is_stuck, health, error_file,
                    error, log, log_end)
TORCHBRIDGE_TO_JSON(AttemptReport, restart_count, started, lifetime, failures, interruption)
TORCHBRIDGE_TO_JSON(RunShape, min_nodes, max_nodes, active_nodes, max_restarts)
TORCHBRIDGE_TO_JSON(Join, run_id, shape, host, pid, workers, order, node, role)
TORCHBRIDGE_TO_JSON(Ready, store)
TORCHBRIDGE_TO_JSON(WorkerFailed, worker)
static void to_json(Json& json, const AttemptEnded& ended) {
  const auto& failure = ended.start_failure;
  json = {{"report", ended.report},
          {"can_restart", ended.report.can_restart && !failure},
          {"start_error", failure ? failure->error.message : ""},
          {"start_exit_code", failure ? failure->exit_code : 0}};
}
TORCHBRIDGE_TO_JSON(Leave, signal)
TORCHBRIDGE_TO_JSON(Alive, clock, answered_clock)
TORCHBRIDGE_TO_JSON(Welcome, keep_alive_interval, keep_alive_attempts)
TORCHBRIDGE_TO_JSON(Rejected, reason, retry_seconds)
TORCHBRIDGE_TO_JSON(WorkerRanks, node_rank, node_count, first_rank, world_size, first_local_rank,
                    local_world_size, first_role_rank, role_world_size)
static void to_json(Json& json, const StartRound& start) {
  json = start.ranks;
  json.update({{"round", start.round},
               {"store", start.store},
               {"restart_count", start.restart_count},
               {"max_restarts", start.max_restarts}});
}
TORCHBRIDGE_TO_JSON(StopWorkers, reason, after_grace, for_signal)
TORCHBRIDGE_TO_JSON(EndRun, exit_code, reason)
TORCHBRIDGE_TO_JSON(RunStatus, json)
#undef TORCHBRIDGE_TO_JSON

static void to_json(Json& json, const BeginExitBarrier&) { json = Json::object(); }
static void to_json(Json& json, const Stopping&) { json = Json::object(); }

namespace {

// In the order of AgentMessage.
constexpr const char* kKinds[] = {"join",     "ready",       "failed",       "stopping",
                                  "ended",    "leave",       "alive",        "welcome",
                                  "rejected", "start-round", "stop-workers", "begin-exit-barrier",
                                  "end-run",  "status"};
static_assert(std::size(kKinds) == std::variant_size_v<AgentMessage>);

// Something that no agent sends.
struct InvalidMessage {};

constexpr int kMaxDepth = 8;  // levels of JSON; an error of a worker is at the fifth
constexpr std::size_t kLongestReason = 4096;  // of a line for the user
// Seconds since 1970: in 2100. Two of them in nanoseconds fit into an int64.
constexpr double kLatestClock = 4'102'444'800;
constexpr double kLongestTime = 1e9;  // seconds that something lasts

void require(bool is_valid) {
  if (!is_valid) throw InvalidMessage();
}

// The members of a JSON object, each of which must be there.
class MessageFields {
 public:
  explicit MessageFields(const Json& object) : object_(object) { require(object.is_object()); }

  const Json& value(const char* name) const {
    const auto found = object_.find(name);
    require(found != object_.end());
    return *found;
  }
  MessageFields object(const char* name) const { return MessageFields(value(name)); }
  std::int64_t wide_integer(const char* name, std::int64_t low, std::int64_t high) const {
    const Json& number = value(name);
    require(number.is_number_integer());
    // get() would make a negative number of an unsigned one above INT64_MAX.
    require(!number.is_number_unsigned() ||
            number.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
    const auto integer = number.get<std::int64_t>();
    require(integer >= low && integer <= high);
    return integer;
  }
  int integer(const char* name, int low, int high) const {
    return static_cast<int>(wide_integer(name, low, high));
  }
  double number(const char* name, double low, double high) const {
    const Json& field = value(name);
    require(field.is_number());
    const auto number = field.get<double>();
    require(std::isfinite(number) && number >= low && number <= high);
    return number;
  }
  bool flag(const char* name) const {
    require(value(name).is_boolean());
    return value(name).get<bool>();
  }
  // Any bytes.
  const std::string& text(const char* name) const {
    require(value(name).is_string());
    return value(name).get_ref<const std::string&>();
  }
  // Of at most `longest` bytes, not empty unless `least` is 0.
  std::string name(const char* name, std::size_t longest = kLongestName,
                   std::size_t least = 1) const {
    require(text(name).size() >= least && text(name).size() <= longest);
    return visible_line(text(name), longest);
  }
  std::string reason(const char* name) const { return visible_line(text(name), kLongestReason); }
  std::chrono::system_clock::time_point time(const char* name) const {
    const std::chrono::nanoseconds since_1970(
        wide_integer(name, 0, static_cast<std::int64_t>(kLatestClock) * 1'000'000'000));
    return std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(since_1970));
  }

 private:
  const Json& object_;
};

// As waitpid gives it for a process that has failed.
bool is_failure(int status) {
  if (WIFEXITED(status)) return (status & ~0xff00) == 0 && WEXITSTATUS(status) != 0;
  constexpr int kMostSignal = 64, kCoreFlag = 0x80;
  return (status & ~(0x7f | kCoreFlag)) == 0 && WIFSIGNALED(status) &&
         WTERMSIG(status) <= kMostSignal;
}

Endpoint read_endpoint(const MessageFields& fields) {
  constexpr int kMostPort = 65535;
  Endpoint endpoint{fields.name("host"), fields.integer("port", 1, kMostPort)};
  require(is_numeric(endpoint.host));
  return endpoint;
}

std::optional<ErrorRecord> read_error(const Json& json) {
  if (json.is_null()) return std::nullopt;
  const MessageFields fields(json);
  return ErrorRecord{fields.text("message"), fields.text("callstack"), {}};
}

WorkerReport read_worker(const MessageFields& fields) {
  WorkerReport worker;
  worker.rank = fields.integer("rank", 0, kMaxRanks - 1);
  worker.local_rank = fields.integer("local_rank", 0, kMaxRanks - 1);
  worker.pid = fields.integer("pid", 1, INT_MAX);
  worker.host = fields.name("host");
  worker.wait_status = fields.integer("wait_status", 1, INT_MAX);
  require(is_failure(worker.wait_status));
  worker.time = fields.time("time");
  worker.not_before = fields.time("not_before");
  worker.clock = fields.name("clock", kLongestName, 0);
  worker.time_error = fields.number("time_error", 0, kLongestTime);
  worker.is_ended_by_agent = fields.flag("is_ended_by_agent");
  worker.is_out_of_memory = fields.flag("is_out_of_memory");
  worker.is_stuck = fields.flag("is_stuck");
  worker.health = fields.reason("health");
  worker.error_file = fields.reason("error_file");
  worker.error = read_error(fields.value("error"));
  worker.log = fields.reason("log");
  worker.log_end = fields.text("log_end");
  return worker;
}

AttemptReport read_attempt(const MessageFields& fields) {
  AttemptReport attempt;
  attempt.restart_count = fields.integer("restart_count", 0, INT_MAX);
  attempt.started = fields.time("started");
  attempt.lifetime =
      std::chrono::duration<double>(fields.number("lifetime", -kLongestTime, kLongestTime));
  require(fields.value("failures").is_array());
  for (const Json& failure : fields.value("failures"))
    attempt.failures.push_back(read_worker(MessageFields(failure)));
  attempt.interruption = fields.reason("interruption");
  return attempt;
}

RunShape read_shape(const MessageFields& fields) {
  RunShape shape;
  shape.max_nodes = fields.integer("max_nodes", 1, INT_MAX);
  shape.min_nodes = fields.integer("min_nodes", 1, shape.max_nodes);
  shape.active_nodes = fields.integer("active_nodes", shape.min_nodes, shape.max_nodes);
  shape.max_restarts = fields.integer("max_restarts", 0, INT_MAX);
  return shape;
}

AgentMessage read_join(const MessageFields& fields) {
  Join join;
  join.run_id = fields.text("run_id");
  require(join.run_id.size() <= kLongestRunId);
  join.shape = read_shape(fields.object("shape"));
  join.host = fields.name("host");
  join.pid = fields.integer("pid", 1, INT_MAX);
  join.workers = fields.integer("workers", 1, kMaxRanks);
  join.order = fields.integer("order", -1, INT_MAX - 1);
  join.node = fields.name("node", kLongestName, 0);
  join.role = fields.name("role", kLongestName, 0);
  return join;
}

AgentMessage read_ready(const MessageFields& fields) {
  return Ready{read_endpoint(fields.object("store"))};
}

AgentMessage read_failed(const MessageFields& fields) {
  return WorkerFailed{read_worker(fields.object("worker"))};
}

AgentMessage read_stopping(const MessageFields&) { return Stopping{}; }

AgentMessage read_ended(const MessageFields& fields) {
  AttemptEnded ended;
  ended.report = read_attempt(fields.object("report"));
  ended.report.can_restart = fields.flag("can_restart");
  const std::string start_error = fields.reason("start_error");
  constexpr int kMostCode = 255;
  const bool has_started = start_error.empty();
  const int exit_code =
      fields.integer("start_exit_code", has_started ? 0 : 1, has_started ? 0 : kMostCode);
  if (!has_started) ended.start_failure = StartFailure{exit_code, Error{start_error}};
  require(ended.report.can_restart || !has_started || !ended.report.failures.empty());
  return ended;
}

AgentMessage read_leave(const MessageFields& fields) {
  constexpr int kMostSignal = 64;
  return Leave{fields.integer("signal", 1, kMostSignal)};
}

AgentMessage read_alive(const MessageFields& fields) {
  return Alive{fields.number("clock", 0, kLatestClock),
               fields.number("answered_clock", 0, kLatestClock)};
}

AgentMessage read_welcome(const MessageFields& fields) {
  constexpr double kShortest = 0.001, kDay = 86'400;  // seconds
  constexpr int kMostAttempts = 1000;
  return Welcome{fields.number("keep_alive_interval", kShortest, kDay),
                 fields.integer("keep_alive_attempts", 1, kMostAttempts)};
}

AgentMessage read_rejected(const MessageFields& fields) {
  return Rejected{fields.reason("reason"), fields.number("retry_seconds", 0, kLongestTime)};
}

AgentMessage read_start_round(const MessageFields& fields) {
  StartRound start;
  WorkerRanks& at = start.ranks;
  start.round = fields.integer("round", 0, INT_MAX - 1);
  at.node_count = fields.integer("node_count", 1, kMaxRanks);
  at.node_rank = fields.integer("node_rank", 0, at.node_count - 1);
  at.world_size = fields.integer("world_size", 1, kMaxRanks);
  at.first_rank = fields.integer("first_rank", 0, at.world_size - 1);
  at.local_world_size = fields.integer("local_world_size", 1, at.world_size);
  at.first_local_rank = fields.integer("first_local_rank", 0, at.local_world_size - 1);
  at.role_world_size = fields.integer("role_world_size", 1, at.world_size);
  at.first_role_rank = fields.integer("first_role_rank", 0, at.role_world_size - 1);
  start.store = read_endpoint(fields.object("store"));
  start.restart_count = fields.integer("restart_count", 0, INT_MAX);
  start.max_restarts = fields.integer("max_restarts", 0, INT_MAX);
  return start;
}

AgentMessage read_stop_workers(const MessageFields& fields) {
  return StopWorkers{fields.reason("reason"), fields.flag("after_grace"),
                     fields.flag("for_signal")};
}

AgentMessage read_begin_exit_barrier(const MessageFields&) { return BeginExitBarrier{}; }

AgentMessage read_end_run(const MessageFields& fields) {
  constexpr int kMostCode = 255;
  return EndRun{fields.integer("exit_code", 0, kMostCode), fields.reason("reason")};
}

AgentMessage read_status(const MessageFields& fields) { return RunStatus{fields.text("json")}; }

// In the order of AgentMessage.
constexpr AgentMessage (*kReaders[])(const MessageFields& fields) = {
    read_join,     read_ready,       read_failed,       read_stopping,
    read_ended,    read_leave,       read_alive,        read_welcome,
    read_rejected, read_start_round, read_stop_workers, read_begin_exit_barrier,
    read_end_run,  read_status};
static_assert(std::size(kReaders) == std::variant_size_v<AgentMessage>);

std::string json_line(const AgentMessage& message) {
  Json json = std::visit([](const auto& body) { return Json(body); }, message);
  json["kind"] = kKinds[message.index()];
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

// The texts of a report that may be long.
std::vector<std::string*> long_texts(WorkerReport& worker) {
  std::vector<std::string*> texts = {&worker.health, &worker.error_file, &worker.log,
                                     &worker.log_end};
  if (worker.error) texts.insert(texts.end(), {&worker.error->message, &worker.error->callstack});
  return texts;
}

// Bytes of all texts, cut to `longest` each.
std::size_t cut_texts(std::vector<WorkerReport*> workers, std::size_t longest) {
  std::size_t sum = 0;
  for (WorkerReport* worker : workers) {
    for (std::string* text : long_texts(*worker)) {
      if (text->size() > longest) text->replace(longest, text->npos, "...");
      sum += text->size();
    }
  }
  return sum;
}

// With shorter and shorter texts, and at last with fewer failures. Nothing is made whose texts
// alone are too long.
std::string line_of_report(AgentMessage message) {
  constexpr std::size_t kLongestText = 128 << 10, kShortestText = 64;
  auto* failures = std::holds_alternative<AttemptEnded>(message)
                       ? &std::get<AttemptEnded>(message).report.failures
                       : nullptr;
  for (std::size_t longest = kLongestText;; longest = std::max(longest / 2, kShortestText)) {
    std::vector<WorkerReport*> workers;
    if (auto* failed = std::get_if<WorkerFailed>(&message)) workers.push_back(&failed->worker);
    if (failures) {
      if (longest == kShortestText) failures->resize((failures->size() + 1) / 2);
      for (WorkerReport& worker : *failures) workers.push_back(&worker);
    }
    if (cut_texts(std::move(workers), longest) > kLongestLine) continue;
    std::string line = json_line(message);
    if (line.size() <= kLongestLine) return line;
  }
}

}  // namespace

std::string line_of(const AgentMessage& message) {
  const bool is_report = std::holds_alternative<WorkerFailed>(message) ||
                         std::holds_alternative<AttemptEnded>(message);
  return is_report ? line_of_report(message) : json_line(message);
}

Result<AgentMessage> parse_message(std::string_view line) {
  const Error wrong{formatted("'{}': not a valid message of torchbridge run", printable(line))};
  if (is_json_deeper_than(kMaxDepth, line)) return wrong;
  const Json json = Json::parse(line, nullptr, false);
  try {
    const MessageFields fields(json);
    const auto kind = std::ranges::find(kKinds, fields.text("kind"));
    require(kind != std::end(kKinds));
    return kReaders[kind - std::begin(kKinds)](fields);
  } catch (const InvalidMessage&) {
    return wrong;
  }
}

}  // namespace torchbridge
