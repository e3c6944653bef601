#!/usr/bin/env bash
# Node 0 is reached by an address that is not its own, as behind a service or NAT, or has localhost, and the others its
# address, as by Kubeflow: who says that it is node 0 listens.
# What stands in front accepts connections before node 0 does, and closes them: the others try again.
# Usage: address_in_front_test.sh TORCHBRIDGE TRAINER
set -euo pipefail
torchbridge=$1 trainer=$2
((EUID == 0)) || { echo "SKIPPED: namespaces need root"; exit 77; }
if [[ ${3:-} != inside ]]; then exec unshare --net --mount "$0" "$torchbridge" "$trainer" inside; fi

work=$(mktemp -d)
processes=()
trap 'kill "${processes[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; tail "$work"/*.log >&2; exit 1; }
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || fail "not within the time: $*"
    read -rt 0.02 <> <(:) || true
  done
}

# This namespace has the address in front, 10.77.0.1; node 0 is in another one, at 10.77.0.2.
unshare --net sleep 600 & inner=$!
processes+=("$inner")
has_own_network() { [[ $(readlink "/proc/$inner/ns/net") != "$(readlink /proc/self/ns/net)" ]]; }
wait_for 10 has_own_network
behind() { exec nsenter --target "$inner" --net "$@"; }
ip link set lo up
ip link add front type veth peer name back
ip link set back netns "$inner"
ip addr add 10.77.0.1/24 dev front
ip link set front up
(behind ip link set lo up)
(behind ip addr add 10.77.0.2/24 dev back)
(behind ip link set back up)

cat >"$work/forward.py" <<'END'
import asyncio, sys

async def copy(source, sink):
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()

async def forward(reader, writer, port):
    try:
        behind = await asyncio.open_connection("10.77.0.2", port)
    except OSError:
        print("closed", port, flush=True)
        return writer.close()
    await asyncio.gather(copy(reader, behind[1]), copy(behind[0], writer), return_exceptions=True)

async def main():
    servers = [await asyncio.start_server(lambda r, w, port=port: forward(r, w, port), "10.77.0.1", port)
               for port in map(int, sys.argv[1:])]
    print("listening", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))

asyncio.run(main())
END
/usr/bin/python3 "$work/forward.py" 29500 29501 29502 >"$work/forward.log" 2>&1 &
processes+=($!)
wait_for 30 grep -q listening "$work/forward.log"

# both NAME PORT TIMES: the one behind starts when connections of the other have been closed so often.
both() {
  local name=$1 port=$2 times=$3 at_front at_back
  timeout 60 "${front[@]}" >"$work/$name-1.log" 2>&1 & at_front=$!
  processes+=("$at_front")
  is_closed() { (($(grep -c "closed $port" "$work/forward.log") >= times)); }
  wait_for 30 is_closed
  (behind timeout 60 "${back[@]}" >"$work/$name-0.log" 2>&1) & at_back=$!
  processes+=("$at_back")
  wait "$at_back" || fail "$name: node 0 ended with $?"
  wait "$at_front" || fail "$name: node 1 ended with $?"
}
show='echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR'
run=("$torchbridge" run --nnodes 2 --nproc-per-node 1 --rdzv-conf join_timeout=30)
node=("${run[@]}" --master-addr 10.77.0.1 --master-port 29500)
front=("${node[@]}" --node-rank 1 sh -c "$show") back=("${node[@]}" --node-rank 0 sh -c "$show")
both static 29500 5
grep -qx 'rank 0 of 2 at 10.77.0.2' "$work/static-0.log" || fail "node 0 does not run rank 0 at its own address"
grep -qx 'rank 1 of 2 at 10.77.0.2' "$work/static-1.log" || fail "node 1 does not run rank 1"
grep -q '^torchbridge: 10.77.0.1 is no address of .*, which is node 0 as it was told' "$work/static-0.log" ||
  fail "node 0 has no line"

c10d=("${run[@]}" --rdzv-backend c10d --rdzv-endpoint 10.77.0.1:29501)
front=("${c10d[@]}" sh -c "$show")
back=("${c10d[@]}" --rdzv-conf join_timeout=30,is_host=true sh -c "$show")
both c10d 29501 5
grep -q '^torchbridge: 10.77.0.1 is no address of ' "$work/c10d-0.log" || fail "the host has no line"
# Without it no node is node 0.
! timeout 60 "${c10d[@]}" --rdzv-conf join_timeout=1 true >"$work/none.log" 2>&1 || fail "a run without node 0"
grep -q 'closes them: node 0 has not started behind it (with c10d it needs --rdzv-conf is_host=true), or' \
  "$work/none.log" || fail "the way out is not named"

