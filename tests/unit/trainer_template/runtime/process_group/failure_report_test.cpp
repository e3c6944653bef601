#include "trainer_template/runtime/process_group/failure_report.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchbridge/errors.h>

#include "temporary_folder.h"
#include "trainer_template/runtime/process_group/connections.h"
#include "trainer_template/runtime/rendezvous/rank_locations.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

class FailureReport : public testing::Test {
 protected:
  // The other rank has aborted by itself: it waited, in its ninth collective, and found this cause.
  FailureReport() {
    announce(*store_, {.rank = 0, .world_size = 2});
    announce(*store_, {.rank = 1, .world_size = 2});
  }
  void other_ends(c10d::ErrorType cause) {
    put(*store_, "noticed/0", "5000 9 0 " + std::to_string(static_cast<int>(cause)));
    put(*store_, "ended/0", "yes");
  }
  // What rank 1, whose collective has failed by this error, reports.
  std::string message_of(const std::string& error) {
    return message_for(c10::DistBackendError({__func__, __FILE__, 0}, error));
  }
  std::string message_for(const std::exception& error) {
    group_.has_own_error = is_own_error(group_, error);
    return failure_message(group_, error).value_or("nothing");
  }

  const c10::intrusive_ptr<c10d::HashStore> store_ = c10::make_intrusive<c10d::HashStore>();
  BrokenGroup group_{.store = *store_,
                     .rank = 1,
                     .world_size = 2,
                     .join_result = {},
                     .waited = std::chrono::milliseconds(5000),
                     .collectives = 9,
                     .interfaces = {}};
};

TEST_F(FailureReport, ATimeoutInTheTextOfNcclIsNoLateRank) {
  other_ends(c10d::ErrorType::SUCCESS);
  const std::string text = "NCCL error in: connect: ibv_modify_qp failed with Connection timed out";
  EXPECT_EQ(message_of(text), text);
}

// Rank 0 aborts still, woken by this rank's timeout; only of the whole group are its collectives
// counted.
TEST_F(FailureReport, ARankThatAbortsSlowlyIsLateOnlyWhereItMayBe) {
  struct Case {
    int collectives;
    bool in_subgroup;
    std::string late;
  };
  for (const Case& one :
       {Case{9, false, "another rank"}, {8, false, "rank 0"}, {9, true, "rank 0"}}) {
    group_.backend_error = c10d::ErrorType::TIMEOUT;
    group_.in_subgroup = one.in_subgroup;
    put(*store_, "noticed/0", "5000 " + std::to_string(one.collectives) + " 0 0");
    store_->deleteKey("reporter");
    const std::string message = message_of(kAbortedCollective);
    EXPECT_TRUE(message.starts_with(one.late) && contains(message, " did not take part "))
        << message;
    // Its GPU may hang: then nobody else knows.
    EXPECT_EQ(contains(message, "; rank 0 on "), one.late == "another rank") << message;
  }
}

// Only the backend of the other rank knows of the timeout.
TEST_F(FailureReport, TheLineOfATimeoutHasTheInterfaceOfWhicheverRankReports) {
  group_.interfaces = {"ib0"};
  other_ends(c10d::ErrorType::TIMEOUT);
  const std::string message = message_of(kAbortedCollective);
  EXPECT_TRUE(message.ends_with("; rank 1 used the interface ib0")) << message;
}

// This rank's next call of NCCL finds its own abort.
TEST_F(FailureReport, TheTextOfAnAbortIsNoReason) {
  other_ends(c10d::ErrorType::COMM_ERROR);
  for (const char* text : {kAbortedCollective, "NCCL communicator was aborted on rank 1. "}) {
    store_->deleteKey("reporter");
    const std::string message = message_of(text);
    EXPECT_TRUE(message.starts_with("the backend's connections between the ranks failed"))
        << message;
  }
}

// NCCL fails too where its kernels find the GPU broken.
TEST_F(FailureReport, AnErrorOfTheDeviceIsThatOfItsRankWhateverTheBackendFinds) {
  group_.backend_error = c10d::ErrorType::COMM_ERROR;
  const c10::AcceleratorError error({__func__, __FILE__, __LINE__}, 710, "CUDA error: assert");
  EXPECT_EQ(message_for(error), "CUDA error: assert");
}

