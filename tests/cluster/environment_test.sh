#!/usr/bin/env bash
# The complete variable set of torchrun, for one task; and nothing at all when it is not asked for.
source "$(dirname "$0")/case.sh"
show='env | grep -E "^(RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|TORCHELASTIC_|TORCH_|OMP_)" | sed -E "s/slurm-[0-9]+\.0/RUN/; s/^(MASTER_PORT=)[0-9]+/\1PORT/"'

expect "GROUP_RANK=1
GROUP_WORLD_SIZE=2
LOCAL_RANK=1
LOCAL_WORLD_SIZE=2
MASTER_ADDR=$(on_node n0 hostname -I | cut -d' ' -f1)
MASTER_PORT=PORT
OMP_NUM_THREADS=1
RANK=3
ROLE_NAME=default
ROLE_RANK=3
ROLE_WORLD_SIZE=4
TORCHELASTIC_ERROR_FILE=/tmp/torch-env-0/RUN-attempt_0-rank_3-error.json
TORCHELASTIC_MAX_RESTARTS=0
TORCHELASTIC_RESTART_COUNT=0
TORCHELASTIC_RUN_ID=RUN
TORCHELASTIC_USE_AGENT_STORE=False
TORCH_NCCL_ASYNC_ERROR_HANDLING=1
WORLD_SIZE=4" on_login srun -N2 -n4 --ntasks-per-node=2 --torch-env sh -c "test \$RANK != 3 || { $show; }"
[[ ! -s $work/stderr ]] || fail "it is not silent: $(cat "$work/stderr")"

expect "" on_login srun -N2 -n4 sh -c "$show"
[[ ! -s $work/stderr ]] || fail "it is not silent when nobody asked: $(cat "$work/stderr")"
