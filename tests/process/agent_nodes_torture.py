#!/usr/bin/env python3
"""Kills workers, agents and links of `torchbridge run` over several nodes, and checks that training loses nothing.

    tests/process/agent_nodes_torture.py --build build --kills 200              # --nnodes 3: the world size stays
    tests/process/agent_nodes_torture.py --build build --kills 200 --elastic    # --nnodes 1:3: it changes
    tests/process/agent_nodes_torture.py --build build --kills 50 --python .venv/bin/python     # --nnodes 2, a script

The nodes are those of scripts/cluster: namespaces with a network. The agent of node 0 coordinates, and is left alone,
as the run ends with it. Of the others an agent is killed and started again, stopped for longer than the keep-alive and
continued, or the link of its node goes down for that long. Checked: the run ends with exit code 0; restarts used =
workers killed; nothing takes longer than its limit; no process is left; the losses are bit-equal to those of an
undisturbed run, and with --elastic each epoch has each sample once.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid

from agent_torture import LIMIT, POLL, TortureError, children_of, kill_running, stat_of, with_marker

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLUSTER = ROOT / "scripts/cluster/cluster"
# An agent that comes back after the run has ended gives up before LIMIT.
KEEP_ALIVE = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5,join_timeout=60"
LOST = 7  # seconds: longer than the keep-alive


class Run:
    """The agents of one run, in a folder."""

    def __init__(self, options, folder, name, restarts):
        self.options, self.folder = options, folder / name
        self.folder.mkdir()
        self.marker = f"TORTURE_{uuid.uuid4().hex}"
        self.summary = self.folder / "summary.json"
        port = random.randrange(21000, 29000)
        program = [options.python, ROOT / "tests/programs/agent_worker.py", self.folder, options.steps]
        if not options.python:
            program = [options.build / "bin/trainer", "--quiet", "--model", "mlp:100", "--epochs", 100, "--max-steps",
                       options.steps, "--batch-size", 16, "--checkpoint-dir", self.folder / "runs",
                       "--checkpoint-every", 5, "--metrics", self.folder / "curve.jsonl", "--sample-log",
                       self.folder / "samples", "--heartbeat-timeout", 5, "--timeout", 20]
        nodes = f"1:{options.nodes}" if options.elastic else options.nodes
        self.command = [str(word) for word in [
            options.build / "bin/torchbridge", "run", "--nnodes", nodes, "--nproc-per-node", 1, "--max-restarts",
            restarts, "--grace", 5, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"n0:{port}", "--rdzv-conf",
            KEEP_ALIVE, "--json-summary", self.summary, *program]]
        self.agents = [None] * options.nodes
        self.errors = (self.folder / "errors").open("a+")
        for node in range(options.nodes):
            self.start(node)

    def start(self, node):
        self.agents[node] = subprocess.Popen(
            [CLUSTER, "exec", "--name", self.options.cluster, "--node", f"n{node}", "--", *self.command],
            env=os.environ | {self.marker: "1", "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=self.errors)

    def fail(self, why):
        self.errors.seek(0)
        raise TortureError(f"{why}\n{self.errors.read()[-8000:]}")

    def agent_and_worker(self, node):
        """Their pids; (agent or None, None) while there is no worker."""
        if self.agents[node].poll() is not None:
            return None, None
        for agent in children_of(self.agents[node].pid):
            workers = children_of(agent)
            return agent, workers[0] if len(workers) == 1 else None
        return None, None

    def wait_for_workers(self, last):
        """A worker on each node that is none of `last`, as [(agent, worker)]; nothing where the run has ended."""
        deadline = time.monotonic() + LIMIT
        while self.agents[0].poll() is None:
            found = [self.agent_and_worker(node) for node in range(self.options.nodes)]
            if all(worker and worker not in last for _, worker in found) and self.are_programs(found):
                return found
            if time.monotonic() > deadline:
                self.fail(f"no workers on all nodes {LIMIT} s after the last kill")
            time.sleep(POLL)
        return None

    def are_programs(self, found):
        """All workers run their program already: one that is killed before would be the agent's."""
        return all(stat_of(worker)[0] not in "ZX" and not os.readlink(f"/proc/{worker}/exe").endswith("torchbridge")
                   for _, worker in found)

    def wait(self, late=None):
        """`late`: a node that was away, and may come back when the others have ended the run without it."""
        for node, agent in enumerate(self.agents):
            try:
                code = agent.wait(LIMIT)
            except subprocess.TimeoutExpired:
                self.fail(f"the agent of node {node} did not end within {LIMIT} s")
            self.errors.seek(0)
            errors = self.errors.read()
            has_ended = "Connection refused" in errors or "rejects this node: the run 'none' has ended" in errors
            is_too_late = node == late and code == 1 and has_ended
            if code != 0 and not is_too_late:
                self.fail(f"the agent of node {node} ended with {code}")

    def result(self):
        if self.options.python:
            return (self.folder / "result").read_text()
        return [json.loads(line)["loss"] for line in (self.folder / "curve.jsonl").read_text().splitlines()]

    def restarts(self):
        return json.loads(self.summary.read_text())["attempts"][-1]["restart_count"]

    def check_nothing_is_left(self):
        deadline = time.monotonic() + LIMIT
        while left := with_marker(self.marker):
            if time.monotonic() > deadline:
                self.fail(f"processes {left} are left")
            time.sleep(POLL)

    def check_samples(self):
        checked = subprocess.run([ROOT / "scripts/check_sample_log", self.folder / "samples", "--samples", "1437",
                                  "--unfinished"], capture_output=True, text=True)
        if checked.returncode != 0:
            self.fail(f"check_sample_log: {checked.stdout}{checked.stderr}")


