#!/usr/bin/env python3
"""`torchbridge run --preload torch` with PyTorch: what `torch` means, and the same bits as without.

    preload_torch_test.py TORCHBRIDGE [CASE...]

Run by a Python with torch. Each case prints what it took.
"""

import ast
import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import termios

from case_runner import check, run_cases

TORCHBRIDGE = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIMIT = 240
ORIGIN = """
import os
with open("/proc/self/environ", "rb") as file:
    is_forked = b"\\0RANK=" not in b"\\0" + file.read()
"""
# CPython 3.14 starts the processes of a DataLoader by a server, which imports the script once more.
FORKED = ORIGIN + "assert is_forked or __name__ != '__main__'\n"

FIRST_STEP = FORKED + """
import sys
before = set(sys.modules)
import gc
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

@record
def main():
    dist.init_process_group("gloo")
    assert torch.get_num_threads() == 1
    data = TensorDataset(torch.randn(8, 4))
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data), num_workers=1)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for inputs, in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(inputs).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        scheduler.step()
    torch.save(model.state_dict(), f"{dist.get_rank()}.pt")
    torch.load(f"{dist.get_rank()}.pt")
    dist.barrier()
    if dist.get_rank() == 0:
        print(sorted(set(sys.modules) - before))
    del model, optimizer, scheduler, loss
    gc.collect()
    dist.destroy_process_group()

if __name__ == '__main__':
    main()
"""

LOADERS = """
import os, sys
import numpy, random
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

class Squares(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return index * index, get_worker_info().seed % 97

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        torch.manual_seed(3)
        loader = DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context=method, shuffle=True)
        print(method, [[part.tolist() for part in batch] for batch in loader])
    print(torch.initial_seed(), torch.rand(2).tolist(), torch.get_num_threads(), torch.get_num_interop_threads())
    print(torch.multiprocessing.get_sharing_strategy(), torch.is_grad_enabled(), torch.get_default_dtype())
    print(torch.nn.functional.linear(torch.ones(300, 300), torch.ones(300, 300)).sum().item())
"""

RECORDED = FORKED + """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("no such data")
if __name__ == '__main__':
    main()
"""


def run(folder, *command, code=0, files=None, **variables):
    """Standard output and error of `torchbridge run`."""
    for name, text in (files or {}).items():
        (pathlib.Path(folder) / name).write_text(text)
    environment = os.environ | {"PYTHON_EXEC": sys.executable, "CUDA_VISIBLE_DEVICES": "-1"} | variables
    done = subprocess.run([TORCHBRIDGE, "run", *map(str, command)], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=LIMIT)
    check(done.returncode == code, f"exit code {done.returncode}, not {code}:\n{done.stdout}\n{done.stderr}")
    return done.stdout, done.stderr


def modules_of_the_first_step(folder):
    """None is imported by a worker: neither by DDP nor by what else a script does in its first step."""
    out, error = run(folder, "--nproc-per-node", 2, "--preload", "torch", "train.py", files={"train.py": FIRST_STEP})
    check(out == "[]\n", f"a worker has imported what `torch` of --preload lacks: {out}\n{error}")


def same_bits(folder):
    """DDP whose losses and parameters are those of separate processes, also after a worker was killed."""
    worker, results = ROOT / "tests/programs/agent_worker.py", []
    for name, options in (("alone", []), ("forked", ["--preload", "torch"])):
        (folder / name).mkdir()
        run(folder, "--nproc-per-node", 2, *options, worker, folder / name, 20)
        results.append((folder / name / "result").read_text())
    (folder / "killed").mkdir()
    killed = FORKED + f"""
import runpy, signal, sys, torch.distributed as dist
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    calls, reduce = [], dist.all_reduce
    def all_reduce(*arguments):
        calls.append(1)
        if len(calls) == 8 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return reduce(*arguments)
    dist.all_reduce = all_reduce
sys.argv = ["", "killed", "20"]
runpy.run_path({str(worker)!r}, run_name="__main__")
"""
    error = run(folder, "--nproc-per-node", 2, "--preload", "torch", "--max-restarts", 1, "train.py",
                files={"train.py": killed})[1]
    check("restart 1 of 1" in error, error)
    results.append((folder / "killed" / "result").read_text())
    check(results[0] == results[1] == results[2], "the results differ")


def loaders(folder):
    """Worker processes of a DataLoader, the default generators, and threads."""
    alone, forked = (run(folder, *options, "train.py", files={"train.py": LOADERS})[0]
                     for options in ([], ["--preload", "torch,numpy"]))
    check(alone == forked and "forkserver" in alone, alone, forked)


