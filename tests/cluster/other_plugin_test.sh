#!/usr/bin/env bash
# Another plugin that sets variables. Those that it sets before ours are treated as the user's; those after ours win.
source "$(dirname "$0")/case.sh"
ours="optional $1\n" other="required $2"
show='echo $RANK/$WORLD_SIZE $MASTER_PORT $OMP_NUM_THREADS $OTHER'
run() { on_login srun -N1 -n2 -w n1 "$@" sh -c "$show"; }

with_plugstack n1 "$other OTHER=set OMP_NUM_THREADS=5 MASTER_PORT=29517\n$ours"
expect $'0/2 29517 5 set\n1/2 29517 5 set' run --torch-env
expect $'0/2 29518 1 set\n1/2 29518 1 set' run --torch-env=override=yes,port=29518
TORCHBRIDGE_OPTIONS=port=29518 expect $'0/2 29517 5 set\n1/2 29517 5 set' run
expect $'/ 29517 5 set\n/ 29517 5 set' run

with_plugstack n1 "$other RANK=7\n$ours"
expect_error "^srun: error: torch-env: RANK='7' is exported, but this task's value is '[01]'" 10 run --torch-env
expect $'0/2 29518 1\n1/2 29518 1' run --torch-env=override=yes,port=29518
with_plugstack n1 "$other MASTER_PORT=%n%s\n$ours"
expect_error "^srun: error: torch-env: MASTER_PORT='%n%s': expected an integer from 1 to 65535" 10 run --torch-env

with_plugstack n1 "$ours$other OTHER=set OMP_NUM_THREADS=5 RANK=7\n"
expect $'7/2 29518 5 set\n7/2 29518 5 set' run --torch-env=port=29518
# TORCHBRIDGE_OPTIONS itself may come from a plugin before ours.
with_plugstack n1 "$other TORCHBRIDGE_OPTIONS=port=29519\n$ours"
expect $'0/2 29519 1\n1/2 29519 1' run
