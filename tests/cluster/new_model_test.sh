#!/usr/bin/env bash
# Runs the commands of docs/use/new_model.md and new_model_options.md: install, copy, another model, build, train.
source "$(dirname "$0")/case.sh"
source "$SOURCE_DIR/tests/support/ccache.sh"
limit=150
pages=("$SOURCE_DIR"/docs/use/new_model{,_options}.md)
grep -q '^TORCHBRIDGE_SANITIZE:STRING=$' "$BUILD_DIR/CMakeCache.txt" ||
  skip "programs on a build with sanitizers need them too"

# blocks LANGUAGE: the pages' blocks of code in it.
blocks() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/d;p}" "${pages[@]}"; }

use_ccache
# As for a user: ~ is a folder of this test, the current folder is the source tree, and srun and sbatch are the
# cluster's.
export HOME=$BUILD_DIR/tests/new_model  # each time the same, so that ccache has what it compiled the time before
rm -rf "$HOME"
mkdir -p "$HOME" "$work/tree"
for entry in "$SOURCE_DIR"/*; do
  [[ $(basename "$entry") == build* ]] || ln -s "$entry" "$work/tree/"
done
ln -s "$BUILD_DIR" "$work/tree/build"
srun() { on_login srun "$@"; }
sbatch() { on_login sbatch "$@"; }
mpirun() { "$within" "$limit" mpirun "$@"; }
export CMAKE_BUILD_PARALLEL_LEVEL=2 CMAKE_BUILD_TYPE=None  # compiles without optimization
export OMP_NUM_THREADS=1  # the cluster has more CPUs than this machine, and threads that wait for one take another's
# scripts/setup installs no make: the commands must work without.
mkdir "$work/bin"
printf '#!/bin/sh\necho "make is not installed" >&2\nexit 127\n' | tee "$work/bin/make" >"$work/bin/gmake"
chmod +x "$work"/bin/*
PATH=$work/bin:$PATH

cd "$work/tree"
while IFS= read -r command; do
  printf '$ %s\n' "$command"
  if [[ $command == *"cmake -B"* ]]; then
    lines=$(cat ./*.cpp ./*.h | wc -l)
    blocks cpp >model.cpp
    blocks diff | patch --fuzz=0 --strip=0  # data.cpp and main.cpp
  fi
  eval "$command" >"$work/out" 2>&1 </dev/null || { cat "$work/out"; fail "$command"; }
  if [[ $command == srun*"--epochs 22"* ]]; then
    grep -q 'resumes from step [1-9]' "$work/out" || fail "it did not resume: $(cat "$work/out")"
  fi
  grep '^trainer: .*accuracy' "$work/out" || true
done < <(blocks sh)

expect_accuracy 0.9 "$HOME/row_reader/runs/srun.jsonl"
expect_accuracy 0.9 "$HOME/row_reader/runs/mpirun.jsonl"
[[ -e $HOME/row_reader/runs/row_reader ]] ||
  fail "the batch job has no checkpoint: $(cat "$HOME"/row_reader/slurm-*.out)"
own=$(tail -n 1 "$HOME/row_reader/runs/own.jsonl")
grep -q '"step":20,.*"lr":0.00275009.*"eval_macro_f1":0\.[0-9]' <<<"$own" ||
  fail "no rate of 0.003 / sqrt(1.19), or no metric of its own: $own"
# A number of its own in each step, and tensors of its own in checkpoints: a run that is killed and resumed has the same
# as one that is not.
cd "$HOME/row_reader"
grep -qE '"step":60,.*"average_distance":[0-9.]+,' runs/ema.jsonl ||
  fail "no number of its own: $(tail -n 1 runs/ema.jsonl)"
killed=(build/row_reader --max-steps 60 --checkpoint-dir runs/killed --checkpoint-every 20 --metrics runs/killed.jsonl)
TORCHBRIDGE_FAIL=step:45 "${killed[@]}" >"$work/out" 2>&1 && fail "nothing killed it"
"${killed[@]}" >"$work/out" 2>&1 || fail "it does not resume: $(cat "$work/out")"
grep -q 'resumes from step 40' "$work/out" || fail "it did not resume: $(cat "$work/out")"
for file in kept model; do
  cmp "runs/ema/step-00000060/$file.safetensors" "runs/killed/step-00000060/$file.safetensors" ||
    fail "$file differs after a kill"
done
numbers() { sed -E 's/.*"step":([0-9]+),.*"average_distance":([^,}]*).*/\1 \2/' "$1"; }
diff <(numbers runs/ema.jsonl) <(numbers runs/killed.jsonl) || fail "the numbers of its own differ after a kill"
((lines < 300)) || fail "$lines lines of source, expected less than 300"
