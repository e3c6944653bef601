#!/usr/bin/env bash
# MPI and torch.distributed in one Python program under mpirun torchbridge exec: on one node and over two, in both
# orders.
source "$(dirname "$0")/case.sh"
limit=120
torchbridge="$BUILD_DIR/bin/torchbridge"
python="$SOURCE_DIR/.venv/bin/python"
[[ -x $python ]] || skip "no .venv: run scripts/setup"
"$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("mpi4py") is None)' ||
  skip "no mpi4py in .venv: run scripts/setup"

cat >"$work/both.py" <<'PY'
import os, sys
import torch, torch.distributed as dist

def all_reduce_by_torch(value):
    dist.init_process_group("gloo")
    total = torch.tensor([value])
    dist.all_reduce(total)
    return int(total)

def all_reduce_by_mpi(value):
    from mpi4py import MPI  # MPI_Init happens here
    comm = MPI.COMM_WORLD
    position.append(f"{comm.Get_rank()}/{comm.Get_size()}")
    return comm.allreduce(value)

position = [f"{os.environ['RANK']}/{os.environ['WORLD_SIZE']}", f"node {os.environ['GROUP_RANK']}"]
mine = 10 ** int(os.environ["RANK"])  # the sum shows which rank's value is missing
steps = {"torch": all_reduce_by_torch, "mpi": all_reduce_by_mpi}
totals = {name: steps[name](mine) for name in sys.argv[1:]}
dist.barrier()
# One write: ranks share a pipe.
os.write(1, f"{' '.join(position)} torch {totals['torch']} mpi {totals['mpi']}\n".encode())
dist.destroy_process_group()
PY

expect "0/2 node 0 0/2 torch 11 mpi 11
1/2 node 0 1/2 torch 11 mpi 11" "$within" "$limit" mpirun --oversubscribe -np 2 \
  "$torchbridge" exec -- "$python" "$work/both.py" mpi torch

over_two_nodes=(on_node n0 mpirun --mca plm_rsh_agent "$SOURCE_DIR/scripts/cluster/node_sh" --host n0:1,n1:2 -np 3)
orders=("torch mpi")
[[ -z ${TORCHBRIDGE_COMPLETE:-} ]] || orders+=("mpi torch")  # each rank imports torch for two seconds
for order in "${orders[@]}"; do
  expect "0/3 node 0 0/3 torch 111 mpi 111
1/3 node 1 1/3 torch 111 mpi 111
2/3 node 1 2/3 torch 111 mpi 111" "${over_two_nodes[@]}" "$torchbridge" exec -- "$python" "$work/both.py" $order
done
