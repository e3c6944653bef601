"""Runs train_reference.py for each entry of a list, one after the other: train_cases.py CASES.json

    [{"world_size": 2, "options": ["--epochs", "2", ...]}, ...]

Ranks are forked after `import torch`, which takes longer than the training.
"""

import json
import os
import pathlib
import sys
import traceback

os.environ["OMP_NUM_THREADS"] = "1"

sys.path.append(str(pathlib.Path(__file__).parent.parent / "support"))

import torch  # noqa: E402

import train_reference  # noqa: E402
from free_port import free_port  # noqa: E402


def fork_rank(rank, case, port):
    pid = os.fork()
    if pid > 0:
        return pid
    size = str(case["world_size"])
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": size, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": size,
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.argv = ["train_reference.py", *case["options"]]
    try:
        train_reference.main()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main():
    torch.set_num_threads(1)
    for case in json.loads(pathlib.Path(sys.argv[1]).read_text()):
        port = free_port()
        ranks = [fork_rank(rank, case, port) for rank in range(case["world_size"])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
        if any(codes):
            sys.exit(f"{' '.join(case['options'])}: exit codes {codes}")


if __name__ == "__main__":
    main()
