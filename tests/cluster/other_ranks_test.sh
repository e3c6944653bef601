#!/usr/bin/env bash
# Processes of which each takes itself for the only rank: one line names the sign that is seen, and a rank number of an
# unknown launcher is an error.
source "$(dirname "$0")/case.sh"
torchbridge="$BUILD_DIR/bin/torchbridge"

# expect_sign PATTERN COMMAND...: it succeeds, and each line on standard error matches.
expect_sign() {
  local pattern=$1
  shift
  printf '$ %s\n' "$*"
  "$@" >"$work/stdout" 2>"$work/stderr" || fail "exit code $?: $(cat "$work/stderr")"
  grep -qE "$pattern" "$work/stderr" && ! grep -vqE "$pattern" "$work/stderr" ||
    fail "expected '$pattern', found '$(cat "$work/stderr")'"
}
only='^(torchbridge|trainer): this process is the only rank, but'
only_agent='^torchbridge: this agent is the only one of its run, but'
above_of() { echo "$only $1 is above it, and no variable of $2 is set: pass them on"; }

# A cleaned environment.
expect_sign "$(above_of slurmstepd slurm)" on_login srun -N2 -n2 env -i "$torchbridge" exec -- true
expect_sign "$(above_of slurmstepd slurm)" on_login srun -N1 -n2 env -i "$torchbridge" explain
expect_sign "$(above_of slurmstepd slurm)" \
  on_login srun -N1 -n2 sh -c "exec env -i SLURM_JOB_ID=\$SLURM_JOB_ID '$torchbridge' exec -- true"
expect_sign "$(above_of '(mpirun|orted|prted|prterun)' openmpi)" \
  "$within" "$limit" mpirun -np 2 env -i "$torchbridge" env
if command -v mpiexec.mpich >/dev/null; then
  expect_sign "$(above_of hydra_pmi_proxy hydra)" \
    "$within" "$limit" mpiexec.mpich -n 2 env -i "$torchbridge" exec -- true
fi
expect_sign "$only_agent slurmstepd is above it" on_login srun -N1 -n2 env -i "$torchbridge" run true
# Agents that the user made single have no line.
expect_sign '^$' on_login srun -N1 -n2 env -i PATH="$PATH" sh -c "'$torchbridge' run --standalone true; echo >&2"

# A batch script, or a shell of salloc, that lacks srun.
expect_sign "$only job [0-9]+ of Slurm has 4 tasks on 2 nodes: start it with srun" \
  on_login salloc -Q -N2 -n4 "$torchbridge" exec -- true
expect_sign "$only_agent job [0-9]+ of Slurm has 2 nodes: start it with srun" \
  on_login salloc -Q -N2 -n4 "$torchbridge" run --nproc-per-node 1 true
expect "" on_login salloc -Q -N2 -n4 "$torchbridge" run --nnodes 1 true
expect_error '^torchbridge: srun has not started this agent, but job [0-9]+ of Slurm has 2 nodes: start it with' 30 \
  on_login salloc -Q -N2 --ntasks-per-node=1 "$torchbridge" run --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d \
  --rdzv-endpoint localhost:29439 --rdzv-conf join_timeout=1 true
expect "" on_login salloc -Q -N1 -n1 "$torchbridge" exec -- true
expect_no_message "a job of one task"

# Variables of a launcher that is not known.
unknown='but no launcher is recognised'
for command in "exec -- echo started" env explain "run echo started"; do
  MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2 expect_error \
    "^torchbridge: this process is MV2_COMM_WORLD_RANK='0' of MV2_COMM_WORLD_SIZE='2', $unknown" 10 \
    on_login "$torchbridge" $command
  [[ ! -s $work/stdout ]] || fail "a program ran: $(cat "$work/stdout")"
done
PMIX_RANK=3 expect_error "^torchbridge: this process is PMIX_RANK='3', $unknown" 10 on_login "$torchbridge" exec -- true
PMIX_RANK=3 expect "0/1" on_login "$torchbridge" run --standalone sh -c 'echo $RANK/$WORLD_SIZE'

if [[ -x $BUILD_DIR/bin/trainer ]]; then
  train() { "$within" "$limit" "$@" "$BUILD_DIR/bin/trainer" --data "$SOURCE_DIR/data/digits" --max-steps 1 --quiet; }
  expect_sign "$(above_of mpirun openmpi)" train mpirun -np 2 env -i
  ALPS_APP_PE=1 expect_error "^trainer: rank 0: this process is ALPS_APP_PE='1', $unknown" 60 train env
fi
