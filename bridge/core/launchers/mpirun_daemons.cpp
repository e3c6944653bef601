#include "bridge/core/launchers/mpirun_daemons.h"

#include <charconv>
#include <cstdint>

#include "bridge/base/hostlist.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launchers/launchers.h"

namespace torchbridge {
namespace {

bool parse_hex(std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

std::string padded(std::string_view digits, std::size_t width) {
  // An empty text stays empty, which is no number.
  const bool short_of = !digits.empty() && digits.size() < width;
  return std::string(short_of ? width - digits.size() : 0, '0') + std::string(digits);
}

// "2:8-10,7" as Slurm writes it: "08-10,07".
std::optional<std::string> slurm_brackets(std::string_view inside) {
  const auto colon = inside.find(':');
  const auto width =
      colon == inside.npos ? std::nullopt : parse_integer(inside.substr(0, colon), 1, 18);
  if (!width) return std::nullopt;
  std::string text;
  for (const auto range : split_at(inside.substr(colon + 1), ',')) {
    const auto dash = range.find('-');
    text += (text.empty() ? "" : ",") + padded(range.substr(0, dash), *width);
    if (dash != range.npos) text += "-" + padded(range.substr(dash + 1), *width);
  }
  return text;
}

std::optional<MpirunDaemons> read_orte(const EnvMap& environment) {
  const auto secret = environment.get("OMPI_MCA_orte_precondition_transports");
  const std::string_view mpirun = *environment.get("OMPI_MCA_orte_hnp_uri");
  if (!secret) return std::nullopt;
  const auto key = parse_orte_secret(*secret);
  auto addresses = parse_orte_addresses(mpirun);
  if (!key || !addresses) return std::nullopt;

  const auto name = [](std::string_view uri) { return uri.substr(0, uri.find(';')); };
  const bool on_mpirun_host =
      name(environment.get("OMPI_MCA_orte_local_daemon_uri").value_or("")) == name(mpirun);
  MpirunDaemons daemons{*key, true, on_mpirun_host, std::move(*addresses), false, {}};
  const auto regex = environment.get("OMPI_MCA_orte_node_regex");
  if (!regex) return daemons;
  if (auto nodes = parse_orte_nodes(*regex)) daemons.nodes = std::move(*nodes);
  // The nodes with ranks; each other node that is used has a daemon, and mpirun's in any case.
  const auto used = environment.integer("OMPI_MCA_orte_num_nodes", 1, kMaxRanks);
  daemons.mpirun_host_is_idle =
      used && *used && **used == static_cast<std::int64_t>(daemons.nodes.size()) - 1;
  if (daemons.mpirun_host_is_idle) daemons.nodes.erase(daemons.nodes.begin());
  return daemons;
}

// The daemons are ranks 0, 1 ... of the job 0 in the same name space, mpirun first:
// "prterun-n0-6537@0.1;tcp4://...".
std::optional<MpirunDaemons> read_prrte(const EnvMap& environment) {
  const auto name_space = environment.get("PMIX_NAMESPACE").value_or("");
  auto host = parse_prrte_host(name_space);
  const std::string of_daemon = std::string(name_space.substr(0, name_space.rfind('@'))) + "@0.";
  const auto daemon = pmix_server_uri(environment, of_daemon);
  if (!host || daemon.empty()) return std::nullopt;
  const bool on_mpirun_host = daemon.substr(of_daemon.size()).starts_with("0;");
  return MpirunDaemons{std::string(name_space), false, on_mpirun_host,
                       {std::move(*host)},      false, {}};
}

}  // namespace

std::string token_of_mpirun(const EnvMap& environment) {
  const auto daemons = read_mpirun_daemons(environment);
  return daemons && daemons->is_secret_random ? daemons->secret : "";
}

std::string token_of_launcher(const LaunchFacts& facts, const EnvMap& environment) {
  return facts.launcher == "openmpi" ? token_of_mpirun(environment) : "";
}

Result<std::string> parse_orte_secret(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  const auto first = take_until(text, '-'), second = text;
  std::uint64_t high = 0, low = 0;
  const bool good = parse_hex(first, high) && parse_hex(second, low);
  // The value is not shown: it is a secret.
  if (!good || (high == 0 && low == 0)) return Error{"expected two hexadecimal numbers, A-B"};
  return padded(first, kDigits) + padded(second, kDigits);
}

Result<std::vector<std::string>> parse_orte_addresses(std::string_view uri) {
  const auto error = [&] {
    return Error{
        formatted("daemon's address '{}': expected ID;tcp://ADDRESS,...:PORT;...", printable(uri))};
  };
  std::vector<std::string> addresses;
  const auto parts = split_at(uri, ';');
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto slashes = parts[i].find("://"), colon = parts[i].rfind(':');
    const auto scheme = parts[i].substr(0, slashes);
    if (slashes == uri.npos || (scheme != "tcp" && scheme != "tcp6") || colon < slashes + 3)
      return error();
    for (auto address : split_at(parts[i].substr(slashes + 3, colon - slashes - 3), ',')) {
      if (address.starts_with('[') && address.ends_with(']'))
        address = address.substr(1, address.size() - 2);
      if (address.empty() || address.find_first_not_of("0123456789abcdefABCDEF.:") != address.npos)
        return error();
      addresses.emplace_back(address);
    }
  }
  if (addresses.empty()) return error();
  return addresses;
}

Result<std::vector<std::string>> parse_orte_nodes(std::string_view regex) {
  const auto at = regex.rfind('@');
  if (at == regex.npos || at == 0)
    return Error{formatted("node list '{}': expected NAMES@DAEMONS", printable(regex))};
  std::string list;
  for (auto names = regex.substr(0, at); !names.empty();) {
    const auto open = names.find('['), close = names.find(']', open);
    list += names.substr(0, open);
    if (open == names.npos) break;
    const auto inside = close == names.npos
                            ? std::nullopt
                            : slurm_brackets(names.substr(open + 1, close - open - 1));
    if (!inside)
      return Error{formatted("node list '{}': expected [DIGITS:NUMBERS]", printable(regex))};
    list += "[" + *inside + "]";
    names.remove_prefix(close + 1);
  }
  return parse_hostlist(list);
}

Result<std::string> parse_prrte_host(std::string_view name_space) {
  const auto host_begin = name_space.find('-') + 1, at = name_space.rfind('@');
  const auto host_end = at == name_space.npos ? at : name_space.substr(0, at).rfind('-');
  const auto tool = name_space.substr(0, host_begin);
  if ((tool != "prterun-" && tool != "prte-") || host_end == name_space.npos ||
      host_end <= host_begin ||
      !parse_integer(name_space.substr(host_end + 1, at - host_end - 1), 1, INT32_MAX)) {
    return Error{
        formatted("PMIX_NAMESPACE='{}': expected prterun-HOST-PID@JOB", printable(name_space))};
  }
  return std::string(name_space.substr(host_begin, host_end - host_begin));
}

std::optional<MpirunDaemons> read_mpirun_daemons(const EnvMap& environment) {
  return environment.has("OMPI_MCA_orte_hnp_uri") ? read_orte(environment)
                                                  : read_prrte(environment);
}

}  // namespace torchbridge
