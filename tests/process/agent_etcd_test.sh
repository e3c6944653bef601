#!/usr/bin/env bash
# torchbridge run over etcd, a real one: plain, with a password and over TLS. The coordinator is killed, and another
# agent takes its place, with the restarts used so far. agent_etcd_test.sh TORCHBRIDGE
set -euo pipefail
torchbridge=$1
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; cat "$work"/agent*.err >&2; exit 1; }
for program in etcd openssl curl; do
  command -v "$program" >/dev/null || { echo "SKIPPED: no $program (Debian: etcd-server, openssl, curl)"; exit 77; }
done

# eventually COMMAND...: within 30 s.
eventually() {
  local deadline=$((SECONDS + 30))
  until "$@"; do ((SECONDS < deadline)) || fail "not within 30 s: $*"; read -rt 0.02 <> <(:) || true; done
}
free_port() { python3 "$(dirname "$0")/../support/free_port.py"; }
port=$(free_port)
is_up() { curl -sk --max-time 2 "$1/health" | grep -q true; }

# start_etcd NAME SCHEME OPTIONS...
start_etcd() {
  local name=$1 scheme=$2 peers
  shift 2
  port=$(free_port) peers=$(free_port)
  etcd --data-dir "$work/$name" --listen-client-urls "$scheme://127.0.0.1:$port" --advertise-client-urls \
    "$scheme://127.0.0.1:$port" --listen-peer-urls "http://127.0.0.1:$peers" \
    --initial-advertise-peer-urls "http://127.0.0.1:$peers" --initial-cluster "default=http://127.0.0.1:$peers" "$@" \
    >"$work/$name.log" 2>&1 & pids+=($!)
  url=$scheme://127.0.0.1:$port
  eventually is_up "$url"
}
conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3
# agent NUMBER MORE_CONF SCRIPT
agent() {
  F=$work "$torchbridge" run --nnodes 2:3 --max-restarts 3 --rdzv-id job --rdzv-backend "${backend:-etcd}" \
    --rdzv-endpoint "127.0.0.1:$port" --rdzv-conf "$conf$2" sh -c "$3" >"$work/agent$1.out" 2>"$work/agent$1.err" &
  agents[$1]=$!
}
expect_success() { local i; for i in "$@"; do wait "${agents[i]}" || fail "agent $i ended with $?"; done; }
keys() { curl -sk --max-time 5 "$url/v3/kv/range" -d '{"key":"AA==","range_end":"AA=="}' "$@"; }
agents=()

start_etcd plain http
# Each round is shown; rank 0 of the first one fails once.
script='touch $F/$RANK.of.$WORLD_SIZE.$TORCHELASTIC_RESTART_COUNT; [ $RANK$TORCHELASTIC_RESTART_COUNT != 00 ] || {
  while [ ! -e $F/2.of.3.0 ]; do sleep 0.01; done; exit 9; }; while [ ! -e $F/go ]; do sleep 0.01; done'
for i in 0 1 2; do agent "$i" "" "$script"; done
eventually test -e "$work/2.of.3.1"
# The one that coordinates says so: it is the agent that etcd names.
coordinator=
for i in 0 1 2; do
  grep -q 'restart 1 of 3' "$work/agent$i.err" && coordinator=$i
done
[[ -n $coordinator ]] || fail "no agent coordinates"
kill -9 "${agents[coordinator]}"
eventually test -e "$work/1.of.2.1"  # with the restart that was used before
touch "$work/go"
for i in 0 1 2; do ((i == coordinator)) || expect_success "$i"; done
[[ $(keys) != *'"kvs"'* ]] || fail "keys are left: $(keys)"

# The older name, a password and its error.
post() { curl -s --max-time 5 "$url/v3/auth/$1" -d "$2" >/dev/null; }
post user/add '{"name":"root","password":"secret"}'
post role/add '{"name":"root"}'
post user/grant '{"user":"root","role":"root"}'
post enable '{}'
backend=etcd-v2
agent 0 ,user=root,password=wrong true
! wait "${agents[0]}" || fail "a wrong password works"
grep -q 'torchbridge: etcd: .*authentication failed' "$work/agent0.err" || fail "the error does not name it"
for i in 0 1; do agent "$i" ,user=root,password=secret 'exit 0'; done
expect_success 0 1

