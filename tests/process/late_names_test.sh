#!/usr/bin/env bash
# A name that resolves only after the start, as that of a pod: whoever it names coordinates, or serves the store, all
# the same. Usage: late_names_test.sh TORCHBRIDGE TRAINER
set -euo pipefail
torchbridge=$1 trainer=$2
((EUID == 0)) || { echo "SKIPPED: namespaces need root"; exit 77; }
if [[ ${3:-} != inside ]]; then exec unshare --net --mount "$0" "$torchbridge" "$trainer" inside; fi

work=$(mktemp -d)
mount -t tmpfs -o strictatime none "$work"
trap 'umount --lazy /etc/hosts "$work"; rmdir "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; tail "$work"/*.log >&2; exit 1; }
ip link set lo up
ip addr add 10.77.0.10/32 dev lo
cp /etc/hosts "$work/before"
cp /etc/hosts "$work/hosts"
mount --bind "$work/hosts" /etc/hosts

is_read() { [[ $(stat -c %.9X "$work/hosts") > $(stat -c %.9Y "$work/hosts") ]]; }
# begin NAME COMMAND...: in the background, as `first`; returns when it has looked for the name in vain.
begin() {
  local name=$1 end=$((SECONDS + 30))
  shift
  cat "$work/before" >"$work/hosts"
  timeout 60 "$@" >"$work/$name.log" 2>&1 & first=$!
  until is_read; do
    ((SECONDS < end)) || fail "$name does not look for the name"
    read -rt 0.02 <> <(:) || true
  done
  echo '10.77.0.10 job-master-0' >>"$work/hosts"
}
# ends NAME PID: with 0.
ends() { wait "$2" || fail "$1 ended with $?"; }

node=("$torchbridge" run --nnodes 2 --nproc-per-node 1 --master-addr job-master-0 --master-port 29500
  --rdzv-conf join_timeout=30)
show='echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR'
# Who coordinates late empties the file of an earlier run, as who does so at once.
summary=$work/summary
echo '{"exit_code": 1}' >"$summary"
begin node-0 "${node[@]}" --node-rank 0 --json-summary "$summary" sh -c "$show; cat $summary"
timeout 60 "${node[@]}" --node-rank 1 sh -c "$show" >"$work/node-1.log" 2>&1 & second=$!
ends node-0 "$first"
ends node-1 "$second"
grep -qx 'rank 0 of 2 at 10.77.0.10' "$work/node-0.log" || fail "node 0 has not rank 0"
! grep -q exit_code "$work/node-0.log" || fail "the summary is an earlier run's"
grep -qx 'rank 1 of 2 at 10.77.0.10' "$work/node-1.log" || fail "node 1 has not rank 1"

alone=("$torchbridge" run --nnodes 1:2 --nproc-per-node 1 --rdzv-backend c10d
  --rdzv-conf join_timeout=30,last_call_timeout=1)
begin c10d "${alone[@]}" --rdzv-endpoint job-master-0:29501 sh -c "$show"
ends c10d "$first"
grep -qx 'rank 0 of 1 at 10.77.0.10' "$work/c10d.log" || fail "the host of the endpoint does not coordinate"
begin local-addr "${alone[@]}" --rdzv-endpoint localhost:29502 --local-addr job-master-0 sh -c "$show"
ends local-addr "$first"
grep -qx 'rank 0 of 1 at 10.77.0.10' "$work/local-addr.log" || fail "--local-addr is not used"

export WORLD_SIZE=2 MASTER_ADDR=job-master-0 MASTER_PORT=29503 OMP_NUM_THREADS=1
begin rank-0 env RANK=0 "$trainer" --max-steps 2
RANK=1 timeout 60 "$trainer" --max-steps 2 >"$work/rank-1.log" 2>&1 & second=$!
ends rank-0 "$first"
ends rank-1 "$second"

# It never does where rank 1 is, as in a container with a hosts file of its own.
cat "$work/before" >"$work/hosts"
! RANK=1 timeout 60 "$trainer" --max-steps 2 --join-timeout 7 >"$work/rank-1.log" 2>&1 || fail "it joins nobody"
for line in "MASTER_ADDR=job-master-0: .*does not resolve on .*: rank 1 looks it up again for [0-9.]+ s" \
  "rank 1: MASTER_ADDR=job-master-0: .*does not resolve on .*; set it to a name or address of rank 0's host"; do
  grep -qE "$line" "$work/rank-1.log" || fail "rank 1 does not print: $line"
done
echo PASSED
