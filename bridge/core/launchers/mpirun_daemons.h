// What OpenMPI's mpirun gives its ranks about its daemons, one on each node: the nodes that may
// hold other ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

struct MpirunDaemons {
  // OpenMPI 4: drawn by mpirun for this run, and only in the environment of its ranks. OpenMPI 5
  // has none: it is made from the run's name, mpirun's host and pid, which distinguishes runs, but
  // other users can guess it.
  std::string secret;
  bool is_secret_random = false;  // of OpenMPI 4
  bool on_mpirun_host = false;    // this rank runs where mpirun does
  // Its numeric addresses, or its name; it may hold ranks or not.
  std::vector<std::string> mpirun_host;
  bool mpirun_host_is_idle = false;  // it is known to hold none
  // Names of all nodes with a daemon, mpirun's first unless it is idle. Empty on mpirun's
  // host, whose ranks do not get it, where mpirun found the list too long for a command line (1024
  // characters), and in OpenMPI 5.
  std::vector<std::string> nodes;
};

// Nothing where a variable with the secret or the host is missing or not as 4.1 or 5.0 write it.
// All ranks of a run get the same result. A list of nodes that cannot be parsed is left empty.
std::optional<MpirunDaemons> read_mpirun_daemons(const EnvMap& environment);

// 32 hexadecimal digits that the ranks of this mpirun have and other users cannot guess; empty
// where it gives none.
std::string token_of_mpirun(const EnvMap& environment);

// The one of the mpirun that started this rank; empty where another launcher did. It comes before
// kTokenVariable: an exported one, or that of --torch-env around mpirun, may be missing on other
// nodes.
std::string token_of_launcher(const LaunchFacts& facts, const EnvMap& environment);

// "8ab9e0efaf4826c6-8b979a31b6ee930f", whose parts may lack leading zeros: 32 digits.
Result<std::string> parse_orte_secret(std::string_view text);

// "867827712.0;tcp://10.77.0.10,192.0.2.2:59321;tcp6://[fd00::2]:41921": the numeric addresses,
// IPv4 and IPv6, in their order.
Result<std::vector<std::string>> parse_orte_addresses(std::string_view uri);

// "n[1:0-3,7],login@0(6)": names, of which brackets hold the digits' number and what they count;
// after '@' the daemons' numbers, which are ignored. (OpenMPI 4.1, orte/mca/regx.)
Result<std::vector<std::string>> parse_orte_nodes(std::string_view regex);

// OpenMPI 5: "prterun-HOST-PID@1", or "prte-HOST-PID@1" of a virtual machine that runs on: the
// host's name.
Result<std::string> parse_prrte_host(std::string_view name_space);

}  // namespace torchbridge
