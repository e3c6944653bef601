#!/usr/bin/env bash
# torchbridge run under srun and mpirun, with and without the plugin: no option is needed, for one task, for one on each
# node, and for one for each rank.
source "$(dirname "$0")/case.sh"
needs_other_users
torchbridge="$BUILD_DIR/bin/torchbridge"
cpus=$(nproc)
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE '
show+='${TORCHBRIDGE_LISTEN_FD:+socket}.'
# ranks N: what N workers print; rank 0 alone has the socket.
ranks() {
  local rank
  for ((rank = 0; rank < $1; ++rank)); do
    printf '%s/%s %s/%s 0/1 %s.\n' "$rank" "$1" "$rank" "$1" "$( ((rank > 0)) || echo socket)"
  done
}

expect "$(ranks "$cpus")" on_login srun -N1 -n1 "$torchbridge" run sh -c "$show"
expect "$(ranks "$cpus")" on_login srun -N1 -n1 --torch-env "$torchbridge" run sh -c "$show"
expect "$(ranks "$cpus")" "$within" "$limit" mpirun -np 1 --bind-to none "$torchbridge" run sh -c "$show"
expect "$(ranks 3)" on_login srun -N1 -n1 "$torchbridge" run --nproc-per-node 3 sh -c "$show"
expect_error 'torchbridge: this is one of 2 tasks, and with --nnodes 1 each would run a job of its own' 30 \
  on_login srun -N1 -n2 "$torchbridge" run --nnodes 1 true

for options in '' '--rdzv-backend c10d --rdzv-endpoint n0:29432'; do
  expect_error 'torchbridge: the launcher started 4 tasks, and --nnodes allows at most 2 agents' 30 \
    on_login srun -N2 -w n0,n1 --ntasks-per-node=2 "$torchbridge" run --nnodes 2 $options true
  expect_error 'torchbridge: the launcher started 2 tasks, and --nnodes needs at least 3 agents' 30 \
    on_login srun -N2 -w n0,n1 --ntasks-per-node=1 "$torchbridge" run --nnodes 3:4 $options true
done

# srun has the exit code of the worker, and its signal reaches it.
code=0
on_login srun -N1 -n1 "$torchbridge" run --nproc-per-node 2 sh -c 'exit 7' 2>"$work/error" || code=$?
((code == 7)) || fail "exit code $code: $(cat "$work/error")"
grep -q 'root cause: rank [01] on n.*: exit code 7' "$work/error" || fail "no root cause: $(cat "$work/error")"

# Slurm signals each process of a step; a worker gets the signal once all the same. A second one would come in 2 s.
cat >"$work/printer.py" <<'EOF'
import os, signal, sys
handled = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, handled)
open(f"{sys.argv[1]}/up.{os.environ['RANK']}", "w").close()
limit = 60
while got := signal.sigtimedwait(handled, limit):
    os.write(1, f"{signal.Signals(got.si_signo).name}\n".encode())
    limit = 2
sys.exit(75)
EOF
for nodes in 1 2; do
  for name in INT TERM USR1; do
    on_login srun --job-name="signal-$name" -N$nodes --ntasks-per-node=1 "$torchbridge" run --nproc-per-node 2 \
      /usr/bin/python3 "$work/printer.py" "$work" >"$work/printed" 2>"$work/error" & job=$!
    for ((rank = 0; rank < 2 * nodes; ++rank)); do wait_for 30 test -e "$work/up.$rank"; done
    on_login scancel --signal="$name" --name="signal-$name"
    code=0
    wait "$job" || code=$?
    ((code == 75)) || fail "$name: exit code $code: $(cat "$work/error")"
    [[ $(sort <"$work/printed" | uniq -c) == *" $((2 * nodes)) SIG$name" ]] ||
      fail "$name over $nodes nodes: $(cat "$work/printed")"
    rm "$work"/up.*
  done
done

