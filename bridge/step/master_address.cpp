#include "bridge/step/master_address.h"

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/net/address.h"
#include "bridge/step/step_group.h"

namespace torchbridge {
namespace {

// Sent instead of an address where rank 0 has none, and by the other ranks, whose values are not
// used.
constexpr const char* kNone = "none";

Result<std::string> pick_address(const Layout& at, const AddressRule& rule,
                                 const HostNames& names) {
  auto address = own_address(rule, names);
  if (!address || at.node_count == 1 || !is_loopback(*address)) return address;
  const std::string kind = rule.kind == AddressRule::Kind::kInterface ? "iface:" : "subnet:";
  return Error{formatted("addr={}{}: {} is a loopback address, which the other nodes cannot reach",
                         kind, rule.text, *address)};
}

}  // namespace

Result<std::string> agree_on_address(const LaunchFacts& facts, const TaskMap& map, const Layout& at,
                                     const Endpoint& store, const LaunchOptions& options,
                                     std::chrono::milliseconds timeout, const HostNames& names,
                                     const std::string& token) {
  if (!options.addr.depends_on_interfaces()) return store.host;
  const auto node = master_node_of(facts, map, options.ranks);
  if (!node) return node.error();
  // On one node nothing is sent over TCP.
  const auto where = at.node_count == 1 ? Result<ListeningNode>(ListeningNode())
                                        : listening_node(facts, map, options, *node, store, names);
  if (!where) return Error{.message = where.error().message, .only_here = true};
  const auto own =
      at.rank == 0 ? pick_address(at, options.addr, names) : Result<std::string>(kNone);
  const auto address = all_gather_in_step(
      group_of_step(facts, at, *where, "address", token), own ? *own : kNone, timeout,
      [](Values values) { return Result<Values>(Values{std::move(values.front())}); });
  if (!own) return own.error();
  if (!address) return address.error();
  if (address->front() == kNone) return Error::elsewhere();
  if (!is_numeric(address->front()))
    return Error{.message = formatted("rank 0 sent '{}', which is no numeric address",
                                      printable(address->front())),
                 .only_here = true};
  return address->front();
}

}  // namespace torchbridge
