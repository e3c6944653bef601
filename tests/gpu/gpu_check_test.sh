#!/usr/bin/env bash
# scripts/gpu_check without a GPU: wrong use, and its two commands on the CPU. gpu_check_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=$1 build_dir=$2 SOURCE_DIR=$1
source "$source_dir/tests/support/empty_root.sh"
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

row() { grep -qE "^\| $1 \| .*$2.* \| $3 \|\$" "$work/table" || fail "no row '$1 | $2 | $3'"; }
check() { timeout 600 "$source_dir/scripts/gpu_check" --build "$build_dir" "$@"; }

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
ends 2 "argument --only: 'speeed': expected one of first_start" --only speeed
ends 2 '--at-once 0: expected 1 or more' --at-once 0
ends 2 'expected 1 or more' --ranks 0
ends 2 '--only subgroups needs --ranks 2 or more' --only subgroups
ends 2 "^gpu_check: cannot write '/none/gpu_check.tgz': No such file" pack /none/gpu_check.tgz
ends 2 '^gpu_check: /none/bin/trainer is missing' --build /none pack "$work/gpu_check.tgz"

# libtorch_cuda.so loads and reports that there is no GPU; the guard shows that it is that of a build with CUDA.
opened=$(CUDA_VISIBLE_DEVICES=-1 "$build_dir/bin/gpu_cases" open cuda)
[[ $opened == $'guard 1\ndevices 0' ]] || fail "libtorch_cuda.so: $opened"

# What no handler catches is one line too.
uncaught=$("$build_dir/bin/gpu_cases" uncaught cpu 2>&1) && fail "an uncaught exception is no failure"
[[ $uncaught == "gpu_cases: rank 0: thrown in a thread" ]] || fail "an uncaught exception: $uncaught"

# The archive, in a root of Debian that has python3 and the wheel alone.
mkdir "$work/inside" "$work/kept" "$work/inside"/{kept,wheel,without}
check pack "$work/gpu_check.tgz"
tar xf "$work/gpu_check.tgz" -C "$work/inside"
for name in numpy safetensors; do echo 'raise ModuleNotFoundError(__name__)' >"$work/inside/without/$name.py"; done
# The Python that runs it comes before the first one in PATH.
PATH=/usr/bin:/bin timeout 300 "$python" "$work/inside/gpu_check/scripts/gpu_check" --device cpu \
  --only generators_agree >"$work/table" || fail "exit code $?: $(cat "$work/table")"
wheel=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent.parent)')
root="torch is for another Python than Debian's"
if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' &&
    root=$(empty_root python-bookworm bookworm python3,python3-venv,iproute2); then
  inside() {
    unshare --mount bash -c 'set -e
      SOURCE_DIR=$1 root=$2 work=$3 wheel=$4
      shift 4
      source "$SOURCE_DIR/tests/support/empty_root.sh"
      mount --bind "$wheel" "$work/inside/wheel"
      mount --bind "$work/kept" "$work/inside/kept"
      in_root_limit=600 in_root "$root" "$work/inside" env PYTHONPATH=/mnt/without:/mnt/wheel \
        /mnt/gpu_check/scripts/gpu_check "$@" --keep "/mnt/kept/$1"' - "$source_dir" "$root" "$work" "$wheel" "$@"
  }
else
  echo "SKIPPED the empty root: $root"
  inside() {
    PYTHONPATH=$work/inside/without timeout 600 "$python" "$work/inside/gpu_check/scripts/gpu_check" "$@" \
      --keep "$work/kept/$1"
  }
fi
inside first --device cpu --at-once 2 --steps 30 >"$work/table" || fail "exit code $?: $(cat "$work/table")"
cat "$work/table"
grep -qE '^\| GPT-124M, bf16, batches of 32, against Python \| [0-9]+ tokens/s; .* losses within 0.0e.00 \| yes \|$' \
  "$work/table" || fail "no row of GPT-124M"
# Each job's files, and the table for programs.
for file in job-001/command job-001/stdout job-001/stderr job-001/metrics.jsonl; do
  [[ -e $work/kept/first/$file ]] || fail "--keep leaves no $file"
