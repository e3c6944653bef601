#include "bridge/coordination/agent_message.h"

#include <gtest/gtest.h>

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
  worker.time = std::chrono::system_clock::time_point(std::chrono::nanoseconds(1'700'000'000'123'456'789));
  worker.error = ErrorRecord{"Error: line\nline \x01", "stack", worker.time};
  worker.log_end = "last line";
  return worker;
}

TEST(AgentMessage, ArrivesAsItWasSent) {
  Join join{
      .run_id = "a \"b\"\n", .shape = {2, 4, 3, 5}, .host = "n1", .pid = 7, .workers = 8, .order = 1, .node = "node 1"};
  const Join joined = sent(join);
  EXPECT_EQ(joined.run_id, join.run_id);
  EXPECT_EQ(joined.shape, join.shape);
  EXPECT_EQ(std::tie(joined.host, joined.pid, joined.workers, joined.order, joined.node, joined.protocol),
            std::tie(join.host, join.pid, join.workers, join.order, join.node, join.protocol));

  const WorkerReport worker = sent(Failed{failed_worker()}).worker;
  EXPECT_EQ(worker.rank, 3);
  EXPECT_EQ(worker.time, failed_worker().time) << "to the nanosecond";
  ASSERT_TRUE(worker.error);
  EXPECT_EQ(worker.error->message, failed_worker().error->message);
  EXPECT_EQ(worker.log_end, "last line");

  WorkerReport without_record = failed_worker();
  without_record.error.reset();
  Ended ended{{2, {}, std::chrono::duration<double>(1.5), {without_record}}, false, "", 0};
  const Ended arrived = sent(ended);
  EXPECT_FALSE(arrived.can_restart);
  EXPECT_EQ(arrived.report.restart_count, 2);
  EXPECT_DOUBLE_EQ(arrived.report.lifetime.count(), 1.5);
  ASSERT_EQ(arrived.report.failures.size(), 1u);
  EXPECT_FALSE(arrived.report.failures[0].error);

  EXPECT_EQ(sent(StartRound{.round = 3, .first_rank = 8, .store = {"10.0.0.1", 1234}}).store,
            (Endpoint{"10.0.0.1", 1234}));
  EXPECT_TRUE(sent(StopWorkers{"a reason", true}).after_grace);
  EXPECT_EQ(sent(EndRun{137, "why"}).exit_code, 137);
  EXPECT_EQ(sent(Rejected{"why", 2}).retry_seconds, 2);
  (void)sent(BeginExitBarrier{});
}

TEST(AgentMessage, WithBytesThatAreNoUtf8Arrives) {
  WorkerReport worker = failed_worker();
  worker.log_end = "\xff\xfe text";
  EXPECT_NE(sent(Failed{worker}).worker.log_end.find(" text"), std::string::npos);
}

TEST(AgentMessage, OfAnotherFormIsAnError) {
  for (const char* line : {"", "{}", "GET / HTTP/1.1", "[1]", "{\"kind\":\"nothing\"}", "{\"kind\":7}",
                           "{\"kind\":\"ready\"}", "{\"kind\":\"ready\",\"store\":{\"host\":1,\"port\":2}}"}) {
    EXPECT_FALSE(parse_message(line)) << line;
  }
}

}  // namespace
