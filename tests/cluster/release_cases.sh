#!/usr/bin/env bash
# Cases for each release of Slurm, OpenMPI and MPICH: builds the plugin and the command in /build, starts a cluster, and
# runs the cases below. scripts/releases runs it in the root of another Debian suite.
# With an argument only the cases whose names contain it. A line for each case: `ok`, `FAILED` with the end of what it
# printed, or `SKIPPED` with the reason. A case that fails, or takes longer than CASE_S, runs once more: if it passes
# then, the line begins with `unstable`.
export SOURCE_DIR=$PWD BUILD_DIR=/build CLUSTER=$PWD/scripts/cluster/cluster CLUSTER_NAME=release
source tests/cluster/case.sh
node_sh=$SOURCE_DIR/scripts/cluster/node_sh
torchbridge=$BUILD_DIR/bin/torchbridge
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $(hostname)'
two_each=$'0/4 0/2 n0\n1/4 1/2 n0\n2/4 0/2 n1\n3/4 1/2 n1'

build() {
  # One after the other in one folder, because most of their objects are the same.
  cmake --preset plugin -B "$BUILD_DIR"
  cmake --build "$BUILD_DIR"
  cmake --preset command -B "$BUILD_DIR" -DTORCHBRIDGE_COMMAND=ON
  cmake --build "$BUILD_DIR"
  # The same command with PMIx.
  cp "$torchbridge" "$BUILD_DIR/torchbridge_without_pmix"
  cmake -B "$BUILD_DIR" -DTORCHBRIDGE_PMIX=ON
  cmake --build "$BUILD_DIR"
  for mpi in openmpi mpich; do "mpicc.$mpi" -o "$BUILD_DIR/ranks.$mpi" tests/programs/mpi_ranks.c; done
  gcc -shared -fPIC -o "$BUILD_DIR/container_plugin.so" tests/programs/container_plugin.c
}
cluster_up() {
  timeout 100 "$CLUSTER" up --name "$CLUSTER_NAME" --nodes 3 --cpus 4 --plugin "$BUILD_DIR/lib/torch_env.so" "$@"
}
cluster_down() { timeout 60 "$CLUSTER" down --name "$CLUSTER_NAME"; }
# OpenMPI 6.0.0rc2 finds no pair of interfaces between two nodes ("Unable to find reachable pairing") without
# btl_tcp_if_include.
openmpi() { on_node n0 mpirun.openmpi --mca plm_rsh_agent "$node_sh" --mca btl_tcp_if_include eth0 "$@"; }
mpich() { on_node n0 mpiexec.mpich -launcher ssh -launcher-exec "$node_sh" "$@"; }
# mpi RANKS: prints the output of mpi_ranks.c with that number of ranks.
mpi() {
  for ((rank = 0; rank < $1; ++rank)); do
    echo "MPI rank $rank of $1, ranks add up to $(($1 * ($1 - 1) / 2))"
  done
}

case_variables() { expect "$two_each" on_login srun -N2 -n4 --ntasks-per-node=2 --torch-env sh -c "$show"; }
case_the_variable_requests_the_plugin() {
  TORCHBRIDGE_OPTIONS=ranks=block expect "$two_each" on_login srun -N2 -n4 --ntasks-per-node=2 -m cyclic sh -c "$show"
}
case_without_the_option_nothing() {
  TORCH_ENV=/home/me/venv expect $'/ /venv n0' \
    on_login srun -n1 sh -c 'echo "$RANK/ /$(basename $TORCH_ENV) $(hostname)"'
}
case_explain() {
  on_login srun -N2 -n4 --torch-env=explain true >"$work/table" &&
    grep -q '^4 ranks on 2 nodes, started by slurm' "$work/table" || fail "$(cat "$work/table")"
}
case_a_bad_option_is_rejected() {
  expect_error "torch-env: --torch-env: unknown option 'rank'" 10 on_login srun -N2 -n4 --torch-env=rank=block true
}