def link(options, node, state):
    subprocess.run([CLUSTER, "exec", "--name", options.cluster, "--node", f"n{node}", "--", "ip", "link", "set", "eth0",
                    state], check=True)


def disturb(run, what, node, agent, worker):
    """False where the worker had ended before."""
    if what == "worker":
        return kill_running(worker)
    if what in ("agent", "guardian"):
        os.kill(agent if what == "agent" else run.agents[node].pid, signal.SIGKILL)
        run.agents[node].wait(LIMIT)
        time.sleep(random.choice([0, 0.5]))
        run.start(node)
    elif what == "stop":
        os.kill(agent, signal.SIGSTOP)
        time.sleep(LOST)
        os.kill(agent, signal.SIGCONT)
    else:
        link(run.options, node, "down")
        time.sleep(LOST)
        link(run.options, node, "up")
    return True


def torture(run, kills, longest):
    """Returns how often it did what, and the node that it disturbed last."""
    done = dict.fromkeys(("worker", "agent", "guardian", "stop", "link"), 0)
    last, node = [], None
    while sum(done.values()) < kills:
        found = run.wait_for_workers(last)
        if not found:
            break
        time.sleep(random.uniform(0, longest))
        what = random.choices(list(done), weights=(5, 2, 2, 1, 1))[0]
        node = random.randrange(0 if what == "worker" else 1, run.options.nodes)
        agent, worker = found[node]
        workers = [worker for _, worker in found]
        if any(stat_of(each)[0] in "ZX" for each in workers) or run.agents[0].poll() is not None:
            break  # the run is about to end
        if not disturb(run, what, node, agent, worker):
            break
        done[what] += 1
        last = workers
    return done, node


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--elastic", action="store_true")
    parser.add_argument("--python", type=pathlib.Path, help="the workers are a script, on two nodes")
    parser.add_argument("--steps", type=int, default=400)
    # In CI one seed for each commit: a second run says more of the first.
    parser.add_argument("--seed", type=int,
                        default=os.environ.get("TORCHBRIDGE_SEED", random.randrange(1 << 30)))
    options = parser.parse_args()
    if options.python and options.elastic:
        parser.error("--elastic reads the trainer's sample log: leave --python out")
    options.build = options.build.resolve()
    options.python = options.python and options.python.absolute()
    options.nodes = 2 if options.python else 3
    options.cluster = f"nodes-torture-{os.getpid()}"
    random.seed(options.seed)
    print(f"agent_nodes_torture: seed {options.seed}", flush=True)
    if os.geteuid() != 0:
        print("agent_nodes_torture: SKIPPED: namespaces need root")
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the time limit: `finally` ends the cluster
    total, runs = {}, 0
    subprocess.run([CLUSTER, "up", "--name", options.cluster, "--nodes", str(options.nodes)], check=True,
                   stdout=subprocess.DEVNULL)
    try:
        with tempfile.TemporaryDirectory(prefix="torchbridge-torture-") as name:
            folder = pathlib.Path(name)
            begin = time.monotonic()
            undisturbed = Run(options, folder, "undisturbed", 0)
            undisturbed.wait()
            longest = min(2.0, time.monotonic() - begin)
            expected = undisturbed.result()
            while sum(total.values()) < options.kills:
                run = Run(options, folder, f"run-{runs}", options.kills)
                runs += 1
                done, node = torture(run, min(10, options.kills - sum(total.values())), longest)
                run.wait(late=node if options.elastic else None)
                run.check_nothing_is_left()
                if options.elastic:
                    run.check_samples()
                elif run.result() != expected:
                    run.fail("the result differs from the undisturbed run's")
                if run.restarts() != done["worker"]:
                    run.fail(f"{run.restarts()} restarts for {done['worker']} killed workers; done: {done}")
                for kind, count in done.items():
                    total[kind] = total.get(kind, 0) + count
    finally:
        subprocess.run([CLUSTER, "down", "--name", options.cluster], check=False, stdout=subprocess.DEVNULL)
    print(f"agent_nodes_torture: {runs} runs, {', '.join(f'{kind} {count}' for kind, count in total.items())}")


if __name__ == "__main__":
    try:
        main()
    except TortureError as error:
        sys.exit(f"agent_nodes_torture: {error}")
