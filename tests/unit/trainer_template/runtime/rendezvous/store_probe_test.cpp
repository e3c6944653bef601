#include "trainer_template/runtime/rendezvous/store_probe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "bridge/net/socket.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// Accepts connections, and lets `talk` have the last one; the others it closes.
class Service {
 public:
  explicit Service(std::function<void(int)> talk, int closed = 0) {
    auto socket = listen_on({"127.0.0.1", 0});
    EXPECT_TRUE(socket);
    socket_ = *std::move(socket);
    thread_ = std::thread([this, talk = std::move(talk), closed] {
      for (int i = 0; i < closed; ++i) Socket(::accept(socket_.descriptor(), nullptr, nullptr));
      const Socket peer(::accept(socket_.descriptor(), nullptr, nullptr));
      if (peer.open()) talk(peer.descriptor());
    });
  }
  ~Service() {
    ::shutdown(socket_.descriptor(), SHUT_RDWR);
    thread_.join();
  }
  Endpoint address() const { return {"127.0.0.1", *bound_port(socket_)}; }

 private:
  Socket socket_;
  std::thread thread_;
};

void send_text(int peer, const std::string& text) {
  EXPECT_EQ(::write(peer, text.data(), text.size()), std::ssize(text));
}

void answer_as_store(int peer) {
  char question[10];
  ASSERT_EQ(::recv(peer, question, sizeof question, MSG_WAITALL), 10);
  send_text(peer, std::string(question + 6, 4));
}

TEST(WaitForStore, RecognisesAStoreByItsAnswer) {
  const Service store(answer_as_store);
  EXPECT_EQ(wait_for_store(store.address(), milliseconds(5000)).answer, StoreAnswer::kReady);
}

const std::function<std::string()> kLookAgain = [] { return std::string("127.0.0.1"); };

// As a proxy does until the store behind it is there.
TEST(WaitForStore, TriesAgainWhereConnectionsAreClosed) {
  const Service store(answer_as_store, 30);
  EXPECT_EQ(wait_for_store(store.address(), milliseconds(30'000), milliseconds(10'000), kLookAgain)
                .answer,
            StoreAnswer::kReady);
}

TEST(WaitForStore, TakesAServiceThatClosesEachConnectionForAnotherOne) {
  const Service store(answer_as_store, 30);
  EXPECT_EQ(wait_for_store(store.address(), milliseconds(30'000)).answer, StoreAnswer::kForeign);
}

// Nobody listens at the first address.
TEST(WaitForStore, LooksAgainWhereTheHostIs) {
  const Service store(answer_as_store);
  const Endpoint before{"127.0.0.2", store.address().port};
  EXPECT_EQ(wait_for_store(before, milliseconds(30'000), milliseconds(10'000), kLookAgain).answer,
            StoreAnswer::kReady);
}

TEST(WaitForStore, RecognisesAnotherServiceByItsAnswer) {
  const Service service([](int peer) { send_text(peer, "SSH-2.0-OpenSSH\r\n"); });
  const StoreProbe probe = wait_for_store(service.address(), milliseconds(5000));
  EXPECT_EQ(probe.answer, StoreAnswer::kForeign);
  EXPECT_TRUE(contains(probe.detail, "SSH-2.0"));
}

TEST(WaitForStore, ReportsWhyNoServiceAnswers) {
  int port = 0;
  {
    auto socket = listen_on({"127.0.0.1", 0});
    ASSERT_TRUE(socket);
    port = *bound_port(*socket);
  }
  const StoreProbe probe = wait_for_store({"127.0.0.1", port}, milliseconds(200));
  EXPECT_EQ(probe.answer, StoreAnswer::kUnreachable);
  EXPECT_TRUE(contains(probe.detail, "refused"));
}

}  // namespace
}  // namespace torchbridge::train
