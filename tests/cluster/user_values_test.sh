#!/usr/bin/env bash
# Values that the user exported stay, unless override=yes; a rank that would be the same for all tasks is rejected.
source "$(dirname "$0")/case.sh"
torchbridge="$BUILD_DIR/bin/torchbridge"

OMP_NUM_THREADS=7 ROLE_NAME=mine MASTER_PORT=29513 expect $'0 7 mine 29513\n1 7 mine 29513' \
  on_login srun -N1 -n2 --torch-env sh -c 'echo $RANK $OMP_NUM_THREADS $ROLE_NAME $MASTER_PORT'
OMP_NUM_THREADS=7 ROLE_NAME=mine RANK=5 expect $'0 1 default\n1 1 default' \
  on_login srun -N1 -n2 --torch-env=override=yes sh -c 'echo $RANK $OMP_NUM_THREADS $ROLE_NAME'
RANK=0 expect_error \
  "torch-env: RANK='0' is exported, but this task's value is '1': unset it, or give override=yes" 20 \
  on_login srun -N2 -n2 --torch-env true
expect $'0/2 0\n1/2 0' on_login srun -N2 -n2 --export=ALL,RANK=0,WORLD_SIZE=3,LOCAL_RANK=1 --torch-env \
  sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK'
WORLD_SIZE=3 expect_error "torch-env: WORLD_SIZE='3' is exported, but this task's value is '2'" 20 \
  on_login srun -N2 -n2 --torch-env true
MASTER_PORT=high expect_error "torch-env: MASTER_PORT='high': expected an integer from 1 to 65535" 20 \
  on_login srun -N2 -n2 --torch-env true
# No node resolves the name: the first one to notice it reports it.
MASTER_ADDR=nohost.invalid expect_error "torch-env: .*'nohost.invalid' does not resolve on n[0-3]" 20 \
  on_login srun -N4 -n4 --torch-env sleep 1000
(($(grep -c torch-env: "$work/stderr") == 1)) || fail "expected one line"

# Each node would connect to itself.
MASTER_ADDR=localhost expect_error \
  "torch-env: MASTER_ADDR='localhost' is exported, which is each node's own address, but the ranks are on 2 nodes" 20 \
  on_login srun -N2 -n2 --torch-env sleep 1000
MASTER_ADDR=127.0.0.1 MASTER_PORT=29513 expect_error \
  "torchbridge: MASTER_ADDR='127.0.0.1' is exported, which is each node's own address" 20 \
  on_login srun -N2 -n2 "$torchbridge" exec -- true
# shellcheck disable=SC2016  # each task's own shell expands it
MASTER_PORT=29514 expect_error \
  "torchbridge: .*MASTER_ADDR='n1' is exported, which is an address of n1, but rank 0 runs on another node" 20 \
  on_login srun -w n0,n1 -n2 sh -c 'MASTER_ADDR=$(hostname) exec "$0" exec -- sleep 1000' "$torchbridge"
MASTER_ADDR=0.0.0.0 expect_one_report "MASTER_ADDR='0.0.0.0' is exported, which is each node's own address" \
  on_login srun -N2 -n2 "$torchbridge" exec -- true
for own in 0.0.0.0 ::; do
  for way in --torch-env "$torchbridge exec --"; do
    MASTER_ADDR=$own expect "0 $own"$'\n'"1 $own" on_login srun -N1 -n2 $way sh -c 'echo $RANK $MASTER_ADDR'
  done
done
MASTER_ADDR=localhost expect $'0 localhost\n1 localhost' \
  on_login srun -N1 -n2 --torch-env sh -c 'echo $RANK $MASTER_ADDR'

# Of steps of one task it may be another step's.
MASTER_ADDR=n0 MASTER_PORT=29551 expect "0/1 n0 29551" \
  on_login srun -N1 -n1 -w n1 --torch-env sh -c 'echo $RANK/$WORLD_SIZE $MASTER_ADDR $MASTER_PORT'
MASTER_ADDR=n0 MASTER_PORT=29551 expect "0/1 n0 29551" \
  on_login srun -N1 -n1 -w n1 "$torchbridge" exec -- sh -c 'echo $RANK/$WORLD_SIZE $MASTER_ADDR $MASTER_PORT'
MASTER_ADDR=nohost.invalid expect "0/1 nohost.invalid" \
  on_login srun -N1 -n1 --torch-env sh -c 'echo $RANK/$WORLD_SIZE $MASTER_ADDR'

# Agents give their workers their own ranks and sizes.
WORLD_SIZE=4 RANK=0 expect $'0/2\n1/2' on_login srun -N2 -n2 --torch-env \
  bash -c 'torchrun() { echo $RANK/$WORLD_SIZE; }; torchrun --nnodes 2 train.py'
for plugin in '' --torch-env; do
  WORLD_SIZE=4 expect $'0/2\n1/2' on_login srun -N2 -n2 $plugin "$torchbridge" run --nproc-per-node 1 \
    sh -c 'echo $RANK/$WORLD_SIZE'
done
WORLD_SIZE=4 expect $'0/2\n1/2' on_login mpirun -np 2 "$torchbridge" run --nproc-per-node 1 \
  sh -c 'echo $RANK/$WORLD_SIZE'

# The same without the plugin.
OMP_NUM_THREADS=7 ROLE_NAME=mine MASTER_PORT=29513 expect $'0 7 mine 29513\n1 7 mine 29513' \
  on_login srun -N2 -n2 "$torchbridge" exec -- sh -c 'echo $RANK $OMP_NUM_THREADS $ROLE_NAME $MASTER_PORT'