// They abort because this rank has announced its failure, before it asks who reports.
TEST_F(FailureReport, AnErrorOfTheDeviceIsItsRanksThoughTheOthersHaveAbortedMeanwhile) {
  const std::string text = "NCCL error in: NCCLUtils.cpp:77, ncclUnhandledCudaError: Call failed";
  const c10::DistBackendError error({__func__, __FILE__, 0}, text);
  group_.has_own_error = is_own_error(group_, error);
  announce_failure(group_, &error);
  group_.aborted_ranks = {0};
  EXPECT_EQ(failure_message(group_, error), text);
}

// Whichever rank reports; on rank 0 the connection to rank 1's GPU broke.
TEST_F(FailureReport, TheReasonIsThatOfTheRankWhoseNcclKnowsIt) {
  const std::string remote = "NCCL error in: ncclRemoteError: a remote process exited",
                    system = "NCCL error in: ncclSystemError: ibv_modify_qp failed";
  group_.rank = 0;
  message_of(system);
  store_->deleteKey("reporter");
  group_.rank = 1;
  const std::string message = message_of(remote);
  EXPECT_TRUE(message.starts_with("rank 0 on ") && message.ends_with(": " + system)) << message;
  store_->deleteKey("reporter");
  group_.backend_error = c10d::ErrorType::COMM_ERROR;
  EXPECT_EQ(message_of(system), system);
}

// NCCL's sockets fail so where the abort of this rank ends a call that connects.
TEST_F(FailureReport, AnErrorOfACallThatItsOwnAbortEndsIsNoReason) {
  const std::string aborted = "NCCL error in: ncclInternalError: Internal check failed";
  group_.is_aborting = true;
  other_ends(c10d::ErrorType::COMM_ERROR);
  EXPECT_TRUE(message_of(aborted).starts_with("the backend's connections between the ranks failed"))
      << message_of(aborted);
  EXPECT_FALSE(store_->check({"reason"}));
}

// The other rank has not ended: it waits for its GPU, or is lost.
TEST_F(FailureReport, AnErrorOfTheDeviceThatNcclFindsIsItsRanksUnlessAnotherIsLost) {
  const std::vector<std::string> texts = {
      "NCCL error in: NCCLUtils.cpp:77, unhandled cuda error, ncclUnhandledCudaError: Call failed",
      "watchdog thread terminated with exception: CUDA error: device-side assert triggered"};
  for (const std::string& text : texts) EXPECT_EQ(message_of(text), text);
  store_->deleteKey("own error");
  group_.lost = {0};
  group_.hung_up = true;
  for (const std::string& text : texts)
    EXPECT_TRUE(message_of(text).starts_with("the connection to rank 0 on ")) << message_of(text);
}

TEST_F(FailureReport, AnErrorOfTheProgramIsItsOwnWhateverItsWords) {
  for (const char* text :
       {"the download timed out", "Connection timed out", "cannot open /runs/gloo/x",
        "[/runs/gloo/x", "gloo's Timeout", "Operation timed out!"})
    EXPECT_TRUE(is_own_error(group_, std::runtime_error(text))) << text;
  for (const char* text : {"[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
                           "closed by peer [10.0.0.1]:4711",
                           "Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no"})
    EXPECT_FALSE(is_own_error(group_, std::runtime_error(text))) << text;
  const c10::Error of_libtorch({"wait", "/pytorch/torch/csrc/distributed/c10d/Work.cpp", 7},
                               "Operation timed out!");
  EXPECT_FALSE(is_own_error(group_, of_libtorch)) << of_libtorch.what();
  const c10::Error with_backtrace({"main", "/home/u/gloo/Timeout/train.cpp", 7}, "no such row");
  EXPECT_TRUE(is_own_error(group_, with_backtrace)) << with_backtrace.what();
}

// Four ranks, this is the third; the others have noticed: milliseconds, collectives, whether the
// latest is of a subgroup, and the cause.
class FailureReportOfFour : public FailureReport {
 protected:
  std::string report_after(const std::vector<std::string>& noticed) {
    group_.world_size = 4;
    group_.rank = 2;
    for (const int rank : {0, 1, 3}) {
      announce(*store_, {.rank = rank, .world_size = 4});
      put(*store_, key("noticed", rank), noticed[static_cast<std::size_t>(rank)]);
      put(*store_, key("ended", rank), "yes");
    }
    return message_of("Watchdog caught collective operation timeout");
  }
};

