#include "trainer_template/runtime/process_group/connections.h"

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

// An abort of NCCL may hang, and the thread that trains unwinds meanwhile.
TEST(Connections, KeepAGroupWhileAnAbortIsInProgress) {
  Connections connections;
  std::promise<void> has_begun, may_end;
  connections.add({[&] {
                     has_begun.set_value();
                     may_end.get_future().wait();
                   },
                   {}});
  auto abort = std::async(std::launch::async, [&] { connections.abort(); });
  has_begun.get_future().wait();
  auto group = std::make_shared<int>(7);
  const std::weak_ptr<int> kept = group;
  connections.keep(1, {std::move(group), [] {}, kAbortTimeout});
  EXPECT_FALSE(kept.expired());
  may_end.set_value();
  abort.get();
  connections.keep_no_more();
  EXPECT_TRUE(kept.expired());
  connections.keep(2, {std::make_shared<int>(8), [] {}, kAbortTimeout});
  EXPECT_FALSE(connections.kept_limit()) << "nothing would end it";
}

TEST(Connections, AbortWhatAnExceptionLeftBeforeItEnds) {
  Connections connections;
  int aborts_of_kept = 0, aborts_of_others = 0;
  connections.add({[&] { ++aborts_of_others; }, {}});
  const auto link = connections.add({[&] { ++aborts_of_kept; }, {}});
  connections.keep(1,
                   {std::make_shared<int>(7), [&] { connections.abort({link}); }, kAbortTimeout});
  connections.end_kept();
  EXPECT_EQ(aborts_of_kept, 1);
  EXPECT_EQ(aborts_of_others, 0);
}

// In whichever order the ranks have left them.
TEST(Connections, EndTheLatestGroupFirst) {
  Connections connections;
  std::vector<int> ended;
  for (const int number : {2, 3, 1})
    connections.keep(number, {{}, [&, number] { ended.push_back(number); }, kEndTimeout});
  while (connections.kept_limit()) connections.end_kept();
  EXPECT_EQ(ended, (std::vector<int>{3, 2, 1}));
}

// What the abort of gloo's connections has not woken is found by its wait.
TEST(Connections, ACollectiveThatAnAbortDoesNotEndWaitsOn) {
  Connections connections;
  connections.begin_collective(/*is_of_all=*/true);
  connections.abort();
  const auto waited = connections.waited();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (connections.waiting() <= waited && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_GT(connections.waiting(), waited);
  EXPECT_EQ(connections.waited(), waited);
  connections.end_collective();
  EXPECT_EQ(connections.waiting(), std::chrono::milliseconds(0));
}

// NCCL would abort a communicator that it has destroyed.
TEST(Connections, WhatHasBegunToEndIsNotAborted) {
  Connections connections;
  const auto link = connections.add(
      {[] { ADD_FAILURE() << "aborted"; }, [] { return c10d::ErrorType::COMM_ERROR; }});
  connections.begin_end({link});
  EXPECT_EQ(connections.error(), c10d::ErrorType::SUCCESS);
  connections.abort();
}

// What a collective returns after an error is wrong, so the thread that reads it must not take the
// question of another thread for an answer.
TEST(Connections, AnErrorIsSeenWhileAnotherThreadAsksForIt) {
  Connections connections;
  std::promise<void> has_asked, may_answer;
  std::atomic<int> questions{0};
  connections.add({[] {},
                   [&] {
                     if (questions++ > 0) return c10d::ErrorType::TIMEOUT;
                     has_asked.set_value();
                     may_answer.get_future().wait();
                     return c10d::ErrorType::SUCCESS;
                   }});
  auto first = std::async(std::launch::async, [&] { return connections.error(); });
  has_asked.get_future().wait();
  EXPECT_THROW(connections.throw_if_aborted(), c10::DistBackendError);
  may_answer.set_value();
  EXPECT_EQ(first.get(), c10d::ErrorType::SUCCESS);
}

}  // namespace
}  // namespace torchbridge::train
