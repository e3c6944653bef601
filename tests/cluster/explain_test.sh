#!/usr/bin/env bash
# `explain` prints the table and starts nothing; `check` names a node that does not reach rank 0's.
source "$(dirname "$0")/case.sh"

on_login srun -N4 -n8 --torch-env=explain sh -c 'echo the program ran' >"$work/table" || fail "explain failed"
cat "$work/table"
for line in '^8 ranks on 4 nodes, started by slurm as run slurm-' \
  '^  MASTER_PORT +[0-9]+ +the first port that slurm reserved' \
  '^  0 +n0 +0-4 +0-4 +- +[0-9,-]+ +eth0$' '^  1-3 +n1 \.\. n3 +1 rank each +0 ' '^  n0 +\[ 0 1 2 3 4 \]$' \
  '^  n3 +\[ 7 \]$'; do
  (($(grep -cE "$line" "$work/table") == 1)) || fail "no line like '$line'"
done
! grep -q "the program ran" "$work/table" || fail "the program was started"

expect $'0\n1\n2\n3' on_login srun -N4 -n4 --torch-env=check sh -c 'echo $RANK'

# n2 has no route to n0 any more.
master=$(on_node n0 hostname -I | cut -d' ' -f1)
on_node n2 ip route add blackhole "$master/32"
trap 'on_node n2 ip route del blackhole "$master/32"; rm -rf "$work"' EXIT
no_message='no message within 10 s from n2: is n0 reachable from there'
unreached='node n2 cannot reach the node of rank 0, n0: '
expect_error "^srun: error: torch-env: ($no_message|$unreached)" 24 \
  on_login srun -N4 -n4 --torch-env=check sleep 1000
! grep -qE 'torch-env: node n[13] ' "$work/stderr" || fail "a node that has reached rank 0's node reports an error"
