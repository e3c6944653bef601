"""The nodes: namespaces held by one small process each, joined by a bridge that lives in the controller's namespace.

Only one interface, the login node's end, is in the machine's own network namespace. All of it, interfaces and mounts,
goes when the last process inside a node has ended.
"""
import ipaddress
import json
import os
import socket
import subprocess
import time

import processes
from state import ClusterError, report, write

CONTROLLER = "controller"
NETWORK = "10.77"
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
GONE_WAIT_S = 10
REACH_S, REACH_TRIES = 5, 4  # a connection from a node to this machine
NEIGHBOUR_TABLE = "/proc/sys/net/ipv4/neigh/default/gc_thresh3"
NEIGHBOURS_OF_A_NODE = 16

# $1 is the host name, $2 the state folder. "ready" confirms that all commands succeeded.
# All of /etc is bound, and this machine's goes below it. Of a single file, the kernel takes a bind away without a word
# when any program of the machine renames another file over it.
# slurm.conf names one socket of munged: inside a node it is bound to that of the node's own munged.
# A sysfs shows the network namespace in which it was mounted. Only its network folders are bound over /sys, where that
# is allowed: a whole new /sys would hide what is mounted below it.
HOLD = """\
set -e
hostname "$1"
mount --rbind /etc "$2/etc/.machine"
mount --rbind "$2/etc" /etc
umount --recursive "$2/etc/.machine"
[ ! -d "$2/nodes/$1/munge" ] || mount --bind "$2/nodes/$1/munge" "$2/munge"
if mount -t sysfs sysfs "$2/nodes/$1" 2>/dev/null; then
  for folder in class/net devices/virtual/net; do mount --bind "$2/nodes/$1/$folder" "/sys/$folder"; done
  umount "$2/nodes/$1"
fi
echo ready
exec sleep infinity >/dev/null 2>&1
"""


def is_privileged():
    with open("/proc/self/status") as file:
        effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    return os.geteuid() == 0 and all(effective >> capability & 1 for capability in (CAP_NET_ADMIN, CAP_SYS_ADMIN))


def require_privileges():
    if not is_privileged():
        raise ClusterError("a cluster needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN (it makes namespaces and network "
                           "interfaces): run it with sudo, or in a container started with these capabilities")


def require_no_chroot():
    """nsenter moves a program to the root of its mount namespace, which differs from the root of a chroot."""
    ours = os.stat("/")
    entered = subprocess.run(["nsenter", "--mount=/proc/self/ns/mnt", "stat", "--format=%d %i", "/"],
                             capture_output=True, text=True)
    if entered.returncode != 0 and "failed to execute" not in entered.stderr:
        raise ClusterError(f"cannot enter a mount namespace: {entered.stderr.strip()}")
    if entered.stdout != f"{ours.st_dev} {ours.st_ino}\n":
        raise ClusterError("this process runs in a chroot, which nsenter leaves when it enters a node: enter this root "
                           "by pivot_root, as systemd-nspawn and containers do, or use the machine's own")


def login_name():
    """This machine's host name as Slurm's programs use it."""
    return socket.gethostname().split(".")[0]


def require_free_names(node_names):
    if login_name() in (CONTROLLER, *node_names):
        raise ClusterError(f"the name '{login_name()}' of this machine is also that of a node: choose another --prefix")


def warn_of_small_neighbour_table(node_count):
    """All network namespaces share one table of neighbours; only the first namespace shows its size and can set it."""
    try:
        with open(NEIGHBOUR_TABLE) as file:
            size = int(file.read())
    except OSError:
        return
    needed = NEIGHBOURS_OF_A_NODE * node_count
    if size < needed:
        wanted = " ".join(f"net.ipv4.neigh.default.gc_thresh{number}={2 * needed}" for number in (1, 2, 3))
        report(f"{node_count} nodes need up to {needed} entries in this machine's neighbour table, which holds {size}: "
            f"connections may fail or be slow; 'sysctl {wanted}' enlarges it")


