#include "spank_plugin/shared_task_table.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "bridge/core/step_record.h"
#include "tests/support/child_ending.h"

namespace torchbridge {
namespace {

const std::string kRecord = "1 7.0 n[0-1] 1,0,1";
const std::chrono::system_clock::time_point kStart{std::chrono::milliseconds(1'700'000'000'123)};

TEST(SharedTaskTable, KeepsTheReasonOfTheFirstTask) {
  const SharedTaskTable table(2);
  EXPECT_EQ(table.reason(), "");
  EXPECT_EQ(ending_of_child([&] { _exit(table.set_reason("first") ? 0 : 1); }), exited(0));
  EXPECT_TRUE(table.set_reason("second"));
  EXPECT_EQ(table.reason(), "first");
}

TEST(SharedTaskTable, TruncatesALongReason) {
  const SharedTaskTable table(1);
  EXPECT_TRUE(table.set_reason(std::string(10'000, 'x').c_str()));
  EXPECT_EQ(table.reason(), std::string(4095, 'x'));
}

TEST(SharedTaskTable, KeepsNoReasonWithoutMemory) {
  const SharedTaskTable table;
  EXPECT_FALSE(table.set_reason("why"));
  EXPECT_EQ(table.reason(), "");
}

TEST(SharedTaskTable, HasOneRecordForEachTask) {
  SharedTaskTable().write_record(0, {});
  EXPECT_FALSE(SharedTaskTable().record_of(0));
  const SharedTaskTable table(2);
  EXPECT_FALSE(table.record_of(1));
  EXPECT_EQ(ending_of_child([&] {
              table.write_record(1, {7, 1, kStart, 3, "a.json", true});
            }),
            exited(0));
  const auto record = table.record_of(1);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->rank, 7);
  EXPECT_EQ(record->start, kStart);
  EXPECT_EQ(record->oom_kills, 3);
  EXPECT_EQ(record->error_file, "a.json");
  EXPECT_TRUE(record->removes_file);
  EXPECT_FALSE(table.record_of(0));
  EXPECT_FALSE(table.record_of(2));
}

TEST(SharedTaskTable, LeavesOutALongNameOfTheErrorFile) {
  const SharedTaskTable table(1);
  table.write_record(0, {.rank = 1, .start = kStart, .error_file = std::string(256, 'x')});
  EXPECT_EQ(table.record_of(0)->error_file, "");
}

// What no task of the plugin writes.
TEST(SharedTaskTable, RejectsARecordThatLeadsElsewhere) {
  const TaskRecord kWrong[] = {
      {.rank = -1, .start = kStart},
      {.rank = 1, .start = kStart, .error_file = "../other"},
      {.rank = 1, .start = kStart, .error_file = ".."},
      {.rank = 1, .start = std::chrono::system_clock::time_point(std::chrono::hours(-1))}};
  for (const auto& record : kWrong) {
    const SharedTaskTable table(1);
    table.write_record(0, record);
    EXPECT_TRUE(table.has_record(0));
    EXPECT_FALSE(table.record_of(0)) << record.rank << " " << record.error_file;
  }
}

TEST(SharedTaskTable, KeepsTheLastAnswerOfEachKind) {
  const SharedTaskTable table(1);
  EXPECT_FALSE(table.answer(SharedTaskTable::kRecord));
  EXPECT_EQ(ending_of_child([&] {
              table.set_answer(SharedTaskTable::kRecord, kRecord);
              table.set_answer(SharedTaskTable::kNames, Error{"too slow"});
              table.set_answer(SharedTaskTable::kNames, std::string("n0 10.0.0.1\n"));
            }),
            exited(0));
  EXPECT_EQ(**table.answer(SharedTaskTable::kRecord), kRecord);
  EXPECT_EQ(**table.answer(SharedTaskTable::kNames), "n0 10.0.0.1\n");
}

TEST(SharedTaskTable, KeepsAnErrorAndAnEmptyAnswer) {
  const SharedTaskTable failed(1), empty(1), none;
  failed.set_answer(SharedTaskTable::kRecord, Error{std::string(2 * kMaxStepRecord, 'x')});
  EXPECT_EQ(failed.answer(SharedTaskTable::kRecord)->error().message,
            std::string(kMaxStepRecord, 'x'));
  empty.set_answer(SharedTaskTable::kRecord, std::string());
  EXPECT_EQ(**empty.answer(SharedTaskTable::kRecord), "");
  none.set_answer(SharedTaskTable::kRecord, kRecord);
  EXPECT_FALSE(none.answer(SharedTaskTable::kRecord));
}

// What this process shares with its children: Linux shows it as a deleted /dev/zero. From the start
// of each to its end.
std::map<std::uintptr_t, std::uintptr_t> shared_memory() {
  std::ifstream maps("/proc/self/maps");
  std::map<std::uintptr_t, std::uintptr_t> found;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    const bool is_shared = line.find("/dev/zero (deleted)") != line.npos;
    if (is_shared && std::sscanf(line.c_str(), "%zx-%zx", &begin, &end) == 2)
      found.emplace(begin, end);
  }
  return found;
}

// Fills the memory again and again, as a process of the user's can: with noise, with set flags and
// texts that do not end, and with small numbers.
[[noreturn]] void write_without_end(std::uintptr_t begin, std::uintptr_t end) {
  std::mt19937_64 random(38);
  auto* const first = reinterpret_cast<std::uint64_t*>(begin);
  auto* const last = reinterpret_cast<std::uint64_t*>(end);
  const std::uint64_t kEndless = 0x2f2f2f2f2f2f2f2f;  // no zero byte
  while (true) {
    for (auto* word = first; word < last; ++word) *word = random();
    for (auto* word = first; word < last; ++word) *word = kEndless;
    for (auto* word = first; word < last; ++word) *word = random() % 4 * 0x100000001;
  }
}

TEST(SharedTaskTable, IsReadWithinItsBoundsWhileATaskWritesNoise) {
  constexpr int kRecords = 500;
  auto memory = shared_memory();
  const auto before = memory;
  const SharedTaskTable table(3);
  memory = shared_memory();
  std::erase_if(memory, [&](const auto& range) { return before.contains(range.first); });
  ASSERT_EQ(memory.size(), 1U);
  const pid_t writer = fork();
  if (writer == 0) write_without_end(memory.begin()->first, memory.begin()->second);
  int records = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (records < kRecords && std::chrono::steady_clock::now() < deadline) {
    EXPECT_LE(table.reason().size(), 4096U);
    for (std::size_t task = 0; task < 3; ++task) {
      const auto record = table.record_of(task);
      if (!record || records == kRecords) continue;
      ++records;
      EXPECT_GE(record->rank, 0);
      EXPECT_LE(record->error_file.size(), 256U);
      EXPECT_EQ(record->error_file.find('/'), std::string::npos);
    }
    const auto names = table.answer(SharedTaskTable::kNames);
    const std::string text = !names ? "" : *names ? **names : names->error().message;
    EXPECT_LE(text.size(), kMaxStepRecord + 1);
  }
  EXPECT_EQ(records, kRecords) << "of the noise too little was a record";
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
}

}  // namespace
}  // namespace torchbridge
