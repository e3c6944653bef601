"""env:// where the launcher has bound MASTER_PORT for rank 0: rank 0 listens on that socket, and leaves last.

The launcher names the socket's descriptor in TORCHBRIDGE_LISTEN_FD; no other program gets the port meanwhile, and no
connection of a rank is refused. Rank 0 serves the store: at the exit of Python it waits for the others, which may still
use it, for at most ten seconds; not after an error. So the store lives as long as the process. A later rendezvous of
the same ranks uses it again, with keys of its own: the port is not free, and the others may be behind.
"""
import atexit
import os
import socket
import sys
from datetime import timedelta
from urllib.parse import urlparse

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers

_VARIABLE = "TORCHBRIDGE_LISTEN_FD"
_BACKLOG = 4096
_LEAVE = timedelta(seconds=10)
_rendezvous = {}  # by process and address: what was found there, for which ranks, how often, and what leaves it last


def _listen(port):
    """The descriptor of a listening socket in place of the inherited one; None where that is not bound to the port."""
    try:
        inherited = socket.socket(fileno=int(os.environ.get(_VARIABLE, "")))
    except (ValueError, OSError):
        return None
    if inherited.getsockname()[1] != port:
        inherited.detach()
        return None
    # A second socket: a shell that also inherited the first one would keep it listening.
    listener = socket.socket(inherited.family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(inherited.getsockname())
    listener.listen(_BACKLOG)
    inherited.close()
    del os.environ[_VARIABLE]
    return listener.detach()


def _leave_last(store, rank, world_size):
    """At the exit of Python, before torch's own handlers. Returns what does so."""
    def leave():
        try:
            if rank != 0:
                store.set(f"torchbridge/left/{rank}", "")
            elif not hasattr(sys, "last_type"):
                store.wait([f"torchbridge/left/{peer}" for peer in range(1, world_size)], _LEAVE)
        except RuntimeError:
            pass  # the store, or a rank, has gone without us
    return atexit.register(leave)


def _first(torchs, url, timeout, options):
    rank, port = os.environ.get("RANK"), os.environ.get("MASTER_PORT", "")
    is_served = rank == "0" and not urlparse(url).query and port.isdigit()
    descriptor = _listen(int(port)) if is_served else None
    if descriptor is None:
        return next(torchs(url, timeout, **options))
    world_size = int(os.environ["WORLD_SIZE"])
    return TCPStore(os.environ["MASTER_ADDR"], int(port), world_size, is_master=True, timeout=timeout,
                    master_listen_fd=descriptor), 0, world_size


def _again(at, of, timeout):
    """The store of an earlier rendezvous; None where there was none, of other ranks, or where rank 0 has gone since."""
    if at not in _rendezvous:
        return None
    found, ranks, uses, leave = _rendezvous[at]
    store, rank, world_size = found
    try:
        if ranks != of:
            raise RuntimeError("other ranks")
        store.add(f"torchbridge/again/{rank}", 1)  # which waits for an answer
    except RuntimeError:
        atexit.unregister(leave)  # which keeps the store, and so the port
        del _rendezvous[at]
        return None
    store.set_timeout(timeout)
    _rendezvous[at] = found, ranks, uses + 1, leave
    return PrefixStore(f"torchbridge/{uses}", store), rank, world_size


def _handler_with(torchs):
    def handler(url, timeout: timedelta = default_pg_timeout, **options):
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            yield from torchs(url, timeout, **options)
            return
        at = os.getpid(), os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        of = url, os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
        found = _again(at, of, timeout)
        if found is None:
            found = _first(torchs, url, timeout, options)
            _rendezvous[at] = found, of, 1, _leave_last(*found)
        yield found
        raise RuntimeError("env://: a second rendezvous is not supported")
    handler.is_torchbridges = True
    return handler


def register():
    torchs = _rendezvous_handlers["env"]
    if not getattr(torchs, "is_torchbridges", False):
        _rendezvous_handlers["env"] = _handler_with(torchs)
