#include <torchbridge/exchange/exchange.h>
#include <torchbridge/net/node_gathering.h>

namespace torchbridge {
namespace {

class NodeExchange : public Exchange {
 public:
  NodeExchange(std::string key, int rank, int world_size, Beyond beyond)
      : key_(std::move(key)), rank_(rank), world_size_(world_size), beyond_(std::move(beyond)) {}

  Result<std::vector<std::string>> all_gather(const std::string& value, std::chrono::milliseconds timeout) override {
    return gather_on_node(key_, rank_, world_size_, value, timeout, beyond_);
  }

 private:
  std::string key_;
  int rank_, world_size_;
  Beyond beyond_;
};

}  // namespace

std::unique_ptr<Exchange> meet_on_node(const std::string& key, int rank, int world_size, Beyond beyond) {
  return std::make_unique<NodeExchange>(key, rank, world_size, std::move(beyond));
}

}  // namespace torchbridge
