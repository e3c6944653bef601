#include "bridge/net/name_resolver.h"

#include <sys/eventfd.h>

#include <map>
#include <mutex>
#include <thread>

#include "bridge/net/address.h"

namespace torchbridge {

struct NameResolver::State {
  std::mutex mutex;
  std::map<std::string, Result<std::string>> found;
  bool stop = false;
  Socket event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

NameResolver::NameResolver() : shared_(std::make_shared<State>()) {}

NameResolver::~NameResolver() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
}

void NameResolver::start(std::vector<std::string> names) {
  std::thread([shared = shared_, names = std::move(names)] {
    for (const auto& name : names) {
      auto address = numeric_address(name);
      const std::lock_guard lock(shared->mutex);
      if (shared->stop) return;
      shared->found.emplace(name, std::move(address));
      eventfd_write(shared->event.descriptor(), 1);
    }
  }).detach();
}

std::optional<Result<std::string>> NameResolver::find(const std::string& name) const {
  const std::lock_guard lock(shared_->mutex);
  const auto entry = shared_->found.find(name);
  return entry == shared_->found.end() ? std::nullopt : std::optional(entry->second);
}

int NameResolver::event() const { return shared_->event.descriptor(); }

void NameResolver::clear_event() const {
  eventfd_t count;
  eventfd_read(shared_->event.descriptor(), &count);
}

}  // namespace torchbridge
