"""Ranks that are forked after `import torch`, which takes longer than most of the tests' trainings. To be imported
before torch itself."""

import gc
import os
import traceback

os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  the first optimizer of a process imports it, for as long again

torch.set_num_threads(1)


def fork_rank(rank, world_size, function, arguments):
    pid = os.fork()
    if pid > 0:
        return pid
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank),
                   "LOCAL_WORLD_SIZE": str(world_size)}
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def run_ranks(world_size, function, *arguments):
    """Calls the function in so many processes with torchrun's variables but the address; their exit codes where one
    failed, else None."""
    gc.freeze()  # what torch has made is not searched for garbage by each rank
    ranks = [fork_rank(rank, world_size, function, arguments) for rank in range(world_size)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    return codes if any(codes) else None
