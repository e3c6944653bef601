"""Rank 0 ends while rank 1 still uses the store; with `import`, both import torchbridge, and form three groups, one
after the other.

    late_peer.py import|plain FOLDER
"""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

if sys.argv[1] == "import":
    import torchbridge  # noqa: F401

folder = pathlib.Path(sys.argv[2])
inherited = os.environ.get("TORCHBRIDGE_LISTEN_FD")
groups = 3 if sys.argv[1] == "import" else 1
for number in range(groups):
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size(), total
    if number + 1 < groups:
        dist.destroy_process_group()
if dist.get_rank() == 0:
    taken = inherited is not None and "TORCHBRIDGE_LISTEN_FD" not in os.environ
    (folder / "taken").write_text(str(taken))
    import atexit

    atexit.register(lambda: (folder / "ending").write_text(""))  # called before the handlers registered earlier
else:
    parent = os.getppid()
    while not (folder / "ending").exists():
        time.sleep(0.01)
    if sys.argv[1] == "plain":  # until the agent has waited for rank 0
        children = pathlib.Path(f"/proc/{parent}/task/{parent}/children")
        while len(children.read_text().split()) > 1:
            time.sleep(0.01)
    store = dist.distributed_c10d._get_default_store()
    store.set("late", "value")
    assert store.get("late") == b"value"
    (folder / "late").write_text("")
