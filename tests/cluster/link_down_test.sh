#!/usr/bin/env bash
# The link of a node goes down during training: the other node names its ranks within seconds, and the node's own ranks
# end too.
source "$(dirname "$0")/case.sh"
limit=60
trainer="$BUILD_DIR/bin/trainer"
trap 'on_node n1 ip link set eth0 up; rm -rf "$work"' EXIT

has_trained() { [[ -s $work/curve.jsonl ]]; }
ranks_on() {
  pgrep -f -- "^$trainer .*--metrics $work/curve.jsonl" | while read -r pid; do
    [[ $(nsenter -t "$pid" -u hostname) == "$1" ]] && echo "$pid"
  done
  true
}
none_on() { [[ -z $(ranks_on "$1") ]]; }

on_login srun -N2 -n3 -w n0,n1 --torch-env "$trainer" --epochs 100000 --quiet --heartbeat-timeout 2 \
  --metrics "$work/curve.jsonl" 2>"$work/stderr" & job=$!
wait_for 30 has_trained
[[ -n $(ranks_on n1) ]] || fail "no rank is found on n1"
on_node n1 ip link set eth0 down
SECONDS=0
wait_for 15 grep -q 'trainer: rank 0: rank' "$work/stderr"
((SECONDS < 8)) || fail "it took $SECONDS s"
grep -E 'trainer: rank 0: ranks? [12](,2)? on n1 sent no heartbeat for 2 s' "$work/stderr" || {
  cat "$work/stderr"
  fail "not the ranks of n1"
}
wait_for 15 none_on n1
on_node n1 ip link set eth0 up
wait "$job" && fail "srun ended with 0"
exit 0
