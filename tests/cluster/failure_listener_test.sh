#!/usr/bin/env bash
# srun's listener: the number of requests that the controller receives, and connections of other programs.
CLUSTER_NAME+=-r
source "$(dirname "$0")/case.sh"
plugin=$1 torchbridge=$BUILD_DIR/bin/torchbridge
trap '"$CLUSTER" down --name "$CLUSTER_NAME"; rm -rf "$work"' EXIT
"$CLUSTER" up --name "$CLUSTER_NAME" --nodes 4 --cpus 8 --plugin "$plugin" --conf KillWait=1

requests() {
  on_login sdiag | awk -v type="$1" '$1 == type && sub(/^count:/, "", $4) {count = $4} END {print count + 0}'
}
# expect_requests COUNT|LEAST-MOST TYPE COMMAND...: whatever its exit code.
expect_requests() {
  local counts=$1 type=$2
  shift 2
  on_login sdiag --reset
  printf '$ %s\n' "$*"
  "$@" >"$work/stdout" 2>"$work/stderr" || true
  expect_received "$counts" "$type"
}
# expect_received COUNT|LEAST-MOST TYPE: since `sdiag --reset`, once all steps have ended.
expect_received() {
  local least=${1%-*} most=${1#*-} found
  wait_for 30 all_nodes_are_idle
  found=$(requests "$2")
  ((found >= least && found <= most)) ||
    { cat "$work/stdout" "$work/stderr"; fail "$found of $2, expected $least to $most"; }
}
expect_line() { (($(grep -cE "$1" "$work/stderr") == 1)) || { cat "$work/stderr"; fail "not one line '$1'"; }; }

# A step whose tasks all fail: one reason, before Slurm's own lines, and one request; srun adds one of its own when its
# step has ended. A step that ends by itself first, on a machine that has much to do, needs only one.
failing="--torch-env=addr=nohost.invalid"
expect_requests 1-2 REQUEST_CANCEL_JOB_STEP on_login srun -N2 -n16 --ntasks-per-node=8 $failing sleep 1000
expect_line '^srun: error: torch-env: MASTER_ADDR=nohost.invalid: .*does not resolve'
[[ $(grep -m1 error: "$work/stderr") == "srun: error: torch-env: "* ]] || {
  cat "$work/stderr"
  fail "Slurm's lines come first"
}
expect_error '^srun: error: torch-env: MASTER_ADDR=nohost.invalid: ' 15 \
  on_login srun -K -N2 -n16 --ntasks-per-node=8 $failing sleep 1000
# torchbridge exec without the plugin: one request of each node at most.
expect_requests 1-3 REQUEST_CANCEL_JOB_STEP on_login srun -N2 -n16 --ntasks-per-node=8 \
  "$torchbridge" exec --torch-env=iface=nosuch -- sleep 1000
# An error that only one node sees, whose tasks the others would wait for.
on_node n0 sh -c 'ip link add tb0 type veth peer tb1 && ip address add 10.99.0.1/24 dev tb0 &&
  ip link set tb0 up && ip link set tb1 up'
expect_requests 1-2 REQUEST_CANCEL_JOB_STEP \
  on_login srun -N2 -n16 -w n0,n1 --ntasks-per-node=8 --torch-env=iface=tb0 sleep 1000
expect_line '^srun: error: torch-env: iface=tb0: n1 has no such interface that other nodes can reach'
# The components of a heterogeneous job are separate jobs.
on_login sdiag --reset
expect_error '^srun: error: torch-env: MASTER_ADDR=nohost.invalid: ' 15 \
  on_login srun -N1 -n8 -w n0 $failing sleep 1000 : -N1 -n8 -w n1 sleep 1000
expect_received 1-4 REQUEST_CANCEL_JOB_STEP  # one for each job, and srun's own
# Where srun has no plugin each node sends one request at most, and the step ends before most do.
TORCHBRIDGE_OPTIONS=addr=nohost.invalid
export TORCHBRIDGE_OPTIONS
on_login sdiag --reset
expect_error 'torch-env: MASTER_ADDR=nohost.invalid: .*does not resolve on n0' 15 \
  from_login_with "" srun -N1 -n8 -w n0 sleep 1000
! grep -E 'first to (fail|end)' "$work/stderr" || fail "a rank that Slurm ended is reported as failed"
expect_received 1-2 REQUEST_CANCEL_JOB_STEP
unset TORCHBRIDGE_OPTIONS

# A step in which a task failed is ended by one request too, and by none where its tasks end in time. Before, srun asks
# the controller whether Slurm ends the step.
failing=--torch-env=check=30,on_failure=1
expect_requests 1-2 REQUEST_CANCEL_JOB_STEP \
  on_login srun -N4 -n8 $failing sh -c '[ $RANK -gt 5 ] && exit 1; kill -STOP $$'
expect_line '^srun: error: torch-env: the step still runs 1 s later and is ended: '
(($(requests REQUEST_JOB_INFO_SINGLE) == 1 && $(requests REQUEST_BUILD_INFO) == 1)) || fail "not one question each"
expect_requests 0 REQUEST_CANCEL_JOB_STEP on_login srun -N4 -n8 --torch-env sh -c 'exit $((RANK % 2))'

# One request for the placement of the ranks for all nodes, and none where it is not needed.
placed="-n8 -m arbitrary -w n1,n1,n0,n0,n2,n2,n3,n3"
show='echo $RANK $GROUP_RANK $(hostname)'
expect_requests 1 REQUEST_STEP_LAYOUT on_login srun $placed --torch-env sh -c "$show"
[[ $(sort "$work/stdout") == $'0 1 n1\n1 1 n1\n2 0 n0\n3 0 n0\n4 2 n2\n5 2 n2\n6 3 n3\n7 3 n3' ]] ||
  fail "ranks: $(sort "$work/stdout")"
expect_requests 0 REQUEST_STEP_LAYOUT on_login srun $placed --torch-env=ranks=block true
expect_requests 0 REQUEST_STEP_LAYOUT on_login srun -N4 -n8 -m cyclic --torch-env true
# A request for each component, by srun and by the nodes of the component that its answer does not reach.
expect_requests 4 REQUEST_STEP_LAYOUT on_login srun -N1 -n1 --torch-env true : -N1 -n2 sleep 0

# srun's listener has a port of SrunPortRange, which firewalls admit, and closes each connection after a second. A
# program on a node without the plugin sees the port in its environment. This srun has a range of its own: within one,
# the components of a heterogeneous step begin their search for a port at the same number (srand(getpid()) in Slurm
# 22.05), and now and then one of them finds "all ports in range exhausted".
with_plugstack n1 ""
with_range='{ cat "$SLURM_CONF"; echo SrunPortRange=30000-30199; } >"$SLURM_CONF.range"; SLURM_CONF+=.range exec "$@"'
drip='import os, socket, sys, time
port = int(os.environ["SLURM_TORCH_ENV"].split(" ")[1])
assert 30000 <= port <= 30199, port
stranger = socket.create_connection((os.environ["SLURM_LAUNCH_NODE_IPADDR"], port))
stranger.settimeout(0.05)
opened = time.monotonic()
while time.monotonic() - opened < 10:
    try:
        stranger.sendall(b"1")
        if stranger.recv(1) == b"": sys.exit()
    except TimeoutError: pass
    except OSError: sys.exit()
sys.exit("srun keeps a connection that sends single bytes")'
limit=20 expect "" on_login bash -c "$with_range" bash srun -Q -N1 -n1 -w n1 --torch-env /usr/bin/python3 -c "$drip"
as_before

# A program below the plugin finds the placement too, without a request of its own.
expect_requests 1 REQUEST_STEP_LAYOUT on_login srun $placed --torch-env "$torchbridge" exec -- sh -c "$show"
[[ $(sort "$work/stdout") == $'0 1 n1\n1 1 n1\n2 0 n0\n3 0 n0\n4 2 n2\n5 2 n2\n6 3 n3\n7 3 n3' ]] ||
  fail "ranks: $(sort "$work/stdout")"

# Names that only Slurm knows: rank 0's node is found by its NodeAddr, which srun requests once.
echo '127.0.0.1 localhost' >"$work/hosts"
address_of_n1=$(on_node n1 hostname -I | cut -d' ' -f1)
for node in n0 n1; do on_node "$node" mount --bind "$work/hosts" /etc/hosts; done
without_names() { on_login unshare --mount sh -c 'mount --bind "$0" /etc/hosts; exec "$@"' "$work/hosts" "$@"; }
for list in ranks=slurm ranks=block; do
  expect_requests 1 REQUEST_NODE_INFO_SINGLE \
    without_names srun -N2 -n4 -w n0,n1 "--torch-env=$list" sh -c 'echo $RANK $MASTER_ADDR'
  address=$(on_node n0 hostname -I | cut -d' ' -f1)
  [[ $(sort "$work/stdout") == "$(printf "%s $address\n" 0 1 2 3)" ]] || {
    cat "$work/stdout" "$work/stderr"
    fail "not the NodeAddr of n0"
  }
done
expect_requests 1 REQUEST_STEP_LAYOUT \
  without_names srun -n3 -m arbitrary -w n1,n0,n1 --torch-env sh -c 'echo $RANK $MASTER_ADDR'
[[ $(sort "$work/stdout") == "$(printf "%s $address_of_n1\n" 0 1 2)" ]] || {
  cat "$work/stdout" "$work/stderr"
  fail "not the NodeAddr of n1"
}
# No request in a step of one node. Where the login node resolves the names, and in a heterogeneous step, one task of
# each other node sends one.
expect_address() {  # expect_address LINES ADDRESS
  [[ $(sort "$work/stdout") == "$(for ((i = 0; i < $1; ++i)); do echo "$i $2"; done)" ]] || {
    cat "$work/stdout" "$work/stderr"
    fail "not $2"
  }
}
for names in without_names on_login; do
  expect_requests 0 REQUEST_NODE_INFO_SINGLE $names srun -N1 -n2 -w n1 --torch-env sh -c 'echo $RANK $MASTER_ADDR'
  expect_address 2 "$address_of_n1"
  expect_requests 1 REQUEST_NODE_INFO_SINGLE $names srun -N1 -n1 -w n1 --torch-env=check=30 \
    sh -c 'echo $RANK $MASTER_ADDR' : -N1 -n2 -w n0 sh -c 'echo $RANK $MASTER_ADDR'
  expect_address 3 "$address_of_n1"
done
expect_requests 1 REQUEST_NODE_INFO_SINGLE on_login srun -N2 -n4 -w n0,n1 --torch-env sh -c 'echo $RANK $MASTER_ADDR'
expect_address 4 "$address"
# Rank 0 listens at the address to which the others connect.
expect_requests 1 REQUEST_NODE_INFO_SINGLE on_login srun -N2 -n2 -w n0,n1 --torch-env=check=10 true
[[ ! -s $work/stderr ]] || { cat "$work/stderr"; fail "the nodes do not reach rank 0"; }
for node in n0 n1; do on_node "$node" umount /etc/hosts; done

# A job that is suspended when the time after a failure is over is ended after it goes on.
on_login sdiag --reset
on_login srun -J suspended -N2 -n2 --torch-env=check=30,on_failure=20 \
  sh -c '[ $RANK = 0 ] && exit 1; exec sleep infinity' >"$work/stdout" 2>"$work/stderr" & srun=$!
wait_for 60 grep -q 'Exited with exit code 1' "$work/stderr"
job=$(on_login squeue --noheader --name suspended --format %A)
on_login scontrol suspend "$job"
has_asked() { (($(requests REQUEST_JOB_INFO_SINGLE) > 0)); }
wait_for 60 has_asked
kill -0 "$srun" || { cat "$work/stderr"; fail "a suspended step was ended"; }
on_login scontrol resume "$job"
! wait "$srun" || fail "exit code 0"
expect_line '^srun: error: torch-env: the step still runs 20 s later and is ended'

# srun's exit code is not 0 where slurmstepd stops after the report and no task's exit code arrives. A program on a node
# without the plugin plays the node's part.
with_plugstack n1 ""
report='import hashlib, hmac, os, signal, socket, time
version, port, secret = os.environ["SLURM_TORCH_ENV"].split(" ")[:3]
key = hmac.new(secret.encode(), b"report", hashlib.sha256).digest()
connection = socket.create_connection((os.environ["SLURM_LAUNCH_NODE_IPADDR"], int(port)))
slurmstepd = os.getppid()
open(os.environ["WORK"] + "/slurmstepd.pid", "w").write(str(slurmstepd))
os.kill(slurmstepd, signal.SIGSTOP)
content = f"s{time.time_ns() // 1000}\nthe reason".encode()
connection.sendall(hmac.new(key, content, hashlib.sha256).hexdigest().encode() + content)
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
time.sleep(1000)'
WORK=$work expect_error '^srun: error: torch-env: the reason' 30 \
  on_login srun -N1 -n1 -w n1 --torch-env /usr/bin/python3 -c "$report"
grep -q "Timed out waiting for job step" "$work/stderr" || fail "a task's exit code arrived"
kill -CONT "$(<"$work/slurmstepd.pid")"
wait_for 30 all_nodes_are_idle
as_before
