#include <dlfcn.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <pmix.h>

#include "bridge/base/find_function.h"
#include "bridge/base/message_text.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/launch/launcher_exchange.h"

namespace torchbridge {
namespace {

// The functions of libpmix.so.2 that are used, by their types in its header. The library is opened
// where it is needed: only then must it be installed. Its macros are not used, because they call
// functions that not every release has.
struct Pmix {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence_nb = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

  Error error(const char* call, pmix_status_t status) const {
    return {formatted("PMIx: {} failed: {}", call, error_string(status))};
  }
};

// Also for its plugins, as if the program were linked with it.
Result<Pmix> open_pmix() {
  void* library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) library = dlopen(TORCHBRIDGE_PMIX_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
  Pmix pmix;
  const bool is_complete = library && find_function(library, "PMIx_Init", pmix.init) &&
                           find_function(library, "PMIx_Finalize", pmix.finalize) &&
                           find_function(library, "PMIx_Put", pmix.put) &&
                           find_function(library, "PMIx_Commit", pmix.commit) &&
                           find_function(library, "PMIx_Fence_nb", pmix.fence_nb) &&
                           find_function(library, "PMIx_Get", pmix.get) &&
                           find_function(library, "PMIx_Error_string", pmix.error_string);
  if (!is_complete) {
    return Error{.message = formatted("PMIx needs libpmix.so.2 (Debian: libpmix2), or set "
                                      "MASTER_ADDR and MASTER_PORT: {}",
                                      dlerror()),
                 .only_here = true};
  }
  return pmix;
}

pmix_proc_t process_of(const pmix_proc_t& self, pmix_rank_t rank) {
  pmix_proc_t process = self;  // of the same name space
  process.rank = rank;
  return process;
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
  PmixExchange(const Pmix& pmix, const pmix_proc_t& self, int world_size)
      : pmix_(pmix), self_(self), world_size_(world_size) {}
  ~PmixExchange() override { pmix_.finalize(nullptr, 0); }

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
    if (const auto status = pmix_.put(PMIX_GLOBAL, key.c_str(), &entry); status != PMIX_SUCCESS)
      return pmix_.error("PMIx_Put", status);
    if (const auto status = pmix_.commit(); status != PMIX_SUCCESS)
      return pmix_.error("PMIx_Commit", status);
    return Ok{};
  }

  Status fence(std::chrono::milliseconds timeout) {
    const pmix_proc_t everyone = process_of(self_, PMIX_RANK_WILDCARD);
    pmix_info_t info{};
    std::strncpy(info.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    info.value.type = PMIX_BOOL;
    info.value.data.flag = true;
    const auto completion = std::make_shared<Completion>();
    auto handle = std::make_unique<std::shared_ptr<Completion>>(completion);
    const auto started = pmix_.fence_nb(&everyone, 1, &info, 1, Completion::callback, handle.get());
    if (started != PMIX_SUCCESS) return pmix_.error("PMIx_Fence_nb", started);
    (void)handle.release();  // the callback owns it from here on
    if (!completion->wait(timeout)) {
      return Error{
          formatted("PMIx: not all {} ranks arrived within {} to exchange their addresses: does "
                    "every rank run this program?",
                    world_size_, seconds(timeout))};
    }
    if (completion->status() != PMIX_SUCCESS)
      return pmix_.error("PMIx_Fence", completion->status());
    return Ok{};
  }

  Result<std::string> fetch(const std::string& key, int rank) const {
    const pmix_proc_t peer = process_of(self_, static_cast<pmix_rank_t>(rank));
    pmix_value_t* value = nullptr;
    const auto status = pmix_.get(&peer, key.c_str(), nullptr, 0, &value);
    if (status != PMIX_SUCCESS) return pmix_.error("PMIx_Get", status);
    std::string text;
    if (value->type == PMIX_STRING && value->data.string != nullptr) {
      text = value->data.string;
      std::free(value->data.string);
    }
    std::free(value);
    if (text.empty()) return Error{formatted("PMIx: rank {} published no value", rank)};
    return text;
  }

  Pmix pmix_;
  pmix_proc_t self_;
  int world_size_;
  int round_ = 0;
};

}  // namespace

Result<std::unique_ptr<Exchange>> connect_pmix(int world_size) {
  const auto pmix = open_pmix();
  if (!pmix) return pmix.error();
  constexpr int kKeepWhatIsSet = 0;
  setenv(kPmixVariable, kPmixValue, kKeepWhatIsSet);
  pmix_proc_t self;
  if (const auto status = pmix->init(&self, nullptr, 0); status != PMIX_SUCCESS)
    return pmix->error("PMIx_Init", status);
  return std::unique_ptr<Exchange>(std::make_unique<PmixExchange>(*pmix, self, world_size));
}

bool is_built_with_pmix() { return true; }

}  // namespace torchbridge
