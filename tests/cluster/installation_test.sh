#!/usr/bin/env bash
# plugstack.conf is not the same everywhere: the plugin is missing, doubled, of another version or wrongly set up on one
# node, or on the login node. One line says so, and no rank waits for ever.
source "$(dirname "$0")/case.sh"
plugin=$1 other_version=$2 other_release=$3
show='echo $RANK/$WORLD_SIZE $(hostname)'
# The other ranks of these steps would wait for rank 1 of n1 for ever.
wait_for_rank_1='if [ "$RANK" = 1 ] || [ $(hostname) = n1 ]; then exit ${RANK:-0}; else exec sleep 1000; fi'

expect_one_line_of_ours() {
  (($(grep -cE '^((srun|slurmstepd-n[0-9]): error: )?torch-env: ' "$work/stderr") == 1)) ||
    fail "expected one line of ours"
}

# Missing on one node. The program there finds words instead of a rank; the others are told by the roll call.
with_plugstack n1 ""
or_missing='\(or is torch_env.so missing in its plugstack.conf\?\)$'
expect_refusal "^srun: error: torch-env: no word within 2 s from n1: .* $or_missing" 10 \
  on_login srun -N3 -n3 --torch-env=check=2 sh -c "$wait_for_rank_1"
expect_one_line_of_ours
expect_refusal "ValueError: .*'torch_env.so-is-not-loaded-on-this-node'" 10 on_login srun -N1 -n1 -w n1 --torch-env \
  /usr/bin/python3 -c 'import os; int(os.environ["RANK"])'
TORCHBRIDGE_OPTIONS=check=2 expect_refusal '^srun: error: torch-env: no word .* from n1: ' 10 \
  on_login srun -N3 -n3 sh -c "$wait_for_rank_1"
expect_refusal '^srun: error: torch-env: no word .* from n1: ' 10 \
  on_login srun -N3 -n3 --export=NONE --torch-env=check=2 /bin/sh -c "exec /bin/sleep 1000"
# Nor does torchrun run alone there, and our own programs name the node and end the step.
expect "torch_env.so-is-not-loaded-on-this-node" on_login srun -N1 -n1 -w n1 --torch-env sh -c 'echo $PET_NNODES'
python=$SOURCE_DIR/.venv/bin/python
[[ ! -x $python ]] ||
  expect_refusal "ValueError: .*'torch_env.so-is-not-loaded-on-this-node'" 60 on_login srun -N1 -n1 -w n1 --torch-env \
  "$python" -m torch.distributed.run -m this
not_loaded="^torchbridge: (rank 1 on n1: )?torch_env.so is not loaded on this node:"
not_loaded+=" add it to plugstack.conf of n1, or leave the node out \(--exclude\)$"
for export in ALL NONE; do
  expect_refusal "$not_loaded" 15 \
    on_login srun -N3 -n4 -m cyclic --export=$export --torch-env "$BUILD_DIR/bin/torchbridge" exec -- /bin/sleep 1000
  expect_refusal "$not_loaded" 15 \
    on_login srun -N1 -n2 -w n1 --export=$export --torch-env "$BUILD_DIR/bin/torchbridge" exec -- /bin/sleep 1000
done
# Of its own environment srun gives others' programs nothing to notice it by then: docs/admin/plugin.md.
expect none on_login srun -N1 -n1 -w n1 --export=NONE --torch-env /bin/sh -c 'echo ${RANK:-none}'
# The node of rank 0: all others miss it, one says so.
with_plugstack n0 ""
expect_refusal "^srun: error: torch-env: node n[1-3] does not reach the node of rank 0, n0: .* $or_missing" 10 \
  on_login srun -N4 -n4 --torch-env=check=2 sleep 1000
expect_one_line_of_ours

# Twice, as one file or as two: a line for each such node, and the environment is as ever.
cp "$plugin" "$work/copy.so"
for second in "$plugin" "$work/copy.so"; do
  with_plugstack n1 "optional $plugin\noptional $second\n"
  for list in "" "ranks=block"; do
    TORCHBRIDGE_OPTIONS=$list expect $'0/3 n0\n1/3 n1\n2/3 n1' \
      on_login srun -n3 -m arbitrary -w n0,n1,n1 --torch-env=ranks=block sh -c "$show"
  done
  TORCHBRIDGE_OPTIONS=verbose=no expect $'0/2 n0\n1/2 n1' on_login srun -N2 -n2 sh -c "$show"
  grep -q "^torch-env: plugstack.conf on n1 loads the plugin twice: remove one of the lines$" "$work/stderr" ||
    fail "no word of it: $(cat "$work/stderr")"
  expect_one_line_of_ours
done
as_before
printf "optional $plugin\n" >"$work/included.conf"
expect $'0/2 n0\n1/2 n1' from_login_with "include $work/included.conf\noptional $plugin\n" \
  srun -N2 -n2 --torch-env sh -c "$show"
grep -q '^srun: spank: option "torch-env" provided by both torch_env.so and torch_env.so$' "$work/stderr" ||
  fail "Slurm is silent: $(cat "$work/stderr")"

# Another version on one node, or on the login node.
with_plugstack n1 "optional $other_version\n"
both="the plugin on n1 speaks version 3 and that of srun version '2': install the same torch_env.so on both"
expect_refusal "^srun: error: torch-env: $both$" 10 \
  on_login srun -N3 -n5 --torch-env sh -c "$wait_for_rank_1"
