#!/usr/bin/env bash
# Launches inside one another: each program has the environment of the innermost, and nothing of the others.
source "$(dirname "$0")/case.sh"
torchbridge=$BUILD_DIR/bin/torchbridge
export OMPI_MCA_rmaps_base_oversubscribe=1
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE'
four=$'0/4 0/2 0/2\n1/4 1/2 0/2\n2/4 0/2 1/2\n3/4 1/2 1/2'
inner="srun --overlap -m block -N2 -n4 --ntasks-per-node=2"  # the outer step would hand its own distribution on

all_nodes_are_idle
# srun inside a task of --torch-env, with the plugin (the option is inherited by salloc's steps) and with exec.
expect "$four" on_login salloc -Q -N2 -n4 --ntasks-per-node=2 --torch-env srun -N1 -n1 bash -c "$inner sh -c '$show'"
expect "$four" on_login salloc -Q -N2 -n4 --ntasks-per-node=2 srun -N1 -n1 --torch-env bash -c "$inner $torchbridge exec -- sh -c '$show'"
# mpirun inside an allocation of --torch-env, whose daemons srun starts: with exec, and with nothing but the environment.
for mpirun in "mpirun.openmpi" "mpiexec.mpich"; do
  command -v "$mpirun" >/dev/null || continue
  expect "$four" on_login salloc -Q -N2 -n4 --ntasks-per-node=2 --torch-env $mpirun -np 4 "$torchbridge" exec -- sh -c "$show"
  expect $'unset\nunset' on_login salloc -Q -N2 -n4 --torch-env $mpirun -np 2 sh -c 'echo ${RANK-unset}'
done
# What somebody else exported for all tasks is none of theirs.
expect_refusal "torchbridge: RANK='0' and WORLD_SIZE='8' are exported, but slurm says rank 0 of 4" 20 \
  on_login env TORCHELASTIC_RUN_ID=foo RANK=0 WORLD_SIZE=8 MASTER_ADDR=h MASTER_PORT=1 srun -N2 -n4 "$torchbridge" exec -- true
