#!/usr/bin/env bash
# Real mpiruns on this host: what print_launch finds as each rank, and that MPI works in the program it becomes.
# Usage: real_mpirun_test.sh openmpi|mpich PRINT_LAUNCH MPI_RANKS MPI_LAUNCH
set -euo pipefail

kind=$1 print_launch=$2 mpi_ranks=$3 mpi_launch=$4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
case "$kind" in
  openmpi) mpirun=mpirun.openmpi launcher=openmpi ;;
  mpich) mpirun=mpiexec.mpich launcher=hydra ;;
esac
command -v "$mpirun" >/dev/null || { echo "SKIPPED: $mpirun is not installed"; exit 77; }
[[ -x $mpi_ranks ]] || { echo "SKIPPED: the compiler wrapper mpicc.$kind is not installed"; exit 77; }

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# expect EXPECTED COMMAND...: the sorted output, with the port and the run's id as PORT and ID, is EXPECTED.
expect() {
  local expected=$1 found
  shift
  found=$(timeout 60 "$@" 2>&1 | sed -E 's/(store [^ ]*):[0-9]+/\1:PORT/; s/ [a-z]+-[^ ]+$/ ID/' | sort) ||
    fail "$*: $found"
  [[ $found == "$expected" ]] || { diff <(echo "$expected") <(echo "$found") || true; fail "$*"; }
}

launch_of() { echo "$launcher rank $1/3 local $1/3 node 0/1 store 127.0.0.1:PORT $2 ID"; }
launches=$(launch_of 0 bound; launch_of 1 -; launch_of 2 -)
mpi=$(for rank in 0 1 2; do echo "MPI rank $rank of 3, ranks add up to 3"; done)

expect "$launches" "$mpirun" -n 3 "$print_launch"
expect "$mpi
$launches" "$mpirun" -n 3 "$print_launch" "$mpi_ranks"
# Two rendezvous of one process, and MPI after both.
expect "$mpi
$(sort <<<"$launches
$launches")" "$mpirun" -n 3 "$print_launch" "$print_launch" "$mpi_ranks"
# One by way of a shell, and another after it.
expect "$(sort <<<"$launches
$launches")" "$mpirun" -n 3 sh -c "'$print_launch' && '$print_launch'"

# Communicators of a program that uses MPI itself: the world, and ranks 0, 2 and 1.
communicators() {
  local rank socket=bound
  for rank in 0 1 2; do
    echo "world mpi rank $rank/3 local $rank/3 node 0/1 store 127.0.0.1:PORT $socket ID"
    socket=-
  done
  echo "even mpi rank 0/2 local 0/2 node 0/1 store 127.0.0.1:PORT bound ID"
  echo "even mpi rank 1/2 local 1/2 node 0/1 store 127.0.0.1:PORT - ID"
  echo "odd mpi rank 0/1 local 0/1 node 0/1 store 127.0.0.1:PORT bound ID"
}
expect "$(sort <<<"$mpi
$(communicators)")" "$mpirun" -n 3 "$mpi_launch"

# A rank that does not arrive is an error after the timeout.
errors=${TMPDIR:-/tmp}/missing.$$
one_missing='[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && exec sleep 2; exec "$0" --short'
if timeout 60 "$mpirun" -n 3 sh -c "$one_missing" "$print_launch" >/dev/null 2>"$errors"; then
  fail "a rank did not arrive, and the program succeeded"
fi
grep -q "did not arrive within\|arrived within" "$errors" ||
  { cat "$errors"; fail "no error names the rank that did not arrive"; }
rm -f "$errors"
