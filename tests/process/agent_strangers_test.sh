#!/usr/bin/env bash
# Another user attacks a run over several nodes, which are agents on this host: with a token it finds nothing, and
# without one, what no agent sends changes nothing. agent_strangers_test.sh TORCHBRIDGE STRANGER
set -euo pipefail
torchbridge=$1 stranger=$2
"$(dirname "$0")/../support/other_users_can_run" "$torchbridge"
work=$(mktemp -d)
chmod 755 "$work"
chown daemon "$work"
leader=
trap 'kill "${agents[@]}" $leader 2>/dev/null || true; wait; rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; tail -n 50 "$work"/*.err >&2; exit 1; }
# eventually COMMAND...: within 30 s.
eventually() {
  local deadline=$((SECONDS + 30))
  until "$@"; do ((SECONDS < deadline)) || fail "not within 30 s: $*"; read -rt 0.02 <> <(:) || true; done
}
free_port() { /usr/bin/python3 "$(dirname "$0")/../support/free_port.py"; }
cp "$stranger" "$work/stranger.py"
chmod 644 "$work/stranger.py"
as_user() { env -C / setpriv --reuid daemon --regid daemon --clear-groups -- "$@"; }
as_stranger() { runuser -u nobody -- /usr/bin/python3 "$work/stranger.py" "127.0.0.1:$port" night "$@"; }

# agent NUMBER NODES OPTIONS...: each worker shows its rank, and waits for $work/go.
agents=()
agent() {
  local number=$1 nodes=$2
  shift 2
  F=$work as_user "$torchbridge" run --nnodes "$nodes" --rdzv-id night --rdzv-backend c10d \
    --rdzv-endpoint "127.0.0.1:$port" --rdzv-conf last_call_timeout=1 --json-summary "$work/summary$number.json" "$@" \
    sh -c \
    'touch $F/$RANK.of.$WORLD_SIZE; tr "\0" "\n" </proc/$$/environ >$F/environment; while [ ! -e $F/go ]; do sleep 0.02
    done; touch $F/done.$RANK' >"$work/$number.out" 2>"$work/$number.err" &
  agents[number]=$!
}
expect_success() {
  local number
  for number in "$@"; do wait "${agents[number]}" || fail "agent $number ended with $?"; done
  agents=()
}
is_listening() { grep -qi ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp; }
# The most memory that a process of agent 0 has used, in kB.
peak() {
  local pid most=0 size
  for pid in "${agents[0]}" $(cat "/proc/${agents[0]}/task/${agents[0]}/children"); do
    size=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status")
    ((size > most)) && most=$size
  done
  echo "$most"
}
# What the agents print has no escape sequence, and no line that a stranger wrote.
is_clean() {
  ! grep -qP "[\x00-\x08\x0b-\x1f\x7f]" "$work"/?.err "$work"/?.out &&
    ! grep -q "^torchbridge: a false line" "$work"/?.err
}

# With a token: by a file in one agent, by the variable in the others.
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
(umask 077 && echo "$token" >"$work/token")
chown daemon "$work/token"
port=$(free_port)
TORCHBRIDGE_RDZV_TOKEN=$token agent 0 3
eventually is_listening
before=$(peak)
as_stranger 3,3,3,0 guess join line || fail "the stranger found something while the run waits for nodes"
TORCHBRIDGE_RDZV_TOKEN=$token agent 1 3
# The third agent joins while 200 connections are silent.
mkfifo "$work/stdin"
as_stranger 3,3,3,0 silent <"$work/stdin" >"$work/silent.out" 2>"$work/silent.err" & silent=$!
exec 3>"$work/stdin"
eventually grep -q silent "$work/silent.out"
if "$torchbridge" run --help | grep -q rdzv-token-file; then
  agent 2 3 --rdzv-token-file "$work/token"
else
  TORCHBRIDGE_RDZV_TOKEN=$token agent 2 3
fi
eventually test -e "$work/2.of.3"
echo >&3
exec 3>&-
wait "$silent" || fail "the stranger's silent connections: $(cat "$work/silent.out" "$work/silent.err")"
as_stranger 3,3,3,0 guess join line || fail "the stranger found something while the run works"
victim=$(free_port)
as_stranger 3,3,3,0 replay "$victim" >"$work/replay.out" 2>"$work/replay.err" & replay=$!
eventually grep -q listens "$work/replay.out"
! TORCHBRIDGE_RDZV_TOKEN=$token as_user timeout 20 "$torchbridge" status "127.0.0.1:$victim" >"$work/victim.out" 2>&1 ||
  fail "torchbridge status believes the stranger: $(cat "$work/victim.out")"
