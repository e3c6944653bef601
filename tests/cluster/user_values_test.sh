#!/usr/bin/env bash
# What the user exported stays, unless override=yes; a rank that every task would share is refused.
source "$(dirname "$0")/case.sh"

OMP_NUM_THREADS=7 ROLE_NAME=mine MASTER_PORT=29513 expect $'0 7 mine 29513\n1 7 mine 29513' \
  on_login srun -N1 -n2 --torch-env sh -c 'echo $RANK $OMP_NUM_THREADS $ROLE_NAME $MASTER_PORT'
OMP_NUM_THREADS=7 ROLE_NAME=mine RANK=5 expect $'0 1 default\n1 1 default' \
  on_login srun -N1 -n2 --torch-env=override=yes sh -c 'echo $RANK $OMP_NUM_THREADS $ROLE_NAME'
RANK=0 expect_refusal "torch-env: RANK='0' is exported, so that every task would have it: unset it, or give override=yes" 10 \
  on_login srun -N2 -n2 --torch-env true
WORLD_SIZE=3 expect_refusal "torch-env: WORLD_SIZE='3' is exported, but here it is '2'" 10 on_login srun -N2 -n2 --torch-env true
MASTER_PORT=high expect_refusal "torch-env: MASTER_PORT='high': expected an integer from 1 to 65535" 10 on_login srun -N2 -n2 --torch-env true