placed=$'0/3 0/2 n1\n1/3 0/1 n0\n2/3 1/2 n1'
case_arbitrary() { expect "$placed" on_login srun -n3 -m arbitrary -w n1,n0,n1 --torch-env sh -c "$show"; }
case_slurm_hostfile() {
  printf '%s\n' n1 n0 n1 >"$work/hosts"
  SLURM_HOSTFILE=$work/hosts expect "$placed" on_login srun -n3 --torch-env sh -c "$show"
}
case_arbitrary_by_exec() {
  expect "$placed" on_login srun -n3 -m arbitrary -w n1,n0,n1 "$torchbridge" exec -- sh -c "$show"
}
case_heterogeneous_step() {
  expect $'0/3 0/1 n0\n1/3 0/2 n1\n2/3 1/2 n1' on_login srun -N1 -n1 --torch-env sh -c "$show" : -N1 -n2 sh -c "$show"
}
case_salloc_passes_the_option_on() {
  expect $'0/2 0/1 n0\n1/2 0/1 n1' on_login salloc -Q -N2 -n2 --torch-env srun sh -c "$show"
}
case_a_requeued_batch_job_has_the_next_restart_count() {
  local runs='srun sh -c "echo \$TORCHELASTIC_RESTART_COUNT \$RANK"
    [ ${SLURM_RESTART_COUNT:-0} = 1 ] || { scontrol requeue $SLURM_JOB_ID; exec sleep 50; }'
  on_login sbatch --wait --requeue --open-mode=append -o "$work/batch" -N2 -n2 --torch-env --wrap "$runs"
  expect $'0 0\n0 1\n1 0\n1 1' grep -E '^[01] [01]$' "$work/batch"
}
case_srun_exec() { expect "$two_each" on_login srun -N2 -n4 --ntasks-per-node=2 "$torchbridge" exec -- sh -c "$show"; }

# In a root filesystem that contains only libc, its loader and a program that needs no more.
case_the_command_needs_only_libc() {
  local root=$work/root program=$BUILD_DIR/torchbridge_without_pmix file
  for file in "$program" /usr/bin/printenv $(ldd "$program" | grep -o '/[^ ]*'); do
    install -D "$file" "$root$file"
  done
  expect $'ld-linux-x86-64.so.2\nlibc.so.6\nprintenv\ntorchbridge_without_pmix' find "$root" -type f -printf '%f\n'
  expect 1 sh -c 'chroot "$1" "$2" env | grep -c "^export WORLD_SIZE=.1.$"' sh "$root" "$program"
  expect $'0\n1\n127.0.0.1' chroot "$root" "$program" exec -- /usr/bin/printenv RANK WORLD_SIZE MASTER_ADDR
}

case_the_first_task_to_fail_is_named() {
  expect_error 'torch-env: first to fail: rank 2 on n1, .*exit code 3' 20 \
    on_login srun -N2 -n4 --ntasks-per-node=2 -K --torch-env sh -c '[ $RANK = 2 ] && exit 3; exec sleep 1000'
}
case_a_failed_task_ends_the_step() {
  expect_error 'torch-env: the step still runs 1 s later and is ended' 20 \
    on_login srun -N2 -n2 --torch-env=on_failure=1 sh -c '[ $RANK = 1 ] && exit 3; kill -STOP $$'
}
case_an_error_on_a_node_ends_the_step() {
  expect_error "torch-env: .*none0" 20 on_login srun -N2 -n4 --torch-env=addr=iface:none0 sleep 1000
}
# A step of which no task ran fails, for srun and for the batch job around it.
case_a_job_whose_tasks_never_ran_fails() {
  local status=0
  on_login sbatch -Q --wait -o "$work/batch" -N2 -n4 --torch-env=addr=iface:none0 --wrap 'exec srun true' || status=$?
  ((status != 0 && status != 124)) || fail "exit code $status"
  expect 1 grep -c 'torch-env: .*none0' "$work/batch"
}
case_scancel_ends_all() {
  local job
  job=$(on_login sbatch --parsable -o /dev/null -N2 -n4 --torch-env --wrap 'srun sleep 98765')
  wait_for 20 pgrep -f '^[^ ]*sleep 98765'
  on_login scancel "$job"
  gone() { ! pgrep -f '^[^ ]*sleep 98765' >/dev/null; }
  wait_for 40 gone
}

