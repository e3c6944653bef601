#!/usr/bin/env bash
# The trainer learns under srun on even, uneven and single-node steps, with the plugin and without it.
source "$(dirname "$0")/case.sh"
limit=120
export OMP_NUM_THREADS=1  # the cluster has more CPUs than this machine, and threads that wait for one take another's
trainer="$BUILD_DIR/bin/trainer"

learns() {  # learns NAME BATCH_SIZE SRUN_ARGUMENTS...
  local name=$1 batch=$2
  shift 2
  on_login srun "$@" "$trainer" --epochs 6 --batch-size "$batch" --metrics "$work/$name.jsonl" || fail "srun $* failed"
  expect_accuracy 0.95 "$work/$name.jsonl"
}

learns even 16 -N2 -n4 --ntasks-per-node=2 --torch-env
learns uneven 8 -N4 -n8 --torch-env
learns single 32 -N1 -n2 --torch-env
learns no_plugin 16 -N2 -n4
# The same samples in each step, summed in another order: the losses agree closely, but not bit for bit.
paste -d' ' <(losses "$work/even.jsonl") <(losses "$work/uneven.jsonl") |
  awk '{ d = $2 - $4; if (d < 0) d = -d }
    $1 != $3 || d > 0.01 + 0.05 * $2 { print "step " $1 ": " $2 " against " $4; bad = 1 }
    END { exit bad }' ||
  fail "the losses depend on the layout"

# What a rank was given it reads once, from the start of its program to its process group.
reads='/proc 1, launcher 1'
expect "SLURM_PROCID 1, RANK 1, $reads"$'\n'"SLURM_PROCID 1, RANK 1, $reads" \
  on_login srun -N2 -n2 --torch-env "$BUILD_DIR/bin/launch_reads"
expect "SLURM_PROCID 1, RANK 0, $reads"$'\n'"SLURM_PROCID 1, RANK 0, $reads" \
  on_login srun -N2 -n2 "$BUILD_DIR/bin/launch_reads"
