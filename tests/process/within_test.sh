#!/usr/bin/env bash
# tests/support/within, by which cases on clusters limit their commands. within_test.sh WITHIN
set -uo pipefail
within=$1
failed=0
# ends CODE WORDS...: within with these words.
ends() {
  local code=$1 status=0
  shift
  "$within" "$@" || status=$?
  ((status == code)) || { echo "FAILED: within $*: exit code $status, expected $code"; failed=1; }
}
ends 3 60 sh -c 'exit 3'
ends 137 60 sh -c 'kill -9 $$'
ends 124 0.3 sleep 60
ends 124 0.3 sh -c 'sleep 60; true'
# The machine stands still, for longer than the limit.
ends 3 1 sh -c 'kill -STOP $PPID; sleep 2; kill -CONT $PPID; exit 3'
# A signal goes on to all of the command.
ends 143 60 sh -c '{ kill $PPID; sleep 60; } & wait; exit 0'
# One that goes on after the signal is ended soon, not at the end of its time.
began=$SECONDS
ends 124 120 sh -c 'trap "" TERM; kill $PPID; while :; do sleep 1; done'
((SECONDS - began < 100)) || { echo "FAILED: a command that does not end keeps its caller"; failed=1; }
# A case on clusters that timeout(1) ends runs its traps.
work=$(mktemp -d)
if ((EUID == 0)); then
  for try in 1 2 3 4 5; do
    CLUSTER=true CLUSTER_NAME=none BUILD_DIR=$work SOURCE_DIR=$(dirname "$0")/../.. MARK=$work/$try \
      timeout --kill-after=60 1000 bash -c 'source "$SOURCE_DIR/tests/cluster/case.sh"
        trap "sleep 0.1; touch $MARK.ended; rm -rf $work" EXIT
        "$within" 600 sh -c "touch $MARK.begun; exec sleep 600"' & case=$!
    until [[ -e $work/$try.begun ]]; do read -rt 0.02 <> <(:) || true; done
    kill "$case"
    wait "$case"
    [[ -e $work/$try.ended ]] || { echo "FAILED: a case that is ended runs no trap"; failed=1; }
  done
fi
rm -rf "$work"
((failed == 0)) && echo "PASSED"
exit $failed
