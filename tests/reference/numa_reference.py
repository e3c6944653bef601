"""Compares the CPUs that our --numa-binding gives each worker with those of torch's own functions, on machine trees.

    tests/reference/numa_reference.py PRINT_NUMA_CPUS [MACHINES [SEED]]

A machine is a folder of sysfs files: some that are written out here, and random ones. torch/numa/binding.py reads the
same folder: its file reads get the folder's path in front, and its GPUs and allowed CPUs are the machine's.

Where torch raises we have an error, but for one case: it cannot bind to a socket of which a node has no CPU that it may
use, or where any node of the machine has none, and we leave that node out.
"""

import builtins
import inspect
import os
import random
import subprocess
import sys
import tempfile
import types

import torch
from torch.numa import binding

# Of a rank's device: gpu_index, and device_index in newer versions.
INDEX = next(iter(inspect.signature(binding._get_validated_logical_cpus_to_bind_to).parameters))
MODES = [mode.value for mode in binding.AffinityMode]


def ranges(numbers):
    return binding._get_ranges_str_from_ints(sorted(numbers))


class Machine:
    """Sockets, nodes, caches and cores in even parts; CPU n and CPU n + cores share core n where there is SMT."""

    def __init__(self, sockets=1, nodes=1, caches=1, cores=4, threads=1, gpus=(0,), allowed=None, cores_of_node=None):
        self.gpus, self.files, self.links = list(gpus), {}, {}
        per_node = cores_of_node or [cores] * (sockets * nodes)
        total = sum(per_node)
        self.cpus_of_node, first = [], 0
        for node, count in enumerate(per_node):
            own = range(first, first + count)
            self.describe_node(node, node // nodes, own, caches, threads, total)
            first += count
        self.write("sys/devices/system/node/possible", ranges(range(len(per_node))))
        for index, node in enumerate(self.gpus):
            device = f"sys/bus/pci/devices/{self.address(index)}"
            self.write(f"{device}/class", "0x030200")
            self.write(f"{device}/vendor", "0x10de")
            self.write(f"{device}/numa_node", node)
        everything = set().union(*self.cpus_of_node)
        self.allowed = everything if allowed is None else everything & set(allowed)

    @staticmethod
    def address(index):
        return f"0000:{17 * index + 1:02x}:00.0"

    def write(self, path, value):
        self.files[path] = f"{value}\n"

    def describe_node(self, node, socket, cores, caches, threads, total):
        cpus = {core + total * thread for core in cores for thread in range(threads)}
        self.cpus_of_node.append(cpus)
        self.write(f"sys/devices/system/node/node{node}/cpulist", ranges(cpus))
        for position, core in enumerate(cores):
            siblings = {core + total * thread for thread in range(threads)}
            sharing = {cpu for cpu in cpus if self.cache(cpu % total - cores[0], cores, caches)
                       == self.cache(position, cores, caches)}
            self.describe_core(core, socket, siblings, sharing)

    @staticmethod
    def cache(position, cores, caches):
        return position * caches // len(cores)

    def describe_core(self, core, socket, siblings, sharing):
        """Folders with the same files are links, to save time: of a core's other CPUs, of a cache that cores share."""
        folder, first = f"sys/devices/system/cpu/cpu{core}", min(sharing)
        self.links |= {f"sys/devices/system/cpu/cpu{cpu}": f"cpu{core}" for cpu in siblings - {core}}
        self.write(f"{folder}/topology/physical_package_id", socket)
        self.write(f"{folder}/topology/thread_siblings_list", ranges(siblings))
        levels = (("Data", 1, siblings), ("Instruction", 1, siblings), ("Unified", 2, siblings),
                  ("Unified", 3, sharing))
        for index, (kind, level, shared) in enumerate(levels):
            if level == 3 and core != first:
                self.links[f"{folder}/cache/index{index}"] = f"../../cpu{first}/cache/index{index}"
                continue
            self.write(f"{folder}/cache/index{index}/type", kind)
            self.write(f"{folder}/cache/index{index}/level", level)
            self.write(f"{folder}/cache/index{index}/shared_cpu_list", ranges(shared))

    def write_to(self, root):
        for folder in dict.fromkeys(path.rpartition("/")[0] for path in self.files):
            os.makedirs(f"{root}/{folder}", exist_ok=True)
        for path, text in self.files.items():
            file = os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)  # half the time of open()
            os.write(file, text.encode())
            os.close(file)
        for link, target in self.links.items():
            os.symlink(target, f"{root}/{link}")


