#!/usr/bin/env bash
# trainer_template/train.sbatch with failing requests to Slurm, signals at bad times and bad input. Slurm's commands are
# stubs, and the program ends as the case determines; cluster.preemption uses the real ones.
# Usage: train_sbatch_test.sh [CASE...]
set -euo pipefail
: "${SOURCE_DIR:?run through ctest}"
script=$SOURCE_DIR/trainer_template/train.sbatch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!SLURM_@}" "${!SQUEUE_@}"
unset RUN LAUNCHER TRAINER OPTIONS MAX_TRIES BACKOFF CONTROLLER_TRIES CONTROLLER_PAUSE

# Each stub logs its call and first runs the file hooks/NAME, if it exists, which may end it.
mkdir "$work/bin"
cat >"$work/bin/stub" <<'STUB'
#!/bin/bash
name=${0##*/}
echo "$name $*" >>calls
fails() {  # fails TIMES ERROR: the first TIMES calls of this stub fail
  (($(grep -c "^$name " calls) > $1)) || { echo "$2" >&2; exit 1; }
}
[[ ! -e hooks/$name ]] || source "hooks/$name"
case "$name $*" in
  squeue*%e) cat end_time ;;
  "squeue --noheader --jobs "*" --format %T %r") cat state ;;
  "squeue --noheader --jobs 7 --format %A %i") cat ids ;;
  "scontrol requeue"*) echo PENDING BeginTime >state ;;
  mkdir*) exec /bin/mkdir "$@" ;;
  trainer*) exit 75 ;;
esac
STUB
chmod +x "$work/bin/stub"
for name in squeue scontrol mkdir trainer; do ln -s stub "$work/bin/$name"; done

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
controller_is_away='slurm_load_jobs error: Unable to contact slurm controller (connect failure)'

# start [NAME=VALUE...]: runs the job once; sets `code`.
start() {
  local status=0
  : >calls
  env PATH="$work/bin:$PATH" SLURM_JOB_ID=7 RUN=run LAUNCHER=env TRAINER=trainer OPTIONS= CONTROLLER_PAUSE=0 "$@" \
    timeout 60 bash -c 'echo $$ >pid; exec bash "$0" ${ARGUMENTS-}' "$script" >out 2>&1 || status=$?
  code=$status
}
hook() { /bin/mkdir -p hooks && cat >"hooks/$1"; }
checkpoint() { /bin/mkdir -p "run/checkpoints/$1" && touch "run/checkpoints/$1/DONE"; }
expect_code() { ((code == $1)) || fail "exit code $code, expected $1"; }
expect_calls() { (($(grep -c -- "^$2" calls) == $1)) || fail "$(grep -c -- "^$2" calls) calls of '$2', expected $1"; }
expect_line() { (($(grep -cE -- "$1" out) == 1)) || fail "$(grep -cE -- "$1" out) lines match '$1', expected one"; }

# ---- The newest checkpoint -------------------------------------------------------------------------------------------
case_only_folders_of_steps_are_checkpoints() {
  checkpoint step-00000100
  for name in step-00005000.aside step-none step-; do checkpoint "$name"; done
  start
  expect_line 'try 1 from step 00000100 ended'
}
case_steps_are_compared_as_numbers() {
  for step in 99999999 100000000 00000900 00000089; do checkpoint "step-$step"; done
  start
  expect_line 'from step 100000000 ended'
}
case_progress_below_a_renamed_checkpoint_counts() {
  checkpoint step-00005000.aside
  checkpoint step-00000100
  hook trainer <<<'folder=run/checkpoints/step-$(printf %08d $(($(ls run/checkpoints | grep -c .) * 100)))
    mkdir -p "$folder"; touch "$folder/DONE"'
  for try in 1 2 3 4; do
    echo RUNNING None >state
    start MAX_TRIES=2
    expect_code 75
    expect_line 'try 1 from step'
    expect_calls 0 'scontrol update'
  done
}

