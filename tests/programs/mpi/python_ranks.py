"""Python programs over torchbridge under mpirun: the function that the first argument names. Each rank prints lines
where all is well."""
import datetime
import hashlib
import os
import signal
import sys

import torch
import torch.distributed as dist
import torchbridge  # noqa: F401


def report(text):
    os.write(1, f"{dist.get_rank()}/{dist.get_world_size()} {text}\n".encode())  # in one piece: ranks share a pipe


def train():
    """DDP on a small model with buffers; the digest of all parameters afterwards."""
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.BatchNorm1d(50), torch.nn.ReLU(),
                                torch.nn.Linear(50, 3))
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.002)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.randn(8, 20)), torch.randint(3, (8,))).backward()
        optimizer.step()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def collectives():
    dist.init_process_group("mpi")
    assert dist.is_mpi_available() and dist.get_backend() == "mpi"
    rank, size = dist.get_rank(), dist.get_world_size()
    ones = torch.ones(3)
    dist.all_reduce(ones)
    assert ones.tolist() == [size] * 3
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert [o["rank"] for o in objects] == list(range(size))
    gathered = torch.empty(size, dtype=torch.bool)
    dist.all_gather_into_tensor(gathered, torch.tensor([rank % 2 == 0]))
    assert gathered.tolist() == [r % 2 == 0 for r in range(size)]
    work = dist.isend(torch.tensor([rank]), (rank + 1) % size)
    received = torch.zeros(1, dtype=torch.int64)
    dist.recv(received)  # from any source
    work.wait()
    assert received.item() == (rank - 1) % size
    even = dist.new_group([r for r in range(size) if r % 2 == 0])
    if rank % 2 == 0:
        mine = torch.tensor([rank + 1])
        dist.all_reduce(mine, group=even)
        assert mine.item() == sum(range(1, size + 1, 2))
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda f: f.value()[0].item() * 10)
    assert future.wait() == size * 10
    try:
        dist.all_reduce(torch.ones(1), op=dist.ReduceOp.BAND)
        raise AssertionError("BAND of floats went through")
    except TypeError as error:
        assert "no BAND of Float" in str(error)
    dist.barrier()
    report("collectives")
    dist.destroy_process_group()


def ddp():
    for _ in range(2):
        dist.init_process_group("mpi")
        report(f"parameters {train()}")
        dist.destroy_process_group()


def init_method(*urls):
    """One group after the other, each with one of the URLs."""
    for url in urls:
        dist.init_process_group("gloo", init_method=url, timeout=datetime.timedelta(seconds=60))
        total = torch.tensor([10 ** dist.get_rank()])  # the sum shows which rank is missing
        dist.all_reduce(total)
        report(f"total {int(total)}")
        dist.destroy_process_group()


def rejected():
    """Each URL's error."""
    for url in ("slurm://", "mpi://?colour=blue", "mpi://?world_size=4"):
        try:
            dist.init_process_group("gloo", init_method=url)
            raise AssertionError(f"{url} went through")
        except (RuntimeError, ValueError) as error:
            os.write(1, f"{error}\n".encode())


def failing():
    """After all the collectives, and in a group of its own, one rank leaves by an exception while the others wait for
    it."""
    collectives()
    dist.init_process_group("mpi")
    if dist.get_rank() == 1:
        raise RuntimeError("this rank has had enough")
    dist.all_reduce(torch.ones(1))


def at_once():
    """Ends directly after a collective on a tensor of Python's: the interpreter must end without MPI's thread."""
    dist.init_process_group("mpi")
    total = torch.ones(1)
    dist.all_reduce(total)
    report(f"ends with {total.item():.0f}")


def all_in_turn():
    """Ends orderly: ddp() destroys its groups."""
    rejected()
    init_method("mpi://", "pmix://?wait=30", "mpi://?world_size=3&port=20000-21000")
    ddp()


def timeouts():
    """The timeout of init_process_group, which torch does not pass to its own MPI backend.

    Each rank waits for the other.
    """
    dist.init_process_group("mpi", timeout=datetime.timedelta(seconds=4))
    try:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))
        else:
            dist.recv(torch.ones(1), 0)
    except dist.DistBackendError as error:
        report(str(error).split(":")[1])


def killed():
    """After the timeouts, and in a group of its own, one rank is killed while the other waits for it in a
    collective."""
    timeouts()
    group = dist.new_group(range(2), timeout=datetime.timedelta(seconds=90))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1), group=group)


CASES = (all_in_turn, at_once, failing, init_method, killed)
{case.__name__: case for case in CASES}[sys.argv[1]](*sys.argv[2:])
