#!/usr/bin/env bash
# Compares the workers' environments of real torchrun agents and of the plugin on the same layouts.
source "$(dirname "$0")/case.sh"
export torchrun=$SOURCE_DIR/.venv/bin/torchrun work
[[ -x $torchrun ]] || skip "no torchrun in .venv: run scripts/setup"

cat >"$work/agent" <<'AGENT'
#!/bin/sh
tasks=$(echo "$1" | cut -d' ' -f$((SLURM_NODEID + 1)))
shift
exec "$torchrun" --log-dir "$work/logs" --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" \
  --nproc-per-node "$tasks" --no-python "$@"
AGENT
cat >"$work/keep_environment" <<'PROBE'
#!/bin/sh
exec env -0 >"$1/$RANK"
PROBE
chmod +x "$work/agent" "$work/keep_environment"

# expect_equal "TASKS ON EACH NODE" "SRUN OPTIONS OF AGENTS" "SRUN OPTIONS OF TASKS" TORCHRUN_OPTIONS...
expect_equal() {
  local tasks=$1 agents=$2 plugin=$3
  shift 3
  printf '$ srun %s torchrun %s  against  srun %s\n' "$agents" "$*" "$plugin"
  rm -rf "$work/theirs" "$work/ours"
  mkdir "$work/theirs" "$work/ours"
  # shellcheck disable=SC2086  # the options are words
  on_login srun $agents --ntasks-per-node=1 "$work/agent" "$tasks" "$@" "$work/keep_environment" "$work/theirs" \
    2>"$work/stderr" || { cat "$work/stderr"; fail "torchrun ended with an error"; }
  # shellcheck disable=SC2086
  on_login srun $plugin "$work/keep_environment" "$work/ours"
  "$SOURCE_DIR/.venv/bin/python" "$SOURCE_DIR/tests/reference/compare_environments.py" "$work/theirs" "$work/ours" ||
    fail "the environments differ"
}

elastic=(--rdzv-backend c10d --rdzv-id diff --rdzv-endpoint)
expect_equal "2 2" "-N2" "-N2 -n4 --ntasks-per-node=2 --torch-env=ranks=block" "${elastic[@]}" n0:29400
expect_equal "3 1" "-N2" "-N2 -n4 --torch-env=ranks=block" --master-addr n0 --master-port 29401
expect_equal "2" "-N1 --gres=gpu:2" "-N1 -n2 --gres=gpu:2 --torch-env=ranks=block,gpus=virtual" \
  --virtual-local-rank "${elastic[@]}" n0:29402

# torchrun's own options win over the plugin's defaults, also where each node has an srun of its own.
for node in 0 1; do
  on_login srun -Q -N1 -n1 -w "n$node" --torch-env "$torchrun" --nnodes 2 --node_rank "$node" --nproc_per_node 1 \
    --master_addr n0 --master_port 29403 --no-python sh -c 'echo $RANK/$WORLD_SIZE' >"$work/of_node$node" &
  agents[node]=$!
done
wait "${agents[0]}" && wait "${agents[1]}" || fail "the agents of two steps did not meet"
[[ $(cat "$work"/of_node?) == $'0/2\n1/2' ]] || fail "other ranks: $(cat "$work"/of_node?)"

# What stands behind its script is not torchrun's, nor are the options of another command.
show='echo $RANK/$WORLD_SIZE'
expect $'0/2\n1/2' on_login srun -N2 --ntasks-per-node=1 --torch-env "$torchrun" --nproc-per-node 1 --no-python \
  sh -c "$show" --nnodes 1
expect $'0/2\n1/2' on_login srun -N2 --ntasks-per-node=1 --torch-env \
  bash -c "$torchrun --nproc-per-node 1 --no-python sh -c '$show'; true --standalone"

# Node 0 of torchrun is where the store is, also where that is not Slurm's first node.
expect $'n0 1/2\nn1 0/2' on_login srun -n2 -m arbitrary -w n1,n0 --torch-env "$torchrun" --nproc_per_node 1 \
  --no-python sh -c 'echo $(hostname) $RANK/$WORLD_SIZE'
# Several agents in one task, whose workers meet: each has a port of its own, at an address that a container in which
# the task starts it has, too.
mkfifo "$work/first" "$work/second"
cat >"$work/meet" <<'MEET'
#!/bin/sh
if [ "$1" = first ]; then : >"$work/first"; cat "$work/second"; else cat "$work/first"; : >"$work/second"; fi
echo $RANK/$WORLD_SIZE $MASTER_ADDR
MEET
chmod +x "$work/meet"
for way in --torch-env "$BUILD_DIR/bin/torchbridge exec --"; do
  # shellcheck disable=SC2086  # the way is several words
  expect $'0/1 127.0.0.1\n0/1 127.0.0.1' on_login srun -w n1 -n1 $way bash -c \
    "$torchrun --no-python $work/meet first & $torchrun --no-python $work/meet second && wait \$!"
done
