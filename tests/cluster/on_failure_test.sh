#!/usr/bin/env bash
# A step in which a task failed and others hang is ended, unless the user or the program expects failures, or Slurm
# ends the step and lets tasks save.
source "$(dirname "$0")/case.sh"
needs_other_users
ulimit -c 0

ended='^srun: error: torch-env: the step still runs [0-9]+ s later and is ended: on_failure=SECONDS'
# expect_ended RANK SECONDS COMMAND...: the step of the command is ended by srun, which names the rank once, before.
expect_ended() {
  local rank=$1
  shift
  expect_error "$ended" "$@"
  [[ $(grep -cE 'torch-env: first to (fail|end): ' "$work/stderr") == 1 ]] || fail "not one report"
  grep -B1 -E "$ended" "$work/stderr" | grep -q "torch-env: first to .*: rank $rank on n[0-3]," ||
    fail "rank $rank is not named in the line before"
}

# Rank 0 fails when all have started (check=30), and rank 1 has stopped itself. An ordinary user's step: that user
# reports, and asks the controller.
hangs='[ $RANK = 0 ] && exit 1; kill -STOP $$'
expect_ended 0 40 on_login runuser -u nobody -- env -C / srun -N2 -n2 --torch-env=check=30 sh -c "$hangs"
grep -q 'still runs 10 s later' "$work/stderr" || fail "another time than the default"

# Rank 1, alone on its node, is stopped or ended by a signal when it starts: the others cannot tell it from a slow one.
starts='[ $RANK = 1 ] && kill -%s $$; exec sleep infinity'
expect_ended 1 40 on_login srun -N2 -n2 --torch-env=on_failure=1 sh -c "$(printf "$starts" TERM)"
# Also where a script starts the rank.
in_script='[ $RANK = 1 ] && sh -c "kill -STOP \$\$"; exec sleep infinity'
for stops in "$(printf "$starts" STOP)" "$in_script"; do
  expect_error "$ended" 40 \
    on_login runuser -u nobody -- env -C / srun -N2 -n2 --torch-env=on_failure=1 sh -c "$stops"
  grep -B1 -E "$ended" "$work/stderr" |
    grep -qE 'torch-env: rank 1 on n[0-3] has been stopped for 1 s since it started \(process [0-9]+, state T\): ' ||
    fail "the stopped rank is not named in the line before"
done

# Steps that are kept, all at once: each has failed before the one that shows how long srun would have waited.
fails='[ $RANK = 0 ] && exit 1; exec sleep infinity'
kept=()
# keep NAME SRUN_AND_ARGUMENTS...
keep() {
  local name=$1
  shift
  printf '$ %s\n' "$*"
  limit=150 on_login env "$@" >"$work/$name.out" 2>"$work/$name.err" &
  kept+=("$name:$!")
}
keep wait srun -J wait -N2 -n2 --torch-env=check=30,on_failure=1,on_failure=wait sh -c "$fails"
now=--torch-env=check=30,on_failure=1
keep agent srun -J agent -N2 -n2 $now sh -c "$fails" torchrun train.py
keep no_kill srun -J no_kill -N2 -n2 --no-kill $now sh -c "$fails"
keep letters srun -J letters -N2 -n2 -uk $now sh -c "$fails"
keep components srun -J components -N1 -n1 --no-kill $now sh -c "$fails" : -N1 -n1 sh -c "$fails"
keep no_exit srun -J no_exit -N2 -n2 --kill-on-bad-exit=0 $now sh -c "$fails"
keep variable SLURM_NO_KILL=set srun -J variable -N2 -n2 $now sh -c "$fails"
keep exit_variable SLURM_KILL_BAD_EXIT=0 srun -J exit_variable -N2 -n2 $now sh -c "$fails"
for one in "${kept[@]}"; do wait_for 60 grep -q 'Exited with exit code 1' "$work/${one%:*}.err"; done
expect_ended 0 40 on_login srun -N2 -n2 --torch-env=check=30,on_failure=3 sh -c "$hangs"
for one in "${kept[@]}"; do
  name=${one%:*}
  kill -0 "${one#*:}" || { cat "$work/$name.err"; fail "$name: the step was ended"; }
  on_login scancel --name "$name"
  ! wait "${one#*:}" || fail "$name: exit code 0"
  ! grep -E "$ended" "$work/$name.err" || fail "$name: srun says that it ends the step"
  [[ $(grep -c 'torch-env: first to fail: rank 0 on n' "$work/$name.err") == 1 ]] || {
    cat "$work/$name.err"
    fail "$name: not one report"
  }
done

# Ranks that end in time: srun prints what it printed before, and its exit code is the program's.
status=0
on_login srun -N2 -n4 --torch-env sh -c 'exit $RANK' >"$work/stdout" 2>"$work/stderr" || status=$?
((status == 3)) || fail "exit code $status, expected 3"
[[ $(grep -c torch-env "$work/stderr") == 1 ]] || { cat "$work/stderr"; fail "not one line of the plugin"; }

