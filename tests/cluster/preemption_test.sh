#!/usr/bin/env bash
# Jobs of trainer_template/train.sbatch, on a cluster of their own, through everything that ends a job early: each
# resumes by itself, and its losses are those of an undisturbed run.
CLUSTER_NAME+=-p
source "$(dirname "$0")/case.sh"
limit=90
cd "$work"
# Other tests compute meanwhile: most of this one waits for Slurm, for a minute and a half.
trainer=$work/trainer
printf '#!/bin/sh\nexec nice -n 10 "%s" "$@"\n' "$BUILD_DIR/bin/trainer" >"$trainer"
chmod +x "$trainer"

trap '"$CLUSTER" down --name "$CLUSTER_NAME"; rm -rf "$work"' EXIT
"$CLUSTER" up --name "$CLUSTER_NAME" --nodes 8 --cpus 8 --plugin "$1" --conf SlurmdTimeout=6 \
  --conf PreemptType=preempt/partition_prio --conf PreemptMode=REQUEUE \
  --conf 'PartitionName=urgent Nodes=ALL PriorityTier=10 State=UP'

# submit NAME SBATCH_ARGUMENTS...: prints the job's number.
submit() {
  local name=$1
  shift
  RUN="$work/$name" TRAINER="${TRAINER-$trainer}" BACKOFF=1 MAX_TRIES="${MAX_TRIES-20}" \
    OPTIONS="--epochs 1000000 --batch-size 16 --checkpoint-every 10 --quiet ${OPTIONS-}" \
    on_login sbatch --parsable -o "$work/$name.out" "$@" "$SOURCE_DIR/trainer_template/train.sbatch"
}
newest() {
  local marks=("$work/$1"/checkpoints/step-*/DONE)
  [[ -e ${marks[-1]} ]] && sed 's/.*step-0*\([0-9]*\).*/\1/' <<<"${marks[-1]}" || echo 0
}
has_passed() { (($(newest "$1") > $2)); }
field() { on_login scontrol show job "$1" --oneliner | sed -n "s/.* $2=\([^ ]*\).*/\1/p"; }
# runs JOB RESTARTS: it runs, started again as often or more often. A run may last for seconds only.
runs() {
  local restarts
  restarts=$(on_login scontrol show job "$1" --oneliner | sed -n 's/.* JobState=RUNNING .* Restarts=\([0-9]*\) .*/\1/p')
  ((${restarts:--1} >= $2))
}
nodes_of() { on_login scontrol show hostnames "$(field "$1" NodeList)"; }

# disturb NAME JOB COMMAND...: runs the command during training; then the job must start again.
disturb() {
  local name=$1 job=$2 restarts
  shift 2
  printf '$ %s: %s\n' "$name" "$*"
  restarts=$(field "$job" Restarts)
  wait_for 60 has_passed "$name" "$(newest "$name")"
  "$@"
  wait_for 90 runs "$job" $((restarts + 1))
}

# Compares the run, up to its last step, with an undisturbed run up to the same step.
expect_undisturbed() {
  local name=$1 job=$2 last
  shift 2
  wait_for 60 has_passed "$name" "$(newest "$name")"
  on_login scancel "$job"
  wait_for 30 ended "$job"
  last=$(losses "$work/$name/metrics.jsonl" | tail -n 1 | cut -d' ' -f1)
  # Not nice: on a loaded machine it would get no time.
  on_login srun "$@" --torch-env "$BUILD_DIR/bin/trainer" --epochs 1000000 --batch-size 16 --quiet \
    --max-steps "$last" --metrics "$work/$name.undisturbed" || fail "$name: the undisturbed run ended with $?"
  diff <(losses "$work/$name.undisturbed") <(losses "$work/$name/metrics.jsonl") >"$work/diff" || {
    head "$work/diff"
    fail "$name: other losses than undisturbed"
  }
  echo "$name: $last steps as undisturbed"
}
ended() { [[ -z $(on_login squeue --noheader --jobs "$1" 2>/dev/null) ]]; }

signals() {
  local job=$1 drained
  disturb signals "$job" on_login scontrol requeue "$job"
  disturb signals "$job" on_login scancel --signal=TERM "$job"          # to all ranks
  disturb signals "$job" on_login scancel --batch --signal=USR1 "$job"  # to the script, as --signal=B:USR1@ does
  disturb signals "$job" on_login srun -p urgent -w "$(nodes_of "$job" | paste -sd,)" -N2 -n2 --exclusive true
  grep -q 'DUE TO PREEMPTION' "$work/signals.out" || fail "the job of higher priority did not preempt"
  drained=$(nodes_of "$job" | head -n 1)
  on_login scontrol update NodeName="$drained" State=DRAIN Reason=test
  disturb signals "$job" on_login scancel --signal=USR2 "$job"
  nodes_of "$job" | grep -qx "$drained" && fail "it runs on the drained node $drained"
  expect_undisturbed signals "$job" -N2 -n4 --ntasks-per-node=2 --exclude=n[3-7]
}

