#!/usr/bin/env bash
# Steps of salloc and sbatch inherit the option, the batch script itself is no rank; steps that run at once meet at
# different ports.
source "$(dirname "$0")/case.sh"
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK $(hostname)'

expect "0/3 0 n0
1/3 1 n0
2/3 0 n1
shell 'unset'" on_login salloc -N2 -n3 --torch-env sh -c "echo shell \"'\${RANK-unset}'\"; srun sh -c '$show'"

cat >"$work/job.sh" <<JOB
#!/bin/sh
echo batch "'\${RANK-unset}'"
srun sh -c '$show'
srun -N1 -n2 -w n1 --torch-env=ranks=block sh -c '$show'
JOB
batch() { on_login sbatch --wait -o "$work/batch.out" -N2 -n4 --ntasks-per-node=2 --torch-env "$work/job.sh" >/dev/null && cat "$work/batch.out"; }
expect "0/2 0 n1
0/4 0 n0
1/2 1 n1
1/4 1 n0
2/4 0 n1
3/4 1 n1
batch 'unset'" batch

# Both steps run at the same time on the same node: each waits until the other has written its port.
mkdir "$work/ports"
meet='echo $MASTER_PORT > "'$work'/ports/$SLURM_STEP_ID"; until [ $(ls "'$work'/ports" | wc -l) = 2 ]; do :; done'
on_login salloc -N1 -n2 --torch-env sh -c "srun --exact -n1 sh -c '$meet' & srun --exact -n1 sh -c '$meet' & wait"
[[ $(sort -u "$work"/ports/* | wc -l) == 2 ]] || fail "two steps at once share a port: $(cat "$work"/ports/*)"
