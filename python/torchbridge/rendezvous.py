"""Init methods slurm://, pmix:// and mpi://: ranks from the launcher, and a TCPStore at the port that rank 0 has bound.

slurm://?addr=iface:eth0&port=29500-29600&wait=120: options of --torch-env (docs/use/slurm.md), and the seconds that
the ranks wait for each other. rank and world_size, there or as arguments of init_process_group, must be the launcher's.
"""
import os
from datetime import timedelta
from urllib.parse import parse_qsl, urlparse

from torch.distributed import TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers, register_rendezvous_handler

from .backend import load_mpi
from .launch import launch

_LONGEST_WAIT = 300.0  # a thousand ranks may import torch from one file server


def _ask(scheme, seconds, options):
    if scheme == "mpi":
        try:
            mpi = load_mpi()
        except ImportError as error:
            raise RuntimeError(f"mpi:// needs MPI: {error}") from error
        return mpi.launch(seconds, options)
    return launch(scheme, seconds, options)


def _handler(url, timeout: timedelta = default_pg_timeout, **_):
    parsed = urlparse(url)
    scheme = parsed.scheme
    if parsed.netloc or parsed.path not in ("", "/"):
        raise ValueError(f"{url}: expected {scheme}:// or {scheme}://?OPTION=VALUE&...: the launcher gives the address")
    query = dict(parse_qsl(parsed.query, keep_blank_values=True))
    given = {name: query.pop(name) for name in ("rank", "world_size") if name in query}
    seconds = float(query.pop("wait", min(timeout.total_seconds(), _LONGEST_WAIT)))
    found = _ask(scheme, seconds, ",".join(f"{key}={value}" if value else key for key, value in query.items()))
    for name, value in given.items():
        if int(value) != found[name]:
            if found["listen_fd"] >= 0:
                os.close(found["listen_fd"])
            raise ValueError(f"{scheme}://: {name} is {found[name]}, but {value} was given: leave it out")
    rank, world_size = found["rank"], found["world_size"]
    listen_fd = found["listen_fd"]
    store = TCPStore(
        found["host"],
        found["port"],
        world_size,
        is_master=rank == 0 and not found["agent_store"],
        timeout=timeout,
        multi_tenant=listen_fd < 0,
        master_listen_fd=listen_fd if listen_fd >= 0 else None,
    )
    yield store, rank, world_size
    raise RuntimeError(f"{scheme}://: a second rendezvous is not supported")


def register():
    for scheme in ("slurm", "pmix", "mpi"):
        if scheme not in _rendezvous_handlers:
            register_rendezvous_handler(scheme, _handler)