# ---- A controller that restarts --------------------------------------------------------------------------------------
case_squeue_is_retried() {
  hook squeue <<<"[[ \$* != *%T* ]] || fails 3 '$controller_is_away'"
  start
  expect_code 75
  expect_calls 1 'scontrol requeue 7'
  expect_line 'job requeued$'
}
case_an_unreachable_controller_is_reported() {
  hook squeue <<<"[[ \$* != *%T* ]] || fails 99 '$controller_is_away'"
  start CONTROLLER_TRIES=4
  expect_code 75
  expect_calls 0 'scontrol'
  expect_calls 4 'squeue.*%T'
  expect_line \
    "job not requeued \\(tries: 4\\): $(sed 's/[()]/\\&/g' <<<"$controller_is_away"): run the same sbatch command again"
}
case_errors_of_several_lines_become_one() {
  hook squeue <<<"[[ \$* != *%T* ]] || fails 99 \$'squeue: error: one\\nsqueue: fatal: two'"
  start CONTROLLER_TRIES=2
  expect_line 'job not requeued \(tries: 2\): squeue: error: one; squeue: fatal: two: run the same'
}
case_requeueing_is_retried() {
  hook scontrol <<<"[[ \$1 != requeue ]] || fails 2 '$controller_is_away'"
  start
  expect_calls 3 'scontrol requeue 7'
  expect_line 'job requeued$'
}
case_a_requeue_whose_answer_was_lost_is_not_repeated() {
  hook scontrol <<<"echo PENDING BeginTime >state; fails 1 'Socket timed out on send/recv operation'"
  start
  expect_calls 1 'scontrol requeue'
  expect_line 'job requeued, although the answer was lost: its state is PENDING BeginTime'
  expect_calls 1 'scontrol update JobId=7 StartTime=now+60'
}
case_a_forbidden_requeue_is_not_retried() {
  hook scontrol <<<"fails 99 'Requested operation is presently disabled for job 7'"
  start
  expect_code 75
  expect_calls 1 'scontrol'
  expect_line 'job not requeued \(tries: 1\): Requested operation .* run the same sbatch command again'
}
case_the_delay_is_retried() {
  hook scontrol <<<"[[ \$1 != update ]] || fails 2 '$controller_is_away'"
  start
  expect_calls 2 'scontrol update JobId=7 StartTime=now+60'
  expect_line 'the next start is delayed by 60 s'
}
case_the_end_time_is_retried() {
  hook squeue <<<"[[ \$* != *%e ]] || fails 2 '$controller_is_away'"
  hook trainer <<<'echo "ends at $SLURM_JOB_END_TIME" >&2'
  start TZ=UTC
  expect_line '^ends at 1767225600$'
}
case_training_starts_without_the_end_time() {
  hook squeue <<<"[[ \$* != *%e ]] || fails 99 '$controller_is_away'"
  start CONTROLLER_TRIES=3
  expect_line "the end time of the job is unknown \\(tries: 3\\): $(sed 's/[()]/\\&/g' <<<"$controller_is_away")"
  expect_calls 1 trainer
}
case_squeue_ignores_the_users_defaults() {
  hook squeue <<<'[[ ! ${SQUEUE_STATES-} ]] || exit 0'
  start SQUEUE_STATES=PENDING
  expect_calls 1 'scontrol requeue 7'
}
case_a_job_over_its_limit_is_requeued() {
  for state in 'COMPLETING TimeLimit' 'TIMEOUT TimeLimit' 'SIGNALING None' $'RUNNING None\nRUNNING None'; do
    rm -rf run
    echo "$state" >state
    start
    expect_calls 1 'scontrol requeue 7'
  done
}
case_a_job_that_slurm_ends_or_requeues_is_not_requeued() {
  for state in COMPLETING PENDING CANCELLED PREEMPTED; do
    rm -rf run
    echo "$state None" >state
    start
    expect_calls 0 scontrol
    expect_line "job not requeued by this script: its state is $state\$"
  done
}
case_an_inherited_end_time_is_ignored() {
  echo NONE >end_time
  hook trainer <<<'echo "ends at ${SLURM_JOB_END_TIME-nothing}" >&2'
  start SLURM_JOB_END_TIME=5
  expect_line '^ends at nothing$'
}

case_a_task_of_an_array() {
  printf '%s\n' '8 6_2' '7 6_3' >ids
  start SLURM_ARRAY_JOB_ID=6 SLURM_ARRAY_TASK_ID=3
  expect_calls 1 'scontrol requeue 6_3'
  expect_calls 1 'trainer --checkpoint-dir run/3/checkpoints'
}
case_inherited_array_variables_are_ignored() {
  hook trainer <<<'echo "task ${SLURM_ARRAY_TASK_ID-none}" >&2'
  for ids in '7 7' '7 6_4' '17 6_3'; do
    rm -rf run
    echo RUNNING None >state
    echo "$ids" >ids
    start SLURM_ARRAY_JOB_ID=6 SLURM_ARRAY_TASK_ID=3
    expect_calls 1 'scontrol requeue 7'
    expect_calls 1 'trainer --checkpoint-dir run/checkpoints'
    expect_line '^task none$'
  done
}

