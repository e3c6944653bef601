"""Compares what workers see of torchrun and of `torchbridge run`, started with the same command lines.

    tests/reference/agent_reference.py TORCHBRIDGE [--preload]    # our workers are forks then

Each worker writes its environment and its arguments to files named after its RANK. A variable that differs must be in
DIFFERENT and look as it says there; docs/use/run_options.md has the same list for people.
"""

import inspect
import os
import pathlib
import re
import runpy
import socket
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
os.environ["LOGLEVEL"] = "ERROR"  # read when torch is imported: torchrun's banner about OMP_NUM_THREADS

import torch  # noqa: E402
from torch.distributed.elastic.agent.server import local_elastic_agent  # noqa: E402
import torch.distributed.run as torchrun  # noqa: E402
from compare_environments import UNSET, differences, environments  # noqa: E402
from free_port import free_port  # noqa: E402

PORT = r"\d{4,5}"
LOG_FILE = r"/.*/attempt_0/\d+/error\.json"
# variable: torchrun's value, ours
DIFFERENT = {
    "MASTER_ADDR": (r"[\w.-]+", r"127\.0\.0\.1"),
    "MASTER_PORT": (PORT, PORT),
    "TORCHELASTIC_RUN_ID": (r"[0-9a-f-]{36}", r"[0-9a-f-]{36}"),
    "TORCHELASTIC_USE_AGENT_STORE": ("True", "False"),
    "TORCHELASTIC_ERROR_FILE": (LOG_FILE, LOG_FILE),
    "TORCHBRIDGE_LISTEN_FD": (UNSET, r"\d+"),
    "TORCHBRIDGE_SET_BY": (UNSET, r"run none .+"),
    # Python's torch sets it for its own libraries when it is imported.
    "KMP_DUPLICATE_LIB_OK": (r".*", UNSET),
    "KMP_INIT_AT_FORK": (r".*", UNSET),
}

PROBE = ["sh", "-c", 'env -0 > "$FOLDER/$RANK"; printf "%s\\0" "$@" > "$FOLDER.arguments/$RANK"', "probe"]
ARGUMENTS = ["--lr", "0.1", "a b", "'\"\\", "line\nline", "", "--nnodes", "${local_rank}", "x" * 100000]

FREE_PORT = str(free_port())

