"""Runs train_reference.py for each entry of a list, one after the other: train_cases.py CASES.json

    [{"world_size": 2, "options": ["--epochs", "2", ...]}, ...]
"""

import json
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "support"))

from forked_ranks import run_ranks
from free_port import free_port
import train_reference


def train(options, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.argv = ["train_reference.py", *options]
    train_reference.main()


def main():
    for case in json.loads(pathlib.Path(sys.argv[1]).read_text()):
        codes = run_ranks(case["world_size"], train, case["options"], free_port())
        if codes:
            sys.exit(f"{' '.join(case['options'])}: exit codes {codes}")


if __name__ == "__main__":
    main()
