"""torch.distributed.rpc: each rank asks each other one for a product."""
import os

import torch
import torch.distributed.rpc as rpc

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=ranks)
total = sum(rpc.rpc_sync(f"worker{other}", torch.mul, args=(torch.tensor(2.0), other)).item()
            for other in range(ranks))
rpc.shutdown()
os.write(1, f"rank {rank} of {ranks}: sum {total!r}\n".encode())
