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

# The picture is XML with a box for each rank, and one behind all.
on_login srun -N4 -n8 "$BUILD_DIR/bin/torchbridge" explain --svg >"$work/layout.svg"
boxes=$(python3 -c 'import sys, xml.dom.minidom as d; print(len(d.parse(sys.argv[1]).getElementsByTagName("rect")))' \
  "$work/layout.svg")
((boxes == 9)) || fail "a picture with $boxes boxes"

expect $'0\n1\n2\n3' on_login srun -N4 -n4 --torch-env=check sh -c 'echo $RANK'

# The shell of `srun --pty` is one task of several: what is typed there fails at once, and the shell goes on.
torchbridge=$BUILD_DIR/bin/torchbridge
cat >"$work/typed" <<EOF
$torchbridge explain
$torchbridge exec -- true
$torchbridge run true
$torchbridge run --standalone --nproc-per-node 1 sh -c 'echo alone: \$RANK of \$WORLD_SIZE'
srun --overlap -n4 $torchbridge exec -- sh -c 'echo together: \$RANK of \$WORLD_SIZE' </dev/null
echo "the shell of task \$SLURM_PROCID goes on"
exit
EOF
"$within" "$limit" script -qec "'$CLUSTER' run --name '$CLUSTER_NAME' -- srun -N2 -n4 --pty bash --norc --noediting" \
  /dev/null <"$work/typed" >"$work/shell" || fail "the shell was ended: $(cat "$work/shell")"
cat "$work/shell"
(($(grep -c 'torchbridge: this shell is one of the 4 tasks of its step (srun --pty), ' "$work/shell") == 3)) ||
  fail "not three errors"
for line in 'alone: 0 of 1' 'together: '{0,1,2,3}' of 4' 'the shell of task 0 goes on'; do
  grep -qF "$line" "$work/shell" || fail "no line '$line'"
done

occupy_port_on n0
"$within" "$limit" script -qec "'$CLUSTER' run --name '$CLUSTER_NAME' -- srun -N1 -w n0 -n2 --pty sh -c '
  [ \$SLURM_PROCID = 1 ] || { $torchbridge exec --torch-env=port=$port -- true; echo the script goes on; }
  '" /dev/null </dev/null >"$work/shell" || fail "the script was ended: $(cat "$work/shell")"
release_port
grep -q "MASTER_PORT=$port is already in use" "$work/shell" || fail "no error: $(cat "$work/shell")"
grep -q 'the script goes on' "$work/shell" || fail "the script was ended: $(cat "$work/shell")"

# n2 has no route to n0 any more.
master=$(on_node n0 hostname -I | cut -d' ' -f1)
on_node n2 ip route add blackhole "$master/32"
trap 'on_node n2 ip route del blackhole "$master/32"; rm -rf "$work"' EXIT
no_message='no message within 10 s from n2: is n0 reachable from there'
unreached='node n2 cannot reach the node of rank 0, n0: '
expect_error "^srun: error: torch-env: ($no_message|$unreached)" 24 \
  on_login srun -N4 -n4 --torch-env=check sleep 1000
! grep -qE 'torch-env: node n[13] ' "$work/stderr" || fail "a node that has reached rank 0's node reports an error"
