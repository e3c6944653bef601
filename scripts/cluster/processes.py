"""Finds the processes of a cluster, and ends them without ever signaling another process.

No list of pids is kept. A process is a member by its present state:
- its environment carries the mark that `up` gives its daemons, or
- its /etc is the cluster's, so it is in a node's mount namespace, or
- it is in the network namespace of a process that has both, or
- its SLURM_CONF is this cluster's, and it is a client program of Slurm's or runs inside an salloc.
"""
import os
import select
import signal
import time

from state import ClusterError

MARK = "TORCHBRIDGE_CLUSTER_DAEMON"
CLIENTS = {"srun", "salloc", "sbatch", "sattach", "sbcast", "squeue", "sinfo", "scancel", "scontrol", "strigger"}
TASK_GRACE_S = 2
KILL_WAIT_S = 15


def statistics(pid):
    """The fields of /proc/PID/stat from the third on, which is the state."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def identity(pid):
    """The pid and the start time: together they are never used twice."""
    return f"{pid} {statistics(pid)[19]}"


def is_zombie(pid):
    return statistics(pid)[0] == "Z"


def lineage(pid):
    """The process, its parent and so on."""
    pids = set()
    while pid:
        pids.add(pid)
        pid = int(holds(lambda: statistics(pid)[1]))
    return pids


def environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().split(b"\0")


def has_mark(cluster, pid):
    return f"{MARK}={cluster.folder}".encode() in environment_of(pid)


def is_client(cluster, pid):
    environment = environment_of(pid)
    return f"SLURM_CONF={cluster.path('slurm.conf')}".encode() in environment and (
        os.path.basename(os.readlink(f"/proc/{pid}/exe")) in CLIENTS
        or any(variable.startswith(b"SLURM_JOB_ID=") for variable in environment))


def is_in_node(cluster, pid):
    return os.path.samestat(os.stat(f"/proc/{pid}/root/etc"), os.stat(cluster.path("etc")))


def is_inside(cluster, pid):
    return holds(is_in_node, cluster, pid)


def holds(check, *arguments):
    """The result of a check, or False where the process has just ended or is a kernel thread."""
    try:
        return check(*arguments)
    except OSError:
        return False


class Networks:
    """The network namespaces of the nodes, never that of this process.

    They are held open, so that the kernel cannot give their numbers to other namespaces.
    """

    def __init__(self):
        self.open_ = {}
        self.our_own_ = number_of(os.stat("/proc/self/ns/net"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for descriptor in self.open_.values():
            os.close(descriptor)

    def add_of(self, pid):
        descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        number = number_of(os.fstat(descriptor))
        if number == self.our_own_ or self.open_.setdefault(number, descriptor) != descriptor:
            os.close(descriptor)

    def holds(self, pid):
        return number_of(os.stat(f"/proc/{pid}/ns/net")) in self.open_


def number_of(status):
    return status.st_dev, status.st_ino


def is_member(cluster, pid, networks):
    return (holds(has_mark, cluster, pid) or is_inside(cluster, pid) or holds(networks.holds, pid)
            or holds(is_client, cluster, pid))


def members(cluster, networks):
    """Every member but this process and the ones it was called from."""
    callers = lineage(os.getpid())
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in callers]
    for pid in pids:
        if is_inside(cluster, pid) and holds(has_mark, cluster, pid):
            holds(networks.add_of, pid)
    return [pid for pid in pids if is_member(cluster, pid, networks)]


def any_member(cluster):
    with Networks() as networks:
        return bool(members(cluster, networks))


def end_members(cluster):
    """SIGTERM and TASK_GRACE_S for tasks and clients, then SIGKILL for all members until none is left."""
    with Networks() as networks:
        tasks = [pid for pid in members(cluster, networks) if not holds(has_mark, cluster, pid)]
        wait_for(signal_members(cluster, tasks, networks, signal.SIGTERM), TASK_GRACE_S)
        deadline = time.monotonic() + KILL_WAIT_S
        while pids := members(cluster, networks):
            if time.monotonic() > deadline:
                raise ClusterError(f"processes {' '.join(map(str, pids))} of '{cluster.name}' did not end in "
                                   f"{KILL_WAIT_S} s")
            wait_for(signal_members(cluster, pids, networks, signal.SIGKILL), 1)


def signal_members(cluster, pids, networks, signum):
    """Signals through pidfds, which it checks after opening: a reused pid is never signaled. Returns the pidfds."""
    descriptors = []
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            continue
        descriptors.append(descriptor)
        if is_member(cluster, pid, networks):
            try:
                signal.pidfd_send_signal(descriptor, signum)
            except ProcessLookupError:
                pass
    return descriptors


def wait_for(descriptors, seconds):
    """Waits until all the processes have ended, or until the time is over."""
    deadline = time.monotonic() + seconds
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    left = len(descriptors)
    while left and time.monotonic() < deadline:
        for descriptor, _ in poller.poll(1000 * max(0, deadline - time.monotonic())):
            poller.unregister(descriptor)
            left -= 1
    for descriptor in descriptors:
        os.close(descriptor)
