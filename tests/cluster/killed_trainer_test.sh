#!/usr/bin/env bash
# SIGKILL of srun, of mpirun, or of one rank during training, over gloo and over MPI; the same command again resumes
# from the last checkpoint, and the losses are those of an undisturbed run, bit for bit.
source "$(dirname "$0")/case.sh"
limit=120
export OMP_NUM_THREADS=1  # the cluster has more CPUs than this machine, and threads that wait for one take another's
trainer="$BUILD_DIR/bin/trainer"
# 690 steps of 4 ranks: some seconds, so that a signal comes before the end also where other tests compute.
options=(--epochs 30 --batch-size 16 --checkpoint-every 10 --progress lines)

has_checkpoint() { compgen -G "$1/step-*/DONE" >/dev/null; }
run_srun() {
  on_login srun -N2 -n4 --ntasks-per-node=2 --torch-env "$trainer" "${options[@]}" --checkpoint-dir "$work/$1" \
    --metrics "$work/$1.jsonl"
}
run_mpirun() {
  timeout "$limit" mpirun -np 4 "$trainer" "${options[@]}" --checkpoint-dir "$work/$1" --metrics "$work/$1.jsonl"
}
run_pmix() {
  on_login srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 --torch-env "$trainer" --backend mpi "${options[@]}" \
    --checkpoint-dir "$work/$1" --metrics "$work/$1.jsonl"
}
# Processes of this case alone: the folder in their arguments has a name of its own.
pids_of() { pgrep -f -- "^$1 .*--checkpoint-dir $work/$2 " || true; }
all_gone() { [[ -z $(pids_of "$trainer" "$1") ]]; }

expect_undisturbed() {  # expect_undisturbed NAME [NAME_OF_UNDISTURBED]
  grep -q 'resumes from step' "$work/$1.out" || { cat "$work/$1.out"; fail "$1: it did not resume from a checkpoint"; }
  diff <(losses "$work/${2:-undisturbed}.jsonl") <(losses "$work/$1.jsonl") >"$work/diff" || {
    head "$work/diff"
    fail "$1: other losses than undisturbed"
  }
  expect_accuracy 0.9 "$work/$1.jsonl"
}

run_srun undisturbed
[[ $(losses "$work/undisturbed.jsonl" | wc -l) == 690 ]] || fail "expected 690 steps"

run_srun srun_killed & job=$!
wait_for 60 has_checkpoint "$work/srun_killed"
kill -9 "$(pgrep -o -f -- "^srun .*--checkpoint-dir $work/srun_killed ")"
wait "$job" && fail "srun was killed and ended with 0"
# Started again at once: Slurm ends the tasks of an srun that was killed, and the new run waits until it has.
run_srun srun_killed | tee "$work/srun_killed.out"
expect_undisturbed srun_killed

one_rank_is_killed() {  # one_rank_is_killed RUN NAME LINES: of the other ranks, as a pattern
  "$1" "$2" 2>"$work/stderr" & job=$!
  wait_for 60 has_checkpoint "$work/$2"
  kill -9 "$(pids_of "$trainer" "$2" | sed -n 2p)"
  SECONDS=0
  wait "$job" && fail "a rank was killed and the launcher ended with 0"
  ((SECONDS < 15)) || fail "the other ranks took $SECONDS s to notice"
  cat "$work/stderr"
  [[ $(grep -c '^trainer: rank' "$work/stderr") =~ ^[$3]$ ]] || fail "expected a number of lines of the ranks in [$3]"
  grep -q 'torch-env: first to end: rank [0-9]* on n[0-9]*, .*: killed by signal 9' "$work/stderr" ||
    fail "the killed rank is not named"
  "$1" "$2" | tee "$work/$2.out"
}
one_rank_is_killed run_srun rank_killed 1
expect_undisturbed rank_killed

# With four ranks MPI sums in another order than gloo. Slurm's PMIx kills the others when one is killed, mostly before
# they can report it.
run_pmix pmix_undisturbed
one_rank_is_killed run_pmix pmix_rank_killed 01
expect_undisturbed pmix_rank_killed pmix_undisturbed
run_pmix pmix_stopped & job=$!
wait_for 60 has_checkpoint "$work/pmix_stopped"
kill -USR1 "$(pgrep -o -f -- "^srun .*--checkpoint-dir $work/pmix_stopped ")"
code=0
wait "$job" || code=$?
((code == 75)) || fail "SIGUSR1 ended the step with $code instead of 75"
run_pmix pmix_stopped | tee "$work/pmix_stopped.out"
expect_undisturbed pmix_stopped pmix_undisturbed

run_mpirun mpirun_killed & job=$!
wait_for 60 has_checkpoint "$work/mpirun_killed"
kill -9 "$(pgrep -o -f -- "^(mpirun|prterun) .*--checkpoint-dir $work/mpirun_killed ")"
wait "$job" && fail "mpirun was killed and ended with 0"
wait_for 15 all_gone mpirun_killed  # the ranks end with their launcher without a signal from it
run_mpirun mpirun_killed | tee "$work/mpirun_killed.out"
expect_undisturbed mpirun_killed
