#!/usr/bin/env bash
# Steps of salloc and sbatch inherit the option, the batch script itself is no rank; steps and jobs that run at once
# meet at different ports; a requeued job is another run.
source "$(dirname "$0")/case.sh"
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK $(hostname)'

wait_for 60 all_nodes_are_idle
expect "0/3 0 n0
1/3 1 n0
2/3 0 n1
shell 'unset'" on_login salloc -N2 -n3 --torch-env sh -c "echo shell \"'\${RANK-unset}'\"; srun sh -c '$show'"

cat >"$work/job.sh" <<JOB
#!/bin/sh
echo batch "'\${RANK-unset}'"
srun /bin/sh -c '$show'
srun -N1 -n2 -w n1 --torch-env=ranks=block /bin/sh -c '$show'
JOB
# srun says on stderr that it waits for the step before it.
batch() { on_login sbatch --wait -o "$work/batch.out" -e "$work/batch.err" "$@" >/dev/null && cat "$work/batch.out"; }
both_steps="0/2 0 n1
0/4 0 n0
1/2 1 n1
1/4 1 n0
2/4 0 n1
3/4 1 n1
batch 'unset'"
expect "$both_steps" batch -N2 -n4 --ntasks-per-node=2 --torch-env "$work/job.sh"
expect "$both_steps" batch -N2 -n4 --ntasks-per-node=2 --export=NONE --torch-env "$work/job.sh"

# All components inherit the option, whichever it was given to.
cat >"$work/components.sh" <<JOB
#!/bin/sh
srun --het-group=0,1 sh -c '$show'
srun --het-group=1 sh -c '$show'
JOB
expect "0/2 0 n1
0/3 0 n0
1/2 1 n1
1/3 0 n1
2/3 1 n1" batch -n1 --torch-env : -n2 "$work/components.sh"

# The shell command of one of TOTAL programs that run at once: writes WHAT to FOLDER/NAME, and waits until all have.
meet() {
  local folder=$work/$1 total=$2 name=$3 what=$4
  mkdir -p "$folder"
  printf 'echo "%s" >"%s/%s"; until [ $(ls "%s" | wc -l) = %d ]; do :; done' "$what" "$folder" "$name" \
    "$folder" "$total"
}

# The steps run on the same CPUs of the same node.
step=$(meet steps 3 '$SLURM_STEP_ID' '$MASTER_PORT')
on_login salloc -N1 -n1 \
  --torch-env sh -c "srun --overlap sh -c '$step' & srun --overlap sh -c '$step' & srun --overlap sh -c '$step' & wait"
[[ $(sort -u "$work"/steps/* | wc -l) == 3 ]] || fail "steps at once share a port: $(cat "$work"/steps/*)"

task=$(meet array 2 '$SLURM_ARRAY_TASK_ID' '$MASTER_PORT $TORCHELASTIC_RUN_ID')
on_login sbatch --wait -o /dev/null --array=0-1 -N1 -n1 --torch-env --wrap "srun sh -c '$task'"
for field in 1 2; do
  [[ $(cut -d' ' -f$field "$work"/array/* | sort -u | wc -l) == 2 ]] ||
    fail "array tasks share a port or a run: $(cat "$work"/array/*)"
done

# The first run waits to be requeued.
run="echo \$TORCHELASTIC_RESTART_COUNT \$TORCHELASTIC_RUN_ID \$MASTER_PORT >'$work/run'.part
  mv '$work/run'.part '$work/run'.\$TORCHELASTIC_RESTART_COUNT
  test \$TORCHELASTIC_RESTART_COUNT = 1 || exec sleep 1000"
wrapped="srun sh -c \"$(sed 's/[\\$"]/\\&/g' <<<"$run")\""
job=$(on_login sbatch --parsable --requeue -o /dev/null -n1 --torch-env --wrap "$wrapped")
wait_for 20 test -e "$work/run.0"
on_login scontrol requeue "$job"
wait_for 60 test -e "$work/run.1"
read -r restarts run_id port <"$work/run.0"
[[ "$restarts $run_id" == "0 slurm-$job.0" ]] || fail "the first run: $restarts $run_id"
read -r restarts run_id port_after <"$work/run.1"
[[ "$restarts $run_id" == "1 slurm-$job.0-r1" ]] || fail "the second run: $restarts $run_id"
((port != port_after)) || fail "both runs meet at port $port"
