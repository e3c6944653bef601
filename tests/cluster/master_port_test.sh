#!/usr/bin/env bash
# A port that another program has on rank 0's node ends the whole step at once, for any program.
source "$(dirname "$0")/case.sh"
torchbridge="$BUILD_DIR/bin/torchbridge"

take_a_port_on n0

# The other ranks would wait for rank 0 for ever.
expect_refusal "torch-env: MASTER_PORT=$port is already in use on n0 \([0-9.]+\)" 10 \
  on_login srun -N2 -n4 -w n0,n1 --torch-env="port=$port" sh -c 'test $RANK = 0 || exec sleep 1000'
MASTER_PORT=$port expect_refusal "torch-env: MASTER_PORT=$port is already in use on n0 \([0-9.]+\)" 10 \
  on_login srun -N2 -n4 -w n0,n1 --torch-env sh -c 'test $RANK = 0 || exec sleep 1000'
expect_refusal "torchbridge: .*MASTER_PORT=$port is already in use on n0" 30 \
  on_login srun -N2 -n2 -w n0,n1 "$torchbridge" exec --timeout 2 --torch-env="port=$port" -- true
MASTER_PORT=$port expect_refusal "torchbridge: .*MASTER_PORT=$port is already in use on n0" 30 \
  on_login srun -N2 -n2 -w n0,n1 "$torchbridge" exec --timeout 2 -- true
MASTER_ADDR=n0 MASTER_PORT=$port expect_refusal "torchbridge: .*MASTER_PORT=$port is already in use on n0" 30 \
  on_login srun -N2 -n2 -w n0,n1 "$torchbridge" exec --timeout 2 -- true

# Not in use, but not for users.
expect_refusal "torch-env: MASTER_PORT=80: .*Permission denied: ports below 1024 need privileges \(on n0\): choose another with port=N" 10 \
  on_login runuser -u nobody -- srun -N2 -n2 -w n0,n1 --torch-env=port=80 true

# The same port on another node is free.
expect "$port" on_login srun -N1 -n1 -w n1 --torch-env="port=$port" sh -c 'echo $MASTER_PORT'
give_the_port_back