expect_one_line_of_ours
expect_refusal "^srun: error: torch-env: the plugin on n1 speaks version 3 and" 10 \
  on_login srun -N2 -n2 --export=NONE --torch-env /bin/sleep 1000
as_before
expect_refusal "^srun: error: torch-env: the plugin on n[0-3] speaks version 2 and that of srun version '3'" 10 \
  from_login_with "optional $other_version\n" srun -N4 -n8 --torch-env sleep 1000
expect_one_line_of_ours
# The components of a heterogeneous job are jobs of their own: all end.
with_plugstack n1 "optional $other_version\n"
expect_refusal "^srun: error: torch-env: the plugin on n1 speaks version 3 and" 15 \
  on_login srun -N1 -n1 -w n0 --torch-env sleep 1000 : -N1 -n1 -w n1 sleep 1000
as_before

# Built for another release of Slurm, which refuses it and would run the job without ranks. Who does not ask for it is
# left alone.
for command in "srun -N2 -n2 true" "sbatch --wrap true" "salloc true"; do
  refusal="TORCHBRIDGE_OPTIONS is set, but torch_env.so in plugstack.conf was built for Slurm 19.05 and"
  TORCHBRIDGE_OPTIONS=ranks=block expect_refusal "^${command%% *}: error: torch-env: $refusal" 10 \
    from_login_with "optional $other_release\n" $command
done
# Nor steps of a job that was given the option while the plugin was right.
printf 'optional %s\n' "$other_release" >"$work/other.conf"
expect_refusal "^srun: error: torch-env: SLURM_SPANK__SLURM_SPANK_OPTION_torch_env_torch_env is set, but" 10 \
  on_login salloc -Q -N2 -n2 --torch-env \
  unshare --mount sh -c 'mount --bind "$0" "$1"; exec srun true' "$work/other.conf" "$plugstack"
expect $'/\n/' from_login_with "optional $other_release\n" srun -N2 -n2 sh -c 'echo $RANK/$WORLD_SIZE'
TORCHBRIDGE_OPTIONS=ranks=block expect "" from_login_with "optional $other_release\n" squeue --noheader
# Refused on one node alone: a program finds words there instead of a rank.
with_plugstack n1 "optional $other_release\n"
expect_refusal "ValueError: .*'torch_env.so-is-not-loaded-on-this-node'" 10 on_login srun -N1 -n1 -w n1 --torch-env \
  /usr/bin/python3 -c 'import os; int(os.environ["RANK"])'
as_before

# Site defaults that are wrong on one node do not matter: the login node's hold for all, and where that has no plugin
# the node's own.
with_plugstack n1 "optional $plugin ranks=hilbert\n"
expect $'0/2 n0\n1/2 n1' on_login srun -N2 -n2 --torch-env sh -c "$show"
TORCHBRIDGE_OPTIONS=omp=2 expect_refusal \
  "torch-env: plugstack.conf: option 'ranks=hilbert': expected ranks=slurm\|block \(on n1\)$" 10 \
  from_login_with "" srun -N2 -n4 -w n0,n1 sleep 1000
expect_one_line_of_ours
as_before

# On the login node, where the option itself is right: Slurm does not blame it.
for command in "srun -N2 -n2 --torch-env true" "srun --torch-env=port=29511 true" "sbatch --torch-env --wrap true"; do
  expect_refusal \
    "^(srun|sbatch): error: torch-env: plugstack.conf: option 'ranks=hilbert': expected ranks=slurm\|block$" 10 \
    from_login_with "optional $plugin ranks=hilbert\n" $command
  ! grep -i invalid "$work/stderr" || fail "Slurm calls the option wrong"
done

# No plugin on the login node: its option is unknown there; the variable works.
expect_refusal "^srun: unrecognized option '--torch-env'$" 10 from_login_with "" srun -N2 -n2 --torch-env true
TORCHBRIDGE_OPTIONS=ranks=block expect $'0/2 n0\n1/2 n1' from_login_with "" srun -N2 -n2 sh -c "$show"

# Only the variable asks, and srun keeps it: the nodes get its list, behind the site's.
TORCHBRIDGE_OPTIONS=ranks=block expect $'0/2 29519 3\n1/2 29519 3' \
  from_login_with "optional $plugin port=29519 omp=3\n" \
  srun -N1 -n2 --export=NONE /bin/sh -c 'echo $RANK/$WORLD_SIZE $MASTER_PORT $OMP_NUM_THREADS'
# What a step without the plugin leaves behind for a step inside it, which nobody asked for.
SLURM_TORCH_ENV="2 0 - ranks=block" SLURM_TORCH_ENV_STEP="1 0.0 n0 0" expect "" \
  on_login srun -n1 sh -c 'env | grep -E "RANK=|SLURM_TORCH_ENV"; true'

# What is said between srun's plugin and the nodes' is not seen by the program, nor by a shell that is no rank.
expect "" on_login srun -n1 --torch-env sh -c 'env | grep -E "SLURM_TORCH_ENV=|TORCH_ENV_BEEN|not-loaded"; true'
expect "" on_login srun -N1 -n1 --export=RANK --torch-env=override=yes \
  /bin/sh -c '/usr/bin/env | /bin/grep not-loaded; true'