def generators(folder):
    """Of two ranks and two attempts: the default ones of torch, NumPy and Python all differ, also in the workers of a
    DataLoader, as in separate processes. A seed that a module sets for torch is that of all."""
    script = """
import os, sys, numpy, random, torch
from torch.utils.data import DataLoader
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        return torch.rand(1), random.random()
loaded, = DataLoader(Numbers(), num_workers=1)
values = numpy.random.rand(), random.random(), torch.rand(1).item(), loaded[0].item(), loaded[1].item()
open(f"values.{os.environ['RANK']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}", "w").write(repr(values))
sys.exit(int(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"))
"""
    for options in ([], ["--preload", "torch,numpy"]):
        run(folder, "--nproc-per-node", 2, "--max-restarts", 1, *options, "train.py", files={"train.py": script})
        found = [value for file in folder.glob("values.*") for value in ast.literal_eval(file.read_text())]
        check(len(found) >= 15 and len(found) == len(set(found)), options, found)  # one may be ended before it writes
        for file in folder.glob("values.*"):
            file.unlink()
    seeded = "import os, seeds, torch\nos.write(1, f'{torch.rand(1).item()}\\n'.encode())"
    alone, forked = (run(folder, "--nproc-per-node", 2, *options, "train.py", files={
        "train.py": seeded, "seeds.py": "import torch\ntorch.manual_seed(5)\n"})[0]
        for options in ([], ["--preload", "torch,seeds"]))
    check(alone == forked and len(set(alone.split())) == 1, alone, forked)


def error_file(folder):
    """What @record writes of an exception is the same, and the report has it."""
    error = run(folder, "--preload", "torch", "--log-dir", "logs", "--json-summary", "s.json", "train.py", code=1,
                files={"train.py": RECORDED})[1]
    record = json.loads(next(folder.glob("logs/*/attempt_0/0/error.json")).read_text())["message"]
    check(record["message"] == "ValueError: no such data", record)
    check('File "' + str(folder) + '/train.py", line' in record["extraInfo"]["py_callstack"], record)
    check("ValueError: no such data" in error, error)
    stack = record["extraInfo"]["py_callstack"]
    check("sitecustomize" not in stack and "sitecustomize" not in error, stack)


def process_group(folder):
    """A module that forms one is refused, and one that initializes MPI."""
    error = run(folder, "--preload", "mpi4py.MPI", "train.py", files={"train.py": ""})[1]
    check("module 'mpi4py.MPI' initializes MPI: leave it out of the list" in error, error)
    module = "import torch.distributed as dist\ndist.init_process_group('fake', store=dist.HashStore(), rank=0, " \
             "world_size=1)\n"
    module = "import torch.testing._internal.distributed.fake_pg\n" + module
    error = run(folder, "--preload", "torch,module", "train.py", files={"train.py": "", "module.py": module})[1]
    check("module 'module' forms a process group: leave it out of the list" in error, error)


def start_method(folder):
    """torchrun's option, from its variable too."""
    for options, variables in ((["--start-method", "forkserver"], {}), ([], {"PET_START_METHOD": "forkserver"})):
        script = FORKED + "import sys\nassert 'torch._dynamo' in sys.modules\n"
        check(run(folder, *options, "train.py", files={"train.py": script}, **variables) == ("", ""))


def blas_threads(folder):
    """One worker, whose libraries start threads when they are loaded: OpenBLAS ends its own at a fork."""
    script = FORKED + "import numpy\nprint(numpy.ones((500, 500)).dot(numpy.ones((500, 500))).sum())\n"
    environment = {name: "2" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    check(run(folder, "--preload", "torch,numpy", "train.py", files={"train.py": script}, **environment) ==
          ("125000000.0\n", ""))


def progress_bar(folder):
    """tqdm's, on a terminal of 60 columns."""
    script = "import sys, tqdm\nassert sys.stderr.isatty()\n" \
             "for _ in tqdm.tqdm(range(3), mininterval=0, bar_format='{l_bar}{bar}| {n}/{total}'):\n    pass\n"
    (folder / "train.py").write_text(script)
    drawn = []
    for options in ([], ["--preload", "tqdm"]):
        primary, secondary = pty.openpty()
        termios.tcsetwinsize(secondary, (24, 60))
        process = subprocess.Popen([TORCHBRIDGE, "run", *options, "train.py"], cwd=folder, stdin=secondary,
                                   stdout=secondary, stderr=secondary, env=os.environ | {"PYTHON_EXEC": sys.executable})
        os.close(secondary)
        with open(primary, "rb", buffering=0) as terminal:
            text = b""
            try:
                while part := terminal.read(4096):
                    text += part
            except OSError:  # EIO: nobody has it open any more
                pass
        check(process.wait(LIMIT) == 0, text)
        drawn.append(text)
    check(drawn[0] == drawn[1] and [f"| {done}/3".encode() in drawn[0] for done in range(4)] == [True] * 4, *drawn)


ALWAYS = [modules_of_the_first_step, same_bits, progress_bar, generators]  # the others with TORCHBRIDGE_COMPLETE=1
CASES = [modules_of_the_first_step, same_bits, loaders, generators, error_file, process_group, start_method,
         blas_threads, progress_bar]


def in_folder(case):
    with tempfile.TemporaryDirectory() as folder:
        case(pathlib.Path(folder))


def main():
    names = sys.argv[2:]
    run_cases(CASES if names or os.environ.get("TORCHBRIDGE_COMPLETE") else ALWAYS, names, in_folder)


if __name__ == "__main__":
    main()