# The command under mpirun, built with PMIx and without it. MPI works in the program that it becomes.
mpirun_one_node() { expect $'0/2 0/2 n0\n1/2 1/2 n0' openmpi -np 2 "$1" exec -- sh -c "$show"; }
mpirun_two_nodes() { expect "$two_each" openmpi --host n0:2,n1:2 -np 4 "$1" exec -- sh -c "$show"; }
mpirun_in_salloc() {
  expect "$two_each" on_login salloc -Q -N2 -n4 --ntasks-per-node=2 mpirun.openmpi -np 4 "$1" exec -- sh -c "$show"
}
case_openmpi_one_node() { mpirun_one_node "$torchbridge"; }
case_openmpi_one_node_without_pmix() { mpirun_one_node "$BUILD_DIR/torchbridge_without_pmix"; }
case_openmpi_two_nodes() { mpirun_two_nodes "$torchbridge"; }
case_openmpi_two_nodes_without_pmix() { mpirun_two_nodes "$BUILD_DIR/torchbridge_without_pmix"; }
case_openmpi_in_salloc() { mpirun_in_salloc "$torchbridge"; }
case_openmpi_program_one_node() { expect "$(mpi 2)" openmpi -np 2 "$torchbridge" exec -- "$BUILD_DIR/ranks.openmpi"; }
case_openmpi_program_two_nodes() {
  expect "$(mpi 4)" openmpi --host n0:2,n1:2 -np 4 "$torchbridge" exec -- "$BUILD_DIR/ranks.openmpi"
}
case_openmpi_program_by_srun_with_pmix() {
  on_login srun --mpi=list 2>&1 | grep -qw pmix || skip "this Slurm has no mpi/pmix"
  expect "$(mpi 4)" on_login srun --mpi=pmix -N2 -n4 --torch-env "$BUILD_DIR/ranks.openmpi"
  expect "$(mpi 4)" on_login srun --mpi=pmix -N2 -n4 "$torchbridge" exec -- "$BUILD_DIR/ranks.openmpi"
}
case_mpich_one_node() { expect $'0/2 0/2 n0\n1/2 1/2 n0' mpich -n 2 "$torchbridge" exec -- sh -c "$show"; }
case_mpich_two_nodes() { expect "$two_each" mpich -hosts n0:2,n1:2 -n 4 "$torchbridge" exec -- sh -c "$show"; }
# Agents of several nodes share a token, which goes through the launcher's exchange.
agents_have_a_token() {
  expect $'0/2\n1/2' "$@" "$torchbridge" run --nproc-per-node 1 sh -c 'echo $RANK/$WORLD_SIZE'
  ! grep 'has no token' "$work/stderr"
}
case_openmpi_agents() { agents_have_a_token openmpi --host n0:1,n1:1 -np 2; }
case_mpich_agents() { agents_have_a_token mpich -hosts n0:1,n1:1 -n 2; }
case_mpich_program_two_nodes() {
  expect "$(mpi 4)" mpich -hosts n0:2,n1:2 -n 4 "$torchbridge" exec -- "$BUILD_DIR/ranks.mpich"
}
case_mpich_program_by_srun_with_pmi2() {
  expect "$(mpi 4)" on_login srun --mpi=pmi2 -N2 -n4 --torch-env "$BUILD_DIR/ranks.mpich"
}

case_a_plugin_for_containers() {
  bash tests/cluster/container_plugin_test.sh "$BUILD_DIR/lib/torch_env.so" "$BUILD_DIR/container_plugin.so"
}

