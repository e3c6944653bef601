#!/usr/bin/env bash
# Launches inside one another: each program has the environment of the innermost launch only.
source "$(dirname "$0")/case.sh"
torchbridge=$BUILD_DIR/bin/torchbridge
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE'
four=$'0/4 0/2 0/2\n1/4 1/2 0/2\n2/4 0/2 1/2\n3/4 1/2 1/2'
inner="srun --overlap -m block -N2 -n4 --ntasks-per-node=2"  # the outer step passes its own distribution on

wait_for 60 all_nodes_are_idle
# srun inside a task of --torch-env, with the plugin (the option is inherited by salloc's steps) and with exec.
expect "$four" on_login salloc -Q -N2 -n4 --ntasks-per-node=2 --torch-env srun -N1 -n1 bash -c "$inner sh -c '$show'"
expect "$four" on_login salloc -Q -N2 -n4 --ntasks-per-node=2 \
  srun -N1 -n1 --torch-env bash -c "$inner $torchbridge exec -- sh -c '$show'"
# Also where the user has an error file of his own.
expect "$four" on_login env TORCHELASTIC_ERROR_FILE="$work/error" \
  salloc -Q -N2 -n4 --ntasks-per-node=2 srun -N1 -n1 --torch-env bash -c "$inner --torch-env sh -c '$show'"
expect "$four" on_login env TORCHELASTIC_ERROR_FILE="$work/error" \
  salloc -Q -N2 -n4 --ntasks-per-node=2 srun -N1 -n1 --torch-env bash -c "$inner $torchbridge exec -- sh -c '$show'"
# srun inside a worker of torchbridge run.
for way in "--torch-env" "$torchbridge exec --"; do
  expect "$four" on_login salloc -Q -N2 -n4 --ntasks-per-node=2 \
    "$torchbridge" run --standalone --nproc-per-node 1 bash -c "$inner $way sh -c '$show'"
done
# srun inside a rank of mpirun, by way of a script.
printf '#!/bin/sh\n%s exec -- sh -c '"'%s'"'\ntrue\n' "$torchbridge" "$show" >"$work/by_script"
chmod +x "$work/by_script"
expect "$four" on_login salloc -Q -N2 -n4 --ntasks-per-node=2 mpirun.openmpi -np 1 sh -c "$inner $work/by_script"

# mpirun, whose daemons srun starts, inside an allocation of --torch-env: with exec, and without it.
for mpirun in "mpirun.openmpi" "mpiexec.mpich"; do
  command -v "$mpirun" >/dev/null || continue
  expect "$four" on_login salloc -Q -N2 -n4 --ntasks-per-node=2 --torch-env $mpirun -np 4 \
    "$torchbridge" exec -- sh -c "$show"
  expect $'unset\nunset' on_login salloc -Q -N2 -n4 --torch-env $mpirun -np 2 sh -c 'echo ${RANK-unset}'
done
# Ranks that a script starts inside the only task, or rank of mpirun: they have another rank than the task. Not those
# that the task itself was started with.
ranks='for rank in 0 1; do
  LOCAL_RANK=$rank RANK=$rank '$torchbridge' exec -- sh -c "echo \$RANK/\$WORLD_SIZE" &
done
wait'
complete="WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500"
hidden="unshare --pid --fork --mount-proc"  # a container with its own process ids
for launcher in "srun -N1 -n1" "srun -N1 -n1 --torch-env" "srun -N1 -n1 $torchbridge exec --" "mpirun.openmpi -np 1" \
  "srun -N1 -n1 $hidden" "mpirun.openmpi -np 1 $hidden"; do
  expect $'0/2\n1/2' on_login $launcher bash -c "export $complete; $ranks"
  # DeepSpeed's launcher sets no LOCAL_WORLD_SIZE.
  expect $'0/2\n1/2' on_login $launcher bash -c "export ${complete/LOCAL_WORLD_SIZE=2/}; $ranks"
done
# And inside each of several tasks, as DeepSpeed's launcher does on each node: the record of the plugin, or of exec,
# shows that they were set inside. RANK alone is as if it was exported outside.
inside='for local in 0 1; do
  LOCAL_RANK=$local RANK=$((SLURM_NODEID * 2 + local)) WORLD_SIZE=4 MASTER_ADDR=n0 MASTER_PORT=29733 \
    '$torchbridge' exec -- sh -c "echo \$RANK/\$WORLD_SIZE \$LOCAL_RANK" &
done
wait'
for way in --torch-env "$torchbridge exec --"; do
  expect $'0/4 0\n1/4 1\n2/4 0\n3/4 1' on_login srun -N2 -n2 --ntasks-per-node=1 $way bash -c "$inside"
  ! on_login srun -N2 -n4 $way bash -c "RANK=0 $torchbridge exec -- true; exit \$?" 2>"$work/stderr" ||
    fail "four ranks 0 were started"
  grep -q "RANK='0' and WORLD_SIZE='4' are exported, but slurm started rank [123] of 4: unset" "$work/stderr" ||
    fail "no line about RANK: $(cat "$work/stderr")"