# Slurm ends the step, and gives its tasks KillWait (10 s here) to save: srun does not end it in the meantime. `saves`
# takes longer than on_failure.
saves='trap "(trap \"\" TERM; exec sleep ${SAVES:-6}); touch '$work'/saved-$NAME; exit 75" TERM
: >'$work'/ready-$NAME-$RANK
while :; do sleep 1; done'
expect_saved() {  # expect_saved NAME RANKS COMMAND...: the command makes Slurm send SIGTERM
  local name=$1 ranks=$2 rank
  shift 2
  for ((rank = 0; rank < ranks; ++rank)); do wait_for 60 test -e "$work/ready-$name-$rank"; done
  printf '$ %s\n' "$*"
  "$@"
  ! wait "$srun" || fail "$name: exit code 0"
  [[ -e $work/saved-$name ]] || { cat "$work/stderr"; fail "$name: rank 1 was killed while it saved"; }
  ! grep -E "$ended" "$work/stderr" || fail "$name: srun says that it ends the step"
}
login=on_login
saving() {  # saving NAME RANKS COMMANDS SRUN_ARGUMENTS...: rank 1 saves, the others run the commands
  local name=$1 ranks=$2 others=$3
  shift 3
  NAME=$name $login srun -J "$name" -N"$ranks" -n"$ranks" "$@" \
    sh -c "[ \$RANK = 1 ] || { $others; }; $saves" >"$work/stdout" 2>"$work/stderr" & srun=$!
}
ready=": >$work/ready-\$NAME-\$RANK; while :; do sleep 1; done"
# Rank 0 ends with 1 when it is asked to end: only Slurm's controller knows why.
saving cancelled 2 "trap 'exit 1' TERM; $ready" --torch-env=on_failure=2
expect_saved cancelled 2 on_login scancel --name cancelled
# --kill-on-bad-exit.
saving bad_exit 2 ": >$work/ready-\$NAME-\$RANK; until [ -e $work/fail ]; do sleep 0.1; done; exit 1" \
  -K --torch-env=on_failure=2
expect_saved bad_exit 2 touch "$work/fail"

# A task asks for a requeue, or was asked to end, and then another one fails: the others get five minutes to save, six
# seconds with this plugin, for which no task is only starting, whichever node they are on.
find_plugstack
printf 'optional %s\n' "$2" >"$work/short.conf"
for node in n0 n1 n2; do with_file "$node" "$plugstack" "$work/short.conf"; done
with_short_plugin() { from_login_with "optional $short\n" "$@"; }
short=$2 login=with_short_plugin
# The signal alone: rank 0 ends by it, and rank 2 fails.
SAVES=3 saving signaled 3 "[ \$RANK = 0 ] || trap 'exit 1' TERM; $ready" -w n0,n1,n2 --torch-env=on_failure=1
expect_saved signaled 3 on_login scancel --signal=TERM --name signaled
login=on_login
beside="until [ -s $work/first ] && ! kill -0 \$(cat $work/first) 2>/dev/null; do sleep 0.1; done; exit 1"
for nodes in n0 n0,n1; do
  for ends in '3 exit 75' '0 kill -TERM $$'; do
    rm -f "$work/first"
    expect_ended "${ends%% *}" 60 with_short_plugin \
      srun -w "$nodes" -n4 --torch-env=check=30,on_failure=1 \
      sh -c "case \$RANK in 0) echo \$\$ >$work/first; ${ends#* };; 3) $beside;; *) kill -STOP \$\$;; esac"
    grep -q 'still runs 6 s later' "$work/stderr" || fail "another time than that of tasks that save"
  done
done
as_before

# KillOnBadExit=1 in slurm.conf, which srun asks the controller for.
as_site=$CLUSTER_NAME
trap '"$CLUSTER" down --name "$as_site-k"; rm -rf "$work"' EXIT
CLUSTER_NAME=$as_site-k
"$CLUSTER" up --name "$CLUSTER_NAME" --nodes 2 --plugin "$1" --conf KillOnBadExit=1 --conf KillWait=10
rm "$work/fail"
saving site_bad_exit 2 ": >$work/ready-\$NAME-\$RANK; until [ -e $work/fail ]; do sleep 0.1; done; exit 1" \
  --torch-env=on_failure=2
expect_saved site_bad_exit 2 touch "$work/fail"
CLUSTER_NAME=$as_site

# Other forms of a step.
printf '0 /bin/false\n1 /bin/sleep infinity\n' >"$work/programs"
expect_ended 0 30 on_login srun -N2 -n2 --multi-prog $now "$work/programs"
expect_ended 0 30 on_login srun -N1 -n1 $now false : -N1 -n1 sleep infinity
expect_ended 1 30 on_login srun -N1 -n1 $now sleep infinity : -N1 -n1 sh -c 'kill -KILL $$'
expect_ended 0 30 on_login salloc -Q -N2 -n2 srun $now sh -c "$fails"
on_login sbatch -Q --wait --array=3 -N2 -n2 -o "$work/array.out" --wrap "srun $now sh -c '$fails'" &&
  fail "the array's task ended with 0"
grep -qE "$ended" "$work/array.out" || { cat "$work/array.out"; fail "the array's task was not ended by srun"; }
