#!/usr/bin/env bash
# What docs/admin/site_setups.md promises: configless Slurm, a private /tmp for each job with processes tracked by
# cgroup v1, and steps for which the plugin is switched off. Two clusters of its own, with two nodes each.
source "$(dirname "$0")/case.sh"
limit=30
base_name=$CLUSTER_NAME
folder=$(mktemp -d -p /run)  # where job_container/tmpfs puts the folders of jobs: neither /tmp nor /dev/shm
munge_folder=
trap 'for suffix in c t; do "$CLUSTER" down --name "$base_name-$suffix"; done
  rm -rf "$work" "$folder"; [[ -z $munge_folder ]] || rmdir /run/munge' EXIT
on_each=(srun -N2 --torch-env)

# 1. Configless: the slurmd of n1 has no file of the controller, and gets plugstack.conf from it.
CLUSTER_NAME=$base_name-c
"$CLUSTER" up --name "$CLUSTER_NAME" --nodes 2 --plugin "$1" --conf SlurmctldParameters=enable_configless
configuration=$(on_login sh -c 'dirname "$SLURM_CONF"')
kill "$(pgrep -f -- '^slurmd -D -N n1$' | while read -r pid; do
  ! grep -qsz "^SLURM_CONF=$configuration/slurm.conf" "/proc/$pid/environ" || echo "$pid"
done)"
[[ -d /run/munge ]] || { mkdir /run/munge; munge_folder=ours; }
on_node n1 mount -t tmpfs none /run/munge  # where a slurmd without a configuration looks for munged
on_node n1 ln -s "$configuration/munge/socket" /run/munge/munge.socket.2
for file in slurm plugstack; do on_node n1 mount --bind /dev/null "$configuration/$file.conf"; done
on_node n1 env -u SLURM_CONF slurmd --conf-server controller:6817 -N n1 </dev/null >"$work/slurmd" 2>&1 ||
  { cat "$work/slurmd"; fail "slurmd does not start"; }
is_idle() { [[ $(on_login sinfo -h -n n1 -o %T) == idle ]]; }
wait_for 30 is_idle
expect '0 n0
1 n1' on_login "${on_each[@]}" sh -c 'echo $RANK $(hostname)'
on_login "${on_each[@]}" sh -c 'echo $SLURM_CONF' | grep -q '/conf-cache/slurm.conf' || fail "n1 is not configless"

# 2. A step of a job that was submitted with the option may leave it out.
cat >"$work/job" <<'JOB'
#!/bin/sh
srun -N1 -n1 sh -c 'echo with ${RANK-none}'
env -u SLURM_SPANK__SLURM_SPANK_OPTION_torch_env_torch_env srun -N1 -n1 sh -c 'echo without ${RANK-none}'
JOB
chmod +x "$work/job"
on_login sbatch --wait -N2 --torch-env -o "$work/out" "$work/job" >/dev/null
expect 'with 0
without none' cat "$work/out"
expect 'none' on_login env TORCHBRIDGE_OPTIONS=ranks=block env -u TORCHBRIDGE_OPTIONS srun -n1 sh -c 'echo ${RANK-none}'

# 3. Each job has a /tmp of its own: error files are in it, are read there, and end with the job.
CLUSTER_NAME=$base_name-t
tmpfs=(--conf JobContainerType=job_container/tmpfs --conf PrologFlags=contain --conf ProctrackType=proctrack/cgroup)
# Now and then slurmd 22.05 cannot mount the namespace of any job (Invalid argument), and salloc waits then. The next
# cluster must meet neither the folder nor the cgroup of that job.
first_job=1
has_job() {
  printf 'AutoBasePath=true\nBasePath=%s\n' "$folder/$first_job" >"$work/job_container.conf"
  "$CLUSTER" up --name "$CLUSTER_NAME" --nodes 2 --plugin "$1" --file "$work/job_container.conf" "${tmpfs[@]}" \
    --conf FirstJobId="$first_job" || return
  first_job=$((first_job + 10))
  on_login timeout 10 salloc -N2 -J with_tmp --no-shell && return
  "$CLUSTER" down --name "$CLUSTER_NAME"
  return 1
}
wait_for 120 has_job "$1"
job=$(on_login squeue -h -n with_tmp -o %A)
error='{"message": {"message": "a fault of its own", "extraInfo": {"py_callstack": "", "timestamp": "1"}}}'
expect_error "first to fail: rank 1 on n1.*exit code 3" 30 on_login "${on_each[@]}" --jobid="$job" sh -c \
  '[ $RANK = 1 ] || exec sleep 60; echo "$0" >"$TORCHELASTIC_ERROR_FILE"; exit 3' "$error"
grep -q 'a fault of its own' "$work/stderr" || fail "the error file was not read"
# A container with its own process ids and without the environment: the cgroup shows the step.
on_login srun --jobid="$job" -n2 env -i "$(command -v unshare)" --pid --fork --mount-proc \
  "$BUILD_DIR/bin/torchbridge" exec -- /bin/true 2>"$work/alone" || { cat "$work/alone"; fail "exec failed"; }
(($(grep -c 'only rank, but slurmstepd is above it' "$work/alone") == 2)) || fail "no line: $(cat "$work/alone")"

on_login scancel "$job"
is_empty() { [[ -z $(find "$folder" -name '*error.json') ]]; }
wait_for 30 is_empty
