#!/usr/bin/env bash
# torchbridge run as the one task of srun and of mpirun, with and without the plugin: no option is needed.
source "$(dirname "$0")/case.sh"
torchbridge="$BUILD_DIR/bin/torchbridge"
cpus=$(nproc)
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE '
show+='${TORCHBRIDGE_LISTEN_FD:+socket}.'
# ranks N: what N workers print; rank 0 alone has the socket.
ranks() {
  local rank
  for ((rank = 0; rank < $1; ++rank)); do
    printf '%s/%s %s/%s 0/1 %s.\n' "$rank" "$1" "$rank" "$1" "$( ((rank > 0)) || echo socket)"
  done
}

expect "$(ranks "$cpus")" on_login srun -N1 -n1 "$torchbridge" run sh -c "$show"
expect "$(ranks "$cpus")" on_login srun -N1 -n1 --torch-env "$torchbridge" run sh -c "$show"
expect "$(ranks "$cpus")" timeout "$limit" mpirun -np 1 --bind-to none "$torchbridge" run sh -c "$show"
expect "$(ranks 3)" on_login srun -N1 -n1 "$torchbridge" run --nproc-per-node 3 sh -c "$show"
expect_error 'torchbridge: this is one of 2 tasks, and each would run a job of its own' 30 \
  on_login srun -N1 -n2 "$torchbridge" run true

# srun has the exit code of the worker, and its signal reaches it.
code=0
on_login srun -N1 -n1 "$torchbridge" run --nproc-per-node 2 sh -c 'exit 7' 2>"$work/error" || code=$?
((code == 7)) || fail "exit code $code: $(cat "$work/error")"
grep -q 'root cause: rank [01] on n.*: exit code 7' "$work/error" || fail "no root cause: $(cat "$work/error")"
