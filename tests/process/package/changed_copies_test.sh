#!/usr/bin/env bash
# The changes of new copies in docs/use/new_model_*.md, two ranks each: they have at most 40 lines, are built against
# the installed package, train, and a run that is killed and resumed has the same as one that is not, the GAN's also
# with --zero, --async-save and fp16:
# changed_copies_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
SOURCE_DIR=$1 BUILD_DIR=$2
pages=("$SOURCE_DIR"/docs/use/new_model_{losses,models}.md)
source "$SOURCE_DIR/tests/support/ccache.sh"
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
grep -q '^TORCHBRIDGE_SANITIZE:STRING=$' "$BUILD_DIR/CMakeCache.txt" || {
  echo "SKIPPED: programs on a build with sanitizers need them too"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
use_ccache
export HOME=$BUILD_DIR/tests/changed_copies  # each time the same, for ccache
rm -rf "$HOME"
mkdir -p "$HOME"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export CMAKE_BUILD_PARALLEL_LEVEL=2 CMAKE_BUILD_TYPE=None OMP_NUM_THREADS=1
mpirun() { timeout 150 mpirun "$@"; }

# blocks LANGUAGE: the pages' blocks of code in it.
blocks() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/d;p}" "${pages[@]}"; }

# run COMMAND...: prints its output if it fails.
run() {
  printf '$ %s\n' "$*"
  "$@" >"$work/out" 2>&1 </dev/null || { cat "$work/out"; fail "exit code $?"; }
}

# numbers FILE: of each step, those that do not depend on the time.
numbers() {
  sed -E 's/,"(run|samples_per_s|data_time_fraction|comm_fraction)":[^,}]*//g' "$1"
}

# expect_same_after_a_kill STRAIGHT KILLED OPTION...: a run that is killed in step 45 and resumed has what STRAIGHT has;
# with another number of ranks it goes on, with other batches. A save with --async-save may be incomplete by then.
expect_same_after_a_kill() {
  local straight=$1 killed=$2 command file
  command=("build/$name" --max-steps 60 --checkpoint-dir "$killed" --checkpoint-every 20 --metrics "$killed.jsonl"
    "${@:3}")
  ! TORCHBRIDGE_FAIL=step:45 mpirun -np 2 "${command[@]}" >"$work/out" 2>&1 || fail "nothing killed it"
  cp -r "$killed" runs/c
  run mpirun -np 2 "${command[@]}"
  grep -q 'resumes from step [24]0 of' "$work/out" || fail "it did not resume: $(cat "$work/out")"
  for file in "$straight"/step-00000060/*.safetensors; do
    cmp "$file" "$killed/${file#"$straight/"}" || fail "$(basename "$file") differs after a kill"
  done
  diff <(numbers "$straight.jsonl") <(numbers "$killed.jsonl") || fail "the numbers differ after a kill"
  run "build/$name" --max-steps 100 --checkpoint-dir runs/c "${@:3}"
  grep -q 'resumes from step [24]0 of' "$work/out" || fail "one rank does not resume: $(cat "$work/out")"
  rm -r runs/c
}

run cmake --install "$BUILD_DIR" --prefix "$HOME/torchbridge" --strip
for name in two_heads gan average; do
  cd "$SOURCE_DIR"
  while IFS= read -r command; do
    [[ $command != *"cmake -B"* ]] || blocks "diff $name" | patch --fuzz=0 --strip=0
    printf '$ %s\n' "$command"
    eval "$command" >"$work/out" 2>&1 </dev/null || { cat "$work/out"; fail "$command"; }
  done < <(blocks "sh $name")
  [[ $PWD == "$HOME/$name" ]] || fail "the pages have no commands for $name"
  changed=$(blocks "diff $name" | grep -c '^+[^+]')
  ((changed <= 40)) || fail "$name: $changed changed lines, expected at most 40"
  numbers runs/a.jsonl | tail -n 1
  case $name in
    two_heads) own='"digit_loss":[0-9.]+,"pixel_loss":[0-9.]+.*"eval_digit_loss":[0-9.]+' ;;
    gan) own='"critic_loss":[0-9.]+,"generator_loss":[-0-9.]+.*"eval_critic_loss":[0-9.]+' ;;
    average) own='"other_loss":[0-9.]+.*"eval_ema_loss":[0-9.]+,"eval_ema_accuracy":[0-9.]+' ;;
  esac
  grep -qE "\"step\":60,.*$own" runs/a.jsonl || fail "no numbers of its own: $(tail -n 1 runs/a.jsonl)"

  expect_same_after_a_kill runs/a runs/b
  if [[ $name == gan ]]; then  # each optimizer's shards, and a loss scale that both of them follow
    options=(--zero 1 --async-save --precision fp16)
    run mpirun -np 2 build/gan --max-steps 60 --checkpoint-dir runs/d --checkpoint-every 20 --metrics runs/d.jsonl \
      "${options[@]}"
    expect_same_after_a_kill runs/d runs/e "${options[@]}"
  fi
done
