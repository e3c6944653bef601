#!/usr/bin/env bash
# A name server that never answers, asked for the name of each address that a store's client connects to, delays nobody.
# Usage: silent_name_server_test.sh TRAINER
set -euo pipefail
trainer=$1
((EUID == 0)) || { echo "SKIPPED: a network namespace needs root"; exit 77; }

if [[ ${2:-} != inside ]]; then exec unshare --net --mount "$0" "$trainer" inside; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; cat "$work"/rank* >&2; exit 1; }
ip link set lo up
ip link add void type veth peer name nowhere
ip addr add 192.0.2.2/24 dev void
ip link set nowhere up
ip link set void up
ip neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev void
# A minute and a half for one name, where the default is 10 s.
printf 'nameserver 192.0.2.1\noptions timeout:30 attempts:3\n' >"$work/resolv.conf"
mount --bind "$work/resolv.conf" /etc/resolv.conf

status=0
timeout 2 getent hosts 192.0.2.2 || status=$?
((status == 124)) || fail "the name server is not silent: exit code $status of getent"

ranks=()
for rank in 0 1 2; do
  RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=3 MASTER_ADDR=192.0.2.2 MASTER_PORT=29500 \
    OMP_NUM_THREADS=1 timeout 40 "$trainer" --max-steps 2 >"$work/rank$rank" 2>&1 &
  ranks+=($!)
done
for rank in "${ranks[@]}"; do wait "$rank" || fail "a rank ended with $?"; done
# A name is another matter: it is asked for, and who asks in vain says so.
status=0
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=nohost.example MASTER_PORT=29500 \
  timeout 40 "$trainer" --max-steps 2 --timeout 3 >"$work/rank0" 2>&1 || status=$?
((status == 1)) || fail "a name that cannot be looked up: exit code $status"
grep -q "MASTER_ADDR=nohost.example: .*no name server has answered within 3 s" "$work/rank0" ||
  fail "the name is not in the message"
cat "$work/rank0"
