#!/usr/bin/env bash
# A user who writes what he likes into the memory that his tasks share with slurmstepd, and into the variables of his
# step, neither ends slurmstepd nor holds it for more than ten seconds, nor keeps the node from the next user.
source "$(dirname "$0")/case.sh"
needs_other_users
ours="optional $1\n" hostile="required $2"
as_user() { on_login runuser -u "$1" -- env -C / "${@:2}"; }

# Every byte of the table is a slash. The failed task is reported or not, and the step ends as its tasks do; of several
# each may find that of another before its own.
next_user_is_served() {
  with_plugstack n1 "$ours"
  expect $'0/2\n1/2' as_user daemon srun -Q -N1 -n2 -w n1 --torch-env sh -c 'echo $RANK/$WORLD_SIZE'
}
with_plugstack n1 "$ours$hostile fill\n"
for tasks in 1 3; do
  expect_error "^srun: error: n1: task.* 0.*: Exited with exit code [13]$" 15 \
    as_user nobody srun -Q -N1 -n$tasks -w n1 --torch-env sh -c 'exit 3'
  ! grep -iE "segmentation|slurmstepd.*(died|signal)|launch failed|comm" "$work/stderr" ||
    fail "slurmstepd did not end in order"
done
next_user_is_served

# The number of nodes was the time over which they spread requests.
with_plugstack n1 "$hostile SLURM_STEP_NUM_NODES=100000\n$ours"
wait_for 30 all_nodes_are_idle
start=$SECONDS
expect_error "torch-env: addr=iface:none0: n1, the node of rank 0, has no such address" 15 \
  as_user nobody srun -Q -N1 -n1 -w n1 --torch-env=addr=iface:none0 sleep 1000
wait_for 15 all_nodes_are_idle
((SECONDS - start <= 15)) || fail "the node was held for $((SECONDS - start)) s"  # and five for a start
next_user_is_served

# A list of nodes that takes much memory to read is read within a limit, and the step has an error.
with_plugstack n1 "$hostile SLURM_STEP_NODELIST=n[0-999999],m[0-999999]\n$ours"
expect_error "^srun: error: torch-env: " 20 as_user nobody srun -Q -N1 -n1 -w n1 --torch-env sleep 1000

# The process that looks at the tasks has slurmstepd's memory, which the user's debugger gets neither there nor in a
# core file: the kernel gives its files in /proc to root. The program's own are the user's.
with_plugstack n1 "$hostile dumpable\n$ours"
expect $'nobody\nnobody\nroot' as_user nobody srun -Q -N1 -n2 -w n1 --torch-env sh -c \
  'stat -c %U /proc/$$/environ; [ $RANK = 1 ] || stat -c %U "/proc/$(pgrep -g 0 -x torch_env)/environ"'

# The user stops each process that slurmstepd forks when tasks have ended: for a task that asks for a requeue, for one
# that fails, and at the end. (Nine seconds for each were eighteen, and three at the end.)
with_plugstack n1 "$hostile stop\n$ours"
wait_for 30 all_nodes_are_idle
start=$SECONDS
expect_error "^srun: error: n1: task 0: Exited with exit code 75$" 40 \
  as_user nobody srun -Q -N1 -n2 -w n1 --torch-env sh -c 'exit $((75 - 74 * SLURM_PROCID))'
wait_for 40 all_nodes_are_idle
took=$((SECONDS - start))
echo "held for $took s"
((took >= 8)) || fail "no process of slurmstepd was stopped"
((took <= 18)) || fail "slurmstepd was held for $took s"
next_user_is_served