done
"$python" -c 'import json, sys; rows = json.load(open(sys.argv[1]))["rows"]; assert len(rows) == 35, len(rows)' \
  "$work/kept/first/table.json" || fail "--keep leaves another table"
row 'digits, .*, first start' 's from start to exit, first step [0-9.]+ ms' yes
(($(grep -cE '^\| text, .*, waits for the GPU .* \| 0 waits in 10 steps \| yes \|$' "$work/table") == 3)) ||
  fail "no rows of what waits for the GPU"
grep -qE '^\| GPT-124M, .* peak of memory, against Python \| [0-9.]+ GiB, Python [0-9.]+: [0-9.]+ times \|  \|$' \
  "$work/table" || fail "no row of the peak of memory"
grep -qE '^\| the generator gives Python.s numbers \| .* \| yes \|$' "$work/table" || fail "no row of the generator"
# On the CPU the stop and the second run change no bit.
(($(grep -cE '^\| text, .* resumed from step 20.* equal \| yes \|$' "$work/table") == 2)) ||
  fail "no rows of a resumed training"

inside second --device cpu --at-once 2 >"$work/table" || fail "exit code $?: $(cat "$work/table")"
cat "$work/table"
row 'rank 1 of 2 is killed' 'exit codes \[1, -9\].*the connection to rank 1' yes
row 'rank 1 of 2 is stopped' 'rank 1 .*: process stopped or' yes
row 'rank 1 of 2 fails' 'exit codes \[1, 1\].*rank 1: failed on purpose' yes
grep -q ': failed on purpose$' "$work"/kept/second/job-*/stderr || fail "--keep leaves nothing of a lost rank"

# The checks of several ranks, over gloo, and the reference script with all its fast options.
check --device cpu --python "$python" --steps 30 --ranks 3 --only nccl_equals_gloo --only gradients_are_averaged \
  --only subgroups --only all_reduce_bandwidth --only sync_batch_norm --only speed --only two_share_the_gpu \
  --only scale_comes_down --only checkpoint_costs --only resume_of_ranks --only 'speed_of_ranks:digits' \
  --only 'python_agrees:tiny`, fp16' --only 'python_agrees:mlp:2048,2048`, fp16' --at-once 2 --rounds 1 \
  >"$work/table" ||
  fail "exit code $?: $(cat "$work/table")"
cat "$work/table"
(($(grep -cE '^\| .*, fp16, deterministic, against Python.s \| .* equal \| yes \|$' "$work/table") == 2)) ||
  fail "no rows of equality with Python"
row 'text, `gpt:tiny`, 3 ranks, gloo against gloo' 'losses of 20 steps within 0.0e' yes
for options in '--zero 1' '--zero 1 --zero-gradients all-reduce' '--grad-comm bf16'; do
  row "text, 3 ranks, .$options." 'within' yes
done
row 'table, 3 ranks, `--zero 1`' 'losses of 20 steps' yes
row 'groups of some of the 3 ranks' 'right: halves, node, all, halves-again' yes
row 'all-reduce of 3 ranks, bus bandwidth' '1 MiB: [0-9.]+ GB/s, 4 MiB: [0-9.]+ GB/s' ''
row 'SyncBatchNorm, 3 ranks' 'float [0-9.e-]+, double' yes
row 'digits, `mlp:2048,2048`, bf16, against Python.s DistributedDataParallel' '[0-9.]+ times; losses within 0.0e.00' ''
row 'digits, `mlp:2048,2048`, fp16 from a loss scale of 1e12 .*' '[1-9][0-9]* steps left out in the first half' yes
row 'text, .*, 3 ranks, `--zero 1 --async-save`, resumed from step 20' 'losses of 20 steps .* within 0.0e.00' yes
row 'GPT-124M, saves hold the training up for' '[0-9.]+ s, a step [0-9.]+ s' ''
row "GPT-124M, Python's saves take" 'torch.save [0-9.]+ s; DCP [0-9.]+ s' ''
row 'digits, `mlp:2048,2048`, 3 ranks, bf16, against the same, tuned' '[0-9.]+ times; losses within 0.0e.00' ''
row 'digits, .*, bf16, against the same, at its best .*--log-every 20 --workers 2 --compile eager.*' ' times; ' ''
