// The characters of a host's name or address.
#pragma once

#include <string_view>

namespace torchbridge {

// Letters, digits and "-_.", 1 to 253 of them, as of a DNS name, or what an IPv6 address is made
// of: nothing that a shell or a format would read, and no name with a port.
bool is_host_text(std::string_view text);

}  // namespace torchbridge
