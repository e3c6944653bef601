#!/bin/bash
# Tests scripts/cluster/cluster itself: the cluster works, and nothing of it is left after `down`.
# Exit code: 0, 1 where a case failed, 77 where this machine cannot run the cases (the reason is printed).
set -uo pipefail

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../scripts/cluster" && pwd)
cluster() { timeout 60 "$scripts/cluster" "$@"; }
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

if [ "$(id -u)" != 0 ]; then
  echo "skipped: a cluster needs root"
  exit 77
fi

scratch=$(mktemp -d /tmp/cluster_tool_test.XXXXXX)
export TORCHBRIDGE_STATE=$scratch/state
unset TORCHBRIDGE_CLUSTER
finish() {
  cluster down --all 2>/dev/null
  rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

failures=0
fail() {
  echo "FAILED: $case_name: $*"
  failures=$((failures + 1))
}

# expect EXIT_CODE PATTERN COMMAND...: the command ends with the code, and its output (both streams) matches.
expect() {
  local code=$1 pattern=$2 output got=0
  shift 2
  output=$("$@" 2>&1 </dev/null) || got=$?
  [ "$got" = "$code" ] || fail "'$*' ended with $got, not $code: $output"
  [[ $output =~ $pattern ]] || fail "'$*' did not print '$pattern' but: $output"
}

# Prints the processes whose environment or mounts name the cluster's folder. Mounts show it without /tmp where that is
# a file system of its own. Zombies have neither, and are left to init.
processes_of() {
  local folder=$TORCHBRIDGE_STATE/$1 process
  for process in \
    $(grep -lsaE "=$folder(/|\x00|$)" /proc/[0-9]*/environ; grep -ls "${folder#/tmp}/" /proc/[0-9]*/mountinfo); do
    process=$(dirname "$process")
    echo "${process#/proc/} $(tr '\0' ' ' <"$process/cmdline")"
  done 2>/dev/null
}

interface_of() { cat "$TORCHBRIDGE_STATE/$1/interface" 2>/dev/null; }

# expect_nothing_left NAME [INTERFACE INDEX]
expect_nothing_left() {
  local processes
  processes=$(processes_of "$1")
  [ -z "$processes" ] || fail "processes or mounts are left of $1: $processes"
  [ ! -e "$TORCHBRIDGE_STATE/$1" ] || fail "files are left of $1: $(find "$TORCHBRIDGE_STATE/$1" | head -5)"
  [ ! -e "$TORCHBRIDGE_STATE/.$1.lock" ] || fail "the lock of $1 is left"
  [ -z "${2:-}" ] || [ "$(cat "/sys/class/net/$2/ifindex" 2>/dev/null)" != "$3" ] || fail "the interface $2 is left"
}

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.02
  done
}

case_bad_options_are_reported_in_one_line() {
  local -a cases=(
    "bogus|'bogus' is not one of up, run, exec, status, down"
    "up --bogus|unrecognized arguments: --bogus"
    "up --nodes 0|'0' is not a number from 1 to 200"
    "up --cpus many|'many' is not a number"
    "up --name ../x|'../x' is not a name"
    "up --plugin /no/such.so|there is no file '/no/such.so'"
    "up --conf nonsense|'nonsense' is not a line 'Key=value'"
    "up --port-range 9-5|'9-5' is not LOW-HIGH"
    "run|expected a command after --"
    "exec -- true|--node"
    "down --all --name a|exclude each other"
  )
  local entry
  for entry in "${cases[@]}"; do
    # shellcheck disable=SC2086  # the words of a case are words
    expect 2 "^cluster: [^"$'\n'"]*${entry#*|}[^"$'\n'"]*$" cluster ${entry%%|*}
  done
}

case_missing_clusters_are_reported() {
  expect 0 "there is no cluster 'absent'" cluster down --name absent
  expect 0 "no cluster is up" cluster down --all
  expect 1 "absent: not up" cluster status --name absent
  expect 1 "cluster 'absent' is not up: 'cluster up --name absent' starts it" cluster run --name absent -- true
}

case_without_root_the_needed_capabilities_are_named() {
  expect 1 "^cluster: a cluster needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN[^"$'\n'"]*$" \
    as_nobody "$scripts/cluster" up --name absent
}

