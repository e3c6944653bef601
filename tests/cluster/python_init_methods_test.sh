#!/usr/bin/env bash
# slurm:// and pmix:// of the Python package torchbridge under a real srun, over several nodes.
source "$(dirname "$0")/case.sh"
limit=120
python="$SOURCE_DIR/.venv/bin/python"
program="$SOURCE_DIR/tests/programs/mpi/python_ranks.py"
[[ -d $BUILD_DIR/python/torchbridge ]] || skip "the Python package was not built"
export PYTHONPATH=$BUILD_DIR/python

expect "0/4 total 1111
1/4 total 1111
2/4 total 1111
3/4 total 1111" on_login srun -N2 -n4 "$python" "$program" init_method slurm://
totals="0/2 total 11
1/2 total 11"
# With the plugin rank 0's port is bound already; its variables give the same ranks.
expect "$totals" on_login srun --torch-env -N2 -n2 "$python" "$program" init_method slurm://
if on_login srun --mpi=list 2>&1 | grep -qw pmix; then
  expect "$totals" on_login srun --mpi=pmix -N2 -n2 "$python" "$program" init_method pmix://
fi
expect_error "pmix://: PMIX_NAMESPACE is not set" 60 \
  on_login srun -N1 -n1 --mpi=none "$python" "$program" init_method pmix://
