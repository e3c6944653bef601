#!/usr/bin/env bash
# A MASTER_PORT that another program uses on rank 0's node ends the whole step at once, whichever program it runs.
source "$(dirname "$0")/case.sh"
needs_other_users
torchbridge="$BUILD_DIR/bin/torchbridge"

occupy_port_on n0

# The other ranks would wait for rank 0 forever.
expect_error "torch-env: MASTER_PORT=$port is already in use on n0 \([0-9.]+\)" 20 \
  on_login srun -N2 -n4 -w n0,n1 --torch-env="port=$port" sh -c 'test $RANK = 0 || exec sleep 1000'
MASTER_PORT=$port expect_error "torch-env: MASTER_PORT=$port is already in use on n0 \([0-9.]+\)" 20 \
  on_login srun -N2 -n4 -w n0,n1 --torch-env sh -c 'test $RANK = 0 || exec sleep 1000'
# Programs that have started are ended, and not reported as the first to fail.
expect_error "torch-env: MASTER_PORT=$port is already in use on n0" 20 \
  on_login srun -Q -N2 -n4 -w n0,n1 --torch-env="port=$port,check=no" sh -c 'exec sleep 1000'
[[ $(head -n 1 "$work/stderr") == *"already in use"* ]] || fail "the first line is another one"
! grep 'first to fail' "$work/stderr" || fail "a rank that Slurm ended is reported as failed"
taken="MASTER_PORT=$port is already in use on n0"
for step in "-N1 -n3 -w n0" "-N2 -n4 -w n0,n1" "-n4 -m arbitrary -w n0,n1,n2,n0"; do
  expect_one_report "$taken" on_login srun $step "$torchbridge" exec --torch-env="port=$port" -- sleep 1000
done
expect_one_report "$taken" \
  on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec --torch-env="addr=iface:eth0,port=$port" -- sleep 1000
MASTER_PORT=$port expect_one_report "$taken" on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec -- sleep 1000
MASTER_ADDR=n0 MASTER_PORT=$port expect_one_report "$taken" \
  on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec -- sleep 1000
expect_one_report "$taken" on_login srun -N2 -n4 -w n0,n1 "$torchbridge" explain --torch-env="port=$port"
mpirun=(mpirun --oversubscribe --mca plm_rsh_agent "$SOURCE_DIR/scripts/cluster/node_sh")
for hosts in n0:3 n0:2,n1:1; do
  expect_one_report "$taken" \
    on_node n0 "${mpirun[@]}" --host "$hosts" -np 3 "$torchbridge" exec --torch-env="port=$port" -- sleep 1000
  expect_one_report "$taken" on_node n0 "${mpirun[@]}" --host "$hosts" -np 3 -x MASTER_ADDR=n0 -x MASTER_PORT="$port" \
    "$torchbridge" exec -- sleep 1000
  if command -v mpiexec.mpich >/dev/null; then
    expect_one_report "$taken" \
      on_node n0 mpiexec.mpich -launcher-exec "$SOURCE_DIR/scripts/cluster/node_sh" -hosts "$hosts" -n 3 \
      "$torchbridge" exec --torch-env="port=$port" -- sleep 1000
  fi
done

# One rank takes any free port where none is given, or another one of its range: two programs share a task.
cat >"$work/two_programs" <<'SCRIPT'
#!/bin/bash
exec="$1 exec --torch-env=override=yes"
coproc $exec -- sh -c 'echo $MASTER_PORT; read -r end'
read -r first <&"${COPROC[0]}"
second=$($exec -- sh -c 'echo $MASTER_PORT')
of_range=$($exec,port="$first-$((first + 1))" -- sh -c 'echo $MASTER_PORT')
echo end >&"${COPROC[1]}"
[[ -n $first && -n $second && $second != "$first" ]] && echo $((of_range - first))
SCRIPT
chmod +x "$work/two_programs"
expect 1 on_login srun -N1 -n1 -w n1 "$work/two_programs" "$torchbridge"
expect 1 on_login srun -N1 -n1 -w n1 --torch-env "$work/two_programs" "$torchbridge"

# Not in use, but a port that needs privileges.
denied="Permission denied: ports below 1024 need privileges \(on n0\): choose another with MASTER_PORT=N"
expect_error "torch-env: MASTER_PORT=80: .*$denied" 20 \
  on_login runuser -u nobody -- srun -N2 -n2 -w n0,n1 --torch-env=port=80 true

# The same port on another node is free.
expect "$port" on_login srun -N1 -n1 -w n1 --torch-env="port=$port" sh -c 'echo $MASTER_PORT'
release_port

# A program that answers at the port is not taken for rank 0.
occupy_port_on n0 $'HTTP/1.0 400 Bad Request\r\n\r\n'
expect_one_report "MASTER_PORT=$port is already in use on n0" \
  on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec --torch-env="port=$port" -- sleep 1000
expect_one_report "MASTER_PORT=$port is already in use on n0" \
  on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec --torch-env="addr=iface:eth0,port=$port" -- sleep 1000
release_port

# What the step itself has reserved does not count: a container that gets Slurm's variables alone inside a task of the
# plugin, and what an earlier program of the step left behind.
show='echo $RANK/$WORLD_SIZE'
cat >"$work/container" <<'SCRIPT'
#!/bin/bash
mapfile -t variables < <(env | grep -E '^SLURM_[A-Z_]*=[^ ]*$')
env -i "PATH=$PATH" "${variables[@]}" "$@"
true
SCRIPT
chmod 755 "$work" "$work/container"
expect $'0/2\n1/2' on_login srun -N2 -n2 --torch-env "$work/container" "$torchbridge" exec -- sh -c "$show"
expect $'0/2\n1/2' on_login srun -N2 -n2 sh -c \
  "$torchbridge exec -- sh -c 'sleep 1000 >/dev/null 2>&1 & exit 3'; $torchbridge exec -- sh -c '$show'"
# Two programs at once are two.
expect_error "torchbridge: MASTER_PORT=[0-9]+ is already in use on n0" 20 on_login srun -N2 -n2 -w n0,n1 sh -c \
  "$torchbridge exec -- sh -c 'touch $work/first.\$RANK; exec sleep 1000' &
   until [ -e $work/first.\$SLURM_PROCID ]; do sleep 0.1; done
   $torchbridge exec -- true && wait"
