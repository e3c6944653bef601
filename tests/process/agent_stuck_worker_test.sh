#!/usr/bin/env bash
# A worker in uninterruptible sleep: the agent ends all the same, and names it.
# Usage: agent_stuck_worker_test.sh TORCHBRIDGE
# A frozen file system holds a writer in state D, which SIGKILL does not end.
set -euo pipefail
torchbridge=$1
folder=$(mktemp -d)
clean_up() {
  fsfreeze --unfreeze "$folder/disk" 2>/dev/null || true
  # The writer ends now; until then the file system is in use.
  timeout 20 tail --pid="$(cat "$folder/pid.0" 2>/dev/null || echo 0)" -f /dev/null 2>/dev/null || true
  umount "$folder/disk" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT

truncate -s 8M "$folder/image"
mkdir "$folder/disk"
if ! mkfs.ext4 -q "$folder/image" 2>/dev/null || ! mount -o loop "$folder/image" "$folder/disk" 2>/dev/null; then
  echo "SKIPPED: no right to mount a file system here"
  exit 77
fi
fsfreeze --freeze "$folder/disk"

code=0
timeout 60 "$torchbridge" run --nproc-per-node 2 --max-restarts 3 --grace 0.5 sh -c '
  echo $$ > '"$folder"'/pid.$RANK
  [ $RANK = 1 ] || exec touch '"$folder"'/disk/file
  until grep -q ") D " /proc/$(cat '"$folder"'/pid.0)/stat 2>/dev/null; do sleep 0.01; done
  exit 3' 2> "$folder/error" || code=$?
pid=$(cat "$folder/pid.0")

check() {
  if ! "${@:2}"; then
    echo "FAILED: $1; exit code $code, and on standard error:"
    cat "$folder/error"
    exit 1
  fi
}
check "the exit code is not that of rank 1" test "$code" = 3
check "the stuck worker is not named" grep -q "rank 0 on .*: pid $pid does not end after SIGKILL" "$folder/error"
check "the reason against a restart is missing" \
  grep -q "not restarted: a worker, or a process that it started, did not end after SIGKILL" "$folder/error"
check "the worker is not stuck: the case shows nothing" grep -q ") D " "/proc/$pid/stat"

# A worker whose health check fails, and which does not end; the other one is ended, and is no root cause.
code=0
timeout 60 "$torchbridge" run --nproc-per-node 2 --grace 0.5 --health-check '[ $RANK = 1 ]' \
  --health-check-interval 0.5 sh -c '[ $RANK = 1 ] || exec touch '"$folder"'/disk/other; exec sleep 600' \
  2>"$folder/error" || code=$?
check "it goes on" test "$code" = 137
check "the stuck worker is not named" grep -q 'rank 0 on .*: pid [0-9]* does not end after SIGKILL' "$folder/error"
check "its health is checked again" test "$(grep -c 'rank 0 on .*: its health check failed' "$folder/error")" = 1

# One whose time in this state is limited: it needs no health check, and no SIGTERM comes first.
code=0
TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=0.5 timeout 60 "$torchbridge" run --nproc-per-node 2 --max-restarts 3 \
  --grace 0.5 sh -c '[ $RANK = 1 ] || exec touch '"$folder"'/disk/fourth; exec sleep 600' 2>"$folder/error" || code=$?
check "it goes on" test "$code" = 137
check "the worker is not named" \
  grep -q 'rank 0 on .*: in uninterruptible sleep for 0.5 s (--uninterruptible-timeout): killed' "$folder/error"
check "the stuck worker is not named" grep -q 'rank 0 on .*: pid [0-9]* does not end after SIGKILL' "$folder/error"

# A health check that is stuck itself.
code=0
timeout 60 "$torchbridge" run --grace 0.5 --health-check 'exec touch '"$folder"'/disk/third' \
  --health-check-interval 0.5 sh -c 'exec sleep 600' 2>"$folder/error" || code=$?
check "the check is waited for" test "$code" = 137
check "the check is no failure" grep -q 'no answer within 1 s' "$folder/error"
echo "PASSED"