rank() {
  printf '%s\n' env RANK="$1" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK="$1" GROUP_WORLD_SIZE=2 \
    MASTER_ADDR=10.77.0.1 MASTER_PORT=29502 OMP_NUM_THREADS=1 "$trainer" --max-steps 2
}
mapfile -t front < <(rank 1)
mapfile -t back < <(rank 0)
both trainer 29502 30
grep -q 'MASTER_ADDR=10.77.0.1 is no address of .*, where rank 0 runs' "$work/trainer-0.log" ||
  fail "rank 0 has no line"

# at_once NAME: node 0 listens at localhost, and the other has its address.
at_once() { both "$1" none 0; }
loopback='is each host.s own address, which other nodes do not reach'
node=("${run[@]}" --master-port 29510 --master-addr)
front=("${node[@]}" 10.77.0.2 --node-rank 1 sh -c "$show") back=("${node[@]}" localhost --node-rank 0 sh -c "$show")
at_once static-localhost
grep -qx 'rank 0 of 2 at 10.77.0.2' "$work/static-localhost-0.log" || fail "rank 0 has no address that others reach"
grep -qx 'rank 1 of 2 at 10.77.0.2' "$work/static-localhost-1.log" || fail "node 1 does not run rank 1"
grep -q "^torchbridge: localhost $loopback: node 0 listens at all" "$work/static-localhost-0.log" ||
  fail "node 0 has no line"
c10d=("${run[@]}" --rdzv-backend c10d --rdzv-endpoint)
front=("${c10d[@]}" 10.77.0.2:29511 sh -c "$show")
back=("${c10d[@]}" localhost:29511 --rdzv-conf join_timeout=30,is_host=true sh -c "$show")
at_once c10d-localhost
# Node 0 has 0.0.0.0, which torchrun and Python accept there.
node=("${run[@]}" --master-port 29514 --master-addr)
for any in 0.0.0.0 ::; do
  front=("${node[@]}" 10.77.0.2 --node-rank 1 sh -c "$show") back=("${node[@]}" "$any" --node-rank 0 sh -c "$show")
  at_once static-any
  grep -qx 'rank 1 of 2 at 10.77.0.2' "$work/static-any-1.log" || fail "rank 0 has no address that others reach"
  grep -q "^torchbridge: $any $loopback: node 0 listens at all" "$work/static-any-0.log" || fail "node 0 has no line"
  with=(OMP_NUM_THREADS=1 MASTER_PORT=29515 WORLD_SIZE=2 "$trainer" --max-steps 2)
  front=(env RANK=1 MASTER_ADDR=10.77.0.2 "${with[@]}") back=(env RANK=0 MASTER_ADDR="$any" "${with[@]}")
  at_once trainer-any
  grep -q "MASTER_ADDR=$any $loopback: rank 0 listens at all" "$work/trainer-any-0.log" || fail "rank 0 has no line"
done
# Its name, which Debian's installer gives a loopback address, needs no line.
{ cat /etc/hosts && printf '127.0.1.1 node-0.test\n'; } >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
front=("${node[@]}" 10.77.0.2 --node-rank 1 sh -c "$show")
back=("${node[@]}" node-0.test --node-rank 0 sh -c "$show")
at_once static-name
! grep -E "$loopback|is no address of" "$work/static-name-0.log" || fail "a line about its own name"
for shape in "KUBERNETES_SERVICE_HOST=10.96.0.1" "LOCAL_WORLD_SIZE=1"; do
  name=trainer-${shape%%_*}
  with=(OMP_NUM_THREADS=1 MASTER_PORT=29512 WORLD_SIZE=2 $shape "$trainer" --max-steps 2)
  front=(env RANK=1 MASTER_ADDR=10.77.0.2 "${with[@]}") back=(env RANK=0 MASTER_ADDR=localhost "${with[@]}")
  at_once "$name"
  grep -q "MASTER_ADDR=localhost $loopback: rank 0 listens at all" "$work/$name-0.log" ||
    fail "rank 0 has no line"
  grep -q '^trainer: 2 ranks, started with' "$work/$name-0.log" || fail "the number of nodes is not known"
done
rank() {
  printf '%s\n' env OMP_NUM_THREADS=1 MASTER_PORT=29513 MASTER_ADDR=localhost WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 \
    RANK="$1" LOCAL_RANK="$1" "$trainer" --max-steps 2
}
mapfile -t front < <(rank 1)
mapfile -t back < <(rank 0)
front=(nsenter --target "$inner" --net "${front[@]}")
at_once trainer-here
! grep -q "$loopback" "$work/trainer-here-0.log" || fail "rank 0 listens at all addresses, without need"
echo PASSED
