"""Prints the indices that Python's DistributedSampler gives, one JSON object a line, for a table of cases.

    tests/reference/sampler_reference.py [CASES]      # default: sampler_cases.txt beside this file; - is stdin

A line of the table is `N world rank epoch seed shuffle drop_last`; rank may be `*`, for each of them in turn.
Empty lines and lines that start with # are left out.
"""

import json
import pathlib
import sys

from torch.utils.data.distributed import DistributedSampler

KEYS = ("N", "world", "rank", "epoch", "seed", "shuffle", "drop_last")


def cases(lines):
    for line in lines:
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != len(KEYS):
            sys.exit(f"sampler_reference: '{line.strip()}': expected {' '.join(KEYS)}")
        world = int(words[1])
        for rank in range(world) if words[2] == "*" else [words[2]]:
            case = dict(zip(KEYS, map(int, [*words[:2], rank, *words[3:]])))
            yield case | {"shuffle": bool(case["shuffle"]), "drop_last": bool(case["drop_last"])}


def indices(case):
    sampler = DistributedSampler(range(case["N"]), num_replicas=case["world"], rank=case["rank"],
                                 shuffle=case["shuffle"], seed=case["seed"], drop_last=case["drop_last"])
    sampler.set_epoch(case["epoch"])
    return list(sampler)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("sampler_cases.txt")
    table = sys.stdin if path == "-" else open(path, encoding="utf-8")
    for case in cases(table):
        print(json.dumps(case | {"indices": indices(case)}))


if __name__ == "__main__":
    main()
