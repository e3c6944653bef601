#!/usr/bin/env bash
# SIGKILL of srun, of mpirun, or of one rank during training, over gloo and over MPI; the command again resumes from the
# last checkpoint, and the losses are those of an undisturbed run, bit for bit.
source "$(dirname "$0")/case.sh"
limit=120
export OMP_NUM_THREADS=1  # the cluster has more CPUs than this machine, and threads that wait for one take another's
trainer="$BUILD_DIR/bin/trainer"
# No training ends by itself before the signal, however long that takes: only what resumes has a last step.
options=(--epochs 1000000 --batch-size 16 --checkpoint-every 10 --progress lines)
declare -A last_step  # of each training

has_checkpoint() { compgen -G "$1/step-*/DONE" >/dev/null; }
# run_LAUNCHER NAME OPTIONS...
run_srun() {
  on_login srun -N2 -n4 --ntasks-per-node=2 --torch-env "$trainer" "${options[@]}" --checkpoint-dir "$work/$1" \
    --metrics "$work/$1.jsonl" "${@:2}"
}
run_mpirun() {
  "$within" "$limit" mpirun -np 4 "$trainer" "${options[@]}" --checkpoint-dir "$work/$1" --metrics "$work/$1.jsonl" \
    "${@:2}"
}
run_pmix() {
  on_login srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 --torch-env "$trainer" --backend mpi "${options[@]}" \
    --checkpoint-dir "$work/$1" --metrics "$work/$1.jsonl" "${@:2}"
}
# Processes of this case alone: the folder in their arguments has a name of its own.
pids_of() { pgrep -f -- "^$1 .*--checkpoint-dir $work/$2 " || true; }
all_gone() { [[ -z $(pids_of "$trainer" "$1") ]]; }

# resume RUN NAME [STEPS]: until so many steps after the newest checkpoint.
resume() {
  local marks=("$work/$2"/step-*/DONE)
  last_step[$2]=$(($(sed 's/.*step-0*\([0-9]*\).*/\1/' <<<"${marks[-1]}") + ${3:-20}))
  "$1" "$2" --max-steps "${last_step[$2]}" | tee "$work/$2.out"
  grep -q 'resumes from step' "$work/$2.out" || fail "$2: it did not resume from a checkpoint"
}

# expect_undisturbed RUN NAMES...: their losses are those of one run to the last step of them all.
expect_undisturbed() {
  local run=$1 name longest
  shift
  longest=$(for name; do echo "${last_step[$name]}"; done | sort -n | tail -n 1)
  "$run" "undisturbed_$run" --max-steps "$longest"
  losses "$work/undisturbed_$run.jsonl" >"$work/undisturbed"
  (($(wc -l <"$work/undisturbed") == longest)) || fail "expected $longest steps"
  for name; do
    diff <(head -n "${last_step[$name]}" "$work/undisturbed") <(losses "$work/$name.jsonl") >"$work/diff" || {
      head "$work/diff"
      fail "$name: other losses than undisturbed"
    }
  done
}

run_srun srun_killed & job=$!
wait_for 60 has_checkpoint "$work/srun_killed"
kill -9 "$(pgrep -o -f -- "^srun .*--checkpoint-dir $work/srun_killed ")"
wait "$job" && fail "srun was killed and ended with 0"
# Started again at once: Slurm ends the tasks of an srun that was killed, and the new run waits until it has. Until then
# they train and save.
resume run_srun srun_killed 600
expect_accuracy 0.9 "$work/srun_killed.jsonl"

# one_rank_is_killed RUN NAME LINES: each number of lines that the other ranks may print. slurmstepd may see the end of
# the killed rank only after another has reported that it lost the connection to that.
one_rank_is_killed() {
  "$1" "$2" 2>"$work/stderr" & job=$!
  wait_for 60 has_checkpoint "$work/$2"
  kill -9 "$(pids_of "$trainer" "$2" | sed -n 2p)"
  SECONDS=0
  wait "$job" && fail "a rank was killed and the launcher ended with 0"
  ((SECONDS < 15)) || fail "the other ranks took $SECONDS s to notice"
  cat "$work/stderr"
  [[ $(grep -c '^trainer: rank' "$work/stderr") =~ ^[$3]$ ]] ||
    fail "the ranks printed other than ${3:0:1} to ${3: -1} lines"
  local killed='first to end: rank [0-9]* on n[0-9]*, .*: killed by signal 9'
  local lost='.*the connection to rank [0-9]* on n[0-9]* was lost: process killed'
  grep -qE "torch-env: ($killed|$lost)" "$work/stderr" || fail "the killed rank is not named"
  resume "$1" "$2"
}
one_rank_is_killed run_srun rank_killed 1

# With four ranks MPI sums in another order than gloo. Slurm's PMIx kills the others when one is killed, mostly before
# they can report it.
one_rank_is_killed run_pmix pmix_rank_killed 01
run_pmix pmix_stopped & job=$!
wait_for 60 has_checkpoint "$work/pmix_stopped"
kill -USR1 "$(pgrep -o -f -- "^srun .*--checkpoint-dir $work/pmix_stopped ")"
code=0
wait "$job" || code=$?
((code == 75)) || fail "SIGUSR1 ended the step with $code instead of 75"
resume run_pmix pmix_stopped
expect_undisturbed run_pmix pmix_rank_killed pmix_stopped

run_mpirun mpirun_killed & job=$!
wait_for 60 has_checkpoint "$work/mpirun_killed"
kill -9 "$(pgrep -o -f -- "^(mpirun|prterun) .*--checkpoint-dir $work/mpirun_killed ")"
wait "$job" && fail "mpirun was killed and ended with 0"
wait_for 15 all_gone mpirun_killed  # the ranks end with their launcher without a signal from it
resume run_mpirun mpirun_killed
expect_undisturbed run_srun srun_killed rank_killed mpirun_killed
