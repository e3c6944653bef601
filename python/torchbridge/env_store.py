"""env:// where the launcher has bound MASTER_PORT for rank 0: rank 0 listens on that socket, and leaves last.

The launcher names the socket's descriptor in TORCHBRIDGE_LISTEN_FD; no other program gets the port meanwhile, and no
connection of a rank is refused. Rank 0 serves the store: at the exit of Python it waits for the others, which may still
use it, for at most ten seconds; not after an error.
"""
import atexit
import os
import socket
import sys
from datetime import timedelta
from urllib.parse import urlparse

from torch.distributed import TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers

_VARIABLE = "TORCHBRIDGE_LISTEN_FD"
_BACKLOG = 4096
_LEAVE = timedelta(seconds=10)


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
    """At the exit of Python, before torch's own handlers."""
    def leave():
        try:
            if rank != 0:
                store.set(f"torchbridge/left/{rank}", "")
            elif not hasattr(sys, "last_type"):
                store.wait([f"torchbridge/left/{peer}" for peer in range(1, world_size)], _LEAVE)
        except RuntimeError:
            pass  # the store, or a rank, has gone without us
    atexit.register(leave)


def _handler_with(torchs):
    def handler(url, timeout: timedelta = default_pg_timeout, **options):
        rank, port = os.environ.get("RANK"), os.environ.get("MASTER_PORT", "")
        is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        is_served = rank == "0" and not is_agents and not urlparse(url).query and port.isdigit()
        descriptor = _listen(int(port)) if is_served else None
        if descriptor is None:
            found = next(torchs(url, timeout, **options))
        else:
            world_size = int(os.environ["WORLD_SIZE"])
            found = (TCPStore(os.environ["MASTER_ADDR"], int(port), world_size, is_master=True, timeout=timeout,
                              master_listen_fd=descriptor), 0, world_size)
        if not is_agents:
            _leave_last(*found)
        yield found
        raise RuntimeError("env://: a second rendezvous is not supported")
    handler.is_torchbridges = True
    return handler


def register():
    torchs = _rendezvous_handlers["env"]
    if not getattr(torchs, "is_torchbridges", False):
        _rendezvous_handlers["env"] = _handler_with(torchs)
