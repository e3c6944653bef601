"""Compares the environments that torchrun's workers saw with those that the plugin gave, variable by variable.

    tests/reference/compare_environments.py TORCHRUN_FOLDER PLUGIN_FOLDER

A folder holds one file a process, named after its RANK, with what `env -0` printed there. A variable that differs must
be in JUSTIFIED and look as it says; each line of JUSTIFIED that was needed is printed.
"""

import pathlib
import re
import sys

UNSET = "(unset)"
NODE_NAME = r"n\d+|localhost"
NUMERIC_ADDRESS = r"\d+\.\d+\.\d+\.\d+|[0-9a-f:]+"
PORT = r"\d{4,5}"
INTERFACE = r"[\w.-]+"

# variable: what torchrun's value matches, what ours matches, why they differ
JUSTIFIED = {
    "MASTER_ADDR": (NODE_NAME, NUMERIC_ADDRESS, "ours is numeric, so that no peer needs to resolve a name"),
    "MASTER_PORT": (PORT, PORT, "chosen by the agent's store there, reserved for the step by Slurm here"),
    "TORCHELASTIC_RUN_ID": (r"none|diff", r"slurm-\d+\.\d+", "--rdzv-id there, the job and its step here"),
    "TORCHELASTIC_USE_AGENT_STORE": ("True", "False", "no agent serves a store here: rank 0 does"),
    "TORCHELASTIC_ERROR_FILE": (r"/.*/logs/.*/attempt_0/\d+/error\.json",
                                r"/tmp/torch-env-\d+/slurm-\d+\.\d+-attempt_0-rank_\d+-error\.json",
                                "a file of each rank's own in both, in folders of their own"),
    "TORCHELASTIC_SIGNALS_TO_HANDLE": ("SIGTERM,SIGINT,SIGHUP,SIGQUIT", UNSET,
                                       "torchrun sets it for its own agent, and workers inherit it without reading it"),
    "GLOO_SOCKET_IFNAME": (UNSET, INTERFACE, "the interface of the job's network: torchrun leaves gloo to guess"),
    "TORCHBRIDGE_LISTEN_FD": (UNSET, r"\d+", "rank 0's listening socket, for programs that take it over"),
    "TORCHBRIDGE_RDZV_TOKEN": (UNSET, r"[0-9a-f]{64}", "of the step, for agents that a task starts"),
    "TORCHBRIDGE_SET_BY": (UNSET, r"(plugin|run) \S+ .+", "who set the variables, in which launch and run"),
    "TORCHBRIDGE_SET": (UNSET, r"[!-~]+=[!-~]*( [!-~]+=[!-~]*)* ?", "what the plugin set"),
    "TMPDIR": ("/.*", UNSET, "Slurm 22.05 sets it for the first task of a node alone, which there is the agent"),
}

# One value for all ranks of a run, whoever started it.
SHARED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")

OF_RANK_0 = ("TORCHBRIDGE_LISTEN_FD",)

# Variables that the launchers set for each of the two steps, not torchrun or the plugin, and variables of the shell.
OF_THE_STEP = re.compile(r"SLURM_.*|SLURMD_.*|PMI.*|_|PWD|OLDPWD|SHLVL|KMP_.*")


def environments(folder):
    found = {}
    for path in pathlib.Path(folder).iterdir():
        pairs = (entry.partition("=") for entry in path.read_text().split("\0") if entry)
        found[int(path.name)] = {name: value for name, _, value in pairs if not OF_THE_STEP.fullmatch(name)}
    return found


def is_justified(name, theirs, ours):
    if name not in JUSTIFIED:
        return False
    their_pattern, our_pattern, _ = JUSTIFIED[name]
    return bool(re.fullmatch(re.escape(UNSET) if their_pattern == UNSET else their_pattern, theirs)
                and re.fullmatch(re.escape(UNSET) if our_pattern == UNSET else our_pattern, ours))


def differences(theirs, ours):
    for name in sorted(theirs.keys() | ours.keys()):
        pair = theirs.get(name, UNSET), ours.get(name, UNSET)
        if pair[0] != pair[1]:
            yield name, *pair


def complaints(torchrun, plugin):
    if not torchrun or torchrun.keys() != plugin.keys():
        yield f"torchrun started ranks {sorted(torchrun)}, the plugin {sorted(plugin)}"
        return
    for rank in sorted(torchrun):
        for name, theirs, ours in differences(torchrun[rank], plugin[rank]):
            if not is_justified(name, theirs, ours):
                yield f"rank {rank}: {name} is '{theirs}' under torchrun, '{ours}' under the plugin"
    for name in SHARED:
        values = {environment.get(name) for environment in plugin.values()}
        if len(values) != 1:
            yield f"{name} differs between the plugin's ranks: {sorted(map(str, values))}"
    for name in OF_RANK_0:
        others = [rank for rank, environment in plugin.items() if rank != 0 and name in environment]
        if others:
            yield f"{name} is for rank 0, but ranks {others} have it"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    torchrun, plugin = map(environments, sys.argv[1:])
    found = list(complaints(torchrun, plugin))
    if found:
        sys.exit("\n".join(found))
    names = {name for rank in torchrun for name, _, _ in differences(torchrun[rank], plugin[rank])}
    equal = sum(len(environment.keys() - names) for environment in torchrun.values())
    print(f"{len(torchrun)} ranks: {equal} values are equal; these differ:")
    for name in sorted(names):
        print(f"  {name}: {JUSTIFIED[name][2]}")


if __name__ == "__main__":
    main()