def open_namespaces(cluster, node_names):
    """Starts the holders and waits until each has its host name and the cluster's /etc."""
    make_etc(cluster)
    holders = {name: hold(cluster, name) for name in [CONTROLLER, *node_names]}
    for name, holder in holders.items():
        answer = holder.stdout.readline()
        if answer != "ready\n":
            raise ClusterError(f"could not make the namespaces of {name}: {answer.strip() or 'no answer'}")
        holder.stdout.close()
        write(cluster.path("nodes", name, "holder"), processes.identity(holder.pid) + "\n")


def make_etc(cluster):
    """/etc of the nodes: links to the entries of this machine's, but hosts and resolv.conf of their own."""
    os.makedirs(cluster.path("etc", ".machine"))
    write(cluster.path("etc", "hosts"), "")
    write(cluster.path("etc", "resolv.conf"), "nameserver 127.0.0.1\n")  # rejects queries without a wait
    for entry in os.scandir("/etc"):
        if not os.path.lexists(cluster.path("etc", entry.name)):
            target = os.readlink(entry.path) if entry.is_symlink() else f".machine/{entry.name}"
            os.symlink(target, cluster.path("etc", entry.name))


def hold(cluster, name):
    command = ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c", HOLD, "sh", name,
               cluster.folder]
    return subprocess.Popen(command, env=daemon_environment(cluster), stdin=subprocess.DEVNULL, text=True, cwd="/",
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, close_fds=False)


def daemon_environment(cluster):
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
            "SLURM_CONF": cluster.path("slurm.conf"), processes.MARK: cluster.folder}


def holder_pid(cluster, name):
    try:
        with open(cluster.path("nodes", name, "holder")) as file:
            recorded = file.read().strip()
        pid = int(recorded.split()[0])
        if processes.identity(pid) == recorded and not processes.is_zombie(pid):
            return pid
    except (FileNotFoundError, ProcessLookupError):
        pass
    raise ClusterError(f"cluster '{cluster.name}' has no running node '{name}'")


def faults(cluster, record):
    """A line for each node that has ended, or has lost the names of the others. Only root can look into nodes."""
    if not is_privileged():
        return
    for name in [CONTROLLER, *record["nodes"]]:
        try:
            if not has_names(cluster, holder_pid(cluster, name)):
                yield f"{name}: /etc/hosts is not the cluster's, so that names of nodes do not resolve there"
        except ClusterError as error:
            yield str(error)


def has_names(cluster, pid):
    return processes.holds(lambda: os.path.samestat(os.stat(f"/proc/{pid}/root/etc/hosts"),
                                                    os.stat(cluster.path("etc", "hosts"))))


def inside(cluster, name, command):
    """The command line that runs a command inside a node, in the folder /. Its process keeps the pid."""
    return ["nsenter", "-t", str(holder_pid(cluster, name)), "--net", "--uts", "--mount", *command]


def connect(cluster, node_names):
    """Builds the network, fills in the hosts files, and returns the record of addresses and interfaces."""
    number = claim_subnet(cluster)
    prefix = f"{NETWORK}.{number}"
    addresses = {name: f"{prefix}.{10 + index}" for index, name in enumerate(node_names)}
    record = {"number": number, "subnet": f"{prefix}.0/24", "interface": interface_name(number), "login": f"{prefix}.1",
              "controller": f"{prefix}.2", "nodes": addresses}
    ip([], f"addr add {prefix}.1/24 dev {interface_name(number)}", f"link set {interface_name(number)} up")
    build_bridge(cluster, record)
    write_hosts(cluster, record)
    check_login_is_reachable(cluster, record)
    return record


def interface_name(number):
    return f"tb{number}"


