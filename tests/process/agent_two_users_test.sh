#!/usr/bin/env bash
# Another user of the node takes names and ports of a run. agent_two_users_test.sh TORCHBRIDGE
set -euo pipefail
torchbridge=$1
((EUID == 0)) || { echo "SKIPPED: needs root, to become another user"; exit 77; }
work=$(mktemp -d)
attacker=
trap '[[ -z $attacker ]] || kill "$attacker" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; cat "$work/error" >&2 2>/dev/null || true; exit 1; }

# as_nobody PYTHON: what it opens stays until the next one.
as_nobody() {
  [[ -z $attacker ]] || { kill "$attacker"; wait "$attacker" 2>/dev/null || true; }
  coproc ATTACKER { exec python3 -c "import os, signal, socket
os.setgroups([]), os.setgid(65534), os.setuid(65534)
$1
print('ready', flush=True)
signal.pause()"; }
  attacker=$ATTACKER_PID
  local line
  read -rt 30 line <&"${ATTACKER[0]}" && [[ $line == ready ]] || fail "the attacker did not start"
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

# Names do not keep a port from anybody.
as_nobody "held = [socket.socket(socket.AF_UNIX) for _ in range(3)]
for s, user in zip(held, ('', '0/', 'root/')):
    s.bind('\0torchbridge/' + user + 'port/$port')
    s.listen()"
timeout 60 "$torchbridge" run --master-port "$port" true 2>"$work/error" || fail "a name blocks --master-port"
timeout 60 "$torchbridge" exec --torch-env="port=$port" -- true 2>"$work/error" || fail "a name blocks port="
# One that the launcher has reserved for the agent is its own.
"$torchbridge" exec --torch-env="port=$port" -- sh -c '
  timeout 60 "$0" run --max-restarts 1 --master-port $MASTER_PORT sh -c "exit \$((1 - TORCHELASTIC_RESTART_COUNT))"' \
  "$torchbridge" 2>"$work/error" || fail "the port that exec has reserved is not the agent's"

# A port that another user's run has reserved, and on which it does not listen yet, is in use.
for host in 127.0.0.1 127.0.0.2 0.0.0.0; do
  as_nobody "s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('$host', $port))"
  ! timeout 60 "$torchbridge" run --master-port "$port" true 2>"$work/error" || fail "$host: two runs have one port"
  grep -q -e "--master-port $port is in use on " "$work/error" || fail "$host: the error does not name the port"
  ! timeout 60 "$torchbridge" exec --torch-env="port=$port" -- true 2>"$work/error" ||
    fail "$host: two jobs have one port"
  grep -q -e "MASTER_PORT=$port is already in use on " "$work/error" || fail "$host: the error does not name the port"
done
