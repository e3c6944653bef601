#!/usr/bin/env bash
# Calls that the plugin makes fail in each of its hooks, or a child of slurmstepd gets a signal there, with `optional`
# and `required` in plugstack.conf. No exception reaches Slurm, which would abort; a program has the whole environment
# or does not start; no node is drained; and steps without the plugin run as usual.
source "$(dirname "$0")/case.sh"
plugin=$1 failing_calls=$2
if nm -D "$plugin" | grep -qE '__(asan|tsan)_'; then skip "a sanitizer's runtime is linked"; fi
limit=30
always=1000000
cd "$work"  # for core files
# The numbers of the calls that fail: all with both words for TORCHBRIDGE_COMPLETE=1, otherwise every second with each.
declare -A once=([optional]="2 5 20 60 200 500 900") signals=([optional]="ABRT KILL SEGV TERM")
if [[ -n ${TORCHBRIDGE_COMPLETE:-} ]]; then
  by=1 once[required]=${once[optional]} signals[required]=${signals[optional]}
else
  by=2 once=([optional]="2 20 200 900" [required]="5 60 500") signals=([optional]="ABRT SEGV" [required]="KILL TERM")
fi
variables='$RANK/$LOCAL_RANK/$WORLD_SIZE/$GROUP_RANK/$MASTER_PORT/$TORCHELASTIC_RUN_ID'
expected='$SLURM_PROCID/$SLURM_LOCALID/$SLURM_NTASKS/$SLURM_NODEID/29520/slurm-$SLURM_JOB_ID.0'
program="[ \"$variables\" = \"$expected\" ] && echo whole || echo \"started with $variables\""
asking=--torch-env=verbose,ranks=block,port=29520,check=no

# expect_whole_or_error WHAT TASKS COMMAND...: all tasks have a whole environment, or the step fails with a line of
# ours.
expect_whole_or_error() {
  local what=$1 tasks=$2 status=0
  shift 2
  "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
  ((status != 124)) || fail "$what: no end within $limit s"
  cat "$work/stderr" >>"$work/all"
  ! grep -q started "$work/stdout" || fail "$what: half an environment: $(cat "$work/stdout")"
  if ((status == 0)); then
    (($(grep -c whole "$work/stdout") == tasks)) || fail "$what: not all ran: $(cat "$work/stdout" "$work/stderr")"
    return
  fi
  ((status < 129 || status == 255 || status == 128 + ${signal:-0} || status == 137)) ||
    fail "$what: exit code $status: $(cat "$work/stderr")"
  grep -qE "${expected_line:-torch-env: |torch_env}" "$work/stderr" || fail "$what: no report: $(cat "$work/stderr")"
}

# expect_unaffected WHAT COMMAND...: a step without the plugin succeeds and prints nothing.
expect_unaffected() {
  local what=$1
  shift
  "$@" >"$work/stdout" 2>"$work/stderr" || fail "$what: a step without the plugin ended with $?: $(cat "$work/stderr")"
  expect_no_message "$what: a step without the plugin prints"
}

# In srun. Call 1 of malloc is libstdc++'s reserve for exceptions without memory.
in_srun() {  # in_srun WORD CALL AT
  local fails=(env FAIL_CALL="$2" FAIL_AT="$3" FAIL_TIMES="$always" LD_PRELOAD="$failing_calls")
  local run_it=(from_login_with "$1 $plugin\n" "${fails[@]}" srun -Q -n1)
  expect_whole_or_error "$*" 1 "${run_it[@]}" "$asking" env -u LD_PRELOAD sh -c "$program"
  expect_unaffected "$*" "${run_it[@]}" env -u LD_PRELOAD true
}
first=2
for word in optional required; do
  for ((at = first; at <= 60; at += by * (at < 12 ? 1 : 8))); do in_srun "$word" malloc "$at"; done
  grep -q bad_alloc "$work/all" || fail "no bad_alloc in srun"
  for call in socket bind getrandom setenv; do in_srun "$word" "$call" 1; done
  first=$((first + by - 1))
done

# In slurmstepd and its children, on n1, where ranks 0 and 1 are.
on_n1_and_n2() { on_login srun -Q -N2 -n3 -w n1,n2 "$@"; }
in_slurmstepd() {  # in_slurmstepd CALL AT TIMES [SIGNAL]
  echo "FAIL_CALL=$1 FAIL_AT=$2 FAIL_TIMES=$3 FAIL_SIGNAL=${4:-0}" >"$work/failing"
  expect_whole_or_error "$word slurmstepd $*" 3 on_n1_and_n2 "$asking" sh -c "$program"
}
# Fails once; later calls succeed, so that the step can be ended. Rank 2 would wait for the others forever.
began="$work/began.\$SLURM_JOB_ID"
waits="[ \$RANK != 2 ] || until [ -e $began.0 ] && [ -e $began.1 ]; do sleep 0.05; done"
once_in_slurmstepd() {  # once_in_slurmstepd CALL AT
  echo "FAIL_CALL=$1 FAIL_AT=$2 FAIL_TIMES=1" >"$work/failing"
  expect_whole_or_error "$word once in slurmstepd $*" 3 \
    on_n1_and_n2 "$asking" sh -c "$program; : >$began.\$RANK; $waits"
}
first=2
for word in optional required; do
  with_plugstack n1 "$word $plugin\n"
  with_slurmstepd n1 "env \$(cat $work/failing) LD_PRELOAD=$failing_calls"
  : >"$work/all"
  for ((at = first; at < 3000; at += by * (at < 8 ? 1 : at < 60 ? 20 : at < 700 ? 200 : 600))); do
    in_slurmstepd malloc "$at" "$always"
  done
  in_slurmstepd malloc 3000 "$always"
  grep -q bad_alloc "$work/all" || fail "no bad_alloc in slurmstepd"
  grep -q whole "$work/stdout" || fail "the last call was not reached"
  for call in mmap fork pipe2 socket bind connect open mkdir getifaddrs getaddrinfo; do
    in_slurmstepd "$call" 1 "$always"
    expect_unaffected "$call" on_n1_and_n2 true
  done
  for at in ${once[$word]}; do once_in_slurmstepd malloc "$at"; done
  for at in 2 3 5; do
    echo "FAIL_CALL=malloc FAIL_AT=$at FAIL_TIMES=$always" >"$work/failing"
    expect_unaffected "malloc $at" on_n1_and_n2 true
  done
  # A signal is not an error of the plugin: Slurm reports it.
  expected_line='srun: error: n1: task'
  for signal in $(kill -l ${signals[$word]}); do
    for at in 2 200 900; do in_slurmstepd malloc "$at" 0 "$signal"; done
  done
  expected_line= signal=
  first=$((first + by - 1))
done

! on_login sinfo --noheader --Node --format='%N %T %E' | grep -E 'drain|down' || fail "a node is drained"
