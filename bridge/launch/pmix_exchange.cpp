#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include <pmix.h>

#include "bridge/base/message_text.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/launch/launcher_exchange.h"

namespace torchbridge {
namespace {

Error pmix_error(const char* call, pmix_status_t status) {
  return {formatted("PMIx: {} failed: {}", call, PMIx_Error_string(status))};
}

// Set by PMIx's progress thread; the wait for it has a timeout that does not depend on the server.
class Completion {
 public:
  static void callback(pmix_status_t status, void* self) {
    // The waiter may have given up: the state is shared, and this is its last use by PMIx.
    const std::unique_ptr<std::shared_ptr<Completion>> owner(
        static_cast<std::shared_ptr<Completion>*>(self));
    Completion& completion = **owner;
    const std::lock_guard lock(completion.mutex_);
    completion.status_ = status;
    completion.done_ = true;
    completion.changed_.notify_one();
  }

  bool wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return done_; });
  }

  pmix_status_t status() const { return status_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  pmix_status_t status_ = PMIX_SUCCESS;
};

class PmixExchange : public Exchange {
 public:
  PmixExchange(const pmix_proc_t& self, int world_size) : self_(self), world_size_(world_size) {}
  ~PmixExchange() override { PMIx_Finalize(nullptr, 0); }

  Result<std::vector<std::string>> all_gather(const std::string& value,
                                              std::chrono::milliseconds timeout) override {
    const std::string key = "torchbridge." + std::to_string(round_++);
    if (const auto published = publish(key, value); !published) return published.error();
    if (const auto passed = fence(timeout); !passed) return passed.error();
    std::vector<std::string> values(world_size_);
    for (int rank = 0; rank < world_size_; ++rank) {
      auto fetched = fetch(key, rank);
      if (!fetched) return fetched.error();
      values[rank] = std::move(*fetched);
    }
    return values;
  }

 private:
  Status publish(const std::string& key, const std::string& value) {
    pmix_value_t entry;
    entry.type = PMIX_STRING;
    entry.data.string = const_cast<char*>(value.c_str());
    if (const auto status = PMIx_Put(PMIX_GLOBAL, key.c_str(), &entry); status != PMIX_SUCCESS) {
      return pmix_error("PMIx_Put", status);
    }
    if (const auto status = PMIx_Commit(); status != PMIX_SUCCESS)
      return pmix_error("PMIx_Commit", status);
    return Ok{};
  }

  Status fence(std::chrono::milliseconds timeout) {
    pmix_proc_t everyone;
    PMIX_LOAD_PROCID(&everyone, self_.nspace, PMIX_RANK_WILDCARD);
    bool collect = true;
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    const auto completion = std::make_shared<Completion>();
    auto handle = std::make_unique<std::shared_ptr<Completion>>(completion);
    const auto started = PMIx_Fence_nb(&everyone, 1, &info, 1, Completion::callback, handle.get());
    if (started != PMIX_SUCCESS) return pmix_error("PMIx_Fence_nb", started);
    (void)handle.release();  // the callback owns it from here on
    if (!completion->wait(timeout)) {
      return Error{
          formatted("PMIx: not all {} ranks arrived within {} to exchange their addresses: does "
                    "every rank run this program?",
                    world_size_, seconds(timeout))};
    }
    if (completion->status() != PMIX_SUCCESS) return pmix_error("PMIx_Fence", completion->status());
    return Ok{};
  }

  Result<std::string> fetch(const std::string& key, int rank) const {
    pmix_proc_t peer;
    PMIX_LOAD_PROCID(&peer, self_.nspace, static_cast<pmix_rank_t>(rank));
    pmix_value_t* value = nullptr;
    const auto status = PMIx_Get(&peer, key.c_str(), nullptr, 0, &value);
    if (status != PMIX_SUCCESS) return pmix_error("PMIx_Get", status);
    std::string text;
    if (value->type == PMIX_STRING && value->data.string != nullptr) text = value->data.string;
    PMIX_VALUE_RELEASE(value);
    if (text.empty()) return Error{formatted("PMIx: rank {} published no value", rank)};
    return text;
  }

  pmix_proc_t self_;
  int world_size_;
  int round_ = 0;
};

}  // namespace

Result<std::unique_ptr<Exchange>> connect_pmix(int world_size) {
  constexpr int kKeepWhatIsSet = 0;
  setenv(kPmixVariable, kPmixValue, kKeepWhatIsSet);
  pmix_proc_t self;
  if (const auto status = PMIx_Init(&self, nullptr, 0); status != PMIX_SUCCESS)
    return pmix_error("PMIx_Init", status);
  return std::unique_ptr<Exchange>(std::make_unique<PmixExchange>(self, world_size));
}

bool is_built_with_pmix() { return true; }

}  // namespace torchbridge