MASTER_PORT=29513 expect $'0 127.0.0.1 29513\n1 127.0.0.1 29513' \
  on_login mpirun -np 2 "$torchbridge" exec -- sh -c 'echo $OMPI_COMM_WORLD_RANK $MASTER_ADDR $MASTER_PORT'
MASTER_ADDR=127.0.0.1 expect $'0 127.0.0.1\n1 127.0.0.1' \
  on_login mpirun -np 2 "$torchbridge" exec -- sh -c 'echo $RANK $MASTER_ADDR'
OMP_NUM_THREADS=7 ROLE_NAME=mine RANK=5 WORLD_SIZE=9 MASTER_ADDR=192.0.2.1 expect $'0 2 1 default\n1 2 1 default' \
  on_login srun -N1 -n2 "$torchbridge" exec --torch-env=override=yes -- \
  sh -c 'test $MASTER_ADDR = 192.0.2.1 || echo $RANK $WORLD_SIZE $OMP_NUM_THREADS $ROLE_NAME'
MASTER_ADDR=192.0.2.1 MASTER_PORT=29513 expect_one_report \
  "MASTER_ADDR=192.0.2.1 is not an address of n0, where rank 0 runs" \
  on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec -- sleep 1000
MASTER_ADDR=nohost.invalid expect_error "^torchbridge: .*'nohost.invalid' does not resolve on n0" 30 \
  on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec -- sleep 1000
MASTER_ADDR=$'h\n' MASTER_PORT=29513 expect_error \
  "torchbridge: .*MASTER_ADDR='h.x0a': expected a host name or an address" 20 \
  on_login srun -N2 -n2 "$torchbridge" exec --timeout 2 -- true

# Impossible values: one printable line of bounded length names the variable, and no program starts.
expect_rejected_value() {  # expect_rejected_value NAME COMMAND...
  local name=$1
  shift
  expect_error "torch-env: ([A-Za-z_-]+: )?(unknown )?(option )?'?${name}" 20 "$@" >/dev/null
  ! grep -a started "$work/stdout" || fail "$name: the program was started"
  (($(grep -ac torch-env: "$work/stderr") == 1)) || fail "$name: expected one line"
  ! LC_ALL=C grep -a torch-env: "$work/stderr" | grep -qP '[^\x20-\x7e]|.{600}' ||
    fail "$name: the line is long, or not printable"
}
run() { on_login srun -Q -N1 -n2 -w n2 "$@" sh -c 'echo started'; }
long=$(head -c 100000 /dev/zero | tr '\0' x)
for value in $'\xff\xfe\n\e[31m%n%s' "$long"; do
  for name in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ROLE_NAME OMP_NUM_THREADS GLOO_SOCKET_IFNAME TORCHELASTIC_RUN_ID \
    PET_RDZV_ID SLURM_RESTART_COUNT; do
    expect_rejected_value "$name=" env "$name=$value" \
      timeout 10 "$CLUSTER" run --name "$CLUSTER_NAME" -- srun -Q -N1 -n2 -w n2 --torch-env sh -c 'echo started'
  done
  TORCHBRIDGE_OPTIONS=$value expect_rejected_value '(\\xff|xxx)' run
  TORCHBRIDGE_OPTIONS=port=$value expect_rejected_value "port=" run
  expect_rejected_value "addr=" run --torch-env="addr=$value"
done
for value in -1 99999999999999999999; do
  for name in RANK WORLD_SIZE MASTER_PORT OMP_NUM_THREADS SLURM_RESTART_COUNT; do
    expect_rejected_value "$name='$value'" env "$name=$value" \
      timeout 10 "$CLUSTER" run --name "$CLUSTER_NAME" -- srun -Q -N1 -n2 -w n2 --torch-env sh -c 'echo started'
  done
  expect_rejected_value "port=$value'" run --torch-env="port=$value"
done
expect_rejected_value "port='" run --torch-env="port="

# Empty counts as not set, with one note: for exec and run too. The program does not get it either.
empty="MASTER_ADDR, OMP_NUM_THREADS, RANK: exported, but empty, which counts as not set"
show='[ -n "$MASTER_ADDR" ] && echo $RANK/$WORLD_SIZE ${OMP_NUM_THREADS-unset}'
expect_note() {  # expect_note PREFIX EXPECTED COMMAND...
  local prefix=$1
  shift
  MASTER_ADDR='' OMP_NUM_THREADS='' RANK='' expect "$@"
  (($(grep -cx "$prefix: $empty" "$work/stderr") == 1)) || fail "not one note: $(cat "$work/stderr")"
}
expect_note torch-env $'0/2 1\n1/2 1' on_login srun -N1 -n2 --torch-env sh -c "$show"
expect_note torch-env $'0/2 unset\n1/2 unset' on_login srun -N2 -n2 --torch-env sh -c "$show"
expect_note torchbridge $'0/2 1\n1/2 1' on_login srun -N1 -n2 "$torchbridge" exec -- sh -c "$show"
expect_note torchbridge $'0/2 1\n1/2 1' on_login mpirun -np 2 "$torchbridge" exec -- sh -c "$show"
expect_note torchbridge $'0/2 1\n1/2 1' on_login srun -N1 -n1 "$torchbridge" run --nproc-per-node 2 sh -c "$show"
PET_NNODES='' PET_MAX_RESTARTS='' expect 0/1 on_login "$torchbridge" run sh -c 'echo $RANK/$WORLD_SIZE'
# Without a launcher nothing gives the right value.
RANK='' WORLD_SIZE=2 expect_error "torchbridge: RANK is empty: set RANK" 20 on_login "$torchbridge" exec -- true
