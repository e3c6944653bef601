#!/usr/bin/env bash
# Another user of the node takes names and ports of a run, and names of ranks that exchange what their launcher does not
# give. agent_two_users_test.sh TORCHBRIDGE
set -euo pipefail
torchbridge=$1
"$(dirname "$0")/../support/other_users_can_run" "$torchbridge"
work=$(mktemp -d)
attacker=
trap '[[ -z $attacker ]] || kill "$attacker" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; cat "$work/error" >&2 2>/dev/null || true; exit 1; }

as_user() { env -C / setpriv --reuid daemon --regid daemon --clear-groups -- "$@"; }
# as_nobody PYTHON: what it opens stays until the next one.
as_nobody() {
  [[ -z $attacker ]] || { kill "$attacker"; wait "$attacker" 2>/dev/null || true; }
  coproc ATTACKER { exec python3 -c "import hashlib, hmac, os, signal, socket
os.setgroups([]), os.setgid(65534), os.setuid(65534)
$1
print('ready', flush=True)
signal.pause()"; }
  attacker=$ATTACKER_PID
  local line
  read -rt 30 line <&"${ATTACKER[0]}" && [[ $line == ready ]] || fail "the attacker did not start"
}
port=$(python3 "$(dirname "$0")/../support/free_port.py")

# The port that the launcher has reserved for the agent is its own.
as_user "$torchbridge" exec --torch-env="port=$port" -- sh -c '
  timeout 60 "$0" run --max-restarts 1 --master-port $MASTER_PORT sh -c "exit \$((1 - TORCHELASTIC_RESTART_COUNT))"' \
  "$torchbridge" 2>"$work/error" || fail "the port that exec has reserved is not the agent's"

# A port that another user's run has reserved, and on which it does not listen yet, is in use.
for host in 127.0.0.1 127.0.0.2 0.0.0.0; do
  as_nobody "s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('$host', $port))"
  ! as_user timeout 60 "$torchbridge" run --master-port "$port" true 2>"$work/error" ||
    fail "$host: two runs have one port"
  grep -q -e "--master-port $port is in use on " "$work/error" || fail "$host: the error does not name the port"
  ! as_user timeout 60 "$torchbridge" exec --torch-env="port=$port" -- true 2>"$work/error" ||
    fail "$host: two jobs have one port"
  grep -q -e "MASTER_PORT=$port is already in use on " "$work/error" || fail "$host: the error does not name the port"
done

# All names that follow from what everybody can know: user, job, step and node. Launchers without a secret are blocked
# by that (SECURITY.md), which shows here that the names are the right ones.
ompi='674496513 674496512.0;tcp4://127.0.0.1:43825'
as_nobody "held = []
for node_key in ('slurm-77.0/check/0', '$ompi', 'openmpi-674496513/cpus/0'):
    key = hmac.new(bytes(16), node_key.encode(), 'sha256').hexdigest()
    for number in range(64):
        held.append(socket.socket(socket.AF_UNIX))
        name = hashlib.sha256(f'{number} {key}'.encode()).hexdigest()[:32]
        held[-1].bind('\0torchbridge/1/' + name)"

# two_ranks LAUNCHER OPTIONS [VARIABLE=VALUE...]: of user 1, in the environment that the launcher would give them.
two_ranks() {
  local ranks=() code=0 host
  host=$(hostname)
  : >"$work/error"
  for rank in 0 1; do
    local -A given=(
      [slurm]="SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NODEID=0
        SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=$host SLURM_STEP_TASKS_PER_NODE=2"
      [openmpi]="OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_SIZE=2
        OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=$rank PMIX_NAMESPACE=${ompi% *} PMIX_SERVER_URI2=${ompi#* }
        OMPI_MCA_orte_hnp_uri=674496512.0;tcp://127.0.0.1:59321")
    # shellcheck disable=SC2086  # words
    timeout 100 setpriv --reuid 1 --regid 1 --clear-groups env -i "PATH=$PATH" ${given[$1]} "${@:3}" \
      "$torchbridge" exec --torch-env="$2" -- true 2>>"$work/error" &
    ranks+=($!)
  done
  for rank in "${ranks[@]}"; do wait "$rank" || code=1; done
  return $code
}
! two_ranks slurm check=3 || fail "without a secret the names are others than this test takes"
grep -q "the first rank of this node did not answer\|cannot listen for the other ranks of this node" "$work/error" ||
  fail "another error than that of a name"
secret=$(head -c 16 /dev/urandom | od -An -tx8 | tr -d '\n' | sed 's/^ *//; s/ /-/')
two_ranks slurm check=3 TORCHBRIDGE_RDZV_TOKEN="$secret" || fail "names block ranks that share an exported token"
two_ranks openmpi gpus=closest OMPI_MCA_orte_precondition_transports="$secret" ||
  fail "names block the ranks of OpenMPI 4, which share a secret of mpirun"
