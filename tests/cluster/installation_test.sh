#!/usr/bin/env bash
# plugstack.conf differs between nodes: on one node, or on the login node, the plugin is missing, loaded twice, of
# another version or has wrong defaults. One line reports it, and no rank waits forever.
source "$(dirname "$0")/case.sh"
plugin=$1 other_version=$2 other_release=$3
show='echo $RANK/$WORLD_SIZE $(hostname)'
# The other ranks of these steps would wait for rank 1 on n1 forever.
wait_for_rank_1='if [ "$RANK" = 1 ] || [ $(hostname) = n1 ]; then exit ${RANK:-0}; else exec sleep 1000; fi'

expect_one_line_of_ours() {
  (($(grep -cE '^((srun|slurmstepd-n[0-9]): error: )?torch-env: ' "$work/stderr") == 1)) ||
    fail "expected one line of ours"
}

# Missing on one node. The program there finds no rank; the other nodes notice it by the check of all nodes.
with_plugstack n1 ""
or_missing='\(or is torch_env.so missing in its plugstack.conf\?\)$'
expect_error "^srun: error: torch-env: no message within 2 s from n1: .* $or_missing" 20 \
  on_login srun -N3 -n3 -w n0,n1,n2 --torch-env=check=2 sh -c "$wait_for_rank_1"
expect_one_line_of_ours
expect_error "ValueError: .*'torch_env.so-is-not-loaded-on-this-node'" 20 on_login srun -N1 -n1 -w n1 --torch-env \
  /usr/bin/python3 -c 'import os; int(os.environ["RANK"])'
TORCHBRIDGE_OPTIONS=check=2 expect_error '^srun: error: torch-env: no message within 2 s from n1: ' 20 \
  on_login srun -N3 -n3 -w n0,n1,n2 sh -c "$wait_for_rank_1"
expect_error '^srun: error: torch-env: no message within 2 s from n1: ' 20 \
  on_login srun -N3 -n3 -w n0,n1,n2 --export=NONE --torch-env=check=2 /bin/sh -c "exec /bin/sleep 1000"
# torchrun does not run as a job of one there, and our own programs name the node and end the step.
expect "torch_env.so-is-not-loaded-on-this-node" on_login srun -N1 -n1 -w n1 --torch-env sh -c 'echo $PET_NNODES'
python=$SOURCE_DIR/.venv/bin/python
[[ ! -x $python ]] ||
  expect_error "ValueError: .*'torch_env.so-is-not-loaded-on-this-node'" 60 on_login srun -N1 -n1 -w n1 --torch-env \
  "$python" -m torch.distributed.run -m this
not_loaded="^torchbridge: (rank 1 on n1: )?torch_env.so is not loaded on this node:"
not_loaded+=" add it to plugstack.conf of n1, or leave the node out \(--exclude\)$"
for export in ALL NONE; do
  expect_error "$not_loaded" 15 \
    on_login srun -N3 -n4 -w n0,n1,n2 -m cyclic --export=$export --torch-env \
    "$BUILD_DIR/bin/torchbridge" exec -- /bin/sleep 1000
  expect_error "$not_loaded" 15 \
    on_login srun -N1 -n2 -w n1 --export=$export --torch-env "$BUILD_DIR/bin/torchbridge" exec -- /bin/sleep 1000
done
# Without the environment of srun other programs have nothing to notice it by: docs/admin/plugin.md.
expect none on_login srun -N1 -n1 -w n1 --export=NONE --torch-env /bin/sh -c 'echo ${RANK:-none}'
# Missing on the node of rank 0: one of the other nodes reports it.
with_plugstack n0 ""
expect_error "^srun: error: torch-env: node n[1-3] cannot reach the node of rank 0, n0: .* $or_missing" 20 \
  on_login srun -N4 -n4 --torch-env=check=2 sleep 1000
expect_one_line_of_ours

# Loaded twice, as one file or as two: a line for each such node, and the environment is right.
cp "$plugin" "$work/copy.so"
for second in "$plugin" "$work/copy.so"; do
  with_plugstack n1 "optional $plugin\noptional $second\n"
  for list in "" "ranks=block"; do
    TORCHBRIDGE_OPTIONS=$list expect $'0/3 n0\n1/3 n1\n2/3 n1' \
      on_login srun -n3 -m arbitrary -w n0,n1,n1 --torch-env=ranks=block sh -c "$show"
  done
  TORCHBRIDGE_OPTIONS=verbose=no expect $'0/2 n0\n1/2 n1' on_login srun -N2 -n2 -w n0,n1 sh -c "$show"
  grep -q "^torch-env: plugstack.conf on n1 loads the plugin twice: remove one of the lines$" "$work/stderr" ||
    fail "no line about it: $(cat "$work/stderr")"
  expect_one_line_of_ours
done
as_before
printf "optional $plugin\n" >"$work/included.conf"
expect $'0/2 n0\n1/2 n1' from_login_with "include $work/included.conf\noptional $plugin\n" \
  srun -N2 -n2 -w n0,n1 --torch-env sh -c "$show"
grep -q '^srun: spank: option "torch-env" provided by both torch_env.so and torch_env.so$' "$work/stderr" ||
  fail "Slurm prints nothing: $(cat "$work/stderr")"

# Another version on one node, or on the login node.
with_plugstack n1 "optional $other_version\n"
protocol=$(sed -n 's/^#define TORCH_ENV_PROTOCOL //p' "$SOURCE_DIR/spank_plugin/step_request.cpp")
both="torch_env.so has protocol version 99 on n1 and '$protocol' in srun: install the same torch_env.so on both"
expect_error "^srun: error: torch-env: $both$" 20 \
  on_login srun -N3 -n5 --torch-env sh -c "$wait_for_rank_1"
