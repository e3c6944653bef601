#!/usr/bin/env bash
# Real mpiruns on this host: what print_launch finds as each rank, and that MPI works in the program it becomes.
# Usage: real_mpirun_test.sh openmpi|mpich PRINT_LAUNCH MPI_RANKS MPI_LAUNCH
set -euo pipefail

kind=$1 print_launch=$2 mpi_ranks=$3 mpi_launch=$4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe
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

place() { echo "$launcher rank $1/3 local $1/3 node 0/1 store 127.0.0.1:PORT $2 ID"; }
places=$(place 0 bound; place 1 -; place 2 -)
mpi=$(for rank in 0 1 2; do echo "MPI rank $rank of 3, ranks add up to 3"; done)

expect "$places" "$mpirun" -n 3 "$print_launch"
expect "$mpi
$places" "$mpirun" -n 3 "$print_launch" "$mpi_ranks"
# Two rendezvous of one process, and MPI after both.
expect "$mpi
$(sort <<<"$places
$places")" "$mpirun" -n 3 "$print_launch" "$print_launch" "$mpi_ranks"
# One by way of a shell, and another after it.
expect "$(sort <<<"$places
$places")" "$mpirun" -n 3 sh -c "'$print_launch' && '$print_launch'"

# Communicators of a program that uses MPI itself: the world, and ranks 0, 2 and 1.
communicators() {
  for rank in 0 1 2; do
    echo "world mpi rank $rank/3 local $rank/3 node 0/1 store 127.0.0.1:PORT" \
      "$([[ $rank == 0 ]] && echo bound || echo -) ID"
  done
  echo "even mpi rank 0/2 local 0/2 node 0/1 store 127.0.0.1:PORT bound ID"
  echo "even mpi rank 1/2 local 1/2 node 0/1 store 127.0.0.1:PORT - ID"
  echo "odd mpi rank 0/1 local 0/1 node 0/1 store 127.0.0.1:PORT bound ID"
}
expect "$(sort <<<"$mpi
$(communicators)")" "$mpirun" -n 3 "$mpi_launch"

# A rank that does not come is missed, not waited for.
without_rank_1='[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && exec sleep 2; exec "$0" --short'
if timeout 60 "$mpirun" -n 3 sh -c "$without_rank_1" "$print_launch" >/dev/null 2>"${TMPDIR:-/tmp}/missing.$$"; then
  fail "a rank did not come, and all is said to be well"
fi
grep -q "did not come within\|came within" "${TMPDIR:-/tmp}/missing.$$" || {
  cat "${TMPDIR:-/tmp}/missing.$$"
  fail "nobody says that a rank did not come"
}
rm -f "${TMPDIR:-/tmp}/missing.$$"