def claim_subnet(cluster):
    """Makes both ends of the login node's link in one step. The first process that gets the name owns the subnet."""
    taken = routed_networks()
    for number in range(256):
        if any(network.overlaps(ipaddress.ip_network(f"{NETWORK}.{number}.0/24")) for network in taken):
            continue
        made = subprocess.run(["ip", "link", "add", interface_name(number), "type", "veth", "peer", "name", "login",
                               "netns", str(holder_pid(cluster, CONTROLLER))], capture_output=True, text=True)
        if made.returncode == 0:
            name = interface_name(number)
            write(cluster.path("interface"), f"{name} {socket.if_nametoindex(name)}\n")
            return number
        if "File exists" not in made.stderr:
            raise ClusterError(f"could not make a network interface: {made.stderr.strip()}")
    raise ClusterError(f"no subnet {NETWORK}.X.0/24 is free on this machine")


def routed_networks():
    """The networks of this machine's routes, without default routes and those of a prefix of 8 bits or less."""
    shown = subprocess.run(["ip", "-json", "-4", "route", "show"], capture_output=True, text=True, check=True)
    networks = [ipaddress.ip_network(route["dst"]) for route in json.loads(shown.stdout or "[]")
                if route["dst"] != "default"]
    return [network for network in networks if network.prefixlen > 8]


def build_bridge(cluster, record):
    lines = ["link set lo up", "link add bridge type bridge", f"addr add {record['controller']}/24 dev bridge",
             "link set bridge up", "link set login master bridge up"]
    for index, name in enumerate(record["nodes"]):
        lines += [f"link add port{index} type veth peer name eth0 netns {holder_pid(cluster, name)}",
                  f"link set port{index} master bridge up"]
    ip(inside(cluster, CONTROLLER, []), *lines)
    for name, address in record["nodes"].items():
        ip(inside(cluster, name, []), "link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up")


def ip(prefix, *lines):
    done = subprocess.run([*prefix, "ip", "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"could not set up the network: {done.stderr.strip()}")


def write_hosts(cluster, record):
    names = {CONTROLLER: record["controller"], **record["nodes"]}
    lines = "".join(f"{address} {name}\n" for name, address in names.items())
    local = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
    machine = " ".join({"login", login_name(), socket.gethostname()} - {"localhost"})
    write(cluster.path("etc", "hosts"), f"{local}{record['login']} {machine}\n{lines}")
    heading = "# nodes of the torchbridge cluster"
    with open("/etc/hosts") as file:
        machine = file.read().partition(heading)[0].rstrip()  # inside `run` it has the outer cluster's lines
    write(cluster.path("login_hosts"), f"{machine}\n{heading} {cluster.name}\n{lines}")


def check_login_is_reachable(cluster, record):
    """srun listens on the login node: with a firewall there each step would wait for minutes."""
    node = next(iter(record["nodes"]))
    with socket.create_server((record["login"], 0)) as listener:
        port = listener.getsockname()[1]
        connect_back = ["timeout", str(REACH_S), "bash", "-c", f"exec 3<>/dev/tcp/{record['login']}/{port}"]
        tries = range(REACH_TRIES)  # on a busy machine the first may not even have started in its time
        if all(subprocess.run(inside(cluster, node, connect_back), capture_output=True).returncode for _ in tries):
            raise ClusterError(f"{node} cannot reach this machine at {record['login']}: its firewall must accept "
                               f"connections that come in through {record['interface']}")


def wait_until_gone(cluster):
    """The kernel removes a namespace and its interfaces shortly after the last process has ended."""
    try:
        with open(cluster.path("interface")) as file:
            name, index = file.read().split()
    except (FileNotFoundError, ValueError):
        return
    deadline = time.monotonic() + GONE_WAIT_S
    while interface_index(name) == int(index):  # the next cluster may already use the name
        if time.monotonic() > deadline:
            raise ClusterError(f"the interface {name} is still there after {GONE_WAIT_S} s")
        time.sleep(0.005)


def interface_index(name):
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None