# ---- Signals before the program runs ---------------------------------------------------------------------------------
case_signals_before_the_start() {
  for signal in USR1 TERM; do
    for stub in mkdir squeue; do
      rm -rf hooks run
      echo RUNNING None >state
      hook "$stub" <<<"[[ -e signaled ]] || { touch signaled; kill -$signal \$(<pid); }"
      rm -f signaled
      start
      expect_code 75
      expect_calls 0 trainer
      expect_calls 1 'scontrol requeue 7'
      expect_line "$signal arrived before training started"
    done
  done
}
case_a_signal_ends_the_retries() {
  hook squeue <<<"[[ \$* == *%T* ]] || { kill -USR1 \$(<pid); fails 99 '$controller_is_away'; }"
  start CONTROLLER_TRIES=50
  expect_calls 1 'squeue.*%e'
  expect_calls 1 'scontrol requeue 7'
}
case_a_signal_is_forwarded_to_the_program() {
  hook trainer <<<'trap "exit 75" USR1; kill -USR1 $(<pid)
    for ((i = 0; i < 600; i++)); do read -rt 0.1 <> <(:) || true; done; exit 9'
  start
  expect_code 75
  expect_calls 1 'scontrol requeue 7'
}
# As a signal between fork and exec, which ends the child.
case_a_signal_that_the_program_does_not_handle() {
  hook trainer <<<'kill -USR1 $(<pid); for ((i = 0; i < 600; i++)); do read -rt 0.1 <> <(:) || true; done; exit 9'
  start
  expect_code 75
  expect_calls 1 'scontrol requeue 7'
}
case_a_program_that_sends_itself_the_signal() {
  hook trainer <<<'kill -USR1 $$'
  start
  expect_code 138
  expect_calls 1 'scontrol requeue 7'
}
case_a_signal_after_the_program_is_harmless() {
  hook scontrol <<<'kill -USR1 $(<pid); kill -TERM $(<pid)'
  start
  expect_code 75
  expect_line 'job requeued$'
  ! grep -q 'kill:' out || fail "it signals a process that has ended"
}

# ---- Its input -------------------------------------------------------------------------------------------------------
case_options_are_not_file_name_patterns() {
  touch a.bias 'b.bias'
  start OPTIONS=$'--no-decay *.bias\n--x ?.bias' LAUNCHER='env A=*.bias'
  grep -qx 'trainer .* --no-decay \*.bias --x ?.bias' calls || fail "other options: $(grep ^trainer calls)"
}
case_the_delay_is_bounded() {
  for tries in 7 8 64 65 1000; do
    rm -rf run
    /bin/mkdir run
    echo "7 none $((tries - 1))" >run/.tries
    echo RUNNING None >state
    start MAX_TRIES=100000
    expect_calls 1 'scontrol update JobId=7 StartTime=now+3840'
  done
}
case_numbers_are_checked_first() {
  for wrong in MAX_TRIES=0 MAX_TRIES=three MAX_TRIES=99999999999999999999 BACKOFF=1m BACKOFF=-1 BACKOFF=08 \
    CONTROLLER_TRIES=0 CONTROLLER_PAUSE=x; do
    start "$wrong"
    expect_code 2
    expect_line "^train.sbatch: $wrong: expected"
    expect_calls 0 trainer
  done
}
case_outside_a_job_it_ends() {
  start SLURM_JOB_ID=
  expect_code 2
  expect_line '^train.sbatch: .*sbatch'
  expect_calls 0 trainer
}
case_a_damaged_record_counts_from_one() {
  for record in '' '7 none' '7 none x' '7 none 08' '7 none 99999999999999999999'; do
    rm -rf run
    /bin/mkdir run
    echo "$record" >run/.tries
    start MAX_TRIES=20
    expect_line 'try [19] from step none'
  done
}
case_training_needs_a_writable_record() {
  /bin/mkdir -p run/.tries.new
  start
  expect_code 1
  expect_line '^train.sbatch: cannot write run/.tries: training is not started'
  expect_calls 0 trainer
}
case_gives_up_and_counts_anew_after_a_requeue_by_hand() {
  hook trainer <<<'exit 1'
  for try in 1 2 given_up 1; do
    echo RUNNING None >state
    start MAX_TRIES=2
    expect_code 1
    case $try in
      given_up) expect_line '2 starts in a row wrote no checkpoint after step none: training is not started' ;;
      *) expect_line "try $try from step none ended with code 1" ;;
    esac
  done
}

(($# > 0)) || set -- $(compgen -A function case_)
status=0
for name in "$@"; do
  printf '%s\n' "$name"
  mkdir "$work/$name"
  (
    cd "$work/$name"
    echo RUNNING None >state
    echo 7 7 >ids
    echo 2026-01-01T00:00:00 >end_time
    set +e; (set -e; "$name"); result=$?; set -e
    ((result == 0)) || { sed 's/^/    /' out calls >&2; exit 1; }
  ) || status=1
done
exit $status
