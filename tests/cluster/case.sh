# Functions of the cluster cases; sourced by each *_test.sh. A case fails at its first unmet expectation.
set -euo pipefail

: "${CLUSTER:?run through ctest}" "${CLUSTER_NAME:?}" "${BUILD_DIR:?}" "${SOURCE_DIR:?}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# More ranks than cores, with OpenMPI 4 and with the PRRTE of later ones.
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe
unset TORCHBRIDGE_OPTIONS RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT OMP_NUM_THREADS
limit=60  # seconds for one command; a hang is a failure

work=$(mktemp -d)
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
skip() { printf 'SKIPPED: %s\n' "$*"; exit 77; }

((EUID == 0)) || skip "a cluster on one machine needs root"

# The case starts programs as another user: skipped where those cannot enter the folder of this build.
needs_other_users() { "$SOURCE_DIR/tests/support/other_users_can_run" "$CLUSTER" || exit; }

within=$SOURCE_DIR/tests/support/within  # a limit in machine time
on_login() { "$within" "$limit" "$CLUSTER" run --name "$CLUSTER_NAME" -- "$@"; }
on_node() { local node=$1; shift; "$within" "$limit" "$CLUSTER" exec --name "$CLUSTER_NAME" --node "$node" -- "$@"; }

# expect EXPECTED COMMAND...: the sorted standard output is EXPECTED.
expect() {
  local expected=$1 found status=0
  shift
  printf '$ %s\n' "$*"
  found=$("$@" 2>"$work/stderr") || status=$?
  found=$(sort <<<"$found")
  ((status == 0)) || { cat "$work/stderr"; fail "exit code $status"; }
  [[ $found == "$expected" ]] || {
    diff <(printf '%s\n' "$expected") <(printf '%s\n' "$found") || true
    cat "$work/stderr"
    fail "other output than expected"
  }
}

# expect_no_message WHAT: the `expect` before left nothing on standard error, but that srun waited for nodes.
expect_no_message() {
  ! grep -qvE '^srun: job [0-9]+ (queued and waiting for|has been allocated) resources$' "$work/stderr" ||
    fail "$1: $(cat "$work/stderr")"
}

# What runs below each slurmstepd, and in which state: for a step that should have ended.
print_steps() {
  echo "below slurmstepd:" >&2
  ps -eo pid,ppid,stat,wchan:24,etimes,args --forest | awk '/slurmstepd/ {depth = index($0, "slurmstepd")}
    depth && (/slurmstepd/ || index($0, "\\_") >= depth - 4) {print; next} {depth = 0}' >&2
}

# expect_error PATTERN SECONDS COMMAND...: the command fails within SECONDS, and exactly one line of its stderr
# matches the extended regular expression. COMMAND begins with on_login or on_node.
expect_error() {
  local pattern=$1 limit=$2 status=0 matches
  shift 2
  printf '$ %s\n' "$*"
  "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
  cat "$work/stderr"
  ((status != 124)) || { print_steps; fail "no end within $limit s"; }
  ((status != 0)) || fail "it succeeded"
  matches=$(grep -cE -- "$pattern" "$work/stderr") || true
  ((matches == 1)) || fail "$matches lines match '$pattern', expected one"
}

# expect_one_report PATTERN COMMAND...: the command, a job of "torchbridge exec", fails within 30 s, one rank reports
# why, and no rank's program has printed anything.
expect_one_report() {
  local pattern=$1
  shift
  expect_error "^torchbridge: $pattern" 30 "$@"
  (($(grep -c '^torchbridge: ' "$work/stderr") == 1)) || fail "expected one report"
  [[ ! -s $work/stdout ]] || fail "a program ran: $(cat "$work/stdout")"
}

# with_file NODE PATH FILE: binds FILE over PATH on that node, until as_before or the end of the case.
changed=()
with_file() {
  on_node "$1" mount --bind "$3" "$2"
  changed+=("$1 $2")
}
as_before() {
  local one
  for one in "${changed[@]}"; do on_node "${one%% *}" umount "${one#* }"; done
  changed=()
}

