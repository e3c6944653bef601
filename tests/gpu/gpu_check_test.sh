#!/usr/bin/env bash
# scripts/gpu_check without a GPU: wrong use, and its archive on the CPU. gpu_check_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=$1 build_dir=$2
python=$(sed -n 's/^TORCHBRIDGE_PYTHON:INTERNAL=//p' "$build_dir/CMakeCache.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"  # not in the build folder, which is about to be hidden
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
[[ -x $python ]] || { echo "SKIPPED: no Python with torch: run scripts/setup"; exit 77; }
[[ -e $build_dir/lib/libtorchbridge_nccl.so ]] || { echo "SKIPPED: this libtorch is one for the CPU"; exit 77; }
grep -q '^TORCHBRIDGE_SANITIZE:STRING=$' "$build_dir/CMakeCache.txt" || {
  echo "SKIPPED: programs with sanitizers want to be where they were built"
  exit 77
}

check() { timeout 300 "$source_dir/scripts/gpu_check" --build "$build_dir" "$@"; }

# ends CODE PATTERN ARGUMENTS...: it ends with the code, and its last line on stderr matches.
ends() {
  local code=$1 pattern=$2 found=0
  shift 2
  printf '$ scripts/gpu_check %s\n' "$*"
  check "$@" 2>"$work/stderr" >"$work/stdout" || found=$?
  ((found == code)) || fail "exit code $found, expected $code: $(cat "$work/stdout" "$work/stderr")"
  tail -n 1 "$work/stderr" | grep -qE -- "$pattern" || fail "no '$pattern' in: $(cat "$work/stderr")"
}

CUDA_VISIBLE_DEVICES=-1 ends 77 '^gpu_check: no GPU here, .*: nothing was checked'
# A driver that shows one GPU, and is too old for the wheel.
driver=$build_dir/tests/programs/fake_driver
LD_LIBRARY_PATH=$driver ends 2 '^gpu_check: --ranks 2 needs as many GPUs, .*; visible here: 1$' --ranks 2
LD_LIBRARY_PATH=$driver ends 1 'the NVIDIA driver .*supports CUDA 12\.8 at most, .* it needs a driver from 580 on$'
ends 2 '^gpu_check: /none/bin/trainer is missing' --device cpu --build /none
ends 2 '^gpu_check: /none/python: No such file' --device cpu --python /none/python
ends 2 '^gpu_check: /usr/bin/false has no torch; the programs need 2\.' --device cpu --python /usr/bin/false
ends 2 'pack needs a file' pack
ends 2 'expected 10 or more' --steps 9
ends 2 'invalid choice' --only speeed
ends 2 'expected 1 or more' --ranks 0
ends 2 '--only subgroups needs --ranks 2 or more' --only subgroups
ends 2 "^gpu_check: cannot write '/none/gpu_check.tgz': No such file" pack /none/gpu_check.tgz
ends 2 '^gpu_check: /none/bin/trainer is missing' --build /none pack "$work/gpu_check.tgz"

# libtorch_cuda.so loads and reports that there is no GPU; the guard shows that it is that of a build with CUDA.
opened=$(CUDA_VISIBLE_DEVICES=-1 "$build_dir/bin/gpu_cases" open cuda)
[[ $opened == $'guard 1\ndevices 0' ]] || fail "libtorch_cuda.so: $opened"

# The archive, without the build folder and without the libraries of Debian's packages, except those that Python needs.
check pack "$work/gpu_check.tgz"
tar xf "$work/gpu_check.tgz" -C "$work"
away=()
for library in pmix munge event_core event_pthreads hwloc xxhash zip; do
  for file in /usr/lib/*/lib$library*.so* /usr/lib/*/pmix2/lib/lib$library*.so*; do
    [[ ! -f $file ]] || away+=("$file")
  done
done
if ((EUID == 0)); then
  elsewhere() {
    unshare --mount sh -c 'mount -t tmpfs none "$1"; shift
      while [ "$1" != -- ]; do mount --bind /dev/null "$1"; shift; done; shift; exec "$@"' \
      - "$build_dir" "${away[@]}" -- "$@"
  }
else
  elsewhere() { "$@"; }
fi
elsewhere timeout 200 "$work/gpu_check/scripts/gpu_check" --device cpu --python "$python" --steps 30 \
  --only generators_agree --only two_share_the_gpu --only resume_continues --only options_work >"$work/table" ||
  fail "exit code $?: $(cat "$work/table")"
cat "$work/table"
grep -qE '^\| the generator gives Python.s numbers \| .* \| yes \|$' "$work/table" || fail "no row of the generator"
# On the CPU the stop and the second run change no bit.
(($(grep -cE '^\| text, .* resumed from step 20.* equal \| yes \|$' "$work/table") == 2)) ||
  fail "no rows of a resumed training"

# The checks of several ranks, over gloo, and the reference script with all its fast options.
check --device cpu --python "$python" --steps 10 --ranks 3 --only nccl_equals_gloo --only gradients_are_averaged \
  --only subgroups --only lost_rank_ends_the_job --only all_reduce_bandwidth --only speed >"$work/table" ||
  fail "exit code $?: $(cat "$work/table")"
cat "$work/table"
row() { grep -qE "^\| $1 \| .*$2.* \| $3 \|\$" "$work/table" || fail "no row '$1 | $2 | $3'"; }
row 'text, `gpt:tiny`, 3 ranks, gloo against gloo' 'losses of 10 steps within 0.0e' yes
for options in '--zero 1' '--zero 1 --zero-gradients all-reduce' '--grad-comm bf16'; do
  row "text, 3 ranks, .$options." 'within' yes
done
row 'table, 3 ranks, `--zero 1`' 'losses of 10 steps' yes
row 'groups of some of the 3 ranks' 'right: halves, node, all, halves-again' yes
row 'rank 2 of 3 is killed' 'exit codes \[1, 1, -9\].*the connection to rank 2' yes
row 'rank 2 of 3 is stopped' 'rank 2 .*: process stopped or' yes
row 'rank 2 of 3 fails' 'exit codes \[1, 1, 1\].*rank 2: failed on purpose' yes
row 'all-reduce of 3 ranks, bus bandwidth' '1 MiB: [0-9.]+ GB/s, 4 MiB: [0-9.]+ GB/s' ''
row 'digits, `mlp:2048,2048`, bf16, against .*' "times Python's best .*--log-every 20 --workers 2 --compile eager" ''