// Rank 0 timed out in a collective of a subgroup, in which rank 1 was late; the others wait in the
// next one of all.
TEST_F(FailureReportOfFour, ARankThatTimedOutInASubgroupIsNotLate) {
  const std::string timeout = std::to_string(static_cast<int>(c10d::ErrorType::TIMEOUT));
  const std::string message = report_after({"2000 8 1 " + timeout, "100 8 1 0", "", "900 9 0 0"});
  EXPECT_TRUE(message.starts_with("rank 1 ")) << message;
}

// The rank that reports a loss waits for "ended", and looks then whether it follows from an error.
TEST_F(FailureReport, AnOwnErrorIsKnownBeforeTheRankHasEnded) {
  class OrderedStore : public c10d::HashStore {
   public:
    void set(const std::string& name, const std::vector<std::uint8_t>& value) override {
      names.push_back(name);
      c10d::HashStore::set(name, value);
    }
    std::vector<std::string> names;
  };
  const auto store = c10::make_intrusive<OrderedStore>();
  const BrokenGroup group{
      .store = *store, .rank = 1, .world_size = 2, .join_result = {}, .has_own_error = true};
  EXPECT_EQ(failure_message(group, std::runtime_error("the disk is full")), "the disk is full");
  const auto at = [&](const std::string& name) { return std::ranges::find(store->names, name); };
  EXPECT_LT(at("own error"), at(key("ended", 1)));
  EXPECT_NE(at(key("ended", 1)), store->names.end());
}

// Whoever reaches the store can change it: this rank, which is rank 0, and rank 1 that is lost.
class ChangedStoreOfFailure : public FailureReport {
 protected:
  ChangedStoreOfFailure() {
    group_.rank = 0;
    group_.join_result.served_by_rank_0 = Endpoint{"127.0.0.1", 1};
  }
};

TEST_F(ChangedStoreOfFailure, AStoppedRankIsNamedWithoutItsHost) {
  group_.lost = {1};
  store_->deleteKey(key("joined", 1));
  EXPECT_TRUE(message_of(kAbortedCollective).starts_with("rank 1 sent no heartbeat for "));
}

TEST_F(ChangedStoreOfFailure, AKilledRankIsNamedWhateverReportsOrFailsByItself) {
  group_.closed = {1};
  for (const char* key : {"reporter", "own error"}) {
    for (const std::string& value : {std::string(), std::string(40, '1')}) {
      for (const char* name : {"reporter", "own error"}) store_->deleteKey(name);
      put(*store_, key, value);
      const std::string message = message_of(kAbortedCollective);
      EXPECT_TRUE(message.starts_with("the connection to rank 1 on ")) << value << ": " << message;
    }
  }
}

TEST_F(ChangedStoreOfFailure, AKilledRankIsNamedWhereAKeyThatIsReadIsGone) {
  class Deleting : public c10d::HashStore {
   public:
    std::vector<std::uint8_t> get(const std::string&) override {
      throw std::runtime_error("wait timeout");
    }
  };
  const auto store = c10::make_intrusive<Deleting>();
  put(*store, "own error", "yes");
  const BrokenGroup group{.store = *store, .world_size = 2, .join_result = {}, .closed = {1}};
  const c10::DistBackendError failed({__func__, __FILE__, 0}, kAbortedCollective);
  EXPECT_EQ(failure_message(group, failed),
            "the connection to rank 1 was lost: process killed or crashed, or node unreachable");
}

TEST_F(ChangedStoreOfFailure, AnOwnErrorIsReportedWhoeverSaysThatItIs) {
  put(*store_, "error/the disk is full", "1");
  EXPECT_EQ(message_for(TrainError("the disk is full")), "the disk is full");
}

// The stranger has no secret.
TEST_F(ChangedStoreOfFailure, OfRanksWithOneSecretOneReports) {
  const c10::DistBackendError lost({__func__, __FILE__, 0}, kAbortedCollective);
  const TrainError full("the disk is full");
  group_.secret = "secret";
  const auto message_of_rank = [&](int rank, const std::exception& error) {
    group_.rank = rank;
    group_.join_result.served_by_rank_0.reset();
    return message_for(error);
  };
  EXPECT_EQ(message_of_rank(1, full), full.what());
  EXPECT_EQ(message_of_rank(1, full), full.what());  // the name is its own
  EXPECT_EQ(message_of_rank(0, full), "nothing");
  EXPECT_EQ(message_of_rank(0, lost), "nothing");
  group_.secret = "another";
  EXPECT_EQ(message_of_rank(0, full), full.what());
  group_.secret = "of a third group";
  EXPECT_NE(message_of_rank(0, lost), "nothing");
}

}  // namespace
}  // namespace torchbridge::train
