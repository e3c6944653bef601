#!/usr/bin/env bash
# Python programs of the wheel, unchanged: init_process_group("gloo") under srun --torch-env, torchrun without a flag.
source "$(dirname "$0")/case.sh"
limit=120
python="$SOURCE_DIR/.venv/bin/python"
[[ -x $python ]] || skip "no .venv: run scripts/setup"
export TMPDIR=$work  # where torchrun leaves its logs

cat >"$work/train.py" <<'PY'
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * dist.get_rank()
dist.all_reduce(total)
line = f"{dist.get_rank()} {os.environ['LOCAL_RANK']} {dist.get_world_size()} {int(total.item())}\n"
os.write(1, line.encode())  # one write: workers of one agent share a pipe
dist.barrier()
dist.destroy_process_group()
PY
# The ranks alone: torch takes longer to import than all the rest.
cat >"$work/show.py" <<'PY'
import os
os.write(1, "{RANK} {LOCAL_RANK} {WORLD_SIZE}\n".format(**os.environ).encode())
PY

expect "0 0 4 6
1 1 4 6
2 2 4 6
3 0 4 6" on_login srun -N2 -n4 --torch-env "$python" "$work/train.py"

expect "0 0 2 1
1 0 2 1" on_login srun -N2 --ntasks-per-node=1 --torch-env "$python" -m torch.distributed.run "$work/train.py"

# --standalone has its effect: each node is a job of its own.
alone="0 0 1
0 0 1"
standalone="$python -m torch.distributed.run --standalone $work/show.py"
echo "$standalone" >"$work/alone.sh"
expect "$alone" on_login srun -N2 --ntasks-per-node=1 --torch-env bash "$work/alone.sh"
if [[ -n ${TORCHBRIDGE_COMPLETE:-} ]]; then  # each torchrun imports torch for two seconds
  expect "$alone" on_login srun -N2 --ntasks-per-node=1 --torch-env $standalone
  expect "$alone" on_login srun -N2 --ntasks-per-node=1 --torch-env bash -c "$standalone"
fi

# torchrun started by a shell: the plugin finds it in the shell's command; in a script file the flags of
# docs/use/slurm.md are needed.
expect "0 0 2
1 0 2" on_login srun -N2 --ntasks-per-node=1 --torch-env \
  bash -c "cd / && $python -m torch.distributed.run $work/show.py"
flags='--nnodes=$GROUP_WORLD_SIZE --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT'
grep -qF -- "$flags" "$SOURCE_DIR/docs/use/slurm.md" || fail "docs/use/slurm.md has other flags"
echo "$python -m torch.distributed.run $flags $work/show.py" >"$work/train.sh"
expect "0 0 2
1 0 2" on_login srun -N2 --ntasks-per-node=1 --torch-env bash "$work/train.sh"

# An explicit flag wins over the plugin's defaults.
expect "0 0 4
1 1 4
2 0 4
3 1 4" on_login srun -N2 --ntasks-per-node=1 --torch-env \
  "$python" -m torch.distributed.run --nproc-per-node 2 "$work/show.py"

# Programs of ours below it have its workers' ranks, although its run id is the plugin's.
expect $'0/4\n1/4\n2/4\n3/4' on_login srun -N2 --ntasks-per-node=1 --torch-env \
  "$python" -m torch.distributed.run --no-python --nproc-per-node 2 \
  "$BUILD_DIR/bin/torchbridge" exec -- sh -c 'echo $RANK/$WORLD_SIZE'