# Several nodes: one agent each, and one for each rank, which has the ranks that srun alone would give.
place='$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE'
show="echo $place \$(hostname)"
by_node='0/6 0/2 0/3 n0
1/6 1/2 0/3 n0
2/6 0/2 1/3 n1
3/6 1/2 1/3 n1
4/6 0/2 2/3 n2
5/6 1/2 2/3 n2'
for plugin in '' --torch-env; do
  expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 $plugin \
    "$torchbridge" run --nproc-per-node 2 sh -c "$show"
  expect "$by_node" on_login srun -N3 -w n0,n1,n2 -n6 --ntasks-per-node=2 $plugin "$torchbridge" run sh -c "$show"
  expect '0/4 0/2 0/2 n0
1/4 0/2 1/2 n1
2/4 1/2 0/2 n0
3/4 1/2 1/2 n1' on_login srun -N2 -w n0,n1 -n4 --ntasks-per-node=2 --distribution=cyclic $plugin \
    "$torchbridge" run sh -c "$show"
done
# What a script's RANK and WORLD_SIZE lack is the launcher's: each node has its own workers, also with MASTER_ADDR.
two='0/4 0/2 0/2 n0
1/4 1/2 0/2 n0
2/4 0/2 1/2 n1
3/4 1/2 1/2 n1'
master="MASTER_ADDR=n0 MASTER_PORT=29439"
own="$master RANK=\$SLURM_PROCID WORLD_SIZE=\$SLURM_NTASKS LOCAL_RANK=\$SLURM_LOCALID"
expect "$two" on_login srun -N2 -w n0,n1 -n4 --ntasks-per-node=2 \
  sh -c "export $own LOCAL_WORLD_SIZE=2; exec $torchbridge run sh -c '$show'"
expect "$two" on_login srun -N2 -w n0,n1 -n4 --ntasks-per-node=2 \
  sh -c "export $own; exec $torchbridge exec -- sh -c '$show'"
expect "$two" on_login srun -N2 -w n0,n1 -n2 --ntasks-per-node=1 \
  sh -c "export $own; exec $torchbridge run --nproc-per-node 2 sh -c '$show'"
