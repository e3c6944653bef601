#!/usr/bin/env python3
"""Times `torchbridge run` over several nodes against torchrun in the same run, and what one coordinator takes.

    tests/benchmarks/agent_nodes_time.py --build build --python .venv/bin/python

All agents are on this machine, and share its cores.
- rendezvous: from the start of N agents until all have ended, each with one worker that is `true`.
- recovery: two agents train; from kill -9 of a worker to the first step after it.
- lost node: three agents train with --nnodes 2:3; from kill -9 of one agent and its worker to the first step after it.
- lost node with a spare: two of three agents train, and the third takes the place (torchrun: --nnodes 2, and a third
  agent that waits).
- the coordinator alone, by tests/benchmarks/coordinator_load.cpp: N agents begin a round, and one more after a failure.
"""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time

import agent_time
import bench

LIMIT = 120
RENDEZVOUS = (2, 8, 64)
LOAD = (64, 1000, 10000)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start_agents(agent, nodes, count, options, program, first_is_host=False):
    port = free_port()
    line = [*agent, "--nnodes", *nodes.split(), "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint",
            f"localhost:{port}", *options, *map(str, program)]
    agents = []
    for _ in range(count):
        agents.append(subprocess.Popen(line, cwd=bench.ROOT, env=agent_time.environment(), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL))
        if first_is_host and len(agents) == 1:
            agent_time.wait_for(lambda: is_open(port), "the first agent to listen")
    return agents


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


def rendezvous_time(agent, count):
    begin = time.monotonic()
    agents = start_agents(agent, str(count), count, [], ["true"])
    try:
        codes = [each.wait(max(0, begin + LIMIT - time.monotonic())) for each in agents]
    except subprocess.TimeoutExpired:
        end(agents)
        return None
    if any(codes):
        raise SystemExit(f"benchmarks: {agent[0]} with {count} agents: exit codes {codes}")
    return time.monotonic() - begin


def end(agents):
    for each in agents:
        for pid in [*agent_time.descendants(each.pid), each.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        each.wait()


WORKER, NODE = "a killed worker of two nodes", "a lost node of three"
NODE_WITH_SPARE = "a lost node of two where a spare waits"


def nodes_and_agents(agent, what):
    """The value of --nnodes, with the options that follow, and how many agents are started."""
    if what == NODE_WITH_SPARE:
        return ("2:3 --active 2" if agent[0].endswith("torchbridge") else "2"), 3
    return ("2:3", 3) if what == NODE else ("2:2", 2)


def recovery_time(agent, options, what):
    """Seconds, or None where no step followed."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        curve, starts = folder / "curve.jsonl", folder / "starts"
        trainer = ["sh", "-c", f'[ $RANK = 0 ] && echo >> {starts}; exec "$@"', "sh", f"{options.build}/bin/trainer",
                   "--quiet", "--epochs", 10000, "--checkpoint-dir", folder / "runs", "--checkpoint-every", 10,
                   "--metrics", curve, "--backend", "gloo"]
        nodes, count = nodes_and_agents(agent, what)
        agents = start_agents(agent, nodes, count, ["--max-restarts", "5"], trainer, first_is_host=True)
        try:
            agent_time.wait_for(lambda: len(agent_time.lines_of(curve)) > 20, "training")
            victim = next(each for each in agents if has_rank(each.pid, 1))
            targets = agent_time.descendants(victim.pid)
            before = len(agent_time.lines_of(starts))
            for pid in targets[-1:] if what == WORKER else [victim.pid, *targets]:
                os.kill(pid, signal.SIGKILL)
            begin = time.monotonic()
            while time.monotonic() - begin < LIMIT and len(agent_time.lines_of(starts)) == before:
                time.sleep(agent_time.POLL)
            marker = len(agent_time.lines_of(curve))
            while time.monotonic() - begin < LIMIT:
                if len(agent_time.lines_of(curve)) != marker:
                    return time.monotonic() - begin
                time.sleep(agent_time.POLL)
            return None
        finally:
            end(agents)


def has_rank(agent, rank):
    return any(f"\0RANK={rank}\0".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
               for pid in agent_time.descendants(agent))


def cells_of(found, choices, digits):
    """Of each program, and the ratio where all runs ended in time."""
    cells = []
    for name in choices:
        seconds = [value for value in found[name] if value is not None]
        lost = len(found[name]) - len(seconds)
        text = [bench.median_and_range(seconds, digits)] if seconds else []
        if lost:
            text.append(f"not within {LIMIT} s in {lost} of {len(found[name])} runs")
        cells.append("; ".join(text))
    ours, theirs = choices
    has_all = all(value is not None for name in choices for value in found[name])
    return [*cells, bench.ratio(found[theirs], found[ours]) if has_all else "-"]


def main():
    options = bench.parser(__doc__).parse_args()
    load = f"{options.build}/bin/coordinator_load"
    bench.require(f"{options.build}/bin/torchbridge", f"{options.build}/bin/trainer", load, options.python)
    choices = agent_time.agents(options)
    ours, theirs = choices

    def in_turn(measure, repetitions):
        values = {name: [] for name in choices}
        for _ in range(repetitions):
            for name in random.sample(list(choices), len(choices)):
                values[name].append(measure(choices[name]))
        return values

    rows = []
    for count in RENDEZVOUS:
        found = in_turn(lambda agent, count=count: rendezvous_time(agent, count),
                        options.repetitions if count < RENDEZVOUS[-1] else 1)
        rows.append([f"rendezvous and end of {count} agents, s", *cells_of(found, choices, 3)])
    for what in (WORKER, NODE, NODE_WITH_SPARE):
        found = in_turn(lambda agent, what=what: recovery_time(agent, options, what), options.repetitions)
        rows.append([f"from {what} to the next step, s", *cells_of(found, choices, 2)])
    print(bench.table(["", *choices, "ratio"], rows))
    print()

    rows = []
    for count in LOAD:
        values = [json.loads(subprocess.run([load, str(count)], check=True, capture_output=True, text=True).stdout)
                  for _ in range(options.repetitions)]
        rows.append([str(count), *[bench.median_and_range([value[key] for value in values], 3)
                                   for key in ("first_round_s", "restart_s")],
                     *[f"{values[0][key] / count:.0f}" for key in ("first_round_bytes", "restart_bytes")],
                     f"{values[0]['coordinator_kb'] / 1024:.1f}"])
    print(bench.table(["agents", "first round, s", "restart, s", "bytes an agent, first round", "restart",
                       "memory of the coordinator, MB"], rows))


if __name__ == "__main__":
    main()