case_in_a_chroot_the_alternative_is_named() {
  local make_root='set -e
    mount -t tmpfs none "$1"
    for entry in /*; do
      if [ -L "$entry" ]; then cp -P "$entry" "$1$entry"
      elif [ -d "$entry" ]; then mkdir "$1$entry"; mount --rbind "$entry" "$1$entry"; fi
    done
    exec chroot "$@"'
  mkdir "$scratch/root"
  expect 1 "^cluster: [^"$'\n'"]*chroot[^"$'\n'"]*pivot_root[^"$'\n'"]*$" \
    unshare --mount sh -c "$make_root" sh "$scratch/root" timeout 60 "$scripts/cluster" up --name one --nodes 1
  expect_nothing_left one
}

case_a_cluster_runs_steps_and_leaves_nothing() {
  local interface
  expect 0 "'one' is up: 4 nodes" cluster up --name one --gpus 2
  expect 1 "'one' is up already" cluster up --name one
  read -ra interface <<<"$(interface_of one)"
  expect 0 "^0 n0 n0 1 n0 n0 2 n0 n0 3 n0 n0 4 n0 n0 5 n1 n1 6 n2 n2 7 n3 n3 $" cluster run --name one -- bash -c \
    'srun -N4 -n8 sh -c "echo \$SLURM_PROCID \$SLURMD_NODENAME \$(hostname)" | sort | tr "\n" " "'
  expect 0 "^gpus 0,1$" cluster run --name one -- srun -Q --gres=gpu:2 sh -c 'echo gpus $CUDA_VISIBLE_DEVICES'
  expect 1 "^$" grep -rs "Replayed credential" "$TORCHBRIDGE_STATE/one/log" # each node has its own munged
  expect 0 "10\.77\.[0-9]+\.13 +n3" cluster run --name one -- srun -N1 getent hosts n3
  expect 0 "10\.77\.[0-9]+\.13 +n3" cluster run --name one -- getent hosts n3
  expect 1 "" grep -w n3 /etc/hosts /etc/resolv.conf
  expect 7 "" cluster run --name one -- srun -n2 sh -c 'exit 7'
  expect 9 "^n2 $scratch" bash -c "cd $scratch && $scripts/cluster exec --name one --node n2 -- \
    sh -c 'echo \$(hostname) \$(pwd); exit 9'"
  expect 0 "^eth0 lo $" cluster exec --name one --node n2 -- sh -c 'ls /sys/class/net | tr "\n" " "'
  expect 0 "idle" cluster status --name one
  expect 0 "'one' is down" cluster down --name one
  expect_nothing_left one "${interface[@]}"
}

# on_another_machine COMMAND...: on a machine whose /etc is $scratch/etc.
on_another_machine() {
  unshare --mount sh -c 'mount --bind "$1" /etc && shift && exec "$@"' sh "$scratch/etc" timeout 60 "$@"
}

case_names_survive_another_hosts_file_of_the_machine() {
  mkdir "$scratch/etc"
  cp -a /etc/. "$scratch/etc"
  expect 0 "is up" on_another_machine "$scripts/cluster" up --name one --nodes 2
  echo "127.0.0.1 localhost renamed" >"$scratch/etc/hosts.new"
  mv "$scratch/etc/hosts.new" "$scratch/etc/hosts" # as editors and other tools write it
  echo "later:x:4711:4711::/:/bin/sh" >>"$scratch/etc/passwd"
  expect 0 "10\.77\.[0-9]+\.11 +n1" cluster exec --name one --node n0 -- getent hosts n1
  expect 0 "nameserver 127.0.0.1" cluster exec --name one --node n0 -- cat /etc/resolv.conf
  expect 0 "later" cluster exec --name one --node n0 -- getent passwd 4711
  expect 0 "^one: up, " cluster status --name one
  expect 0 "is down" cluster down --name one
  expect_nothing_left one
}

case_status_names_a_node_that_lost_its_names() {
  expect 0 "is up" cluster up --name one --nodes 2
  expect 0 "" cluster exec --name one --node n1 -- umount --recursive /etc
  expect 1 "^one: damaged, [^"$'\n'"]*"$'\n'"n1: /etc/hosts is not the cluster's, [^"$'\n'"]*"$'\n'"NODELIST" \
    cluster status --name one
  expect 0 "is down" cluster down --name one
  expect_nothing_left one
}

case_a_small_neighbour_table_is_reported() {
  local table=/proc/sys/net/ipv4/neigh/default/gc_thresh3
  [ -e "$table" ] || { echo "not tested: this network namespace does not show the neighbour table's size"; return; }
  echo 16 >"$scratch/size"
  expect 0 "2 nodes need up to 32 entries .* which holds 16: .*gc_thresh1=64 .*gc_thresh3=64'.* is up" \
    unshare --mount sh -c 'mount --bind "$1" "$2"; shift 2; exec "$@"' sh "$scratch/size" "$table" \
    "$scripts/cluster" up --name one --nodes 2
  expect 0 "is down" cluster down --name one
}

case_signals_and_input_reach_the_command() {
  expect 0 "is up" cluster up --name one --nodes 1
  expect 0 "^hello$" bash -c "echo hello | $scripts/cluster run --name one -- srun cat"
  "$scripts/cluster" run --name one -- \
    sh -c "trap 'exit 5' TERM; echo ready >$scratch/ready; while :; do sleep 0.1; done" &
  wait_for 10 test -s "$scratch/ready" || fail "the command did not start"
  kill -TERM $!
  wait $!
  local code=$?
  [ "$code" = 5 ] || fail "SIGTERM gave $code, not the command's 5"
  expect 0 "is down" cluster down --name one
}

case_a_waiting_step_is_notified_when_another_ends() {
  expect 0 "is up" cluster up --name one --nodes 1 --cpus 2
  expect 0 "first.*second" timeout 15 "$scripts/cluster" run --name one -- salloc -Q -n2 sh -c \
    'srun -n2 --exact sh -c "touch $1/step; sleep 1; echo first" &
     until [ -e "$1/step" ]; do sleep 0.02; done; srun -n2 --exact echo second; wait' sh "$scratch"
  expect 0 "is down" cluster down --name one
}

case_a_requeued_job_starts_again_soon() {
  local job output=$scratch/requeued
  expect 0 "is up" cluster up --name one --nodes 1
  job=$(cluster run --name one -- \
    sbatch --parsable -o "$output" --wrap 'echo "start ${SLURM_RESTART_COUNT:-0}"; sleep 1000')
  wait_for 10 grep -qs "start 0" "$output" || fail "the job did not start"
  expect 0 "" cluster run --name one -- scontrol requeue "$job"
  wait_for 20 grep -qs "start 1" "$output" || fail "the job did not start again"
  expect 0 "is down" cluster down --name one
  expect_nothing_left one
}

case_mpirun_starts_on_two_nodes() {
  command -v mpirun >/dev/null || { echo "not tested: mpirun is missing"; return; }
  local two='^n0 n0 n1 n1 $'
  expect 0 "is up" cluster up --name one --nodes 2
  expect 0 "$two" cluster exec --name one --node n0 -- bash -c \
    "mpirun --mca plm_rsh_agent $scripts/node_sh --host n0:2,n1:2 hostname | sort | tr '\n' ' '"
  expect 0 "$two" cluster run --name one -- bash -c \
    "salloc -Q -N2 --ntasks-per-node=2 mpirun hostname | sort | tr '\n' ' '"
  expect 0 "is down" cluster down --name one
}

case_two_clusters_live_side_by_side() {
  cluster up --name left --nodes 2 2>/dev/null &
  local left=$!
  cluster up --name right --nodes 2 --prefix gpu-node 2>/dev/null &
  local right=$!
  wait $left || fail "up of the first failed"
  wait $right || fail "up of the second failed"
  expect 0 "n1" cluster run --name left -- srun -N2 hostname
  expect 0 "gpu-node1" cluster run --name right -- srun -N2 hostname
  expect 0 "is down" cluster down --name left
  expect_nothing_left left
  expect 0 "gpu-node1" cluster run --name right -- srun -N2 hostname
  expect 0 "is down" cluster down --all
  expect_nothing_left right
}

case_down_ends_running_jobs() {
  expect 0 "is up" cluster up --name one --nodes 2
  cluster run --name one -- srun -N2 sleep 1000 2>/dev/null &
  local step=$!
  cluster run --name one -- salloc -Q sleep 1000 2>/dev/null &
  local allocation=$!
  cluster exec --name one --node n1 -- sh -c 'setsid sleep 1000 & exec sleep 1000' 2>/dev/null &
  local command=$!
  two_jobs_run() { [ "$(cluster run --name one -- squeue -h -t R | wc -l)" = 2 ]; }
  wait_for 20 two_jobs_run || fail "the jobs did not start"
  expect 0 "is down" cluster down --name one
  wait $step $allocation $command
  expect_nothing_left one
}

case_down_cleans_up_after_a_killed_up() {
  local pause pid interface
  for pause in 0.03 0.06 0.09 0.12 0.18; do
    "$scripts/cluster" up --name one 2>/dev/null &
    pid=$!
    sleep "$pause" # the instant does not matter, that there are several does
    { kill -KILL $pid && wait $pid; } 2>/dev/null
    read -ra interface <<<"$(interface_of one)"
    expect 0 "" cluster down --name one
    expect_nothing_left one "${interface[@]}"
  done
}

case_an_interrupted_up_cleans_up() {
  "$scripts/cluster" up --name one 2>/dev/null &
  local pid=$!
  wait_for 10 test -e "$TORCHBRIDGE_STATE/one/slurm.conf" || fail "up did not begin"
  kill -TERM $pid
  wait $pid
  local code=$?
  [ "$code" = 143 ] || fail "up ended with $code, not 143"
  expect_nothing_left one
}

case_a_failed_up_shows_the_log_and_cleans_up() {
  expect 1 "slurmctld ended with exit code 1.*Can't find plugin for select/none_such" \
    cluster up --name one --conf SelectType=select/none_such
  expect_nothing_left one
}

for case_name in $(compgen -A function case_); do
  began=$(date +%s%N)
  before=$failures
  "$case_name"
  [ "$failures" = "$before" ] && echo "ok: $case_name ($((($(date +%s%N) - began) / 1000000)) ms)"
done
[ "$failures" = 0 ] || exit 1
