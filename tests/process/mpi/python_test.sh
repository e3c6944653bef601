#!/usr/bin/env bash
# The Python package torchbridge with the stock wheel under mpirun: backend mpi, DDP twice, mpi:// and pmix://, bad
# input.
# Usage: python_test.sh MPIRUN PYTHON PACKAGES (the folder that holds torchbridge)
set -euo pipefail
mpirun=$1 python=$2 packages=$3
program=$(dirname "$0")/python_ranks.py
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1
export PYTHONPATH=$packages
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
[[ -x $mpirun ]] || { echo "SKIPPED: no mpirun for the MPI that was built against"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; cat "$work/stderr" >&2; exit 1; }
ranks() { local count=$1; shift; timeout 100 "$mpirun" -n "$count" "$python" "$program" "$@" 2>"$work/stderr" | sort; }
expect() { [[ $2 == "$1" ]] || fail "expected '$1', got '$2'"; }

expect "0/2 all_reduce number 1 of rank 0 timed out after 4 s
1/2 recv of rank 1 timed out after 4 s" "$(ranks 2 timeouts || true)"  # without MPI_Finalize, which would wait too

for how in orderly at_once at_once; do
  expect "0/2 ends with 2
1/2 ends with 2" "$(ranks 2 ending "$how")"
done

# Both trainings in one process, because importing torch takes longer.
trained=$(ranks 3 ddp) || fail "no training"
expect 6 "$(grep -c "^[0-2]/3 parameters ${trained##* }\$" <<<"$trained")"  # all ranks hold the same, both times

expect "3 0/3 total 111
3 1/3 total 111
3 2/3 total 111" "$(ranks 3 init_method mpi:// "pmix://?wait=30" "mpi://?world_size=3&port=20000-21000" |
  uniq -c | sed 's/^ *//')"

errors=$(ranks 2 rejected slurm:// "mpi://?colour=blue" "mpi://?world_size=3") || fail "it did not reject all"
for error in "slurm://: SLURM_STEP_ID" colour "mpi://: world_size is 2, but 3 was given"; do
  (($(grep -c -- "$error" <<<"$errors") == 2)) || fail "no '$error' by each rank in: $errors"
done
# The others do not wait for a lost rank.
failed() {
  local pattern=$1
  shift
  if ranks "$@" >"$work/stdout"; then fail "it succeeded: $*"; fi
  grep -q -- "$pattern" "$work/stderr" || fail "no '$pattern': $*"
}
started=$SECONDS
failed "this rank has had enough" 4 failing
expect "0/4 collectives
1/4 collectives
2/4 collectives
3/4 collectives" "$(<"$work/stdout")"
failed "process rank 1 .* exited on signal 9" 3 killed
((SECONDS - started < 60)) ||
  fail "a rank's exception or its end by SIGKILL ended the job after $((SECONDS - started)) s"
