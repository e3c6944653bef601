#!/usr/bin/env bash
# Bad input under srun and mpirun: one line of one rank names it, and the job ends within seconds with an error.
source "$(dirname "$0")/case.sh"
trainer="$BUILD_DIR/bin/trainer"
seconds=20
on_this_host() { "$within" "$limit" "$@"; }

under_srun() {  # under_srun PATTERN TRAINER_ARGUMENTS...
  local pattern=$1
  shift
  expect_error "$pattern" "$seconds" on_login srun -N2 -n3 --torch-env "$trainer" "$@"
  expect_one_line
}
under_mpirun() {
  local pattern=$1
  shift
  expect_error "$pattern" "$seconds" on_this_host mpirun -np 3 "$trainer" "$@"
  expect_one_line
}
expect_one_line() { (($(grep -c '^trainer: rank' "$work/stderr") == 1)) || fail "expected one line from one rank"; }

for under in under_srun under_mpirun; do
  $under "^trainer: rank 0: .*--epoch" --epoch 3
  # The text of a line does not depend on the launcher: these rows differ from others by their text alone.
  if [[ $under == under_srun || -n ${TORCHBRIDGE_COMPLETE:-} ]]; then
    $under "^trainer: rank 0: .*--batch-size.*" --batch-size 0
    mkdir -p "$work/empty"
    $under "^trainer: rank [0-9]: .*$work/empty" --data "$work/empty"
    $under "^trainer: rank [0-9]: .*/proc/nowhere/m.jsonl" --epochs 1 --metrics /proc/nowhere/m.jsonl
  fi
  $under "^trainer: rank [0-9]: .*$work/missing" --data "$work/missing"
  $under "^trainer: rank [0-9]: .*/proc/nowhere" --epochs 1 --checkpoint-dir /proc/nowhere
  [[ -d $work/other ]] || "$trainer" --max-steps 1 --model mlp:32 --checkpoint-dir "$work/other" --quiet
  $under "^trainer: rank [0-9]: .*layers\..*weight" --epochs 1 --checkpoint-dir "$work/other"
  # Test images of another size than the training images, and labels that training never saw.
  mkdir -p "$work/unfit"
  cp "$SOURCE_DIR"/data/digits/train-* "$work/unfit"
  printf '\0\0\10\3\0\0\0\1\0\0\0\2\0\0\0\2\1\2\3\4' >"$work/unfit/t10k-images-idx3-ubyte"
  printf '\0\0\10\1\0\0\0\1\0' >"$work/unfit/t10k-labels-idx1-ubyte"
  $under "^trainer: rank 0: data folder '$work/unfit': .* 64 pixels each, test images 4; give another --data" \
    --data "$work/unfit"
done

# mpirun ends all ranks when one has failed: one rank reports also where rank 0 starts late, and some ranks end before
# they can. The delay is short: rank 1 reports in rank 0's place after five seconds, and on busy cores both would.
expect_error "^trainer: rank [01]: .*--epoch" "$seconds" \
  on_this_host mpirun -np 1 sh -c "sleep 0.2; exec $trainer --epoch 3" : -np 2 "$trainer" --epoch 3
expect_one_line

# An interface that the other node does not reach is named by each rank that has it, before they connect.
GLOO_SOCKET_IFNAME=lo expect_error \
  "^trainer: rank 0: GLOO_SOCKET_IFNAME='lo': n0 has no such interface that other nodes can reach; it has eth0" \
  "$seconds" on_login srun -N2 -n2 "$trainer" --max-steps 1

# An address that is not rank 0's, a name that does not resolve, an agent that does not run, a WORLD_SIZE that is not
# the launcher's.
MASTER_ADDR=n1 expect_error '^srun: error: torch-env: MASTER_ADDR=n1 is not an address of n0, where rank 0 runs' \
  "$seconds" \
  on_login srun -N2 -n2 --torch-env "$trainer"
MASTER_ADDR=nohost.invalid expect_error "^srun: error: torch-env: MASTER_ADDR=nohost.invalid: .*does not resolve" \
  "$seconds" \
  on_login srun -N2 -n2 --torch-env "$trainer"
MASTER_ADDR=192.0.2.1 MASTER_PORT=29515 expect_error '^trainer: rank 0: MASTER_ADDR=192.0.2.1' "$seconds" \
  on_this_host mpirun -np 2 "$trainer"
expect_one_line
MASTER_ADDR=nohost.invalid MASTER_PORT=29515 expect_error \
  '^trainer: rank 0: MASTER_ADDR=nohost.invalid: .*set it to' "$seconds" on_this_host mpirun -np 2 "$trainer"
expect_one_line
TORCHELASTIC_USE_AGENT_STORE=True expect_error '^trainer: rank 0: .*TORCHELASTIC_USE_AGENT_STORE=True' "$seconds" \
  on_login srun -N1 -n2 --torch-env "$trainer" --timeout 3
expect_one_line
WORLD_SIZE=7 expect_error "^trainer: rank 0: WORLD_SIZE='7' is exported, but openmpi started 2 ranks: unset it" \
  "$seconds" on_this_host mpirun -np 2 "$trainer"
expect_one_line
WORLD_SIZE=7 expect_error "^trainer: rank 0: WORLD_SIZE='7' is exported, but slurm started 2 ranks: unset it" \
  "$seconds" on_login srun -N2 -n2 "$trainer"
expect_one_line

# Variables set by hand, as without the plugin.
by_hand='export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS MASTER_ADDR=n0'
# What is missing is the launcher's, as long as the rest agrees with it.
on_login srun -N2 -n3 sh -c "$by_hand; exec $trainer --max-steps 1" >"$work/out" ||
  fail "not completed: $(<"$work/out")"
expect_error "^trainer: rank 0: .*WORLD_SIZE='none'" "$seconds" \
  on_login srun -N2 -n3 sh -c "$by_hand; export MASTER_PORT=29514 WORLD_SIZE=none; exec $trainer"
expect_one_line
expect_error "^trainer: rank 0: slurm: the step has 5 tasks, but its nodes hold 4 tasks" "$seconds" \
  on_login srun -N2 -n4 env SLURM_STEP_NUM_TASKS=5 "$trainer"
expect_one_line
RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29514 expect_error \
  "^trainer: rank 0: RANK='0' and WORLD_SIZE='1' are exported, but mpirun started rank [0-2] of 3" "$seconds" \
  on_this_host mpirun -np 3 "$trainer"
expect_one_line

# A MASTER_PORT set by hand that another program has: the ranks that connect to it must not wait for a store forever.
occupy_port_on n0
expect_error "^trainer: rank 0: .*MASTER_PORT=$port.*in use" 30 \
  on_login srun -N2 -n4 sh -c "$by_hand; export MASTER_PORT=$port; exec $trainer"
# This srun does not end the others, to which the other program might be a rank 0 that is stopped.
grep '^trainer: rank' "$work/stderr" | sed 1d >"$work/others"
(($(wc -l <"$work/others") <= 1)) && ! grep -v '^trainer: rank 1: the store at .* does not answer' "$work/others" ||
  fail "rank 1 alone reports a store that does not answer"
release_port
