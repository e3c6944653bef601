#!/usr/bin/env bash
# The MPI backend on 1 to 8 real ranks: the whole matrix in one program for each number.
# Usage: mpi_backend_test.sh MPIRUN MPI_MATRIX
set -euo pipefail
mpirun=$1 mpi_matrix=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
[[ -x $mpirun ]] || { echo "SKIPPED: no mpirun for the MPI that was built against"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

for ranks in 1 2 3 4 5 6 7 8; do
  timeout 60 "$mpirun" -n "$ranks" "$mpi_matrix" "$work/store-$ranks" || fail "$ranks ranks"
done