lost_nodes() {
  local job=$1 node
  kill_slurmd() {
    kill -9 "$(pgrep -f -- "^slurmd -D -N $1\$" | while read -r pid; do
      grep -qsz "^SLURM_CONF=.*/$CLUSTER_NAME/slurm.conf" "/proc/$pid/environ" && echo "$pid"
    done)"
  }
  wait_for 60 runs "$job" 0
  disturb lost_nodes "$job" kill_slurmd "$(nodes_of "$job" | tail -n 1)"
  node=$(nodes_of "$job" | tail -n 1)
  disturb lost_nodes "$job" on_node "$node" ip link set eth0 down
  expect_undisturbed lost_nodes "$job" -N2 -n4 --ntasks-per-node=2 --exclude=n[3-7]
}

limits() {
  local job=$1 task
  for task in 0 1; do wait_for 90 runs "${job}_$task" 1; done
  for task in 0 1; do
    grep -q 'trainer: the job ends in' "$work/limits_$task.out" || fail "task $task: no line about the limit"
    expect_undisturbed "limits/$task" "${job}_$task" -N1 -n1 -w n7
  done
}

# Waits for a signal at the first start; ends with 0 at the second.
mkdir "$work/programs"
cat >"$work/programs/waits" <<'PROGRAM'
#!/bin/bash
folder=$2/step-00000001
echo "ends at $SLURM_JOB_END_TIME"
[[ ! -e $folder ]] || exit 0
trap 'mkdir -p "$folder"; touch "$folder/DONE"; exit 75' USR1 TERM
while :; do sleep infinity & wait; done  # Slurm's TERM may reach sleep first
PROGRAM
printf '#!/bin/sh\nexit 1\n' >"$work/programs/fails"
chmod +x "$work"/programs/*

# On separate nodes, because some chains lose theirs.
one_task=(-N1 -n1 --ntasks-per-node=1 -w n7)
waits=$(LAUNCHER=env TRAINER=$work/programs/waits submit waits "${one_task[@]}" --time=1 --signal=B:USR1@50)
# Ended at its limit, by TERM.
overdue=$(LAUNCHER=env TRAINER=$work/programs/waits submit overdue "${one_task[@]}" --time=1 --signal=CONT@10)
fails=$(LAUNCHER=env TRAINER=$work/programs/fails MAX_TRIES=2 submit fails "${one_task[@]}")
# A quarter of a minute, for loaded machines where the start takes more than five seconds.
limits=$(TRAINER=$BUILD_DIR/bin/trainer OPTIONS='--stop-before-limit 45' \
  submit limits "${one_task[@]}" --time=1 --array=0-1 -o "$work/limits_%a.out")
signals=$(submit signals --exclude=n[3-7])
lost_nodes=$(submit lost_nodes --exclude=n[0-2,7])

for chain in signals lost_nodes limits; do
  "$chain" "${!chain}" >"$work/$chain.log" 2>&1 & chains[$!]=$chain
done
status=0
for pid in "${!chains[@]}"; do
  wait "$pid" || { status=1; tail -n 40 "$work/${chains[$pid]}"*.out; }
  cat "$work/${chains[$pid]}.log"
done

wait_for 60 ended "$waits"
cat "$work/waits.out"
[[ $(grep '^ends at' "$work/waits.out" | sort -u | wc -l) == 2 ]] || fail "expected two starts with a limit each"
grep -q 'ended with code 75 at step 00000001' "$work/waits.out" ||
  fail "Slurm's signal before the limit did not reach the program"
wait_for 60 ended "$overdue"
(($(grep -c '^ends at' "$work/overdue.out") == 2)) || {
  cat "$work/overdue.out"
  fail "a job that its limit ended did not start again"
}
wait_for 60 ended "$fails"
(($(grep -c 'ended with code 1 at step none' "$work/fails.out") == 2)) &&
  grep -q '2 starts in a row wrote no checkpoint after step none: training is not started' "$work/fails.out" ||
  { cat "$work/fails.out"; fail "the failing job was not given up after two starts"; }
exit $status