# etcd is away for longer than the agent keeps its place: the run goes on when it is back, with another coordinator or
# the same. Tokens expire after two seconds here.
conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=60
start_etcd away http --auth-token-ttl 2
post user/add '{"name":"root","password":"secret"}'
post role/add '{"name":"root"}'
post user/grant '{"user":"root","role":"root"}'
post enable '{}'
rm -f "$work"/*.of.* "$work/go"
script='touch $F/$RANK.of.$WORLD_SIZE.$TORCHELASTIC_RESTART_COUNT; echo >>$F/starts
while [ ! -e $F/go ]; do sleep 0.01; done'
for i in 0 1 2; do agent "$i" ,user=root,password=secret "$script"; done
eventually test -e "$work/2.of.3.0"
has_starts() { (($(wc -l <"$work/starts") >= $1)); }
kill "${pids[-1]}"
eventually grep -q 'this agent no longer coordinates the run' "$work"/agent?.err
eventually grep -q 'trying again for 60 s' "$work"/agent?.err
etcd --data-dir "$work/away" --listen-client-urls "$url" --advertise-client-urls "$url" --listen-peer-urls \
  "http://127.0.0.1:$(free_port)" --auth-token-ttl 2 >>"$work/away.log" 2>&1 & pids+=($!)
eventually has_starts 6

# A coordinator that is stopped is replaced, like one that is killed.
coordinator_of_now() {
  local i endpoint
  for i in 0 1 2; do
    endpoint=$(ss -ltnpH | sed -n "s/.* \([0-9.]*:[0-9]*\) .*pid=$(pgrep -P "${agents[i]}"),.*/\1/p" | head -n 1)
    "$torchbridge" status --rdzv-id job "$endpoint" >/dev/null 2>&1 && coordinator=$i
  done
  [[ -n $coordinator ]]
}
coordinator=
eventually coordinator_of_now
stopped=$(pgrep -P "${agents[coordinator]}")
kill -STOP "$stopped"
eventually has_starts 8
kill -CONT "$stopped"
eventually has_starts 11
touch "$work/go"
expect_success 0 1 2
! compgen -G "$work/*.of.*.[1-9]" >/dev/null || fail "a restart was used"

# TLS, with a certificate of the client too.
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1 \
  -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
start_etcd tls https --cert-file "$work/cert.pem" --key-file "$work/key.pem"
backend=etcd
agent 0 ,protocol=https true
! wait "${agents[0]}" || fail "an unknown certificate is accepted"
tls=,protocol=https,ca_cert=$work/cert.pem,ssl_cert=$work/cert.pem,ssl_cert_key=$work/key.pem
for i in 0 1; do agent "$i" "$tls" 'exit 0'; done
expect_success 0 1

# Nobody there.
port=$(free_port)
agent 0 "" true
! wait "${agents[0]}" || fail "it succeeds without etcd"
grep -q "torchbridge: etcd: http://127.0.0.1:$port/v3/.*: Couldn't connect to server" "$work/agent0.err" ||
  fail "the error does not name etcd"

# etcd stays away, killed or stopped: agents look for a coordinator for join_timeout, and end with 1 and a line that
# names etcd. A signal ends them before.
# ends CODE SECONDS AGENT...
ends() {
  local code=$1 deadline=$((SECONDS + $2)) i found
  for i in "${@:3}"; do
    timeout "$((deadline - SECONDS))" tail --pid="${agents[i]}" -f /dev/null || fail "agent $i runs after $2 s"
    found=0
    wait "${agents[i]}" || found=$?
    ((found == code)) || fail "agent $i ended with $found, not with $code"
  done
}
names_etcd() { grep -q "^torchbridge: etcd: $url/v3/.*: " "$work/agent$1.err" || fail "agent $1 does not name etcd"; }
script='touch $F/$RANK.of.$WORLD_SIZE.$TORCHELASTIC_RESTART_COUNT; exec sleep 600'
conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=5,read_timeout=1
for signal in KILL STOP; do
  rm -f "$work"/*.of.*
  start_etcd "stays_away_$signal" http
  for i in 0 1 2; do agent "$i" "" "$script"; done
  eventually test -e "$work/2.of.3.0"
  kill "-$signal" "${pids[-1]}"
  coordinator=
  eventually coordinator_of_now
  if [[ $signal == STOP ]]; then
    kill -9 "${agents[coordinator]}"
    eventually grep -q 'trying again for 5 s' "$work/agent$(((coordinator + 1) % 3)).err"
    kill -TERM "${agents[(coordinator + 1) % 3]}"
    ends 143 10 "$(((coordinator + 1) % 3))"
    ends 1 20 "$(((coordinator + 2) % 3))"
    names_etcd "$(((coordinator + 2) % 3))"
    agent 0 "" true  # and before the start
    ends 1 10 0
    names_etcd 0
  else
    ends 1 40 0 1 2
    for i in 0 1 2; do names_etcd "$i"; done
  fi
  kill -CONT "${pids[-1]}" 2>/dev/null || true
done

# A run that ends while etcd is away ends as it would.
conf=last_call_timeout=1,keep_alive_interval=10,keep_alive_max_attempt=3,read_timeout=1
rm -f "$work"/*.of.* "$work/go"
start_etcd away_at_end http
for i in 0 1 2; do agent "$i" "" 'touch $F/$RANK.of.$WORLD_SIZE; while [ ! -e $F/go ]; do sleep 0.01; done'; done
eventually test -e "$work/2.of.3"
kill -STOP "${pids[-1]}"
touch "$work/go"
ends 0 30 0 1 2
kill -CONT "${pids[-1]}"
