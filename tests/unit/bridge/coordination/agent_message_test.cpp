#include "bridge/coordination/agent_message.h"

#include <sys/wait.h>

#include <climits>
#include <csignal>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace torchbridge;

namespace {

// What parse_message makes of line_of's text.
template <class T>
T sent(const T& message) {
  const std::string line = line_of(message);
  EXPECT_TRUE(line.ends_with('\n'));
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  const auto parsed = parse_message(std::string_view(line).substr(0, line.size() - 1));
  EXPECT_TRUE(parsed) << line;
  return parsed ? std::get<T>(*parsed) : T();
}

WorkerReport failed_worker() {
  WorkerReport worker;
  worker.rank = 3;
  worker.local_rank = 1;
  worker.pid = 77;
  worker.host = "n1";
  worker.wait_status = 9;
  worker.time =
      std::chrono::system_clock::time_point(std::chrono::nanoseconds(1'700'000'000'123'456'789));
  worker.error = ErrorRecord{"Error: line\nline \x01", "stack", worker.time};
  worker.log_end = "last line";
  return worker;
}

TEST(AgentMessage, ArrivesAsItWasSent) {
  const Join join{.run_id = "a \"b\"\n",
                  .shape = {2, 4, 3, 5},
                  .host = "n1",
                  .pid = 7,
                  .workers = 8,
                  .order = 1,
                  .node = "node 1",
                  .role = "reader"};
  const Join joined = sent(join);
  EXPECT_EQ(joined.run_id, join.run_id);
  EXPECT_EQ(joined.shape, join.shape);
  EXPECT_EQ(
      std::tie(joined.host, joined.pid, joined.workers, joined.order, joined.node, joined.role),
      std::tie(join.host, join.pid, join.workers, join.order, join.node, join.role));

  const WorkerReport worker = sent(WorkerFailed{failed_worker()}).worker;
  EXPECT_EQ(worker.rank, 3);
  EXPECT_EQ(worker.time, failed_worker().time) << "to the nanosecond";
  ASSERT_TRUE(worker.error);
  EXPECT_EQ(worker.error->message, failed_worker().error->message);
  EXPECT_EQ(worker.log_end, "last line");

  WorkerReport without_record = failed_worker();
  without_record.error.reset();
  AttemptEnded ended{{2, {}, std::chrono::duration<double>(1.5), {without_record}, "", false}};
  const AttemptEnded arrived = sent(ended);
  EXPECT_FALSE(arrived.report.can_restart);
  EXPECT_EQ(arrived.report.restart_count, 2);
  EXPECT_DOUBLE_EQ(arrived.report.lifetime.count(), 1.5);
  ASSERT_EQ(arrived.report.failures.size(), 1u);
  EXPECT_FALSE(arrived.report.failures[0].error);

  EXPECT_EQ(sent(StartRound{.round = 3,
                            .ranks = {.first_rank = 8, .world_size = 9},
                            .store = {"10.0.0.1", 1234}})
                .store,
            (Endpoint{"10.0.0.1", 1234}));
  EXPECT_TRUE(sent(StopWorkers{"a reason", true}).after_grace);
  EXPECT_EQ(sent(EndRun{137, "why"}).exit_code, 137);
  EXPECT_EQ(sent(Rejected{"why", 2}).retry_seconds, 2);
  (void)sent(BeginExitBarrier{});
}

TEST(AgentMessage, WithBytesThatAreNoUtf8Arrives) {
  WorkerReport worker = failed_worker();
  worker.log_end = "\xff\xfe text";
  EXPECT_NE(sent(WorkerFailed{worker}).worker.log_end.find(" text"), std::string::npos);
}

TEST(AgentMessage, OfAnotherFormIsAnError) {
  for (const char* line :
       {"", "{}", "GET / HTTP/1.1", "[1]", "{\"kind\":\"nothing\"}", "{\"kind\":7}",
        "{\"kind\":\"ready\"}", "{\"kind\":\"join\",\"run_id\":\"x\"}",
        "{\"kind\":\"ready\",\"store\":{\"host\":1,\"port\":2}}"}) {
    EXPECT_FALSE(parse_message(line)) << line;
  }
}

using nlohmann::json;

json as_json(const AgentMessage& message) { return json::parse(line_of(message)); }

bool is_valid(const json& message) { return parse_message(message.dump()).operator bool(); }

struct FieldCase {
  AgentMessage message;
  const char* field;  // a JSON pointer
  std::vector<json> good, bad;
};

// What a peer can set: at the ends of each range, and beyond.
std::vector<FieldCase> field_cases() {
  Join join{
      .run_id = "run", .shape = {2, 4, 3, 5}, .host = "n1", .pid = 7, .workers = 8, .order = 1};
  const Ready ready{{"10.0.0.1", 1000}};
  const WorkerFailed failed{failed_worker()};
  const AttemptEnded ended{{2, {}, {}, {failed_worker()}, ""}};
  const AttemptEnded not_started{{}, StartFailure{127, Error{"why"}}};
  const StartRound start{.round = 3,
                         .ranks = {.node_rank = 1,
                                   .node_count = 2,
                                   .first_rank = 8,
                                   .world_size = 9,
                                   .first_local_rank = 1,
                                   .local_world_size = 3,
                                   .first_role_rank = 4,
                                   .role_world_size = 6},
                         .store = {"10.0.0.1", 1234}};
  const std::uint64_t kWraps = 1ull << 32;  // to 0 as an int
  const std::uint64_t kNegative = UINT64_MAX;
  return {
      {join, "/run_id", {"", std::string(512, 'x')}, {5, std::string(513, 'x')}},
      {join, "/host", {"n", std::string(255, 'x')}, {"", std::string(256, 'x')}},
      {join, "/node", {""}, {std::string(256, 'x'), 1}},
      {join, "/role", {"", std::string(255, 'x')}, {std::string(256, 'x'), 1}},
      {join, "/pid", {1, INT_MAX}, {0, -1, 1.5, "1", true, kWraps, kNegative}},
      {join, "/workers", {1, 10'000'000}, {0, -5, 10'000'001, INT_MAX, kWraps + 1}},
      {join, "/order", {-1, 0}, {-2, INT_MAX, kNegative}},
      {join, "/shape/min_nodes", {1, 3}, {0, 4, -1}},
      {join, "/shape/max_nodes", {3, INT_MAX}, {0, 2, kWraps}},
      {join, "/shape/active_nodes", {2, 4}, {1, 5}},
      {join, "/shape/max_restarts", {0, INT_MAX}, {-1}},
      {join, "/shape", {}, {nullptr, 3, json::array()}},
      {ready, "/store/port", {1, 65535}, {0, -1, 65536}},
      {ready,
       "/store/host",
       {"::1"},
       {"n0", "", "10.0.0.1; rm", "10.0.0.1\n", std::string(300, '1')}},
      {failed, "/worker/rank", {0}, {-1, 10'000'000}},
      {failed, "/worker/local_rank", {0}, {-1}},
      {failed, "/worker/pid", {1}, {0}},
      {failed,
       "/worker/wait_status",
       {1 << 8, 255 << 8, SIGKILL, SIGSEGV | 0x80, 64},
       {0, -1, 0x7f, 65, 256 << 8, (1 << 8) | SIGKILL, kWraps + SIGKILL}},
      {failed,
       "/worker/time",
       {0, 4'000'000'000'000'000'000},
       {-1, 4'200'000'000'000'000'000, 1.5, kNegative}},
      {failed, "/worker/not_before", {0}, {INT64_MIN, INT64_MAX}},
      {failed, "/worker/time_error", {0, 0.5}, {-0.1, 1e300, "x", nullptr}},
      {failed, "/worker/is_stuck", {true}, {1, "true"}},
      {failed, "/worker/error", {nullptr}, {3, "x", json::object()}},
      {ended, "/report/restart_count", {0}, {-1}},
      {ended, "/report/started", {0}, {-1}},
      {ended, "/report/lifetime", {0, 1.5}, {1e10, nullptr}},
      {ended,
       "/report/failures",
       {json::array()},
       {json::object(), 3, json::array({3}), json::array({nullptr})}},
      {ended, "/start_exit_code", {0}, {1, -1, 127}},
      {not_started, "/start_exit_code", {1, 255}, {0, -1, 256, kWraps, kWraps + 127}},
      {not_started, "/start_error", {"other"}, {""}},
      {Leave{SIGTERM}, "/signal", {1, 64}, {0, -1, 65}},
      {Alive{1, 0}, "/clock", {0, 4e9}, {-1, 1e10, 1e300, "1"}},
      {Alive{1, 0}, "/answered_clock", {0}, {-1, 1e10}},
      {Welcome{}, "/keep_alive_interval", {0.001, 86'400}, {0, -1, 1e6}},
      {Welcome{}, "/keep_alive_attempts", {1, 1000}, {0, 1001}},
      {Rejected{"why", 0}, "/retry_seconds", {0}, {-1, 1e300}},
      {start, "/round", {0}, {-1, INT_MAX}},
      {start, "/node_rank", {0}, {-1, 2}},
      {start, "/node_count", {2}, {1, 0}},
      {start, "/first_rank", {0}, {-1, 9}},
      {start, "/world_size", {9, 10'000'000}, {8, 0, 10'000'001}},
      {start, "/first_local_rank", {2}, {-1, 3}},
      {start, "/local_world_size", {2, 9}, {1, 10}},
      {start, "/first_role_rank", {5}, {-1, 6}},
      {start, "/role_world_size", {5, 9}, {4, 10}},
      {start, "/store/host", {"10.0.0.2"}, {"$(reboot)"}},
      {start, "/restart_count", {0}, {-1}},
      {start, "/max_restarts", {0}, {-1}},
      {EndRun{1, ""}, "/exit_code", {0, 255}, {-1, 256, kWraps}},
      {StopWorkers{}, "/after_grace", {true}, {0}},
      {StopWorkers{}, "/for_signal", {true}, {0}},
      {RunStatus{"{}"}, "/json", {""}, {json::object(), 3}},
  };
}

TEST(AgentMessage, HasEachFieldWithinItsRange) {
  for (const FieldCase& test : field_cases()) {
    const json valid = as_json(test.message);
    EXPECT_TRUE(is_valid(valid)) << valid;
    const json::json_pointer at(test.field);
    for (const json& value : test.good) {
      json message = valid;
      message[at] = value;
      EXPECT_TRUE(is_valid(message)) << test.field << " " << value.dump().substr(0, 80);
    }
    for (const json& value : test.bad) {
      json message = valid;
      message[at] = value;
      EXPECT_FALSE(is_valid(message)) << test.field << " " << value.dump().substr(0, 80);
    }
    json message = valid;
    message.at(at.parent_pointer()).erase(at.back());
    EXPECT_FALSE(is_valid(message)) << test.field << " is missing";
  }
}

TEST(AgentMessage, ThatEndedWithoutAFailureCanBeRestarted) {
  EXPECT_TRUE(is_valid(as_json(AttemptEnded{})));
  EXPECT_FALSE(is_valid(as_json(AttemptEnded{{.can_restart = false}})))
      << "what cannot be ended is a failure";
}

TEST(AgentMessage, HasNoControlCharactersInTextsThatAreOneLine) {
  const std::string bad = "a\x1b[2J\nb\x9b", shown = "a\\x1b[2J\\x0ab";
  EXPECT_TRUE(
      sent(Join{.run_id = "r", .host = bad, .pid = 1, .node = bad}).host.starts_with(shown));
  EXPECT_TRUE(sent(StopWorkers{bad}).reason.starts_with(shown));
  EXPECT_TRUE(sent(EndRun{1, bad}).reason.starts_with(shown));
  EXPECT_TRUE(sent(Rejected{bad}).reason.starts_with(shown));
  EXPECT_TRUE(sent(AttemptEnded{{}, StartFailure{1, Error{bad}}})
                  .start_failure->error.message.starts_with(shown));
  WorkerReport worker = failed_worker();
  worker.host = worker.clock = worker.error_file = worker.log = worker.health = bad;
  const WorkerReport arrived = sent(WorkerFailed{worker}).worker;
  for (const std::string* text :
       {&arrived.host, &arrived.clock, &arrived.error_file, &arrived.log, &arrived.health}) {
    EXPECT_TRUE(text->starts_with(shown)) << *text;
  }
  const std::string line = first_line(arrived);
  EXPECT_EQ(line.find_first_of("\x1b\n"), line.npos) << line;
}

TEST(AgentMessage, OfManyLongReportsFitsIntoALine) {
  WorkerReport worker = failed_worker();
  worker.error->message = worker.error->callstack = worker.log_end = std::string(1 << 20, '\x01');
  const WorkerFailed one = sent(WorkerFailed{worker});
  EXPECT_LE(line_of(WorkerFailed{worker}).size(), kLongestLine + 1);
  EXPECT_GT(one.worker.error->message.size(), 10'000u);
  for (const std::size_t count : {8u, 200u, 3'000u}) {
    worker.error->message = worker.error->callstack = worker.log_end =
        std::string((4 << 20) / count, '\x01');
    AttemptEnded ended;
    ended.report.failures.assign(count, worker);
    EXPECT_LE(line_of(ended).size(), kLongestLine + 1) << count;
    EXPECT_GE(sent(ended).report.failures.size(), std::min<std::size_t>(count, 200)) << count;
  }
}

TEST(AgentMessage, ThatIsNestedDeeplyIsNotParsed) {
  EXPECT_FALSE(parse_message(std::string(kLongestLine, '[')));
  EXPECT_FALSE(parse_message("{\"kind\":\"stopping\",\"x\":" + std::string(100, '[') +
                             std::string(100, ']') + "}"));
}

}  // namespace