done
# Ranks of one node in each task, without LOCAL_RANK: they have not the task's.
inside="for rank in 0 1 2; do
  RANK=\$rank WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29733 $torchbridge exec -- \
    sh -c 'echo \$SLURM_PROCID: \$RANK/\$WORLD_SIZE \${LOCAL_RANK-unset}' &
done
wait"
for way in --torch-env "$torchbridge exec --"; do
  expect $'0: 0/3 0\n0: 1/3 unset\n0: 2/3 unset\n1: 0/3 0\n1: 1/3 unset\n1: 2/3 unset' \
    on_login srun -N2 -n2 --ntasks-per-node=1 $way bash -c "$inside"
done
# As many ranks as there are tasks could be meant for these. The line names what starts ranks in each task.
inside=${inside/0 1 2/0 1}
for way in "" --torch-env; do
  ! on_login srun -Q -N2 -n2 --ntasks-per-node=1 $way bash -c "${inside/=3/=2} -n" 2>"$work/stderr" ||
    fail "ranks inside each task were started"
  grep -q "WORLD_SIZE='2' are exported, but .*; for ranks inside each task: torchbridge run --stand" "$work/stderr" ||
    fail "no line names what starts ranks inside each task: $(cat "$work/stderr")"
done
expect $'0/2 0/2 0/1\n0/2 0/2 0/1\n1/2 1/2 0/1\n1/2 1/2 0/1' on_login srun -N2 -n2 --ntasks-per-node=1 \
  "$torchbridge" run --standalone --nproc-per-node 2 --no-python sh -c "$show"
expect_error "torchbridge: RANK='1' and WORLD_SIZE='2' are exported, but slurm started rank 0 of 1" 20 \
  on_login env $complete RANK=1 srun -N1 -n1 bash -c "$torchbridge exec -- true; exit \$?"
expect_error "torchbridge: RANK='1' and WORLD_SIZE='2' are exported, but slurm started rank 0 of 1" 20 \
  on_login env $complete RANK=1 srun -N1 -n1 $hidden bash -c "$torchbridge exec -- true; exit \$?"

# A run of its own inside a worker of the task's agent.
expect $'0/2 0/2 0/1\n1/2 1/2 0/1' on_login srun -N2 -n2 "$torchbridge" run --nproc-per-node 1 sh -c \
  "[ \$RANK = 0 ] || exit 0; exec $torchbridge run --nproc-per-node 2 --no-python sh -c '$show'"

# Ranks of two steps: in the task itself nobody sees who set them, and the line names the way.
joined="WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=n0 MASTER_PORT=29722"
expect_error "torchbridge: RANK='1' .*; to join ranks that slurm starts one by one, .* sh -c 'RANK=1 ... COMMAND; " 20 \
  on_login srun -N1 -n1 bash -c "RANK=1 $joined $torchbridge exec -- true"
for rank in 0 1; do
  expect "$rank/2" on_login srun -N1 -n1 -w "n$rank" sh -c \
    "RANK=$rank $joined $torchbridge exec -- sh -c 'echo \$RANK/\$WORLD_SIZE'; exit \$?"
done

# A RANK that is exported for all tasks is rejected, whichever it is: one task reports it.
expect_error "torchbridge: RANK='1' and WORLD_SIZE='2' are exported, but slurm started rank 0 of 4" 20 \
  on_login env RANK=1 WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=29500 srun -N2 -n4 "$torchbridge" exec -- true
expect_error "torchbridge: --torch-env: unknown option 'foo'" 20 \
  on_login env RANK=3 srun -N2 -n4 "$torchbridge" exec --torch-env=foo -- true
expect_error "torchbridge: .*RANK='2'|torchbridge: WORLD_SIZE" 20 on_login env RANK=2 "$torchbridge" exec -- true
[[ $(RANK=1 "$torchbridge" --help) == *"torchbridge [OPTIONS]"* ]] || fail "no help where RANK is exported"
expect_error "torchbridge: RANK='0' and WORLD_SIZE='8' are exported, but slurm started rank 0 of 4" 20 \
  on_login env TORCHELASTIC_RUN_ID=foo RANK=0 WORLD_SIZE=8 MASTER_ADDR=h MASTER_PORT=1 \
  srun -N2 -n4 "$torchbridge" exec -- true

# A job that a task, or a rank of mpirun, submits has that launch's variables, and is no task of it: what it runs is
# alone, and ends no step but its own.
alone='0/1 0/1 0/1'
for launch in "srun -N2 -n2 --torch-env" "srun -N2 -n2" "mpirun.openmpi -np 2"; do
  for command in "$torchbridge exec -- sh -c '$show'" "$torchbridge run --nproc-per-node 1 --no-python sh -c '$show'" \
    "salloc -Q -N1 -n1 $torchbridge exec -- sh -c '$show'"; do
    printf '#!/bin/sh\n%s\n' "$command" >"$work/job"
    printf '#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}" = 0 ] || exit 0\n%s\n' \
      "sbatch -Q -W -N1 -n1 -o $work/job.out $work/job; cat $work/job.out" >"$work/submit"
    chmod +x "$work/job" "$work/submit"
    expect "$alone" on_login salloc -Q -N2 -n2 $launch "$work/submit"
  done