find_plugstack() { plugstack=${plugstack:-$(on_login sh -c 'dirname "$SLURM_CONF"')/plugstack.conf}; }
# with_plugstack NODE LINES: sets that node's plugstack.conf, after as_before.
with_plugstack() {
  as_before
  find_plugstack
  printf '%b' "$2" >"$work/$1.conf"
  with_file "$1" "$plugstack" "$work/$1.conf"
}
# from_login_with LINES COMMAND...: runs the command with another plugstack.conf of the login node.
from_login_with() {
  find_plugstack
  printf '%b' "$1" >"$work/login.conf"
  shift
  on_login unshare --mount sh -c 'mount --bind "$0" "$1"; shift; exec "$@"' "$work/login.conf" "$plugstack" "$@"
}

# with_slurmstepd NODE WORDS: that node's slurmd starts `WORDS $work/slurmstepd`, a copy of slurmstepd.
with_slurmstepd() {
  local slurmstepd
  slurmstepd=$(readlink -f "$(PATH=$PATH:/usr/sbin type -P slurmstepd)")
  cp --remove-destination "$slurmstepd" "$work/slurmstepd"  # the one before may still run
  printf '#!/bin/sh\nexec %s %s "$@"\n' "$2" "$work/slurmstepd" >"$work/wrapper"
  chmod 755 "$work" "$work/wrapper"
  with_file "$1" "$slurmstepd" "$work/wrapper"
}
trap 'as_before; rm -rf "$work"' EXIT
# timeout(1) asks a case twice to end, first alone and then with its group: without a trap bash ends at once, and the
# traps for EXIT, of which some take a cluster down, are lost.
trap 'trap : TERM; exit 143' TERM

# wait_for SECONDS COMMAND...: until the command succeeds. The seconds are those that the machine had: a turn of the
# loop uses up at most three of its periods, so that a machine that stands still does not fail the case; but not more
# than five times as many pass, however long the command takes.
wait_for() {
  local left=$(($1 * 1000000)) last=${EPOCHREALTIME//[.,]/} end=$((SECONDS + 5 * $1)) now
  shift
  until "$@"; do
    ((left > 0 && SECONDS < end)) || fail "not within the time limit: $*"
    read -rt 0.05 <> <(:) || true
    now=${EPOCHREALTIME//[.,]/}
    left=$((left - (now - last < 150000 ? now - last : 150000)))
    last=$now
  done
}

# While nodes still end the steps of the case before, Slurm starts a job on others.
all_nodes_are_idle() { [[ $(on_login sinfo --noheader --Node --format=%T | sort -u) == idle ]]; }

# The last evaluation in a metrics file is better than FLOOR.
expect_accuracy() {
  local floor=$1 file=$2 accuracy
  accuracy=$(sed -n 's/.*"eval_accuracy":\([0-9.]*\).*/\1/p' "$file" | tail -n 1)
  awk -v a="${accuracy:-0}" -v f="$floor" 'BEGIN { exit !(a > f) }' ||
    fail "accuracy ${accuracy:-missing} in $file, expected more than $floor"
}

# "STEP LOSS" of each line of a metrics file.
losses() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([-0-9.e+]*\),.*/\1 \2/p' "$1"; }

# occupy_port_on NODE [ANSWER]: starts a program that listens there until release_port, and sends ANSWER, if given, to
# each client after its first bytes; sets `port`.
occupy_port_on() {
  local serve='import socket, sys, threading
taken = socket.socket(); taken.bind(("0.0.0.0", 0)); taken.listen(64)
print(taken.getsockname()[1], flush=True)
def answer():
    while True:
        client = taken.accept()[0]
        client.recv(1000)
        client.sendall(sys.argv[1].encode())
        client.close()
if sys.argv[1]: threading.Thread(target=answer, daemon=True).start()
sys.stdin.read()'
  mkfifo "$work/stdin" "$work/port"
  limit=600 on_node "$1" /usr/bin/python3 -c "$serve" "${2:-}" <"$work/stdin" >"$work/port" &
  exec 3>"$work/stdin"
  read -r port <"$work/port"
}
release_port() {
  exec 3>&-
  wait
  rm "$work/stdin" "$work/port"
}