case_no_node_is_drained() { expect "" on_login sinfo --noheader --list-reasons --format '%N %E'; }
case_no_daemon_died() { expect "" sed -n '/fatal/p' "/run/torchbridge-clusters/$CLUSTER_NAME"/log/*.log; }

# Slurm tracks processes by cgroups, as on most sites. All clusters of this machine share its cgroups, so these nodes
# have unique names.
with_cgroups() {
  prefix=$(head -c 300 /dev/urandom | tr -dc a-z | cut -c 1-8)-
  trap 'cluster_down; find /sys/fs/cgroup -depth -type d -path "*$prefix*" -exec rmdir {} +' EXIT
  cluster_down
  cluster_up --prefix "$prefix" --conf ProctrackType=proctrack/cgroup --conf TaskPlugin=task/cgroup
  expect $'0/2\n1/2' on_login srun -N2 -n2 \
    --torch-env sh -c "grep -q '$prefix.*/step_' /proc/self/cgroup && echo \$RANK/\$WORLD_SIZE"
  expect_error "torch-env: first to fail: rank 1 on $prefix[01], .*exit code 3" 20 \
    on_login srun -N2 -n2 -K --torch-env sh -c '[ $RANK = 1 ] && exit 3; exec sleep 1000'
  case_scancel_ends_all
}
case_cgroup_v1() {
  [[ -d /sys/fs/cgroup/freezer ]] || skip "this machine has no cgroup v1"
  with_cgroups
}
case_cgroup_v2() {
  [[ $(stat --file-system --format=%T /sys/fs/cgroup) == cgroup2fs ]] ||
    skip "this machine uses cgroup v1, and Slurm then uses no v2"
  with_cgroups
}

case_build() { build; }
case_cluster_up() {
  cluster_down >/dev/null 2>&1 || true
  cluster_up
}

# A case alone, for `timeout`: this script starts itself with --case CASE.
if [[ ${1:-} == --case ]]; then
  [[ $2 =~ build|cluster_up|cgroup ]] || wait_for 60 all_nodes_are_idle
  "$2"
  exit
fi

readonly CASE_S=300 BUILD_S=900  # they take 20 and 100
failed=0
# try_case CASE: sets `status`.
try_case() {
  local limit=$CASE_S
  [[ $1 != case_build ]] || limit=$BUILD_S
  status=0
  timeout --kill-after=10 $limit bash "${BASH_SOURCE[0]}" --case "$1" >"$work/case" 2>&1 || status=$?
}
last_lines() {
  { sed -n "/error:/p" "$work/case" | head -n 6; tail -n 8 "$work/case"; } | sed "s/^/         /" || true
}
run_case() {
  local status first='' name=${1#case_} passed='ok    '
  try_case "$1"
  if ((status != 0 && status != 77)) && [[ $1 != case_build ]]; then
    first=$(last_lines)
    try_case "$1"
    passed=unstable
  fi
  case $status in
    0)
      echo "$passed ${name//_/ }"
      [[ -z $first ]] || printf '%s\n' "$first"
      ;;
    77) echo "SKIPPED ${name//_/ }: $(sed -n 's/^SKIPPED: //p' "$work/case")" ;;
    *)
      echo "FAILED ${name//_/ }"
      last_lines
      failed=1
      ;;
  esac
}

for name in build cluster_up; do
  run_case "case_$name"
  ((failed == 0)) || exit 1
done
printf '       %s, %s, %s, %s\n' "$(on_login srun --version)" "$(mpirun.openmpi --version | head -n 1)" \
  "$(mpichversion | sed -n 's/^MPICH Version:[[:space:]]*/MPICH /p')" "$(g++ -dumpfullversion)"
# In the order of this file.
for name in $(sed -n 's/^\(case_[a-z0-9_]*\)() .*/\1/p' "${BASH_SOURCE[0]}"); do
  [[ $name =~ ^case_(build|cluster_up)$ || $name != *${1:-}* ]] || run_case "$name"
done
exit $failed
