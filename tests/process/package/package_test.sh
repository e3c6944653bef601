#!/usr/bin/env bash
# Installs into a prefix, moves it, and does what a user does with it: package_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=$1 build_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"  # not in the build folder, which is about to be hidden
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
grep -q '^TORCHBRIDGE_SANITIZE:STRING=$' "$build_dir/CMakeCache.txt" || {
  echo "SKIPPED: a build with sanitizers wants them of its users too"
  exit 77
}

# The user has neither our sources nor our build folder. (The .venv with libtorch may lie below the source folder.)
hidden=("$build_dir" "$source_dir"/{backends,bridge,cmake,data,include,trainer_template})
if ((EUID == 0)); then
  user() {
    unshare --mount sh -c 'while [ "$1" != -- ]; do mount -t tmpfs none "$1"; shift; done; shift; exec "$@"' \
      - "${hidden[@]}" -- \
      env -i PATH="$PATH" HOME="$work" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"
  }
else
  user() { env -i PATH="$PATH" HOME="$work" "$@"; }
fi

# says EXPECTED COMMAND...: the command ends well and prints just that.
says() {
  local expected=$1 found
  shift
  printf '$ %s\n' "$*"
  found=$(user timeout 60 "$@") || fail "exit code $?"
  [[ $found == "$expected" ]] || fail "it printed '$found', expected '$expected'"
}

# expect_failure PATTERN COMMAND...: the command fails, and its words match the pattern.
expect_failure() {
  local pattern=$1 words
  shift
  printf '$ %s\n' "$*"
  words=$(user timeout 60 "$@" 2>&1) && fail "it succeeded"
  tr -s ' \n' ' ' <<<"$words" | grep -E "$pattern" >/dev/null || fail "no '$pattern' in: $words"
}

# Staged, as packages are made.
DESTDIR=$work/staged cmake --install "$build_dir" --prefix /as-installed >"$work/log" || {
  tail -n 1 "$work/log"
  fail "cmake --install"
}
"$source_dir/tests/structure/run_paths.py" "$work/staged/as-installed" || fail "a run path has the current folder"
mv "$work/staged/as-installed" "$work/prefix"
rmdir "$work/staged" || fail "files are not below DESTDIR and the prefix"
prefix=$work/prefix
[[ ! -e $prefix/include/torchbridge/detail/trainer_template ]] || fail "headers of the runtime are installed"
cp -r "$source_dir/tests/programs/package" "$work/program"

configure=(cmake -S "$work/program" -G Ninja -DCMAKE_PREFIX_PATH="$prefix")
user "${configure[@]}" -B "$work/build" -DCMAKE_BUILD_TYPE=Release >"$work/log" 2>&1 || {
  cat "$work/log"
  fail "find_package"
}
user cmake --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; fail "the program does not build"; }
says "0 of 1" "$work/build/ranks"
says "0 of 2" env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 \
  "$work/build/ranks"
says "1" "$work/build/sum" gloo
expect_failure "backend 'tin': libtorchbridge_tin.so: cannot open" "$work/build/sum" tin
[[ ! -e $prefix/lib/libtorchbridge_mpi.so ]] || says $'3\n3' mpirun --oversubscribe -np 2 "$work/build/sum" mpi

# Installed in its turn, the program still finds its libtorch and the backends.
user cmake --install "$work/build" --prefix "$work/own" >/dev/null
says "1" "$work/own/bin/sum" gloo

# Without libtorch, as a program on the bridge alone wants it.
user "${configure[@]}" -B "$work/bridge" -DCOMPONENTS=bridge -DTORCHBRIDGE_TORCH_ROOT=/none >"$work/log" 2>&1 || {
  cat "$work/log"
  fail "the bridge wants libtorch"
}
expect_failure 'in none of /none ' "${configure[@]}" -B "$work/failed" -DTORCHBRIDGE_TORCH_ROOT=/none
expect_failure "component 'bogus': expected one of bridge" "${configure[@]}" -B "$work/failed" -DCOMPONENTS=bogus

# A trainer to start from: as the source tree makes it, with the prefix. cluster.new_model builds one.
user "$prefix/bin/torchbridge-new-trainer" my_model "$work/copy" >"$work/log" || fail "torchbridge-new-trainer"
grep -qx "  cmake -S .*/copy -B .*/copy/build -G Ninja -DCMAKE_PREFIX_PATH=$prefix" "$work/log" ||
  fail "it does not name its prefix: $(cat "$work/log")"
"$source_dir/scripts/new_trainer" my_model "$work/of_tree" >"$work/log"
sed -i "s|PREFIX_OF_TORCHBRIDGE|$prefix|" "$work/of_tree/README.md"
diff -r "$work/of_tree" "$work/copy" || fail "the copies differ"
user cmake -S "$work/copy" -B "$work/copy/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "the copy is not configured"; }

# The programs that come along, on their own data.
says "" "$prefix/bin/torchbridge" exec -- true
user "$prefix/bin/trainer" --max-steps 2 >"$work/log" 2>&1 || { cat "$work/log"; fail "the installed trainer"; }
grep -q " data  *$prefix/share/torchbridge/digits$" "$work/log" ||
  fail "the trainer takes its digits from elsewhere: $(cat "$work/log")"
grep -q '^trainer: 2 steps, accuracy' "$work/log" || fail "no summary: $(cat "$work/log")"

python=$(sed -n 's/^TORCHBRIDGE_PYTHON:INTERNAL=//p' "$build_dir/CMakeCache.txt")
packages=("$prefix"/lib/python3*/site-packages)
[[ ! -d ${packages[0]} ]] ||
  says "$packages/torchbridge/__init__.py" \
  env PYTHONPATH="$packages" "$python" -c 'import torchbridge; print(torchbridge.__file__)'