wait "$replay" || fail "replay: $(cat "$work/replay.out" "$work/replay.err")"
grep -q 'has the proof of a status' "$work/replay.out" || fail "nothing was replayed: $(cat "$work/replay.out")"
(($(peak) < before + 20000)) || fail "the coordinator used $(peak) kB, and $before kB before"
# The user's own question is answered, and the token is seen nowhere.
TORCHBRIDGE_RDZV_TOKEN=$token as_user "$torchbridge" status "127.0.0.1:$port" >"$work/status.out"
TORCHBRIDGE_RDZV_TOKEN=$token as_user "$torchbridge" status --json "127.0.0.1:$port" >>"$work/status.out"
(($(grep -c ' running ' "$work/status.out") == 3)) || fail "status: $(cat "$work/status.out")"
cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' >"$work/processes.out" || true
touch "$work/go"
expect_success 0 1 2
[[ -e $work/done.0 && -e $work/done.1 && -e $work/done.2 ]] || fail "the work was not done"
is_clean || fail "what a stranger sent was printed"
! grep -q 'has no token' "$work"/?.err || fail "a run with a token says that it has none"
! grep -l -- "$token" "$work"/*.out "$work"/*.err "$work"/*.json "$work/environment" || fail "the token is shown there"

# Without a token: one line says who can join. A stranger who does ends nothing with 0, and prints nothing as it is.
rm -f "$work"/go "$work"/*.of.* "$work"/done.*
port=$(free_port)
agent 0 2:3
eventually is_listening
agent 1 2:3
eventually test -e "$work/1.of.2"
(($(grep -c 'this run has no token: whoever reaches 127.0.0.1 port' "$work/0.err") == 1)) ||
  fail "no line: $(cat "$work/0.err")"
# On this host the kernel tells whose program it is.
as_stranger 2,3,3,0 guess line || fail "another user of the host found something"
! runuser -u nobody -- "$torchbridge" status --rdzv-id night "127.0.0.1:$port" ||
  fail "another user's status is answered"
(($(grep -c "another user's program on 127.0.0.1 gives the run's id and gets no answer" "$work/0.err") == 1)) ||
  fail "the other user is not named once: $(cat "$work/0.err")"
as_user /usr/bin/python3 "$work/stranger.py" "127.0.0.1:$port" night 2,3,3,0 member || fail "the stranger as a member"
grep -q 'n9\\x1b\[2J' "$work/0.err" || fail "the stranger's name is not printed: $(cat "$work/0.err")"
is_clean || fail "what the stranger sent was printed as it is"
touch "$work/go"
expect_success 0 1
[[ -e $work/done.0 && -e $work/done.1 ]] || fail "the work was not done"

# Who listens first coordinates a run without a token. One of another user of this host is refused; one of this user is
# not believed that the run has succeeded while this agent's workers have not.
rm -f "$work"/go "$work"/*.of.* "$work"/done.*
# led_by USER WAY NODES: an agent whose run that program coordinates, with its exit code.
led_by() {
  port=$(free_port)
  : >"$work/led.out"  # the program before has said that it listens
  env -C / setpriv --reuid "$1" --regid daemon --clear-groups -- \
    /usr/bin/python3 "$work/stranger.py" "127.0.0.1:$port" night 1,2,2,0 coordinate "$2" \
    >"$work/led.out" 2>&1 & leader=$!
  eventually grep -q listens "$work/led.out"
  agent 0 "$3" --grace 5
  code=0
  wait "${agents[0]}" || code=$?
  agents=()
  [[ $1 == daemon ]] || kill "$leader"
  wait "$leader" || true
  leader=
}
led_by nobody at-once 1:2
((code == 1)) || fail "led by another user it ends with $code"
grep -q "127.0.0.1:$port is another user's port" "$work/0.err" ||
  fail "the other user is not named: $(cat "$work/0.err")"
[[ ! -e $work/0.of.1 ]] || fail "another user's program started workers"
led_by daemon at-once 1:2
((code == 1)) || fail "workers that are ended are a success: $code"
grep -q "127.0.0.1:$port ends the run with 0, but this node's workers have not ended with 0" "$work/0.err" ||
  fail "no line: $(cat "$work/0.err")"
touch "$work/go"
led_by daemon done 1:2
((code == 0)) || fail "workers that have done their work are no success: $code"
