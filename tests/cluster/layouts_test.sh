#!/usr/bin/env bash
# RANK/WORLD_SIZE LOCAL_RANK/LOCAL_WORLD_SIZE GROUP_RANK/GROUP_WORLD_SIZE HOST on layouts even, uneven and odd.
source "$(dirname "$0")/case.sh"
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $(hostname)'

expect "0/4 0/2 0/2 n0
1/4 1/2 0/2 n0
2/4 0/2 1/2 n1
3/4 1/2 1/2 n1" on_login srun -N2 -n4 --ntasks-per-node=2 --torch-env sh -c "$show"

expect "0/8 0/5 0/4 n0
1/8 1/5 0/4 n0
2/8 2/5 0/4 n0
3/8 3/5 0/4 n0
4/8 4/5 0/4 n0
5/8 0/1 1/4 n1
6/8 0/1 2/4 n2
7/8 0/1 3/4 n3" on_login srun -N4 -n8 --torch-env sh -c "$show"

expect "0/3 0/3 0/1 n2
1/3 1/3 0/1 n2
2/3 2/3 0/1 n2" on_login srun -N1 -n3 -w n2 --torch-env sh -c "$show"

expect "0/1 0/1 0/1 n0" on_login srun -n1 -w n0 --torch-env sh -c "$show"

expect "0/4 0/3 0/2 n0
1/4 0/1 1/2 n1
2/4 1/3 0/2 n0
3/4 2/3 0/2 n0" on_login srun -N2 -n4 -m cyclic --torch-env sh -c "$show"

expect "0/4 0/3 0/2 n0
1/4 1/3 0/2 n0
2/4 2/3 0/2 n0
3/4 0/1 1/2 n1" on_login srun -N2 -n4 -m cyclic --torch-env=ranks=block sh -c "$show"

expect "0/6 0/4 0/3 n0
1/6 1/4 0/3 n0
2/6 0/1 1/3 n1
3/6 0/1 2/3 n2
4/6 2/4 0/3 n0
5/6 3/4 0/3 n0" on_login srun -N3 -n6 -m plane=2 --torch-env sh -c "$show"

# Placed one by one: RANK 0 of Slurm is on n1, which n0 is not told.
expect "0/3 0/1 0/2 n0
1/3 0/2 1/2 n1
2/3 1/2 1/2 n1" on_login srun -n3 -m arbitrary -w n1,n0,n1 --torch-env=ranks=block sh -c "$show"
expect_refusal 'torch-env: .*--distribution=arbitrary.*ranks=block' 10 on_login srun -n3 -m arbitrary -w n1,n0,n1 --torch-env true
