#!/usr/bin/env bash
# scripts/new_trainer: what it rejects, what it makes, and that the tree takes it in: new_trainer_test.sh SOURCE_DIR
# (cluster.new_model builds one against the installed package, and trains it.)
set -euo pipefail
source_dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# expect_failure PATTERN ARGUMENTS...: one line that matches, and nothing is made.
expect_failure() {
  local pattern=$1 words
  shift
  printf '$ scripts/new_trainer %s\n' "$*"
  words=$("$source_dir/scripts/new_trainer" "$@" 2>&1) && fail "it succeeded"
  [[ $words =~ ^new_trainer:\ .*$pattern && $words != *$'\n'* ]] ||
    fail "expected one line with '$pattern', found: $words"
  [[ $(ls "$work") == here ]] || fail "it made $(ls "$work")"
}

touch here
expect_failure 'expected NAME \[DIR\]'
expect_failure 'expected NAME \[DIR\]' one two three
for name in '' 9lives my-model 'my model' ../up ünder 'a;b' '$(touch x)' "$(printf 'a%.0s' {1..65})" \
  -x $'two\nlines'; do
  expect_failure 'expected a letter' "$name" copy
done
for name in trainer test all torchbridge_mine; do expect_failure "of that name" "$name"; done
expect_failure "'here' exists" my_model here
expect_failure "'/proc/none/copy'" my_model /proc/none/copy
expect_failure "name is empty" my_model ''

"$source_dir/scripts/new_trainer" my_model deep/copy >next
# scripts/setup installs ninja and no make.
(($(cat next deep/copy/README.md | grep -c 'cmake -[SB] .* -G Ninja') == 2)) ||
  fail "a command wants make: $(grep -h 'cmake -' next deep/copy/README.md)"
cmp -s "$source_dir/trainer_template/main.cpp" deep/copy/main.cpp || fail "main.cpp is another one"
bash -n deep/copy/train.sbatch && grep -q '^: .*TRAINER:=build/my_model}' deep/copy/train.sbatch &&
  grep -q '^#SBATCH --requeue' deep/copy/train.sbatch &&
  grep -q '^#SBATCH --job-name=my_model$' deep/copy/train.sbatch ||
  fail "train.sbatch is no job of my_model that queues itself again"
[[ $("$source_dir/scripts/new_trainer" --help) == "Usage: "*" NAME [DIR]"* ]] || fail "--help does not show the usage"
# A program without what it copies makes nothing.
mkdir bin
cp "$source_dir/scripts/new_trainer" bin/
words=$(bin/new_trainer my_model lost 2>&1) && fail "it makes a copy of nothing"
[[ $words == "new_trainer: '"*/share/torchbridge/trainer_template"' is missing: "* && ! -e lost ]] ||
  fail "it says: $words"
! grep -rn @NAME@ deep/copy || fail "a name is left out"
lines=$(cat deep/copy/*.cpp deep/copy/*.h | wc -l)
((lines < 300)) || fail "$lines lines of source, expected less than 300"

# In the tree: configured as another of its programs. Compiled with it would be what cluster.new_model compiles.
cmake -S "$source_dir" -B tree -G Ninja -DTORCHBRIDGE_TESTS=OFF -DTORCHBRIDGE_SLURM=OFF -DTORCHBRIDGE_MPI=OFF \
  -DTORCHBRIDGE_TRAINERS="$work/deep/copy" >log 2>&1 ||
  { cat log; fail "the tree does not take it in"; }
ninja -C tree -n my_model >log || { cat log; fail "there is no target my_model"; }
grep -q 'Linking CXX executable bin/my_model' log || fail "it is no program of the tree: $(tail -n 3 log)"
ctest --test-dir tree -N >log && grep -q 'my_model.learns' log || fail "its test is not the tree's"
# A default of --data that is relative counts from the copy, as for a run that is started there.
ctest --test-dir tree -R my_model.learns --show-only=json-v1 |
  python3 -c 'import json, sys; [test] = json.load(sys.stdin)["tests"]
print({each["name"]: each["value"] for each in test["properties"]}["WORKING_DIRECTORY"])' >log
[[ $(cat log) == "$work/deep/copy" ]] || fail "its test runs in $(cat log)"