expect_one_line_of_ours
expect_error "^srun: error: torch-env: torch_env.so has protocol version 99 on n1 and" 20 \
  on_login srun -N2 -n2 --export=NONE --torch-env /bin/sleep 1000
as_before
expect_error "^srun: error: torch-env: torch_env.so has protocol version $protocol on n[0-3] and '99' in srun" 20 \
  from_login_with "optional $other_version\n" srun -N4 -n8 --torch-env sleep 1000
expect_one_line_of_ours
# The components of a heterogeneous job are separate jobs: all end.
with_plugstack n1 "optional $other_version\n"
expect_error "^srun: error: torch-env: torch_env.so has protocol version 99 on n1 and" 15 \
  on_login srun -N1 -n1 -w n0 --torch-env sleep 1000 : -N1 -n1 -w n1 sleep 1000
as_before

# Built for another release of Slurm, which rejects the plugin and would run the job without ranks. Steps without the
# plugin run as usual.
for command in "srun -N2 -n2 true" "sbatch --wrap true" "salloc true"; do
  error="TORCHBRIDGE_OPTIONS is set, but torch_env.so in plugstack.conf was built for Slurm 19.05 and"
  TORCHBRIDGE_OPTIONS=ranks=block expect_error "^${command%% *}: error: torch-env: $error" 20 \
    from_login_with "optional $other_release\n" $command
done
# Also in steps of a job that got the option while the plugin was right.
printf 'optional %s\n' "$other_release" >"$work/other.conf"
expect_error "^srun: error: torch-env: SLURM_SPANK__SLURM_SPANK_OPTION_torch_env_torch_env is set, but" 20 \
  on_login salloc -Q -N2 -n2 --torch-env \
  unshare --mount sh -c 'mount --bind "$0" "$1"; exec srun true' "$work/other.conf" "$plugstack"
expect $'/\n/' from_login_with "optional $other_release\n" srun -N2 -n2 sh -c 'echo $RANK/$WORLD_SIZE'
TORCHBRIDGE_OPTIONS=ranks=block expect "" from_login_with "optional $other_release\n" squeue --noheader
# Rejected on one node only: a program there finds no rank.
with_plugstack n1 "optional $other_release\n"
expect_error "ValueError: .*'torch_env.so-is-not-loaded-on-this-node'" 20 on_login srun -N1 -n1 -w n1 --torch-env \
  /usr/bin/python3 -c 'import os; int(os.environ["RANK"])'
as_before

# Wrong site defaults on one node have no effect: those of the login node are used. Where the login node has no plugin,
# each node uses its own.
with_plugstack n1 "optional $plugin ranks=hilbert\n"
expect $'0/2 n0\n1/2 n1' on_login srun -N2 -n2 -w n0,n1 --torch-env sh -c "$show"
TORCHBRIDGE_OPTIONS=omp=2 expect_error \
  "torch-env: plugstack.conf: option 'ranks=hilbert': expected ranks=slurm\|block \(on n1\)$" 20 \
  from_login_with "" srun -N2 -n4 -w n0,n1 sleep 1000
expect_one_line_of_ours
as_before

# On the login node, with a right option: the error names plugstack.conf, not the option.
for command in "srun -N2 -n2 --torch-env true" "srun --torch-env=port=29511 true" "sbatch --torch-env --wrap true"; do
  expect_error \
    "^(srun|sbatch): error: torch-env: plugstack.conf: option 'ranks=hilbert': expected ranks=slurm\|block$" 20 \
    from_login_with "optional $plugin ranks=hilbert\n" $command
  ! grep -i invalid "$work/stderr" || fail "Slurm reports the option as invalid"
done

# No plugin on the login node: the option is unknown, but the variable works.
expect_error "^srun: unrecognized option '--torch-env'$" 10 from_login_with "" srun -N2 -n2 --torch-env true
TORCHBRIDGE_OPTIONS=ranks=block expect $'0/2 n0\n1/2 n1' from_login_with "" srun -N2 -n2 -w n0,n1 sh -c "$show"

# Only the variable requests the plugin, and --export=NONE drops it: the nodes get its list from srun, after the site's.
TORCHBRIDGE_OPTIONS=ranks=block expect $'0/2 29519 3\n1/2 29519 3' \
  from_login_with "optional $plugin port=29519 omp=3\n" \
  srun -N1 -n2 --export=NONE /bin/sh -c 'echo $RANK/$WORLD_SIZE $MASTER_PORT $OMP_NUM_THREADS'
# Variables that a step on a node without the plugin passes to a step inside it request nothing.
SLURM_TORCH_ENV="2 0 - ranks=block" SLURM_TORCH_ENV_STEP="1 0.0 n0 0" expect "" \
  on_login srun -n1 sh -c 'env | grep -E "RANK=|SLURM_TORCH_ENV"; true'

# A program does not see the variables that srun's plugin passes to the nodes', and a shell that is not a rank neither.
expect "" on_login srun -n1 --torch-env sh -c 'env | grep -E "SLURM_TORCH_ENV=|TORCH_ENV_BEEN|not-loaded"; true'
expect "" on_login srun -N1 -n1 --export=RANK --torch-env=override=yes \
  /bin/sh -c '/usr/bin/env | /bin/grep not-loaded; true'
