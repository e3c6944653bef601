#!/usr/bin/env bash
# The MPI backend on real ranks of one MPI: the matrix for each number of ranks, then all else, at each thread level
# that an MPI may offer. Usage: backend_test.sh MPIEXEC FOLDER_OF_PROGRAMS SUFFIX LIMITED_THREADS_LIBRARY RANKS...
set -euo pipefail
mpiexec=$1 programs=$2 suffix=$3 limited_threads=$4
shift 4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
[[ -x $mpiexec ]] || { echo "SKIPPED: no mpirun for the MPI that was built against"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; cat "$work/output" >&2; exit 1; }
# ranks COUNT PROGRAM...: it ends well, and MPI finds nothing of ours left.
ranks() {
  local count=$1
  shift
  printf '%s ranks: %s\n' "$count" "$*"
  timeout 60 "$mpiexec" -n "$count" "$@" >"$work/output" 2>&1 || fail "$count ranks: $*"
  ! grep -E 'leaked|after finalizing' "$work/output" || fail "something is left at MPI_Finalize"
}

behaviours=(2)
[[ -z ${TORCHBRIDGE_COMPLETE:-} ]] || { set -- 1 2 3 4 5 6 7 8; behaviours=(1 2 3 4 8); }
for count in "$@"; do
  ranks "$count" "$programs/mpi_matrix$suffix" "$work/store-$count"
  cat "$work/output"
done
for count in "${behaviours[@]}"; do ranks "$count" "$programs/mpi_behaviour$suffix"; done

# Where the backend initialises MPI, its one thread is the one that may call it.
limited() {  # limited LEVEL COUNT PROGRAM...
  local level=$1 count=$2
  shift 2
  TEST_MPI_THREADS=$level ranks "$count" env LD_PRELOAD="$limited_threads" "$@"
  (($(grep -c "MPI offers thread level $level" "$work/output") == count)) || fail "the level was not limited"
}
limited serialized 2 "$programs/mpi_behaviour$suffix"
limited funneled 2 "$programs/mpi_behaviour$suffix"
limited single 3 "$programs/mpi_behaviour$suffix"
limited serialized 2 "$programs/mpi_matrix$suffix" "$work/store-serialized"  # usually the only matrix of two

# Where the program does, it must leave other threads a way.
for level in serialized multiple; do
  ranks 2 "$programs/mpi_own$suffix" "$level"
  grep -q "$level: .*, used" "$work/output" || fail "not used at $level"
done
for level in single funneled; do
  ranks 2 "$programs/mpi_own$suffix" "$level"
  # A library that offers more than was asked for is used.
  grep -qE "$level: MPI offered level ([01], rejected|[23], used)" "$work/output" || fail "not rejected at $level"
done