done
# Where /proc hides slurmstepd, the step's nodes and counts are those of another job.
printf '#!/bin/sh\n%s %s exec -- sh -c %s\n' "$hidden" "$torchbridge" "'$show'" >"$work/job"
for launch in "-N2 -n2" "-N2 -n2 --torch-env" "-N1 -n2"; do
  expect "$alone" on_login srun $launch "$work/submit"
done
# Where they could be this one's, an error ends no step: it may be the job's real training.
printf '#!/bin/sh
srun -Q -N2 -n2 sh -c "[ \$SLURM_PROCID = 0 ] || exit 0; echo >%s; read -r line <%s; echo is done" &
read -r line <%s
%s %s exec --torch-env=iface=nosuch0 -- true
timeout 5 sh -c "echo >%s"
wait\n' "$work"/{begun,end,begun} "$hidden" "$torchbridge" "$work/end" >"$work/job"
sed -i 's/-N1 -n1/-N2 -n2 -w n0,n1/' "$work/submit"
mkfifo "$work/begun" "$work/end"
answer=$(limit=60 on_login srun -Q -N2 -n2 -w n0,n1 "$work/submit" 2>&1) || true
[[ $answer == *"iface=nosuch0"*"is done"* ]] || fail "a job's step was ended from outside: $answer"
# Also what runs there without torchbridge: by srun and sbatch the plugin takes its variables back.
printf '#!/bin/sh\nsrun -Q sh -c %s\n' "'echo \${RANK-unset} \${MASTER_ADDR-unset}'" >"$work/job"
for way in --torch-env "$torchbridge exec --"; do
  expect $'unset unset\nunset unset' on_login srun -N1 -n1 $way sh -c \
    "sbatch -Q -W -N2 --ntasks-per-node=1 -o $work/job.out $work/job; cat $work/job.out"
  expect $'unset unset\nunset unset' on_login salloc -Q -N2 -n2 srun -N1 -n1 $way sh -c \
    "srun -Q --overlap -N2 -n2 sh -c 'echo \${RANK-unset} \${MASTER_ADDR-unset}'"
done

# But not what the user exported, or has changed inside.
# shellcheck disable=SC2016  # the inner shell expands them
expect "unset 29601 mine unset" on_login env MASTER_PORT=29601 srun -N1 -n1 --torch-env=omp=1 sh -c '
  export ROLE_NAME=mine
  srun -Q --overlap -n1 sh -c "echo \${RANK-unset} \$MASTER_PORT \$ROLE_NAME \${OMP_NUM_THREADS-unset}"'

# A process with the environment of a task, as one that a task starts by ssh, is none, and ends no step.
if [[ $(readlink /proc/self/ns/pid) == "pid:[4026531836]" ]]; then
  printf '#!/bin/sh\nenv -0 >%s.part\nmv %s.part %s\nread -r line <%s\n' \
    "$work"/environment{,,} "$work/go" >"$work/task"
  mkfifo "$work/go"
  chmod +x "$work/task"
  on_login srun -Q -N2 -n2 sh -c "[ \$SLURM_PROCID != 0 ] || exec $work/task" &
  step=$!
  wait_for 30 test -e "$work/environment"
  expect_error "torchbridge: the variables are of task 0 of 2 of Slurm's step [0-9]+\.0, but this process is not" 20 \
    on_node n1 xargs -0a "$work/environment" sh -c "exec env -i \"\$@\" $torchbridge exec -- true" -
  echo 1<>"$work/go"
  wait "$step" || fail "the step was ended by a process that is not below it"
  # Ranks of a daemon, as Ray's, that a task has started: they have what the daemon gives them.
  printf '#!/bin/sh\n%s exec -- sh -c %s >%s/part.$RANK\nmv %s/part.$RANK %s/rank.$RANK\n' "$torchbridge" \
    "'echo \$RANK/\$WORLD_SIZE \$LOCAL_RANK'" "$work" "$work" "$work" >"$work/rank"
  printf '#!/bin/sh\nLOCAL_RANK=$1 RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29788 exec setsid %s\n' \
    "$work/rank" >"$work/daemon"
  chmod +x "$work/rank" "$work/daemon"
  # shellcheck disable=SC2016  # the inner shell expands it
  on_login srun -n1 --torch-env bash -c 'for i in 0 1; do ("$0/daemon" $i &); done
    until [ -e "$0/rank.0" ] && [ -e "$0/rank.1" ]; do sleep 0.1; done' "$work"
  [[ $(cat "$work"/rank.?) == $'0/2 0\n1/2 1' ]] || fail "other ranks: $(cat "$work"/rank.?)"
fi
