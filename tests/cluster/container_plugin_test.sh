#!/usr/bin/env bash
# A plugin for containers, as pyxis is: before ours in plugstack.conf, whose work is then done in the container, and
# after it.
source "$(dirname "$0")/case.sh"
ours="optional $1\n" container="required $2"
image="PYTORCH_VERSION=2.11" # pyxis sets RANK and LOCAL_RANK for it
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $PYTORCH_VERSION $(ls -d /tmp/image)'
run() { on_login srun -N1 -n2 -w n1 --torch-env="$1" sh -c "$show"; }
on_two_nodes() {
  on_login srun -N2 -n4 -w n0,n1 -m cyclic --torch-env="$1" sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE'
}
in_container=$'0/2 0/2 2.11 /tmp/image\n1/2 1/2 2.11 /tmp/image'

for order in "$container $image\n$ours" "$ours$container $image\n"; do
  with_plugstack n1 "$order"
  expect "$in_container" run ""
  expect "$in_container" on_login runuser -u nobody -- srun -Q -D / -N1 -n2 -w n1 --torch-env sh -c "$show"
  expect $'0/4 0/3\n1/4 0/1\n2/4 1/3\n3/4 2/3' on_two_nodes ""
  # From within a container that has no munged nobody asks Slurm to end a step.
  expect_refusal "^srun: error: torch-env: addr=iface:none0: n1, the node of rank 0, has no such address" 10 \
    run addr=iface:none0
  expect_refusal "first to fail: rank 1 on n1, .*: exit code 3$" 10 \
    on_login srun -N1 -n2 -w n1 --torch-env sh -c 'exit $((RANK * 3))'
done
# slurmstepd, outside the container, reads what the program wrote inside it.
with_plugstack n1 "$container $image\n$ours"
expect_refusal "^srun: error: torch-env:     a reason of rank 1$" 10 \
  on_login srun -N1 -n2 -w n1 \
  --torch-env sh -c '[ $RANK = 0 ] || { echo "a reason of rank $RANK" >$TORCHELASTIC_ERROR_FILE; exit 3; }'

# Without ours, by the command.
with_plugstack n1 "$container $image\n"
expect "$in_container" on_login srun -N1 -n2 -w n1 "$BUILD_DIR/bin/torchbridge" exec -- sh -c "$show"
expect $'0/2 1\n1/2 1' on_login srun -N2 -n2 -w n0,n1 \
  sh -c "export RANK=\$SLURM_PROCID LOCAL_RANK=\$SLURM_LOCALID PYTORCH_VERSION=2.11
  exec '$BUILD_DIR/bin/torchbridge' exec -- sh -c 'echo \$RANK/\$WORLD_SIZE \$LOCAL_WORLD_SIZE'"
# What is the same for all tasks is no task's own rank.
RANK=0 LOCAL_RANK=0 expect_refusal \
  "^torchbridge: WORLD_SIZE is not set: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them$" 10 \
  on_login srun -N2 -n2 -w n0,n2 "$BUILD_DIR/bin/torchbridge" exec -- true
# Also where rank 0 finds nothing wrong.
RANK=0 WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=29500 expect_refusal \
  "^torchbridge: rank 1 on n2: RANK='0' and WORLD_SIZE='2' are exported, but slurm says rank 1 of 2" 10 \
  on_login srun -N2 -n2 -w n0,n2 "$BUILD_DIR/bin/torchbridge" exec -- true

# The ranks that pyxis sets are Slurm's.
with_plugstack n1 "$container $image\n$ours"
expect_refusal "^srun: error: torch-env: RANK='1' is exported, but here it is '3': unset it, or give override=yes" 15 \
  on_two_nodes ranks=block
expect $'0/4 0/3\n1/4 1/3\n2/4 2/3\n3/4 0/1' on_two_nodes ranks=block,override=yes

# enroot's hook for PyTorch adds what it takes from the first task of the node, and an address and a port of its own.
with_plugstack n1 \
  "$container $image RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=61005 OMP_NUM_THREADS=1\n$ours"
expect $'0/2 n1:61005\n1/2 n1:61005' \
  on_login srun -N1 -n2 -w n1 --torch-env sh -c 'echo $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT'

# The container knows no node: before ours one line says so, after it our work is done.
echo "127.0.0.1 localhost" >"$work/hosts"
chmod 755 "$work"
with_plugstack n1 "$container hosts=$work/hosts\n$ours"
expect_refusal "^srun: error: torch-env: .*host name 'n1' does not resolve on n1" 15 \
  on_login srun -N1 -n2 -w n1 --torch-env=addr=n1 sleep 1000
with_plugstack n1 "$ours$container hosts=$work/hosts\n"
expect $'0/2\n1/2' on_login srun -N1 -n2 -w n1 --torch-env=addr=n1 sh -c 'echo $RANK/$WORLD_SIZE'

# Where tasks were placed one by one srun asks Slurm's controller, which answers nobody in a container without munged.
for order in "$ours$container\n" "$container\n$ours"; do
  with_plugstack n1 "$order"
  expect $'0/3\n1/3\n2/3' on_login srun -Q -n3 -m arbitrary -w n1,n0,n1 --torch-env sh -c 'echo $RANK/$WORLD_SIZE'
done
# The nodes ask themselves where srun has no plugin.
TORCHBRIDGE_OPTIONS=omp=2 expect_refusal \
  "torch-env: slurm: where each rank is had to be asked of the controller: .*: give ranks=block" 30 \
  from_login_with "" srun -Q -n3 -m arbitrary -w n1,n0,n1 sleep 1000
