#include "bridge/net/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <tuple>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/subnet.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

// The address from which this host would send to another; empty where there is no route. Connecting
// a datagram socket asks the routing table, and sends nothing.
std::string route_source(const std::string& numeric_address) {
  constexpr int kAnyPort = 9;
  const auto target = socket_address({numeric_address, kAnyPort});
  const Socket socket(target ? ::socket(target->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1);
  if (!socket.open() || connect(socket.descriptor(), target->get(), target->size) != 0) return {};
  return bound_host(socket).value_or("");
}

bool is_link_local(const std::string& address) {
  return address.starts_with("fe80:") || address.starts_with("169.254.");
}

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

struct InterfaceAddress {
  std::string name, address;
  bool is_up;
};

// In the kernel's order.
std::vector<InterfaceAddress> all_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    std::string address = entry->ifa_addr != nullptr ? address_text(entry->ifa_addr) : "";
    if (!address.empty())
      addresses.push_back({entry->ifa_name, std::move(address), (entry->ifa_flags & IFF_UP) != 0});
  }
  return addresses;
}

// Of interfaces that are up, link-local ones left out, IPv4 first, in the kernel's order.
std::vector<InterfaceAddress> interface_addresses() {
  auto interfaces = all_addresses();
  std::erase_if(interfaces,
                [](const auto& each) { return !each.is_up || is_link_local(each.address); });
  std::stable_partition(interfaces.begin(), interfaces.end(),
                        [](const auto& each) { return !is_ipv6(each.address); });
  return interfaces;
}

template <class Matches>
Result<std::string> first_address(const std::string& rule, Matches matches) {
  std::string all;
  for (const auto& interface : interface_addresses()) {
    if (matches(interface)) return interface.address;
    all += (all.empty() ? "" : ", ") + interface.name + " " + interface.address;
  }
  return Error{formatted("addr={}: {}, the node of rank 0, has no such address: it has {}", rule,
                         host_name(), all)};
}

}  // namespace

Result<std::string> numeric_address(const std::string& host, const HostNames& names) {
  // A total order, as the resolver's order differs between nodes and between calls.
  const auto sort_key = [](const std::string& address) {
    return std::tuple(is_loopback(address) || is_link_local(address), is_ipv6(address),
                      std::string_view(address));
  };
  const auto addresses = names.addresses_of(host);
  if (!addresses) return addresses.error();
  return *std::ranges::min_element(*addresses, {}, sort_key);
}

bool is_numeric(const std::string& host) { return !canonical_address(host).empty(); }

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1" ||
         numeric_address.starts_with("::ffff:127.");
}

bool is_any_address(const std::string& numeric_address) {
  return numeric_address == "0.0.0.0" || numeric_address == "::";
}

std::string any_address_like(const std::string& numeric_address) {
  return is_ipv6(numeric_address) ? "::" : "0.0.0.0";
}

std::string loopback_like(const std::string& numeric_address) {
  return is_ipv6(numeric_address) ? "::1" : "127.0.0.1";
}

std::string any_address_for_others(const std::string& own_address) {
  const auto own = local_addresses();  // IPv4 first
  const bool is_decided = is_ipv6(own_address) || own.empty();
  return any_address_like(is_decided ? own_address : own.front());
}

bool names_loopback(const std::string& host) {
  if (const std::string address = address_in_digits(host); !address.empty())
    return is_loopback(address) || is_any_address(address);
  constexpr const char* kNames[] = {"localhost", "localhost4", "localhost6", "ip6-localhost",
                                    "ip6-loopback"};
  const std::string first = host.substr(0, host.find('.'));
  return std::ranges::any_of(
      kNames, [&](const char* name) { return strcasecmp(first.c_str(), name) == 0; });
}

std::vector<std::string> local_addresses() {
  std::vector<std::string> addresses;
  for (const auto& interface : interface_addresses()) {
    if (!is_loopback(interface.address)) addresses.push_back(interface.address);
  }
  return addresses;
}

bool is_own_address(const std::string& numeric_address) {
  const auto own = local_addresses();
  return is_loopback(numeric_address) || is_any_address(numeric_address) ||
         std::ranges::find(own, numeric_address) != own.end();
}

Result<std::string> address_towards(const std::string& numeric_address, bool several_nodes) {
  const std::string source = route_source(numeric_address);
  if (source.empty())
    return Error{formatted("there is no route to '{}'", printable(numeric_address))};
  if (!several_nodes || !is_loopback(source)) return source;
  const auto own = local_addresses();
  const auto outer = std::ranges::find(own, is_ipv6(source), is_ipv6);
  if (outer != own.end()) return *outer;
  return own.empty() ? source : own.front();
}

Result<std::string> reachable_address(const HostNames& names) {
  const auto addresses = local_addresses();
  const auto own = numeric_address(host_name(), names);
  if (own && std::ranges::find(addresses, *own) != addresses.end()) return *own;
  if (!addresses.empty()) return addresses.front();
  return Error{formatted(
      "host {} has no address that other hosts could reach: every interface is down or loopback",
      host_name())};
}

std::string address_to_listen_on(const std::string& own_address, const HostNames& names) {
  const auto named = names.addresses_of(host_name());
  const auto same_family = [&](const auto& address) {
    return is_ipv6(address) == is_ipv6(own_address);
  };
  const bool is_known_by_one = named && std::ranges::none_of(*named, is_loopback) &&
                               std::ranges::count_if(*named, same_family) < 2;
  if (is_known_by_one) return own_address;
  return any_address_like(own_address);
}

Result<std::string> own_address(const AddressRule& rule, const HostNames& names) {
  switch (rule.kind) {
    case AddressRule::Kind::kAuto:
      break;
    case AddressRule::Kind::kHost:
      return numeric_address(rule.text, names);
    case AddressRule::Kind::kSuffix:
      return numeric_address(host_name() + rule.text, names);
    case AddressRule::Kind::kInterface:
      return first_address(formatted("iface:{}", rule.text),
                           [&](const auto& interface) { return interface.name == rule.text; });
    case AddressRule::Kind::kSubnet: {
      const auto subnet = Subnet::parse(rule.text);
      if (!subnet) return subnet.error();
      return first_address(formatted("subnet:{}", rule.text), [&](const auto& interface) {
        return subnet->contains(interface.address);
      });
    }
  }
  return reachable_address(names);
}

UsableInterfaces usable_interfaces(bool several_nodes) {
  UsableInterfaces usable{.names = {}, .several_nodes = several_nodes, .host = host_name()};
  for (const auto& [name, address, is_up] : interface_addresses()) {
    const bool is_usable = !several_nodes || !is_loopback(address);
    if (is_usable && std::ranges::count(usable.names, name) == 0) usable.names.push_back(name);
  }
  return usable;
}

std::string interface_towards(const std::string& numeric_address) {
  const auto local = route_source(numeric_address);
  const auto all = all_addresses();
  const auto found = std::ranges::find(all, local, &InterfaceAddress::address);
  return found == all.end() ? "" : found->name;
}

PortRange ephemeral_ports() {
  // In a container whose image has its own /proc it may be a pipe.
  const Socket file(
      open("/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  char text[64];
  const ssize_t size = file.open() ? read(file.descriptor(), text, sizeof text) : 0;
  const auto range = parse_port_range({text, static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
  return range ? *range : PortRange{};
}

}  // namespace torchbridge
