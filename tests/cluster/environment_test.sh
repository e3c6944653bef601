#!/usr/bin/env bash
# All variables of torchrun for one task; and none where the plugin is not requested.
source "$(dirname "$0")/case.sh"
show='env | grep -E "^(RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|TORCHELASTIC_|TORCH_|OMP_)" |
  sed -E "s/slurm-[0-9]+\.0/RUN/; s/^(MASTER_PORT=)[0-9]+/\1PORT/"'

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
WORLD_SIZE=4" on_login srun -N2 -w n0,n1 -n4 --ntasks-per-node=2 --torch-env sh -c "test \$RANK != 3 || { $show; }"
expect_no_message "it prints"

expect "" on_login srun -N2 -w n0,n1 -n4 sh -c "$show"
expect_no_message "it prints without being requested"

# The defaults of torchrun's options (PET_) are set only where the command line starts torchrun, also through a shell.
torchbridge=$BUILD_DIR/bin/torchbridge
mkdir "$work/bin"
show='env | grep -cE "^PET_(NNODES=2|NODE_RANK=[01]|RDZV_ID=|RDZV_ENDPOINT=|MASTER_ADDR=|MASTER_PORT=)"'
printf '#!/bin/sh\n%s || true\n' "$show" | tee "$work/bin/torchrun" >"$work/train.sh"
chmod +x "$work/bin/torchrun" "$work/train.sh"
agents() { on_login srun -N2 --ntasks-per-node=1 "$@"; }
for way in "--torch-env" "$torchbridge exec --"; do
  # shellcheck disable=SC2086  # the way is several words
  expect $'6\n6' agents $way "$work/bin/torchrun"
  expect $'6\n6' agents $way sh -c ": first; exec '$work/bin/torchrun'"
  expect $'0\n0' agents $way sh -c "exec '$work/bin/torchrun' --standalone"
  expect $'0\n0' agents $way sh "$work/train.sh"
done
