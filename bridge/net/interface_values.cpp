#include "bridge/net/interface_values.h"

#include <algorithm>

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

Error no_such_interface(const std::string& source, const UsableInterfaces& usable) {
  const std::string list = joined(usable.names, ", ");
  return {formatted("{}: {} has no such interface{}; it has {}", source, usable.host,
                    usable.several_nodes ? " that other nodes can reach" : "",
                    list.empty() ? "none" : list)};
}

// "eth,ib", "=eth0", "^lo,docker", "^=eth0"; a port may follow a name.
bool is_of_nccl(std::string_view list, std::string_view name) {
  const auto take = [&](char mark) {
    const bool has_mark = list.starts_with(mark);
    if (has_mark) list.remove_prefix(1);
    return has_mark;
  };
  const bool is_left_out = take('^'), is_exact = take('=');
  while (!list.empty()) {
    std::string_view entry = take_until(list, ',');
    entry = entry.substr(0, entry.find(':'));
    if (is_exact ? name == entry : name.starts_with(entry)) return !is_left_out;
  }
  return is_left_out;
}

}  // namespace

Status check_interface(const std::string& source, std::string_view name,
                       const UsableInterfaces& usable) {
  if (std::ranges::count(usable.names, name) == 0) return no_such_interface(source, usable);
  return Ok{};
}

Status check_interface_variables(const EnvMap& environment, const UsableInterfaces& usable) {
  for (auto gloo = environment.get("GLOO_SOCKET_IFNAME").value_or(""); !gloo.empty();) {
    const auto name = take_until(gloo, ',');
    const auto checked =
        check_interface(formatted("GLOO_SOCKET_IFNAME='{}'", printable(name)), name, usable);
    if (!checked) return Error{formatted("{}: unset it", checked.error().message)};
  }
  const auto nccl = environment.get("NCCL_SOCKET_IFNAME").value_or("");
  const auto is_named = [&](const std::string& name) { return is_of_nccl(nccl, name); };
  if (nccl.empty() || !usable.several_nodes || std::ranges::any_of(usable.names, is_named))
    return Ok{};
  const std::string source = formatted("NCCL_SOCKET_IFNAME='{}'", printable(nccl));
  return Error{formatted("{}: unset it", no_such_interface(source, usable).message)};
}

}  // namespace torchbridge