MACHINES = {
    "2 sockets x 2 nodes, 8 GPUs": dict(sockets=2, nodes=2, caches=2, cores=8, threads=2,
                                        gpus=[0, 0, 1, 1, 2, 2, 3, 3]),
    "GPUs on the odd nodes": dict(sockets=2, nodes=4, caches=4, cores=16, threads=2, gpus=[3, 3, 1, 1, 7, 7, 5, 5]),
    "no SMT": dict(sockets=2, cores=12, gpus=[0, 0, 0, 0, 1, 1, 1, 1]),
    "cores that cannot be divided": dict(sockets=1, caches=3, cores=11, threads=2, gpus=[0, 0, 0]),
    "fewer cores than GPUs": dict(cores=2, threads=2, gpus=[0, 0, 0]),
    "more caches than GPUs": dict(caches=8, cores=8, gpus=[0, 0]),
    "fewer caches than GPUs": dict(caches=2, cores=8, gpus=[0, 0, 0, 0, 0]),
    "GPUs without a node": dict(cores=8, caches=2, threads=2, gpus=[-1, -1]),
    "some GPUs without a node": dict(sockets=2, cores=8, gpus=[-1, 1, 0, 1]),
    "a node that is not there": dict(cores=4, gpus=[0, 5]),
    "no GPU": dict(gpus=[]),
    "a part of each node": dict(sockets=2, nodes=2, caches=2, cores=8, threads=2, gpus=[0, 0, 1, 2, 3],
                                allowed={1, 2, 5, 9, 10, 11, 17, 20, 30, 31, 34, 37, 49, 52, 63}),
    "one thread of each core": dict(sockets=2, caches=2, cores=8, threads=2, gpus=[0, 0, 1], allowed=range(16)),
    "the second threads": dict(sockets=2, caches=2, cores=8, threads=2, gpus=[0, 0, 1], allowed=range(16, 32)),
    "caches of which unlike parts are allowed": dict(caches=3, cores=12, gpus=[0, 0, 0, 0],
                                                     allowed={0, 4, 5, 8, 9, 10}),
    "one node alone is allowed": dict(sockets=2, nodes=2, cores=4, gpus=[0, 1, 2], allowed=range(4)),
    "uneven nodes": dict(sockets=2, nodes=2, cores_of_node=[3, 8, 1, 5], caches=1, threads=2, gpus=[0, 1, 1, 2, 3, 3]),
}


def random_machine(rng):
    sockets, nodes, threads = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 2)
    count = sockets * nodes
    cores_of_node = [rng.randint(1, 12)] * count if rng.random() < 0.5 else [rng.randint(1, 12) for _ in range(count)]
    every = range(sum(cores_of_node) * threads)
    share = rng.choice((1.0, 1.0, 0.7, 0.3))
    return dict(sockets=sockets, nodes=nodes, threads=threads, caches=rng.randint(1, 4), cores_of_node=cores_of_node,
                gpus=[rng.randint(-1, count - 1) for _ in range(rng.randint(1, 10))],
                allowed=None if share == 1.0 else {cpu for cpu in every if rng.random() < share})


def let_torch_read(machine, root):
    """torch's functions see this machine from now on."""
    def below_root(path):
        return f"{root}{path}"

    def properties(index):
        if index >= len(machine.gpus):
            raise AssertionError("Invalid device id")  # torch.cuda's own
        domain, bus, rest = machine.address(index).split(":")
        return types.SimpleNamespace(pci_domain_id=int(domain, 16), pci_bus_id=int(bus, 16),
                                     pci_device_id=int(rest.split(".")[0], 16))

    binding.open = lambda path: builtins.open(below_root(path))
    binding.os = types.SimpleNamespace(path=os.path, listdir=lambda path: os.listdir(below_root(path)),
                                       sched_getaffinity=lambda _: set(machine.allowed))
    binding.shutil = types.SimpleNamespace(which=lambda name: name)  # numactl, which we do not need
    torch.cuda.device_count = lambda: len(machine.gpus)
    torch.cuda.get_device_properties = properties
    # What torch asks from 2.14 on.
    torch.accelerator.device_count = torch.cuda.device_count
    torch.accelerator.is_available = lambda: len(machine.gpus) > 0
    torch.accelerator.current_accelerator = lambda: torch.device("cuda")


def torchs(mode, rank):
    """The CPUs as text; "error" where torch raises."""
    try:
        options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
        return ranges(binding._get_validated_logical_cpus_to_bind_to(**{INDEX: rank}, numa_options=options))
    except Exception:
        return "error"


def socket_as_far_as_allowed(machine, rank, nodes_of_socket):
    """What we give where torch cannot bind to a socket."""
    if rank >= len(machine.gpus) or max(machine.gpus[rank], 0) >= len(machine.cpus_of_node):
        return "error"
    own = max(machine.gpus[rank], 0)
    if not machine.cpus_of_node[own] & machine.allowed:
        return "error"
    first = own // nodes_of_socket * nodes_of_socket
    return ranges(set().union(*machine.cpus_of_node[first:first + nodes_of_socket]) & machine.allowed)


def compare(program, name, settings):
    """The number of workers that were compared; prints each that differs."""
    machine, wrong = Machine(**settings), 0
    if not machine.allowed:
        return 0, 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as root:
        machine.write_to(root)
        let_torch_read(machine, root)
        lines = subprocess.run([program, root, ranges(machine.allowed)], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        expected_lines = len(MODES) * (len(machine.gpus) + 1)
        if len(lines) != expected_lines:
            sys.exit(f"{name}: {len(lines)} lines, expected {expected_lines}")
        for line in lines:
            mode, rank, ours = line.split(" ", 2)
            theirs = torchs(mode, int(rank))
            if theirs == "error" and mode == "socket":
                theirs = socket_as_far_as_allowed(machine, int(rank), settings.get("nodes", 1))
            if ours.split(" ")[0] != theirs:
                wrong += 1
                print(f"{name}: {mode}, local rank {rank}: ours {ours}, torch's {theirs}; {settings}")
    return len(lines), wrong


def main():
    program = sys.argv[1]
    usual = ["100" if "TORCHBRIDGE_COMPLETE" in os.environ else "60", "1"]
    count, seed = (int(word) for word in (sys.argv[2:] + usual[len(sys.argv[2:]):])[:2])
    rng = random.Random(seed)
    machines = dict(MACHINES) | {f"random {i}": random_machine(rng) for i in range(count)}
    results = [compare(program, name, settings) for name, settings in machines.items()]
    workers, wrong = (sum(column) for column in zip(*results))
    print(f"{workers} workers on {len(machines)} machines, {wrong} with other CPUs than torch's")
    sys.exit(1 if wrong or workers < 10 * len(MACHINES) else 0)


if __name__ == "__main__":
    main()
