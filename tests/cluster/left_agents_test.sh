#!/usr/bin/env bash
# Agents of one srun: a run that has failed ends the step also where an agent is stopped, and a stranger who has the
# coordinator's port makes no success of it.
source "$(dirname "$0")/case.sh"
needs_other_users
torchbridge="$BUILD_DIR/bin/torchbridge"
chmod 755 "$work"

# A worker stops its agent, and the other agent's fails, or has no coordinator any more. Slurm would wait for an agent
# that is stopped.
times=keep_alive_interval=1,keep_alive_max_attempt=2,join_timeout=3
for plugin in '' --torch-env; do
  for case in '1:^torchbridge: sh failed after 1 attempt' '0:^torchbridge: .* does not answer$'; do
    expect_error "${case#*:}" 30 on_login srun -Q -N2 --ntasks-per-node=1 -w n0,n1 $plugin \
      "$torchbridge" run --nproc-per-node 1 --grace 1 --rdzv-conf $times \
      sh -c "[ \$RANK != ${case%%:*} ] || kill -STOP \$PPID; [ \$RANK = 0 ] && exit 3; exec sleep infinity"
  done
done

# So where the run goes on without the stopped agent, and succeeds.
expect_error '^torchbridge: node .* is lost: it sent nothing for 2 s$' 30 on_login \
  srun -Q -N2 --ntasks-per-node=1 -w n0,n1 "$torchbridge" run --nnodes 1:2 --nproc-per-node 1 --grace 1 \
  --rdzv-conf $times sh -c \
  '[ $RANK != 1 ] || kill -STOP $PPID; [ $WORLD_SIZE != 1 ] || exit 0; exec sleep infinity'

# Has no work left, at each of several looks.
is_asleep() { for _ in {1..5}; do on_node n1 grep -q '^State:.S' "/proc/$1/status" || return 1; done; }

# The agent of n1 is stopped after it has reported its worker's end, and before n0's worker ends. The run is over, and
# the agent reads that when it is continued.
for plugin in '' --torch-env; do
  for code in 0 75; do
    printf '$ an agent is stopped before the end with %s%s\n' $code " $plugin"
    status=0
    rm -f "$work/worker" "$work/is_stopped"
    on_login srun -Q -N2 --ntasks-per-node=1 -w n0,n1 $plugin "$torchbridge" run --nproc-per-node 1 --grace 20 \
      --rdzv-conf $times sh -c "
        [ \$RANK = 0 ] || { echo \$\$ \$PPID >$work/new; mv $work/new $work/worker; exit $code; }
        until [ -e $work/is_stopped ]; do sleep 0.05; done; exit $code" >"$work/stdout" 2>"$work/stderr" & job=$!
    wait_for 30 test -s "$work/worker"
    read -r worker agent <"$work/worker"
    wait_for 10 on_node n1 sh -c "! kill -0 $worker" 2>/dev/null
    wait_for 10 is_asleep "$agent"  # that it has reported shows nowhere else
    on_node n1 kill -STOP "$agent"
    touch "$work/is_stopped"
    wait "$job" || status=$?
    cat "$work/stderr"
    ((status == code)) || fail "exit code $status, expected $code: $(cat "$work/stderr")"
    grep -qE '^torchbridge: node [^ ]+ \(pid [0-9]+\) is lost: it sent nothing for 2 s$' "$work/stderr" ||
      fail "no line names the node: $(cat "$work/stderr")"
  done
done

# A stranger has the port of rank 0 on n0, of whose agents one comes, that of n1. The run has no token.
cp "$SOURCE_DIR/tests/programs/agent_stranger.py" "$work/stranger.py"
chmod 644 "$work/stranger.py"
for way in 'early :' 'stopped :'; do
  rm -f "$work/code"
  install -o daemon -m 644 /dev/null "$work/code"
  : >"$work/listens"
  on_login runuser -u daemon -- env -C / salloc -Q -N2 -n2 -w n0,n1 sh -c "
    echo \$SLURM_JOB_ID >$work/code; until grep -q listens $work/listens; do sleep 0.05; done
    srun sh -c '[ \$SLURM_PROCID = 1 ] || exit 0
      TORCHBRIDGE_OPTIONS=port=29445 $torchbridge run --nproc-per-node 1 --grace 5 \
        sh -c \"${way#* }; while :; do sleep 0.05; done\"
      echo \$? >$work/code'" 2>"$work/error" & job=$!
  wait_for 30 test -s "$work/code"
  on_node n0 runuser -u nobody -- /usr/bin/python3 "$work/stranger.py" n0:29445 "slurm-$(cat "$work/code").0" 2,2,2,0 \
    coordinate "${way%% *}" >"$work/listens" 2>&1 & leader=$!
  wait "$job" || true
  wait "$leader" || fail "the stranger: $(cat "$work/listens")"
  [[ $(cat "$work/code") == 1 ]] || fail "$way: exit code $(cat "$work/code"): $(cat "$work/error")"
  grep -q ":29445 ends the run with 0, but this node's workers have not ended with 0" "$work/error" ||
    fail "$way: no line: $(cat "$work/error")"
done
