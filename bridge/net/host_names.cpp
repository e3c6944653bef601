#include "bridge/net/host_names.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

#include <climits>
#include <memory>
#include <utility>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

using Addresses = std::vector<std::string>;

// Before the text of an error, where addresses would stand.
constexpr std::string_view kErrorMark = "!";

Result<Addresses> ask_resolver(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    return Error{formatted("host name '{}' does not resolve on {}: {}", printable(host),
                           host_name(), gai_strerror(error))};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  Addresses addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    auto text = address_text(entry->ai_addr);
    if (!text.empty()) addresses.push_back(std::move(text));
  }
  if (addresses.empty())
    return Error{
        formatted("host name '{}' has neither an IPv4 nor an IPv6 address", printable(host))};
  return addresses;
}

}  // namespace

HostNames HostNames::look_up(const std::vector<std::string>& names) {
  HostNames found;
  found.asks_ = false;
  for (const auto& name : names) {
    if (canonical_address(name).empty() && !found.known_.contains(name))
      found.known_.emplace(name, ask_resolver(name));
  }
  return found;
}

Result<Addresses> HostNames::addresses_of(const std::string& host) const {
  if (auto numeric = canonical_address(host); !numeric.empty())
    return Addresses{std::move(numeric)};
  if (asks_) return ask_resolver(host);
  const auto found = known_.find(host);
  if (found != known_.end()) return found->second;
  return Error{
      formatted("host name '{}' was not known before this task could enter a container, and inside "
                "it no name is looked up",
                printable(host))};
}

void HostNames::add_alias(const std::string& name, const std::string& other) {
  auto addresses = HostNames().addresses_of(other);
  if (addresses) known_.insert_or_assign(name, std::move(addresses));
}

std::string HostNames::text() const {
  std::string text;
  for (const auto& [name, addresses] : known_) {
    text += name;
    if (!addresses) {
      text += " " + std::string(kErrorMark) + addresses.error().message;
    } else {
      for (const auto& address : *addresses) text += " " + address;
    }
    text += '\n';
  }
  return text;
}

HostNames HostNames::from(std::string_view text) {
  HostNames names;
  names.asks_ = false;
  while (!text.empty()) {
    auto line = take_until(text, '\n');
    const std::string name(take_until(line, ' '));
    if (line.starts_with(kErrorMark)) {
      names.known_.emplace(name, Error{std::string(line.substr(kErrorMark.size()))});
      continue;
    }
    Addresses addresses;
    while (!line.empty()) {
      if (auto address = canonical_address(std::string(take_until(line, ' '))); !address.empty())
        addresses.push_back(std::move(address));
    }
    if (!addresses.empty()) names.known_.emplace(name, std::move(addresses));
  }
  return names;
}

std::string canonical_address(const std::string& host) {
  in6_addr address;
  char text[INET6_ADDRSTRLEN] = "";
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, host.c_str(), &address) == 1)
      return inet_ntop(family, &address, text, sizeof text);
  }
  return {};
}

std::string address_in_digits(const std::string& host) {
  in_addr address;
  if (inet_aton(host.c_str(), &address) != 0) return inet_ntoa(address);
  return canonical_address(host);
}

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof text);
  }
  return text;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace torchbridge
