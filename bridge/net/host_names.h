// What host names resolve to: asked of the system's resolver, or found before, where it must not be
// asked.
#pragma once

#include <sys/socket.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge {

// Inside a container the system's resolver loads the libraries that the image's nsswitch.conf names
// into the process that asks: a process that is not yet the user's program has to have its names
// before.
class HostNames {
 public:
  // Asks the system's resolver at each call, and so may wait as long as that does.
  HostNames() = default;
  // Asks it now for these names. The result asks nobody, and has no other names.
  static HostNames look_up(const std::vector<std::string>& names);

  // Numeric addresses, at least one, in the resolver's order. A numeric address, without brackets,
  // gives itself.
  Result<std::vector<std::string>> addresses_of(const std::string& host) const;

  // Gives a name the addresses of another, which the resolver is asked for now; nothing changes
  // where it has none.
  void add_alias(const std::string& name, const std::string& other);

  // Of an object that asks nobody: a line for each name.
  std::string text() const;
  // Asks nobody either; lines that are none of text() are left out.
  static HostNames from(std::string_view text);

 private:
  bool asks_ = true;
  std::map<std::string, Result<std::vector<std::string>>> known_;
};

// The host's own name, as gethostname gives it.
std::string host_name();

// The address's usual text; nothing where it is no IPv4 or IPv6 address.
std::string canonical_address(const std::string& host);
// Also of the resolver's short forms: "0", "127.1".
std::string address_in_digits(const std::string& host);
// The same of a socket's address.
std::string address_text(const sockaddr* address);

}  // namespace torchbridge
