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
((failed == 0)) && echo "PASSED"
exit $failed
