// Addresses of this host, and the one of several by which a host is reached.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"
#include "bridge/core/launch_options.h"
#include "bridge/net/host_names.h"
#include "bridge/net/interface_values.h"

namespace torchbridge {

// The numeric address of a name; a numeric address gives itself. Of several it is the same on all
// nodes: not a loopback or link-local one if there are others, IPv4 before IPv6, then the first as
// text.
Result<std::string> numeric_address(const std::string& host, const HostNames& names = {});

// Whether `host` is a numeric IPv4 or IPv6 address, without brackets.
bool is_numeric(const std::string& host);

bool is_loopback(const std::string& numeric_address);

// Whether each host means itself by it, as by localhost or 0.0.0.0. Not a name that is a loopback
// address by a line of /etc/hosts alone (127.0.1.1 NAME).
bool names_loopback(const std::string& host);

// Whether it stands for all addresses of a host, to listen on; who connects to it reaches itself.
bool is_any_address(const std::string& numeric_address);
// The one of the same family.
std::string any_address_like(const std::string& numeric_address);
std::string loopback_like(const std::string& numeric_address);
// The one for who reaches this host at its loopback address, or at that for all addresses, and for
// others: IPv6's also accepts IPv4.
std::string any_address_for_others(const std::string& own_address);

// Whether an interface of this host, as this process sees it, has the address; loopback ones all
// do, and that for all addresses.
bool is_own_address(const std::string& numeric_address);

// The address of this host that packets to `numeric_address` leave from. Where that is loopback
// although the job has other nodes (Debian gives a host's own name 127.0.1.1), the first of
// local_addresses() of the same family, or of the other.
Result<std::string> address_towards(const std::string& numeric_address, bool several_nodes);

// Numeric addresses of the interfaces that are up, loopback and link-local left out, IPv4 first, in
// the kernel's order.
std::vector<std::string> local_addresses();

// The address by which other nodes reach this one, as far as this node can know: what the host's
// own name resolves to, where that is an address of an interface; else the first of
// local_addresses(). An error where there is none.
Result<std::string> reachable_address(const HostNames& names = {});

// What to listen on so that other nodes reach this host at `own_address`: the address itself, or
// all, where the host's own name is a loopback address here (Debian's "127.0.1.1 NAME" in
// /etc/hosts) or has several addresses, or none: the others may know it by another.
std::string address_to_listen_on(const std::string& own_address, const HostNames& names = {});

// This host's own address by a rule of addr=, for the node of rank 0. auto is reachable_address();
// a host or a suffix is a name. An interface or a subnet selects the first of its addresses in the
// order of local_addresses(); where there is none the error lists the addresses of this host.
Result<std::string> own_address(const AddressRule& rule, const HostNames& names = {});

// The interfaces of this host that are up and have an address that is not link-local, nor with
// `several_nodes` a loopback one.
UsableInterfaces usable_interfaces(bool several_nodes);

// The name of the interface by which this host reaches a numeric address, also its own; empty where
// there is no route.
std::string interface_towards(const std::string& numeric_address);

// The ephemeral ports of this host; the kernel's built-in default where /proc is not readable.
PortRange ephemeral_ports();

}  // namespace torchbridge
