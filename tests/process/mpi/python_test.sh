#!/usr/bin/env bash
# The Python package torchbridge with the stock wheel under mpirun: backend mpi, DDP twice, mpi:// and pmix://, bad
# input.
# Usage: python_test.sh MPIRUN PYTHON PACKAGES (the folder that holds torchbridge)
set -euo pipefail
mpirun=$1 python=$2 packages=$3
program=$(dirname "$0")/../../programs/mpi/python_ranks.py
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

expect "0/2 ends with 2
1/2 ends with 2" "$(ranks 2 at_once)"

# All that ends well in one process a rank, because importing torch takes longer.
ranks 3 all_in_turn >"$work/stdout" || fail "exit code $?: $(<"$work/stdout")"
! grep -q 'no global rank mapping' "$work/stderr" || fail "c10d warns of the group"
lines() { grep -cE -- "$1" "$work/stdout" || true; }  # lines PATTERN: how many match
for error in "slurm://: SLURM_STEP_ID" colour "mpi://: world_size is 3, but 4 was given"; do
  expect "3 times '$error'" "$(lines "$error") times '$error'"
done
expect "9 sums of all ranks" "$(lines '^[0-2]/3 total 111$') sums of all ranks"
digest=$(sed -n 's|^0/3 parameters ||p' "$work/stdout" | head -n 1)
expect "6 times ${digest:?no training}" "$(lines "^[0-2]/3 parameters $digest\$") times $digest"  # same, both times
# The others do not wait for a lost rank.
failed() {
  local pattern=$1
  shift
  if ranks "$@" >"$work/stdout"; then fail "it succeeded: $*"; fi
  grep -q -- "$pattern" "$work/stderr" || fail "no '$pattern': $*"
}
failed "this rank has had enough" 3 failing
expect "0/3 collectives
1/3 collectives
2/3 collectives" "$(<"$work/stdout")"
started=$SECONDS
failed "process rank 1 .* exited on signal 9" 2 killed
expect "0/2 all_reduce number 1 of rank 0 timed out after 4 s
1/2 recv of rank 1 timed out after 4 s" "$(<"$work/stdout")"
((SECONDS - started < 60)) ||
  fail "a rank's end by SIGKILL ended the job after $((SECONDS - started)) s"
