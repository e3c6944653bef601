#!/usr/bin/env bash
# Lists on the command line and in TORCHBRIDGE_OPTIONS; wrong ones are rejected before a job exists.
source "$(dirname "$0")/case.sh"
next_job_id() { on_login sbatch --parsable -o /dev/null --wrap true; }

before=$(next_job_id)
expect_error "torch-env: --torch-env: unknown option 'rank': expected one of ranks" 15 \
  on_login srun --torch-env=rank=block true
expect_error "torch-env: --torch-env: option 'port=high': expected port=auto" 15 \
  on_login sbatch --torch-env=port=high --wrap true
TORCHBRIDGE_OPTIONS=gpus=2 expect_error "torch-env: TORCHBRIDGE_OPTIONS: option 'gpus=2': expected gpus=auto" 15 \
  on_login srun true
TORCHBRIDGE_OPTIONS=nonsense expect_error "torch-env: TORCHBRIDGE_OPTIONS: unknown option" 15 \
  on_login sbatch --wrap true
after=$(next_job_id)
((after == before + 1)) || fail "jobs were submitted in spite of wrong options: $before, then $after"

TORCHBRIDGE_OPTIONS=ranks=block,port=29511 expect $'0 29511\n1 29511' \
  on_login srun -N2 -n2 sh -c 'echo $RANK $MASTER_PORT'
TORCHBRIDGE_OPTIONS=port=29511,omp=3 expect "29512 3" \
  on_login srun -n1 --torch-env=port=29512 sh -c 'echo $MASTER_PORT $OMP_NUM_THREADS'

# elastic=no: nothing says that an agent is above the program, and torchbridge still knows who set the rest.
for way in "--torch-env=elastic=no" "$BUILD_DIR/bin/torchbridge exec --torch-env=elastic=no --"; do
  expect $'0/2 plugin-or-exec\n1/2 plugin-or-exec' on_login srun -N2 -n2 $way sh -c '! env | grep TORCHELASTIC_ &&
    echo $RANK/$WORLD_SIZE $(expr "$TORCHBRIDGE_SET_BY" : "\(plugin\|exec\) slurm-" >/dev/null && echo plugin-or-exec)'
  expect $'0/2\n1/2' on_login srun -N2 -n2 $way "$BUILD_DIR/bin/torchbridge" exec -- sh -c 'echo $RANK/$WORLD_SIZE'
done

# TORCH_ENV is a variable of users: many name a virtual environment by it.
TORCH_ENV=$HOME/venv expect "unset $HOME/venv" on_login srun -n1 sh -c 'echo ${RANK-unset} $TORCH_ENV'
TORCH_ENV=$HOME/venv expect "0 $HOME/venv" \
  on_login srun -n1 "$BUILD_DIR/bin/torchbridge" exec -- sh -c 'echo $RANK $TORCH_ENV'
TORCH_ENV=$HOME/venv expect "" on_login sbatch -Q --wait -o /dev/null --wrap true

expect "" on_login srun -N2 -n4 -m cyclic --torch-env=verbose true
master='MASTER_ADDR=[0-9.]+ MASTER_PORT=[0-9]+ \(reserved for the step\)'
grep -qE "^torch-env: 4 ranks on 2 nodes \(3,1\), $master, run slurm-[0-9]+\.0$" "$work/stderr" ||
  fail "no summary: $(cat "$work/stderr")"
expect_note_about_base() {
  local node_0="node 0: RANK - LOCAL_RANK is 0 to 1, not always the node's base 0"
  grep -qx "$1: $node_0: .* need ranks=block" "$work/stderr" &&
    grep -qx "$1: node 1: RANK - LOCAL_RANK is 1, not the node's base 3: .* need ranks=block" "$work/stderr" ||
    fail "no note about the nodes' bases: $(cat "$work/stderr")"
}
expect_note_about_base torch-env
expect "" on_login srun -N2 -n4 -m cyclic "$BUILD_DIR/bin/torchbridge" exec --torch-env=verbose -- true
expect_note_about_base torchbridge

on_login srun --help >"$work/help"
grep -q -- '--torch-env=\[LIST\]' "$work/help" || fail "srun --help does not show the option"
