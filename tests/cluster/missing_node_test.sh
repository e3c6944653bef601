#!/usr/bin/env bash
# Ranks that do not join the process group are named with their node, with the plugin and with slurm://.
source "$(dirname "$0")/case.sh"
# The tasks of the second node end with 0 instead of training.
some='[ "$SLURM_NODEID" = 1 ] || exec "$0" "$@"'
missing='trainer: rank 0: ranks 2,3 \(n1\) of 4 did not join at .* within 10 s'

expect_error "$missing" 30 on_login srun -N2 -n4 --nodelist=n0,n1 --ntasks-per-node=2 --torch-env=check=no \
  sh -c "$some" "$BUILD_DIR/bin/trainer" --timeout 10
expect_error "$missing" 30 on_login srun -N2 -n4 --nodelist=n0,n1 --ntasks-per-node=2 \
  sh -c "$some" "$BUILD_DIR/bin/trainer" --timeout 10 --init-method slurm://