own=${own//SLURM_PROCID/OMPI_COMM_WORLD_RANK}
own=${own//SLURM_NTASKS/OMPI_COMM_WORLD_SIZE}
own=${own//SLURM_LOCALID/OMPI_COMM_WORLD_LOCAL_RANK}
for program in "run" "exec --"; do
  expect "$two" on_node n0 mpirun --oversubscribe --mca plm_rsh_agent "$SOURCE_DIR/scripts/cluster/node_sh" \
    --host n0:2,n1:2 -np 4 sh -c "export $own; exec $torchbridge $program sh -c '$show'"
done
expect '0/2 0/2 0/1
1/2 1/2 0/1' "$within" "$limit" mpirun -np 2 "$torchbridge" run sh -c "echo $place"

# The options that a script for torchrun gives mean the same.
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 "$torchbridge" run --nnodes 3 --nproc-per-node 2 \
  --rdzv-backend c10d --rdzv-endpoint n0:29433 --rdzv-id job sh -c "$show"
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 sh -c "exec '$torchbridge' run --nnodes 3 \
  --nproc-per-node 2 --node-rank \$SLURM_NODEID --master-addr n0 --master-port 29434 sh -c '$show'"

# So do --master-addr alone, where each task has the number of its node, and a launcher's tasks as nodes.
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 "$torchbridge" run --nnodes 3 --nproc-per-node 2 \
  --master-addr n0 --master-port 29435 sh -c "$show"
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 "$torchbridge" run --nproc-per-node 2 \
  --master-addr n0 --master-port 29438 sh -c "$show"
# Several agents on a node have the local ranks that the launcher gives, and one worker each, with any endpoint.
for options in "--rdzv-backend c10d --rdzv-endpoint n0:29433" "--master-addr n0 --master-port 29438"; do
  expect "$by_node" on_login srun -N3 -w n0,n1,n2 -n6 --ntasks-per-node=2 "$torchbridge" run $options sh -c "$show"
done
# The launcher's order of nodes is that of the options, unless --master-addr is given.
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 "$torchbridge" run --nproc-per-node 2 \
  --node-rank 3 sh -c "$show"
(($(grep -c '^torchbridge: --node-rank has no effect without --master-addr' "$work/stderr") == 1)) ||
  fail "--node-rank without effect: $(cat "$work/stderr")"
# Endpoints at which no agent, or each for itself, would wait: an error at once.
on_two_nodes() { on_login srun -N2 -w n0,n1 -n2 "$torchbridge" run --nnodes 2 --nproc-per-node 1 "$@" true; }
each="is each node's own address, but the tasks are on several nodes"
for host in localhost 127.1 ip6-localhost; do
  expect_error "^torchbridge: --rdzv-endpoint $host $each" 30 \
    on_two_nodes --rdzv-backend c10d --rdzv-endpoint "$host:29433"
done
expect_error "^torchbridge: --master-port with the default 127.0.0.1 of --master-addr $each" 30 \
  on_two_nodes --master-port 29433
expect_error "^torchbridge: --local-addr localhost $each" 30 on_two_nodes --local-addr localhost
PET_MASTER_ADDR=localhost expect_error "^torchbridge: PET_MASTER_ADDR=localhost $each" 30 on_two_nodes
login=$(on_login srun -N1 printenv SLURM_LAUNCH_NODE_IPADDR)
expect_error "^torchbridge: --rdzv-endpoint $login is the host where srun runs, and none of the step's nodes" 30 \
  on_two_nodes --rdzv-backend c10d --rdzv-endpoint "$login"
expect_error "^torchbridge: n0 is not an address of n1, which is node 0: give all the address of node 0" 30 \
  on_two_nodes --node-rank 0 --master-addr n0 --master-port 29437
expect_error "^torchbridge: n0 is an address of n0, which is node 1, not node 0: give all the address of node 0" 30 \
  on_two_nodes --node-rank 1 --master-addr n0 --master-port 29437
for options in "--master-addr nosuchhost" "--rdzv-backend c10d --rdzv-endpoint nosuchhost:29433"; do
  expect_error "^torchbridge: --[a-z-]+ nosuchhost: host name 'nosuchhost' does not resolve on n0" 30 \
    on_two_nodes $options
done
# What one agent lacks ends the step: the others would wait for it.
expect_error "^torchbridge: --local-addr n0 is not an address of n1" 30 on_two_nodes --local-addr n0
without() { on_login srun -N2 -w n0,n1 -n2 sh -c "test \$SLURM_NODEID = 0 || $1; exec '$torchbridge' run $2 true"; }
expect_error "^torchbridge: cannot create a folder '/nonexistent/" 30 \
  without 'export TMPDIR=/nonexistent' '--nproc-per-node 1'
(umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' ' >"$work/token")
expect_error "^torchbridge: --rdzv-token-file '/nonexistent': No such file" 30 \
  without 'file=/nonexistent' "--nproc-per-node 1 --rdzv-token-file \${file:-$work/token}"
# A node outside of the step may have an agent, or be another name of one inside: the line after 10 s names it.
expect_error "^torchbridge: waiting .*; --rdzv-endpoint n3 is none of the step's nodes by their names, n0 and" 30 \
  on_two_nodes --rdzv-backend c10d --rdzv-endpoint n3:29433 --rdzv-conf join_timeout=11

for options in "--master-addr 'n0 n1'" "--master-addr n0:29503" "--master-addr tcp://n0"; do
  eval "expect_error '^torchbridge: --master-addr: .*: expected a host name or an address, without a port' 30 \
    on_two_nodes $options"
done
expect_error "^torchbridge: --rdzv-endpoint 0.0.0.0 is each host's own address, and other hosts connect to" 30 \
  on_two_nodes --rdzv-backend c10d --rdzv-endpoint 0.0.0.0:29433
expect_error "^torchbridge: n1 is not an address of n0, which is node 0: give is_host=true on the host of the" 30 \
  on_two_nodes --rdzv-backend c10d --rdzv-endpoint n1:29433 --rdzv-conf is_host=true
# Within one task of a larger step, whose other tasks run no agent: the line has the remedy, and the step goes on.
for task in 0 1; do
  expect 'the other goes on' on_login srun -N2 -w n0,n1 -n2 sh -c "
    if [ \$SLURM_PROCID = $task ]; then
      '$torchbridge' run --rdzv-conf join_timeout=11 true 2>$work/inside && echo no error
      touch $work/inside.$task
    else
      while [ ! -e $work/inside.$task ]; do sleep 0.05; done
      echo the other goes on
    fi"
  grep -q 'torchbridge: waiting .*: a run of one task alone needs --standalone' "$work/inside" ||
    fail "no remedy within task $task: $(cat "$work/inside")"
done

# A failure on one node ends all at once, with one summary.
code=0
on_login srun -N3 --ntasks-per-node=1 "$torchbridge" run --nproc-per-node 2 \
  sh -c '[ $RANK != 3 ] || exit 7; sleep 50' 2>"$work/error" || code=$?
((code == 7)) || fail "exit code $code: $(cat "$work/error")"
(($(grep -c 'root cause: rank 3 on n' "$work/error") == 1)) || fail "not one summary: $(cat "$work/error")"

# A node is lost: the others go on, under srun --no-kill.
mkdir "$work/ranks"
on_login srun --no-kill -N3 -w n0,n1,n2 --ntasks-per-node=1 "$torchbridge" run --nnodes 2:3 --nproc-per-node 1 \
  --rdzv-conf keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=1 \
  sh -c "touch $work/ranks/\$RANK.of.\$WORLD_SIZE; while [ ! -e $work/go ]; do sleep 0.05; done" \
  2>"$work/error" & job=$!
wait_for 30 test -e "$work/ranks/2.of.3"
trap 'on_node n2 ip link set eth0 up; rm -rf "$work"' EXIT
on_node n2 ip link set eth0 down
wait_for 30 test -e "$work/ranks/1.of.2"
job_id=$(on_login squeue --noheader --format=%A --states=RUNNING | head -n 1)
on_login "$torchbridge" status "$job_id" >"$work/status"
(($(grep -c ' running ' "$work/status") == 2)) || fail "status: $(cat "$work/status")"
touch "$work/go"
on_node n2 ip link set eth0 up
wait "$job" || true  # what srun makes of the lost task
grep -q 'torchbridge: node n2 (pid [0-9]*) is lost: it sent nothing for 2 s' "$work/error" ||
  fail "the lost node is not named: $(cat "$work/error")"

# The link of the coordinator's node is down for longer than the keep-alive, and up again: all go on.
trap 'on_node n0 ip link set eth0 up; rm -rf "$work"' EXIT
rm -rf "$work/ranks" "$work/go"
mkdir "$work/ranks"
by_hand() {
  local node=$1
  shift
  on_node "$node" "$@" "$torchbridge" run --nnodes 2:3 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint n0:29436 \
    --rdzv-conf keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=5,join_timeout=60 \
    sh -c "echo \$MASTER_ADDR >>$work/ranks/\$RANK.of.\$WORLD_SIZE; while [ ! -e $work/go ]; do sleep 0.05; done" \
    2>"$work/error.$node"
}
# On Debian a host's own name is 127.0.1.1: the others reach the coordinator nevertheless.
address=$(on_node n1 getent ahostsv4 n0 | sed -n '1s/ .*//p')
on_node n0 cat /etc/hosts | sed "s/^$address /127.0.1.1 /" >"$work/hosts"
jobs=()
by_hand n0 unshare --mount sh -c 'mount --bind "$0" /etc/hosts; exec "$@"' "$work/hosts" & jobs+=($!)
n0_has_joined() { on_node n1 "$torchbridge" status n0:29436 2>/dev/null | grep -q '^n0 .* waiting '; }
wait_for 30 n0_has_joined  # the first to join has rank 0
grep -q 'no token: whoever reaches an address of n0 port 29436 can join it, because its id is the default' \
  "$work/error.n0" ||
  fail "who can join is not said: $(cat "$work/error.n0")"
by_hand n1 & jobs+=($!)
by_hand n2 & jobs+=($!)
wait_for 30 test -s "$work/ranks/2.of.3"
[[ $(cat "$work/ranks/2.of.3") == "$address" ]] || fail "MASTER_ADDR is $(cat "$work/ranks/2.of.3")"
on_node n0 ip link set eth0 down
wait_for 30 grep -q 'is lost: it sent nothing for 2 s' "$work/error.n0"
on_node n0 ip link set eth0 up
started_again() { (($(wc -l <"$work/ranks/2.of.3") == 2)); }
wait_for 60 started_again
touch "$work/go"
for job in "${jobs[@]}"; do wait "$job" || fail "exit code $?: $(cat "$work"/error.n?)"; done

# A token, by the variable, which srun passes on, and by a file; without one the coordinator alone says who can join.
export TORCHBRIDGE_RDZV_TOKEN
TORCHBRIDGE_RDZV_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 "$torchbridge" run --nproc-per-node 2 sh -c "$show"
expect_no_message "with a token there is nothing to say"
(umask 077 && printf '%s\n' "$TORCHBRIDGE_RDZV_TOKEN" >"$work/token")
secret=$TORCHBRIDGE_RDZV_TOKEN
unset TORCHBRIDGE_RDZV_TOKEN
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 "$torchbridge" run --nproc-per-node 2 \
  --rdzv-token-file "$work/token" sh -c "$show"
expect_no_message "with a token there is nothing to say"
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 --torch-env "$torchbridge" run --nproc-per-node 2 \
  sh -c "$show"
expect_no_message "the plugin's token is not used"
printf '#!/bin/sh\nexec "%s" run --nproc-per-node 2 sh -c '"'%s'\n" "$torchbridge" "$show" >"$work/script"
chmod +x "$work/script"
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 --torch-env "$work/script"
expect_no_message "agents that a script starts have no token"
# The steps of a job have one in common, which workers do not get.
expect '0/2
1/2' on_login salloc -Q -N2 -w n0,n1 --torch-env bash -c '
  for node in n0 n1; do
    srun -N1 -n1 -w $node "$0" run --nnodes 2 --nproc-per-node 1 --rdzv-endpoint n0:29439 --rdzv-backend c10d \
      sh -c "echo \$RANK/\$WORLD_SIZE\$TORCHBRIDGE_RDZV_TOKEN" &
  done
  wait' "$torchbridge"
expect_no_message "the steps of a job have no token"
on_login sbatch -Q --wait --torch-env -N1 -o "$work/batch" --wrap 'echo ${#TORCHBRIDGE_RDZV_TOKEN}'
[[ $(cat "$work/batch") == 32 ]] || fail "the batch script has no token: $(cat "$work/batch")"
# Also with --export, which removes the variable from the job and from its steps.
show_token='echo $TORCHBRIDGE_RDZV_TOKEN; env | grep ^SLURM_TORCH_ENV_TOKEN || true'
for export in NONE HOME; do
  on_login sbatch -Q --wait --torch-env --export=$export -N1 -o "$work/batch" \
    --wrap "$show_token; for step in 1 2; do srun -Q /bin/sh -c '$show_token'; done"
  [[ $(wc -l <"$work/batch") == 3 && $(sort -u "$work/batch") =~ ^[0-9a-f]{32}$ ]] ||
    fail "the job and its steps have not one token with --export=$export: $(cat "$work/batch")"
done
expect "$by_node" on_login srun -N3 -w n0,n1,n2 --ntasks-per-node=1 "$torchbridge" run --nproc-per-node 2 sh -c "$show"
(($(grep -c "this run has no token: whoever reaches [0-9.]* port [0-9]* and gives the run's id can join" \
  "$work/stderr") == 1)) || fail "no warning, or several: $(cat "$work/stderr")"

# OpenMPI 4 gives its ranks a secret, which no command line shows.
if mpirun --version | grep -q 'Open MPI) 4'; then
  over_ssh=(on_node n0 mpirun --mca plm_rsh_agent "$SOURCE_DIR/scripts/cluster/node_sh" --host n0:1,n1:1 -np 2)
  cat >"$work/is_secret" <<'EOF'
shown=$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ')
case ${OMPI_MCA_orte_precondition_transports:?}$shown in
  *"$OMPI_MCA_orte_precondition_transports"*"$OMPI_MCA_orte_precondition_transports"*) echo "it is in a command line" ;;
  *) echo "$RANK/$WORLD_SIZE" ;;
esac
EOF
  expect '0/2
1/2' "${over_ssh[@]}" "$torchbridge" run --nproc-per-node 1 sh "$work/is_secret"
  ! grep -q 'has no token' "$work/stderr" || fail "mpirun's secret is not used: $(cat "$work/stderr")"
  # Also below a step of --torch-env, whose token the ranks on other nodes lack.
  expect '0/2
1/2' on_login srun -Q -N1 -n1 -w n0 --torch-env mpirun --mca ras ^slurm --mca plm rsh "${over_ssh[@]:3}" \
    "$torchbridge" run --nproc-per-node 1 sh "$work/is_secret"
fi

# Through MPICH's exchange the ranks share one.
if command -v mpiexec.mpich >/dev/null; then
  expect '0/2
1/2' on_node n0 mpiexec.mpich -launcher-exec "$SOURCE_DIR/scripts/cluster/node_sh" -hosts n0:1,n1:1 -np 2 \
    "$torchbridge" run --nproc-per-node 1 sh -c 'echo $RANK/$WORLD_SIZE'
  expect_no_message "MPICH's ranks have no token"
fi

# A second user on another node, who knows the run's id, finds nothing, and the run goes on.
rm -f "$work/go"
chmod 755 "$work"
cp "$SOURCE_DIR/tests/programs/agent_stranger.py" "$work/stranger.py"
chmod 644 "$work/stranger.py"
chown daemon "$work/ranks"
as_user=(runuser -u daemon -- env -C /)
TORCHBRIDGE_RDZV_TOKEN=$secret on_login "${as_user[@]}" srun -N3 -w n0,n1,n2 --ntasks-per-node=1 \
  "$torchbridge" run --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint n0:29437 --rdzv-id night \
  sh -c "touch $work/ranks/\$RANK.waits; while [ ! -e $work/go ]; do sleep 0.05; done
    touch $work/ranks/\$RANK.done" 2>"$work/error" & job=$!
wait_for 30 test -e "$work/ranks/2.waits"
on_node n3 runuser -u nobody -- /usr/bin/python3 "$work/stranger.py" n0:29437 night 3,3,3,0 guess join line ||
  fail "the stranger found something"
! on_node n3 "${as_user[@]}" "$torchbridge" status --rdzv-id night n0:29437 ||
  fail "status without the token is answered"
TORCHBRIDGE_RDZV_TOKEN=$secret on_node n3 "${as_user[@]}" "$torchbridge" status n0:29437 >"$work/status"
(($(grep -c ' running ' "$work/status") == 3)) || fail "status: $(cat "$work/status")"
touch "$work/go"
wait "$job" || fail "exit code $?: $(cat "$work/error")"
for rank in 0 1 2; do [[ -e $work/ranks/$rank.done ]] || fail "the work of rank $rank was not done"; done

# Without a token a program on another node that listens first coordinates: each agent says so, and does not believe it
# that the run has succeeded while its own workers have not.
# led RDZV_PORT WAY WORKER: an agent on n0 whose run a stranger on n1 coordinates; its exit code.
led() {
  local port=$1 way=$2 worker=$3
  : >"$work/led"
  on_node n1 runuser -u nobody -- /usr/bin/python3 "$work/stranger.py" "n1:$port" night 1,2,2,0 \
    coordinate "$way" >"$work/led" 2>&1 & leader=$!
  wait_for 30 grep -q listens "$work/led"
  code=0
  on_node n0 "${as_user[@]}" "$torchbridge" run --nnodes 1:2 --rdzv-id night --rdzv-backend c10d \
    --rdzv-endpoint "n1:$port" --grace 5 sh -c "$worker" 2>"$work/error" || code=$?
  wait "$leader" || fail "the stranger: $(cat "$work/led")"
  (($(grep -c "this run has no token: whatever program listens at n1:$port can end this node's workers" \
    "$work/error") == 1)) || fail "the unknown coordinator is not reported: $(cat "$work/error")"
}
led 29441 done true
((code == 0)) || fail "workers that have done their work are no success: $code $(cat "$work/error")"
for way in 'early :' 'at-once :' 'stopped :' 'stopped trap "exit 0" TERM'; do
  led 29442 "${way%% *}" "${way#* }; while :; do sleep 0.05; done"
  ((code == 1)) || fail "$way: exit code $code: $(cat "$work/error")"
  grep -q "n1:29442 ends the run with 0, but this node's workers have not ended with 0" "$work/error" ||
    fail "$way: no line: $(cat "$work/error")"
done
