#!/usr/bin/env bash
# What scripts/train.sbatch does where Slurm or a signal comes at a bad time, or its input is bad: Slurm's commands are
# stubs here, the program ends as the case says. cluster.preemption has the real ones. Usage: train_sbatch_test.sh
# [CASE...]
set -euo pipefail
: "${SOURCE_DIR:?run through ctest}"
script=$SOURCE_DIR/scripts/train.sbatch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!SLURM_@}" "${!SQUEUE_@}"
unset RUN LAUNCHER TRAINER OPTIONS MAX_TRIES BACKOFF CONTROLLER_TRIES CONTROLLER_PAUSE

# Each stub writes its call down and does what the file hooks/NAME says first, if there is one; that may end it.
mkdir "$work/bin"
cat >"$work/bin/stub" <<'STUB'
#!/bin/bash
name=${0##*/}
echo "$name $*" >>calls
fails() {  # fails TIMES WORDS: the first so many calls of this stub
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

# start [NAME=VALUE...]: the job, once; sets `code`.
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
case_progress_below_one_put_aside_counts() {
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
case_squeue_is_asked_again() {
  hook squeue <<<"[[ \$* != *%T* ]] || fails 3 '$controller_is_away'"
  start
  expect_code 75
  expect_calls 1 'scontrol requeue 7'
  expect_line 'queued again$'
}
case_squeue_that_stays_away_is_named() {
  hook squeue <<<"[[ \$* != *%T* ]] || fails 99 '$controller_is_away'"
  start CONTROLLER_TRIES=4
  expect_code 75
  expect_calls 0 'scontrol'
  expect_calls 4 'squeue.*%T'
  expect_line \
    "not queued again \\(tries: 4\\): $(sed 's/[()]/\\&/g' <<<"$controller_is_away"): give the same sbatch command"
}
case_errors_of_several_lines_become_one() {
  hook squeue <<<"[[ \$* != *%T* ]] || fails 99 \$'squeue: error: one\\nsqueue: fatal: two'"
  start CONTROLLER_TRIES=2
  expect_line 'not queued again \(tries: 2\): squeue: error: one; squeue: fatal: two: give'
}
case_requeueing_is_tried_again() {
  hook scontrol <<<"[[ \$1 != requeue ]] || fails 2 '$controller_is_away'"
  start
  expect_calls 3 'scontrol requeue 7'
  expect_line 'queued again$'
}
case_requeueing_that_happened_unheard_is_not_repeated() {
  hook scontrol <<<"echo PENDING BeginTime >state; fails 1 'Socket timed out on send/recv operation'"
  start
  expect_calls 1 'scontrol requeue'
  expect_line 'queued again, though the answer was lost: Slurm has it as PENDING BeginTime'
  expect_calls 1 'scontrol update JobId=7 StartTime=now+60'
}
case_a_refusal_is_final() {
  hook scontrol <<<"fails 99 'Requested operation is presently disabled for job 7'"
  start
  expect_code 75
  expect_calls 1 'scontrol'
  expect_line 'not queued again \(tries: 1\): Requested operation .* give the same sbatch command'
}
case_the_pause_is_asked_for_again() {
  hook scontrol <<<"[[ \$1 != update ]] || fails 2 '$controller_is_away'"
  start
  expect_calls 2 'scontrol update JobId=7 StartTime=now+60'
  expect_line 'not before 60 s have passed'
}
case_the_end_is_asked_for_again() {
  hook squeue <<<"[[ \$* != *%e ]] || fails 2 '$controller_is_away'"
  hook trainer <<<'echo "ends at $SLURM_JOB_END_TIME" >&2'
  start TZ=UTC
  expect_line '^ends at 1767225600$'
}
case_training_begins_without_the_end() {
  hook squeue <<<"[[ \$* != *%e ]] || fails 99 '$controller_is_away'"
  start CONTROLLER_TRIES=3
  expect_line "when the job ends is not known \\(tries: 3\\): $(sed 's/[()]/\\&/g' <<<"$controller_is_away")"
  expect_calls 1 trainer
}
case_squeue_has_no_defaults_of_the_users() {
  hook squeue <<<'[[ ! ${SQUEUE_STATES-} ]] || exit 0'
  start SQUEUE_STATES=PENDING
  expect_calls 1 'scontrol requeue 7'
}
case_a_job_over_its_limit_is_queued_again() {
  for state in 'COMPLETING TimeLimit' 'TIMEOUT TimeLimit' 'SIGNALING None' $'RUNNING None\nRUNNING None'; do
    rm -rf run
    echo "$state" >state
    start
    expect_calls 1 'scontrol requeue 7'
  done
}
case_a_job_that_slurm_ends_or_queues_is_left_to_it() {
  for state in COMPLETING PENDING CANCELLED PREEMPTED; do
    rm -rf run
    echo "$state None" >state
    start
    expect_calls 0 scontrol
    expect_line "not queued from here: Slurm has it as $state\$"
  done
}
case_another_jobs_end_is_not_this_ones() {
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
case_another_jobs_array_is_not_this_ones() {
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
      expect_line "$signal came before the start"
    done
  done
}
case_a_signal_ends_the_wait_for_the_controller() {
  hook squeue <<<"[[ \$* == *%T* ]] || { kill -USR1 \$(<pid); fails 99 '$controller_is_away'; }"
  start CONTROLLER_TRIES=50
  expect_calls 1 'squeue.*%e'
  expect_calls 1 'scontrol requeue 7'
}
case_a_signal_goes_to_the_program() {
  hook trainer <<<'trap "exit 75" USR1; kill -USR1 $(<pid)
    for ((i = 0; i < 600; i++)); do read -rt 0.1 <> <(:) || true; done; exit 9'
  start
  expect_code 75
  expect_calls 1 'scontrol requeue 7'
}
# As where it comes between fork and exec: the child ends by it.
case_a_signal_that_the_program_did_not_await() {
  hook trainer <<<'kill -USR1 $(<pid); for ((i = 0; i < 600; i++)); do read -rt 0.1 <> <(:) || true; done; exit 9'
  start
  expect_code 75
  expect_calls 1 'scontrol requeue 7'
}
case_a_program_that_ends_by_itself_by_that_signal() {
  hook trainer <<<'kill -USR1 $$'
  start
  expect_code 138
  expect_calls 1 'scontrol requeue 7'
}
case_a_signal_after_the_program_is_harmless() {
  hook scontrol <<<'kill -USR1 $(<pid); kill -TERM $(<pid)'
  start
  expect_code 75
  expect_line 'queued again$'
  ! grep -q 'kill:' out || fail "it signals a process that has ended"
}

# ---- Its input -------------------------------------------------------------------------------------------------------
case_options_are_words_not_patterns() {
  touch a.bias 'b.bias'
  start OPTIONS=$'--no-decay *.bias\n--x ?.bias' LAUNCHER='env A=*.bias'
  grep -qx 'trainer .* --no-decay \*.bias --x ?.bias' calls || fail "other options: $(grep ^trainer calls)"
}
case_the_pause_is_bounded() {
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
case_only_for_sbatch() {
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
case_no_record_no_start() {
  /bin/mkdir -p run/.tries.new
  start
  expect_code 1
  expect_line '^train.sbatch: cannot write run/.tries: not started'
  expect_calls 0 trainer
}
case_given_up_and_started_again_by_hand() {
  hook trainer <<<'exit 1'
  for try in 1 2 given_up 1; do
    echo RUNNING None >state
    start MAX_TRIES=2
    expect_code 1
    case $try in
      given_up) expect_line '2 starts have brought no checkpoint after step none: given up' ;;
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
