#!/usr/bin/env bash
# A plugin for containers, like pyxis, before and after ours in plugstack.conf. Before ours, our plugin runs in the
# container.
source "$(dirname "$0")/case.sh"
needs_other_users
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
  # A container without munged reaches neither srun nor Slurm's controller: slurmstepd, outside, ends the step.
  expect_error "^srun: error: torch-env: addr=iface:none0: n1, the node of rank 0, has no such address" 20 \
    run addr=iface:none0
  expect_error "first to fail: rank 1 on n1, .*: exit code 3$" 20 \
    on_login srun -N1 -n2 -w n1 --torch-env sh -c 'exit $((RANK * 3))'
done
# slurmstepd, outside the container, reads what the program wrote inside it.
with_plugstack n1 "$container $image\n$ours"
expect_error "^srun: error: torch-env:     a reason of rank 1$" 20 \
  on_login srun -N1 -n2 -w n1 \
  --torch-env sh -c '[ $RANK = 0 ] || { echo "a reason of rank $RANK" >$TORCHELASTIC_ERROR_FILE; exit 3; }'

# Without ours, by the command.
with_plugstack n1 "$container $image\n"
expect "$in_container" on_login srun -N1 -n2 -w n1 "$BUILD_DIR/bin/torchbridge" exec -- sh -c "$show"
expect $'0/2 1\n1/2 1' on_login srun -N2 -n2 -w n0,n1 \
  sh -c "export RANK=\$SLURM_PROCID LOCAL_RANK=\$SLURM_LOCALID PYTORCH_VERSION=2.11
  exec '$BUILD_DIR/bin/torchbridge' exec -- sh -c 'echo \$RANK/\$WORLD_SIZE \$LOCAL_WORLD_SIZE'"
# A RANK that is the same for all tasks is rejected.
RANK=0 LOCAL_RANK=0 expect_error \
  "^torchbridge: rank 1 on n2: RANK='0' is exported, but slurm started rank 1 of 2 ranks: unset it$" 20 \
  on_login srun -N2 -n2 -w n0,n2 "$BUILD_DIR/bin/torchbridge" exec -- true
# Also where RANK is right for rank 0.
RANK=0 WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=29500 expect_error \
  "^torchbridge: rank 1 on n2: RANK='0' and WORLD_SIZE='2' are exported, but slurm started rank 1 of 2" 20 \
  on_login srun -N2 -n2 -w n0,n2 "$BUILD_DIR/bin/torchbridge" exec -- true

# pyxis sets Slurm's ranks.
with_plugstack n1 "$container $image\n$ours"
expect_error \
  "^srun: error: torch-env: RANK='1' is exported, but this task's value is '3': unset it, or give override=yes" 15 \
  on_two_nodes ranks=block
expect $'0/4 0/3\n1/4 1/3\n2/4 2/3\n3/4 0/1' on_two_nodes ranks=block,override=yes

# enroot's hook for PyTorch sets the values of the node's first task, with an address and a port of its own.
with_plugstack n1 \
  "$container $image RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=61005 OMP_NUM_THREADS=1\n$ours"
expect $'0/2 n1:61005\n1/2 n1:61005' \
  on_login srun -N1 -n2 -w n1 --torch-env sh -c 'echo $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT'

# The container resolves no node's name: they are looked up before it is entered.
echo "127.0.0.1 localhost" >"$work/hosts"
chmod 755 "$work"
for order in "$container hosts=$work/hosts\n$ours" "$ours$container hosts=$work/hosts\n"; do
  with_plugstack n1 "$order"
  expect $'0/2\n1/2' on_login srun -N1 -n2 -w n1 --torch-env=addr=n1 sh -c 'echo $RANK/$WORLD_SIZE'
done
# A name that the image brings is looked up nowhere.
with_plugstack n1 "$container MASTER_ADDR=head-of-image MASTER_PORT=61005\n$ours"
expect_error "^srun: error: torch-env: .*host name 'head-of-image' was not known before this task could enter" 15 \
  on_login srun -N1 -n2 -w n1 --torch-env sleep 1000
expect $'0/2\n1/2' on_login srun -N1 -n2 -w n1 --torch-env=override=yes sh -c 'echo $RANK/$WORLD_SIZE'

# Where tasks are placed one by one srun asks Slurm's controller, and the nodes do where srun has no plugin: outside the
# container, which has no munged.
for order in "$ours$container\n" "$container\n$ours"; do
  with_plugstack n1 "$order"
  expect $'0/3\n1/3\n2/3' on_login srun -Q -n3 -m arbitrary -w n1,n0,n1 --torch-env sh -c 'echo $RANK/$WORLD_SIZE'
  TORCHBRIDGE_OPTIONS=omp=2 expect $'0/3\n1/3\n2/3' \
    from_login_with "" srun -Q -n3 -m arbitrary -w n1,n0,n1 sh -c 'echo $RANK/$WORLD_SIZE'
done
