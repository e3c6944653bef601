"""Forms a gloo group in ranks that are forked after `import torch`, adds up one number over all and prints the seconds
of the last one.

What first_allreduce.py does, without what importing torch takes, and with the memory of one import for all ranks.
Usage: first_allreduce_ranks.py RANKS MASTER_PORT
"""

import os
import sys
import time

import torch
import torch.distributed as dist


def rank_of(rank, ranks, port):
    """Seconds of this rank, from init_process_group to the sum."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo")
    ones = torch.ones(1)
    dist.all_reduce(ones)
    done = time.time()
    assert ones.item() == ranks
    dist.barrier()
    dist.destroy_process_group()
    return done


def main():
    ranks, port = int(sys.argv[1]), sys.argv[2]
    start, pipes = time.time(), []
    for rank in range(ranks):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, f"{rank_of(rank, ranks, port):.6f}".encode())
            os._exit(0)
        os.close(writing)
        pipes.append(reading)
    done = [float(os.read(pipe, 64)) for pipe in pipes]
    for _ in range(ranks):
        if os.wait()[1] != 0:
            sys.exit("a rank failed")
    print(f"{max(done) - start:.4f}")


if __name__ == "__main__":
    main()
