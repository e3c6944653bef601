#include "bridge/net/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <string_view>
#include <tuple>

#include "bridge/base/env_map.h"
#include "bridge/base/subnet.h"

namespace torchbridge {
namespace {

// Empty for families other than IPv4 and IPv6.
std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

// The address from which this host would send to another; empty where there is no route. Connecting a datagram socket
// asks the routing table, and sends nothing.
std::string route_source(const std::string& numeric_address) {
  constexpr const char* kAnyPort = "9";
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(numeric_address.c_str(), kAnyPort, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const int descriptor = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return {};
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  const bool routed = connect(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
                      getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &size) == 0;
  close(descriptor);
  return routed ? text_of(reinterpret_cast<const sockaddr*>(&local)) : std::string();
}

bool is_link_local(const std::string& address) {
  return address.starts_with("fe80:") || address.starts_with("169.254.");
}

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

struct InterfaceAddress {
  std::string name, address;
};

// Of interfaces that are up, link-local ones left out, IPv4 first, in the kernel's order.
std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<InterfaceAddress> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string address = text_of(entry->ifa_addr);
    if (!address.empty() && !is_link_local(address)) interfaces.push_back({entry->ifa_name, address});
  }
  std::stable_partition(interfaces.begin(), interfaces.end(),
                        [](const auto& interface) { return !is_ipv6(interface.address); });
  return interfaces;
}

// Of a name, at least one, in the resolver's order.
Result<std::vector<std::string>> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    return Error{"host name '" + printable(host) + "' does not resolve on " + host_name() + ": " + gai_strerror(error)};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    auto text = text_of(entry->ai_addr);
    if (!text.empty()) addresses.push_back(std::move(text));
  }
  if (addresses.empty()) return Error{"host name '" + printable(host) + "' has neither an IPv4 nor an IPv6 address"};
  return addresses;
}

template <class Matches>
Result<std::string> first_address(const std::string& rule, Matches matches) {
  std::string all;
  for (const auto& interface : interface_addresses()) {
    if (matches(interface)) return interface.address;
    all += (all.empty() ? "" : ", ") + interface.name + " " + interface.address;
  }
  return Error{"addr=" + rule + ": " + host_name() + ", the node of rank 0, has no such address: it has " + all};
}

}  // namespace

Result<std::string> numeric_address(const std::string& host) {
  // A total order, as the resolver's order differs between nodes and between calls.
  const auto sort_key = [](const std::string& address) {
    return std::tuple(is_loopback(address) || is_link_local(address), is_ipv6(address), std::string_view(address));
  };
  const auto addresses = addresses_of(host);
  if (!addresses) return addresses.error();
  return *std::min_element(addresses->begin(), addresses->end(),
                           [&](const auto& a, const auto& b) { return sort_key(a) < sort_key(b); });
}

bool is_numeric(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
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
  return is_loopback(numeric_address) || std::find(own.begin(), own.end(), numeric_address) != own.end();
}

Result<std::string> address_towards(const std::string& numeric_address, bool several_nodes) {
  const std::string source = route_source(numeric_address);
  if (source.empty()) return Error{"there is no route to '" + printable(numeric_address) + "'"};
  if (!several_nodes || !is_loopback(source)) return source;
  const auto own = local_addresses();
  const auto outer =
      std::find_if(own.begin(), own.end(), [&](const auto& address) { return is_ipv6(address) == is_ipv6(source); });
  return outer != own.end() ? *outer : source;
}

Result<std::string> reachable_address() {
  const auto addresses = local_addresses();
  const auto own = numeric_address(host_name());
  if (own && std::find(addresses.begin(), addresses.end(), *own) != addresses.end()) return *own;
  if (!addresses.empty()) return addresses.front();
  return Error{"host " + host_name() +
               " has no address that other hosts could reach: every interface is down or loopback"};
}

std::string address_to_listen_on(const std::string& own_address) {
  const auto named = addresses_of(host_name());
  const auto same_family = [&](const auto& address) { return is_ipv6(address) == is_ipv6(own_address); };
  const bool is_known_by_one = named && std::none_of(named->begin(), named->end(), is_loopback) &&
                               std::count_if(named->begin(), named->end(), same_family) < 2;
  if (is_known_by_one) return own_address;
  return is_ipv6(own_address) ? "::" : "0.0.0.0";
}

Result<std::string> own_address(const AddressRule& rule) {
  switch (rule.kind) {
    case AddressRule::Kind::kAuto:
      break;
    case AddressRule::Kind::kHost:
      return numeric_address(rule.text);
    case AddressRule::Kind::kSuffix:
      return numeric_address(host_name() + rule.text);
    case AddressRule::Kind::kInterface:
      return first_address("iface:" + rule.text, [&](const auto& interface) { return interface.name == rule.text; });
    case AddressRule::Kind::kSubnet: {
      const auto subnet = Subnet::parse(rule.text);
      if (!subnet) return subnet.error();
      return first_address("subnet:" + rule.text,
                           [&](const auto& interface) { return subnet->contains(interface.address); });
    }
  }
  return reachable_address();
}

std::string interface_towards(const std::string& numeric_address) {
  const auto local = route_source(numeric_address);
  ifaddrs* list = nullptr;
  if (local.empty() || getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && text_of(entry->ifa_addr) == local) return entry->ifa_name;
  }
  return {};
}

PortRange ephemeral_ports() {
  const int file = open("/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char text[64];
  const ssize_t size = read(file, text, sizeof text);
  close(file);
  const auto range = parse_port_range({text, static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
  return range ? *range : PortRange{};
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace torchbridge
