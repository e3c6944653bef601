#!/usr/bin/env bash
# A node that dies while tasks run: Slurm notices it (SlurmdTimeout) and ends the step, with and without the plugin. A
# step that starts on a dead node ends when it cannot be launched there. A task that Slurm ends is not reported as
# failed.
CLUSTER_NAME+=-d
source "$(dirname "$0")/case.sh"
limit=100
trap '"$CLUSTER" down --name "$CLUSTER_NAME"; rm -rf "$work"' EXIT
"$CLUSTER" up --name "$CLUSTER_NAME" --nodes 3 --cpus 16 --plugin "$1" --conf SlurmdTimeout=6

# run_step NAME START OPTIONS...: six tasks that never end by themselves, in an allocation whose srun starts when the
# file START exists. Leaves stderr in $work/NAME and the exit code in $work/NAME.status.
run_step() {
  local name=$1 start=$2 status=0
  shift 2
  local when_started="echo >$work/$name.allocated; until [ -e '$start' ]; do sleep 0.05; done; exec \"\$@\""
  local task="echo >$work/$name.task\$SLURM_PROCID; exec sleep 1000"
  on_login salloc -Q -N3 -n6 sh -c "$when_started" sh srun "$@" sh -c "$task" 2>"$work/$name" || status=$?
  echo "$status after $((SECONDS - began)) s" >"$work/$name.status"
}
count() { find "$work" -name "$1" | wc -l; }
all_run() { (($(count '*.allocated') == 4 && $(count '*.task*') == 12)); }
expect_ended() {  # expect_ended NAME PATTERN
  printf '%s: exit code %s\n' "$1" "$(cat "$work/$1.status")"
  cat "$work/$1"
  [[ $(cat "$work/$1.status") != @(0|124)\ * ]] || fail "$1: it did not end, or succeeded"
  grep -qE "$2" "$work/$1" || fail "$1: srun does not print '$2'"
  ! grep 'first to fail' "$work/$1" || fail "$1: a task that Slurm ended is reported as failed"
}

began=$SECONDS
run_step without / &
run_step with / --torch-env &
run_step without_dead_node "$work/dead" &
run_step with_dead_node "$work/dead" --torch-env &
wait_for 30 all_run
on_node n1 sh -c 'node=$(readlink /proc/self/ns/uts)
  for process in /proc/[0-9]*; do
    [ "$(readlink $process/ns/uts)" != "$node" ] || ! grep -q "^slurm" $process/comm || kill -KILL ${process#/proc/}
  done'
touch "$work/dead"
wait
for name in without with; do expect_ended "$name" 'srun: error: Node failure on n1'; done
for name in without_dead_node with_dead_node; do
  expect_ended "$name" 'srun: error: Task launch for StepId=.* failed on node n1: '
done
