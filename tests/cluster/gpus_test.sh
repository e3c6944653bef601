#!/usr/bin/env bash
# The GPUs that tasks see, for all ways in which Slurm assigns them, with two GPUs on each node. Expected output:
# LOCAL_RANK CUDA_VISIBLE_DEVICES of each task.
source "$(dirname "$0")/case.sh"
show='echo $LOCAL_RANK ${CUDA_VISIBLE_DEVICES-unset}'
tasks() { on_login srun -N1 -n2 -w n0 "$@" sh -c "$show"; }

expect $'0 0,1\n1 0,1' tasks --gres=gpu:2 --torch-env
expect $'0 0,1\n1 0,1' tasks --gpus-per-node=2 --torch-env
expect $'0 0\n1 1' tasks --gpus-per-task=1 --torch-env
expect $'0 0,1\n1 0,1' tasks --gpus-per-task=1 --torch-env=gpus=all
expect $'0 0\n1 1' tasks --gpus-per-node=2 --gpu-bind=single:1 --torch-env
expect_error 'torch-env: gpus=all: this task sees GPU [01], and the other GPUs' 20 \
  tasks --gpus-per-node=2 --gpu-bind=map_gpu:1,0 --torch-env=gpus=all
expect $'0 0\n0 1' tasks --gres=gpu:2 --torch-env=gpus=virtual
expect $'0 0\n0 0' tasks --gres=gpu:1 --torch-env=gpus=share
# Names that Slurm sets only with AutoDetect and MIG stay as they are.
named() { tasks env CUDA_VISIBLE_DEVICES="$1" "$BUILD_DIR/bin/torchbridge" exec --torch-env="$2" -- "${@:3}"; }
expect $'0 GPU-a,MIG-b\n1 GPU-a,MIG-b' named GPU-a,MIG-b gpus=all
expect $'0 GPU-a\n0 MIG-b' named GPU-a,MIG-b gpus=virtual
expect_error 'torch-env: .*2 tasks.* 1 GPU.*gpus=share' 20 tasks --gres=gpu:1 --torch-env=gpus=virtual
# With gpus=auto it is a warning.
expect $'0 0\n1 0' tasks --gres=gpu:1 --torch-env
(($(grep -c 'torch-env: 2 tasks on this node for 1 GPU: .*gpus=share' "$work/stderr") == 1)) || fail "no line, or more"
tasks --gpus-per-task=1 --torch-env 2>&1 | grep 'torch-env: .*LOCAL_RANK' ||
  fail "gpus=auto does not warn that LOCAL_RANK is no index"

# explain shows each rank's GPUs and the reason, and rejects what a real start rejects.
tasks --gpus-per-task=1 --torch-env=explain >"$work/table"
grep -qE '^  GPUs +auto +as the launcher gave them$' "$work/table" &&
  grep -qE '^  0 +n0 +0-1 +0-1 +0 / 1 ' "$work/table" || {
  cat "$work/table"
  fail "explain does not show the GPUs"
}
expect_error 'torch-env: gpus=virtual: 2 tasks on this node for 1 GPU' 20 \
  tasks --gres=gpu:1 --torch-env=explain,gpus=virtual

# The first GPU is at the NUMA node of CPU 1, the second at that of CPU 0: n0 gets the sysfs of such a machine.
(($(nproc) >= 2)) || skip "the remaining tests need two CPUs"
tree=$work/tree
describe() { mkdir -p "$tree/$(dirname "$1")" && printf '%s\n' "$2" >"$tree/$1"; }
for node in 0 1; do
  describe "node/node$node/cpulist" "$node"
  describe "node/node$node/distance" "$((node == 0 ? 10 : 20)) $((node == 0 ? 20 : 10))"
  address=0000:0$((node + 1)):00.0
  describe "pci/$address/vendor" 0x10de
  describe "pci/$address/class" 0x030200
  describe "pci/$address/numa_node" $((1 - node))
  describe "pci/$address/local_cpulist" $((1 - node))
done
on_node n0 mount --bind "$tree/node" /sys/devices/system/node
on_node n0 mount --bind "$tree/pci" /sys/bus/pci/devices
trap 'on_node n0 umount /sys/devices/system/node /sys/bus/pci/devices; rm -rf "$work"' EXIT

show='echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES cpu $(taskset -pc $$ | sed "s/.*: //")'
expect $'0 0,1 cpu 1\n1 0,1 cpu 0' tasks --gres=gpu:2 --torch-env=cpus=gpu
expect $'0 0 cpu 1\n0 1 cpu 0' tasks --gres=gpu:2 --torch-env=cpus=gpu,gpus=virtual
expect "0 1,0 cpu 0" on_login srun -n1 -w n0 --gres=gpu:2 taskset -c 0 \
  "$BUILD_DIR/bin/torchbridge" exec --torch-env=gpus=closest -- sh -c "$show"
expect "0 0,1 cpu 1" on_login srun -n1 -w n0 --gres=gpu:2 taskset -c 1 \
  "$BUILD_DIR/bin/torchbridge" exec --torch-env=gpus=closest -- sh -c "$show"

# The driver lists both GPUs, but only one device file exists, as in a device cgroup or a container of the task.
read -r shown hidden <<<"254 255"
mounts='/proc/driver /sys/devices/system/node /sys/bus/pci/devices'
trap 'on_node n0 umount $mounts; rm -rf "$work" /dev/nvidia$shown' EXIT
on_node n0 mount -t tmpfs none /proc/driver
on_node n0 sh -c "cd /proc/driver && mkdir -p nvidia/gpus/0000:01:00.0 nvidia/gpus/0000:02:00.0 && cd nvidia/gpus &&
  echo 'Device Minor: $shown' >0000:01:00.0/information && echo 'Device Minor: $hidden' >0000:02:00.0/information"
touch /dev/nvidia$shown
expect_hidden() {  # expect_hidden LINES SRUN_OPTIONS...
  local line="torch-env: .* 1 of the step's 2 GPUs: NCCL's .* --gpus-per-node=2 --gpu-bind=none"
  tasks "${@:2}" 2>"$work/stderr" >/dev/null || { cat "$work/stderr"; fail "the step failed"; }
  (($(grep -c "$line" "$work/stderr") == $1)) || { cat "$work/stderr"; fail "expected $1 lines for ${*:2}"; }
}
expect_hidden 1 --gpus-per-task=1 --torch-env
expect_hidden 0 --gpus-per-node=2 --torch-env
expect_hidden 0 --gpus-per-task=1 --torch-env=gpus=none
rm /dev/nvidia$shown
expect_hidden 0 --gpus-per-task=1 --torch-env

# Under mpirun the ranks of a node exchange their CPUs.
rank_on() {
  printf '%s\n' -np 1 taskset -c "$1" "$BUILD_DIR/bin/torchbridge" exec --torch-env=gpus=closest -- sh -c "$show"
}
mapfile -t first < <(rank_on 0)
mapfile -t second < <(rank_on 1)
expect $'0 1,0 cpu 0\n1 1,0 cpu 1' \
  on_node n0 env CUDA_VISIBLE_DEVICES=0,1 \
  mpirun.openmpi --bind-to none --oversubscribe --host n0:2 "${first[@]}" : "${second[@]}"