# torchrun before 2.15 does not read the variable.
OF_HIP = [{"HIP_VISIBLE_DEVICES": "4,7"},
          {"HIP_VISIBLE_DEVICES": "4,7", "CUDA_VISIBLE_DEVICES": "3,5"},
          {"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "3,5"}]
if "HIP_VISIBLE_DEVICES" not in inspect.getsource(local_elastic_agent):
    OF_HIP = []

# options, variables
CASES = [
    (["--standalone", "--nproc-per-node", "2"], {}),
    (["--nnodes=1", "--nproc_per_node=2", "--master_port", FREE_PORT], {}),
    (["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=my-run", "--max-restarts=3", "--role", "trainer",
      "--nproc-per-node", "3"], {}),
    (["--standalone", "--nproc-per-node=2", "--virtual-local-rank"], {"CUDA_VISIBLE_DEVICES": "3,5"}),
    *[(["--standalone", "--nproc-per-node=2", "--virtual-local-rank"], given) for given in OF_HIP],
    (["--nproc-per-node=2", "--signals-to-handle", "SIGTERM,SIGUSR1", "--standalone"], {}),
    ([], {"PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1", "PET_MAX_RESTARTS": "2"}),
    (["--standalone"], {"OMP_NUM_THREADS": "7", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
]


# The options of each of two agents of one run, on this host.
NODE_CASES = [
    [["--nnodes=2", "--nproc-per-node=2", f"--node-rank={rank}", "--master-port", FREE_PORT] for rank in range(2)],
    [["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{FREE_PORT}",
      "--rdzv-id=my-run", "--max-restarts=3"]] * 2,
]


def run_torchrun(line, variables, folder="."):
    """In a fork of this process, which has imported torch."""
    return wait_for_torchrun(start_torchrun(line, variables, folder))


def wait_for_torchrun(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def start_torchrun(line, variables, folder=".", prepare=lambda: None):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ.update(variables)
            os.chdir(folder)
            prepare()
            torchrun.main(line)
            code = 0
        except SystemExit as end:
            code = end.code
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def fork_workers():
    """From now on torchrun's agent forks its workers, which have imported torch then; it else starts Python for each.
    """
    config_from_args = torchrun.config_from_args
    import torch._dynamo  # noqa: F401  a worker's first optimizer imports it

    def run_script(_, script, *arguments):
        sys.argv = [script, *arguments]
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        runpy.run_path(script, run_name="__main__")

    def forking(args):
        config, _, words = config_from_args(args)
        config.start_method = "fork"
        return config, run_script, words
    torchrun.config_from_args = forking


def command_of(program, line):
    if sys.argv[2:] != ["--preload"]:
        return [program, "run", *line]
    become = pathlib.Path(__file__).resolve().parent.parent / "programs/become_arguments.py"
    return [program, "run", "--preload", "json", *(become if word == "--no-python" else word for word in line)]


def run_ours(program, line, variables, folder="."):
    return subprocess.run(command_of(program, line), env=os.environ | variables, cwd=folder, timeout=60,
                          check=False).returncode


def seen(folder, name):
    """The environments and arguments that the workers of one run wrote."""
    for path in (folder / name, folder / f"{name}.arguments"):
        path.mkdir()
    return {"FOLDER": str(folder / name)}


def complaints(folder):
    theirs, ours = environments(folder / "torchrun"), environments(folder / "ours")
    if not theirs or theirs.keys() != ours.keys():
        yield f"torchrun started ranks {sorted(theirs)}, torchbridge {sorted(ours)}"
        return
    for rank in theirs:
        for name, their_value, our_value in differences(theirs[rank], ours[rank]):
            patterns = DIFFERENT.get(name, ("", ""))
            fits = [value == pattern or (pattern != UNSET and re.fullmatch(pattern, value))
                    for value, pattern in zip((their_value, our_value), patterns)]
            if name != "FOLDER" and not all(fits):
                yield f"rank {rank}: {name} is '{their_value}' under torchrun, '{our_value}' here"
        arguments = [(folder / f"{name}.arguments" / str(rank)).read_bytes() for name in ("torchrun", "ours")]
        if arguments[0] != arguments[1]:
            yield f"rank {rank}: the arguments are {arguments[0][:300]} under torchrun, {arguments[1][:300]} here"
    for name, owner in (("TORCHBRIDGE_LISTEN_FD", 0),):
        others = [rank for rank, environment in ours.items() if name in environment and rank != owner]
        if others:
            yield f"{name} is for rank {owner}, but ranks {others} have it"


SCRIPT = """
import os, sys
with open(f"{os.environ['FOLDER']}.{os.environ['RANK']}", "w") as file:
    print(__name__, [os.path.basename(sys.argv[0]), *sys.argv[1:]], file=file)
"""


def of_each_kind(program, folder):
    """Scripts, modules, paths: the name and arguments that the code sees."""
    (folder / "script.py").write_text(SCRIPT)
    for kind, words in {"name": ["script.py"], "module": ["-m", "script"], "path": ["--run-path", folder / "script.py"],
                        "launch": ["--use-env", "script.py"]}.items():
        workers = 1 if kind == "path" else 2  # with --run-path each imports torch
        line = ["--standalone", f"--nproc-per-node={workers}", *map(str, words), "--lr", "0.1", "a b"]
        their_line = [word for word in line if word != "--use-env"]
        codes = (run_torchrun(their_line, {"FOLDER": f"torchrun-{kind}"}, folder),
                 run_ours(program, line, {"FOLDER": f"ours-{kind}", "PYTHON_EXEC": sys.executable}, folder))
        texts = [[path.read_text() if path.exists() else None for path in
                  (folder / f"{name}-{kind}.{rank}" for rank in range(workers))] for name in ("torchrun", "ours")]
        if codes != (0, 0) or texts[0] != texts[1] or None in texts[0]:
            yield f"by {kind}: exit codes {codes}; the code sees {texts[0]} under torchrun, {texts[1]} here"


def of_a_training(program, folder):
    """An unmodified script forms its group by env://, and trains to the same bits."""
    script = str(pathlib.Path(__file__).resolve().parent.parent / "programs/agent_worker.py")
    results = []
    def run_theirs(*words):
        return wait_for_torchrun(start_torchrun(*words, prepare=fork_workers))
    for name, run in (("torchrun", run_theirs), ("ours", lambda *words: run_ours(program, *words))):
        (folder / name).mkdir()
        code = run(["--standalone", "--nproc-per-node=2", script, str(folder / name), "7"],
                   {"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1"})
        result = folder / name / "result"
        results.append((code, result.read_text() if result.exists() else None))
    if results[0] != results[1] or results[0][0] != 0:
        yield f"training: exit codes {results[0][0]} under torchrun, {results[1][0]} here, or other values"


def of_several_nodes(program, _):
    """Workers of two agents."""
    for lines in NODE_CASES:
        lines = [[*options, "--no-python", *PROBE, *ARGUMENTS] for options in lines]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            theirs, ours = seen(folder, "torchrun"), seen(folder, "ours")
            children = [start_torchrun(line, theirs) for line in lines]
            codes = [wait_for_torchrun(child) for child in children]
            agents = [subprocess.Popen(command_of(program, line), env=os.environ | ours) for line in lines]
            codes += [agent.wait(60) for agent in agents]
            if any(codes):
                yield f"{lines[0][:5]}: exit codes {codes}"
            yield from (f"{lines[0][:5]}: {complaint}" for complaint in complaints(folder))


def of_a_mixed_run(program, folder):
    """An agent of torchrun cannot join ours; ours is told so, and waits for one of its kind."""
    line = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{FREE_PORT}", "--rdzv-conf",
            "join_timeout=20", "--no-python", "true"]
    with (folder / "errors").open("w+") as errors:
        ours = subprocess.Popen(command_of(program, line), stderr=errors)
        while not is_listening(FREE_PORT):
            pass
        conf = ["--rdzv-conf", "is_host=0,read_timeout=5,timeout=5"]
        their_code = run_torchrun([*line[:3], *conf, "--no-python", "true"], {})
        second = subprocess.run(command_of(program, line), timeout=60, check=False).returncode
        codes = [ours.wait(60), second]
        errors.seek(0)
        text = errors.read()
    if their_code == 0 or codes != [0, 0] or text.count("an agent of torchrun on ") != 1:
        yield f"mixed: torchrun ended with {their_code}, ours with {codes}; ours said: {text}"


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def main():
    program = sys.argv[1]
    os.environ["PYTHON_EXEC"] = sys.executable
    for name in [name for name in os.environ if re.match("PET_|OMP_|CUDA_|TORCH|RANK|MASTER|SLURM", name)]:
        del os.environ[name]
    found = []
    for options, variables in CASES:
        line = [*options, "--no-python", *PROBE, *ARGUMENTS]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            codes = (run_torchrun(line, variables | seen(folder, "torchrun")),
                     run_ours(program, line, variables | seen(folder, "ours")))
            label = " ".join([f"{key}={value}" for key, value in variables.items()] + options)
            if codes != (0, 0):
                found.append(f"{label}: exit codes {codes}")
            found += [f"{label}: {complaint}" for complaint in complaints(folder)]
    for check in (of_each_kind, of_a_training, of_several_nodes, of_a_mixed_run):
        with tempfile.TemporaryDirectory() as name:
            found += check(program, pathlib.Path(name))
    if found:
        sys.exit("\n".join(found))
    print(f"{len(CASES)} command lines: workers see what torchrun's see, but for {', '.join(DIFFERENT)}")


if __name__ == "__main__":
    main()
