"""Compares the variables that our core computes with those of torchrun's own agents, on random layouts.

    tests/reference/layout_reference.py PRINT_TORCH_ENV [LAYOUTS [SEED]]

Slurm is simulated: block, cyclic, plane and arbitrary placements on even and uneven nodes, as SLURM_* variables.
torchrun is torch's: a LocalElasticAgent a node, each in a thread, assigns ranks over one store and hands each worker
its environment; only the starting of processes is replaced.
"""

import concurrent.futures
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from unittest import mock

from torch.distributed import HashStore
from torch.distributed.elastic.agent.server import WorkerSpec, local_elastic_agent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

MASTER_PORT = 20000
MOST_NODES = 8
MOST_TASKS = 8
PLACEMENTS = ("block", "cyclic", "plane", "arbitrary")


# --- Slurm ---

def random_layout(rng):
    nodes = rng.randint(1, MOST_NODES)
    even = rng.random() < 0.3
    first = rng.randint(1, MOST_TASKS)
    counts = [first if even else rng.randint(1, MOST_TASKS) for _ in range(nodes)]
    placement = rng.choice(PLACEMENTS)
    plane_size = rng.randint(1, 4) if placement == "plane" else None
    return {"counts": counts, "placement": placement, "plane_size": plane_size,
            "node_of_rank": place(rng, counts, placement, plane_size)}


def place(rng, counts, placement, plane_size):
    """The node of each rank, as srun --distribution=... would choose it."""
    if placement in ("block", "arbitrary"):
        nodes = [node for node, count in enumerate(counts) for _ in range(count)]
        if placement == "arbitrary":
            rng.shuffle(nodes)
        return nodes
    room, nodes = list(counts), []
    while any(room):
        for node in range(len(counts)):
            here = min(plane_size or 1, room[node])
            nodes += [node] * here
            room[node] -= here
    return nodes


def compressed(counts):
    groups = [(count, len(list(group))) for count, group in itertools.groupby(counts)]
    return ",".join(f"{count}(x{length})" if length > 1 else str(count) for count, length in groups)


def slurm_variables(layout, rank, ranks_option):
    node = layout["node_of_rank"][rank]
    here = [r for r, n in enumerate(layout["node_of_rank"]) if n == node]
    variables = {
        "TORCHBRIDGE_OPTIONS": f"ranks={ranks_option}",
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": len(layout["node_of_rank"]),
        "SLURM_PROCID": rank,
        "SLURM_NODEID": node,
        "SLURM_LOCALID": here.index(rank),
        "SLURM_GTIDS": ",".join(map(str, here)),
        "SLURM_STEP_NODELIST": f"n[0-{len(layout['counts']) - 1}]" if len(layout["counts"]) > 1 else "n0",
        "SLURM_STEP_TASKS_PER_NODE": compressed(layout["counts"]),
        "SLURM_STEP_RESV_PORTS": f"{MASTER_PORT}-{MASTER_PORT + 1}",
    }
    if layout["placement"] != "block":  # srun sets it only if the user gave a distribution
        variables["SLURM_DISTRIBUTION"] = layout["placement"]
    if layout["plane_size"]:
        variables["SLURM_DIST_PLANESIZE"] = layout["plane_size"]
    return variables


# --- torchrun ---

class Rendezvous:
    use_agent_store = False

    def get_run_id(self):
        return "slurm-7.0"

    def get_backend(self):
        return "static"


def agent_of(local_world_size):
    spec = WorkerSpec(role="default", local_world_size=local_world_size, rdzv_handler=Rendezvous(), entrypoint="true",
                      max_restarts=0)
    return local_elastic_agent.LocalElasticAgent(spec, DefaultLogsSpecs())


def worker_environments(store, group_rank, counts):
    agent = agent_of(counts[group_rank])
    group = agent.get_worker_group()
    group.store, group.group_rank, group.group_world_size = store, group_rank, len(counts)
    group.master_addr, group.master_port = "n0", MASTER_PORT
    group.workers = agent._assign_worker_ranks(store, group_rank, len(counts), group.spec)
    return agent._start_workers(group)


def torchrun_environments(pool, counts):
    """By (node, local rank)."""
    store = HashStore()
    nodes = range(len(counts))
    started = pool.map(worker_environments, itertools.repeat(store), nodes, itertools.repeat(counts))
    return {(node, local_rank): environment
            for node, workers in zip(nodes, started) for local_rank, environment in workers.items()}


class Started:
    """Stands for the started processes: their environments instead of their process ids."""

    def __init__(self, **arguments):
        self.environments = arguments["envs"]

    def pids(self):
        return self.environments


# --- the comparison ---

def expected(layout, rank, ranks_option, torchrun):
    node = layout["node_of_rank"][rank]
    local_rank = layout["node_of_rank"][:rank].count(node)
    environment = dict(torchrun[node, local_rank])
    if ranks_option == "slurm":  # the one thing that differs from torchrun, on purpose
        environment["RANK"] = environment["ROLE_RANK"] = str(rank)
    return environment


def cases(layouts, pool):
    for layout in layouts:
        torchrun = torchrun_environments(pool, layout["counts"])
        # Under arbitrary placement a task does not know the node of Slurm's rank 0: ranks=slurm is rejected.
        for ranks_option in ("block",) if layout["placement"] == "arbitrary" else ("block", "slurm"):
            for rank in range(len(layout["node_of_rank"])):
                yield layout, rank, ranks_option, expected(layout, rank, ranks_option, torchrun)


def computed(program, every_case):
    text = "".join(
        "".join(f"{name}={value}\n" for name, value in slurm_variables(layout, rank, ranks_option).items()) + "\n"
        for layout, rank, ranks_option, _ in every_case)
    output = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program = sys.argv[1]
    layout_count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
                 "TORCH_ELASTIC_WORKER_IDENTICAL"):
        os.environ.pop(name, None)  # torch would read them

    layouts = [random_layout(rng) for _ in range(layout_count)]
    with mock.patch.object(local_elastic_agent, "start_processes", Started), \
            tempfile.TemporaryDirectory() as tempfile.tempdir, \
            concurrent.futures.ThreadPoolExecutor(MOST_NODES) as pool:
        every_case = list(cases(layouts, pool))
    ours = computed(program, every_case)

    if len(ours) != len(every_case):
        sys.exit(f"FAILED: {len(every_case)} processes were described, {len(ours)} were answered")
    for (layout, rank, ranks_option, theirs), found in zip(every_case, ours):
        if found != theirs:
            differences = {name: (theirs.get(name), found.get(name)) for name in sorted(theirs.keys() | found.keys())
                           if theirs.get(name) != found.get(name)}
            sys.exit(f"FAILED: rank {rank} of {layout} with ranks={ranks_option}: (torchrun's, ours) {differences}")
    print(f"{layout_count} layouts, {len(every_case)} processes: equal to torchrun's")


if __name__ == "__main__":
    main()
