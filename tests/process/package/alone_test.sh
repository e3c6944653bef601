#!/usr/bin/env bash
# The presets plugin and command: each makes one file, of what that file links, with the packages that
# docs/use/install.md names. scripts/releases builds with them, by another compiler. alone_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=$1 build_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# configured PRESET PACKAGES...: without the packages that find_package would find.
configured() {
  local preset=$1 hidden=("${@:2}")
  hidden=("${hidden[@]/#/-DCMAKE_DISABLE_FIND_PACKAGE_}")
  cmake -S "$source_dir" --preset "$preset" -B "$work/$preset" "${hidden[@]/%/=ON}" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "$preset: cmake"; }
  ninja -C "$work/$preset" -n >"$work/steps"
}
# makes FILE STEPS FOLDERS: by at most so many steps, from sources in folders that match the pattern.
makes() {
  local folders steps
  folders=$(sed -n 's:.* Building C[^ ]* object \(.*\)/CMakeFiles/.*:\1:p' "$work/steps" | sort -u)
  steps=$(grep -c '^\[' "$work/steps")
  printf '%s: %s steps in %s\n' "$1" "$steps" "${folders//$'\n'/ }"
  ! grep -vxE "$3" <<<"$folders" || fail "expected only sources in $3"
  ((steps <= $2)) || fail "expected at most $2 steps"
  [[ $(tail -n 1 "$work/steps") == *" Linking CXX "*" $1" ]] || fail "the last step is $(tail -n 1 "$work/steps")"
}
# installed PRESET FILES...: the paths of all that `cmake --install` installs where FILES are built. They are the tested
# build's.
installed() {
  local preset=$1
  (cd "$build_dir" && cp --parents "${@:2}" "$work/$preset")
  DESTDIR=$work/root cmake --install "$work/$preset" >"$work/log" ||
    { cat "$work/log"; fail "$preset: cmake --install"; }
  (cd "$work/root" && find . -type f -printf '/%P\n' | sort)
  rm -r "$work/root"
}
# expect EXPECTED COMMAND...: the command prints just that.
expect() {
  local found
  found=$("${@:2}") || exit 1
  [[ $found == "$1" ]] || fail "${*:2}: '$found', expected '$1'"
}

others=(GTest PMIx MPI Libtorch ZLIB PNG benchmark Python3 PkgConfig)
configured plugin "${others[@]}" CLI11 nlohmann_json
makes lib/torch_env.so 90 'bridge/(base|binding|bootstrap|core|host|net|step)|spank_plugin'
plugin=$(installed plugin lib/torch_env.so)
grep -q '^-- .*: optional torch_env.so$' "$work/log" || fail "no line for plugstack.conf"
[[ $plugin == /*/torch_env.so && -e ${plugin%/*}/auth_munge.so ]] ||
  fail "installed are $plugin: expected torch_env.so beside Slurm's own plugins"
# A Slurm elsewhere, by what its libslurm says and by name.
printf '%s\0' /opt/slurm/etc/slurm /var/lib/slurm /opt/slurm/lib64/slurm >"$work/libslurm.so.40.0.0"
cmake "$work/plugin" -USLURM_PLUGIN_DIR -DSLURM_LIBRARY="$work/libslurm.so.40.0.0" >/dev/null
expect /opt/slurm/lib64/slurm/torch_env.so installed plugin lib/torch_env.so
cmake "$work/plugin" -DSLURM_PLUGIN_DIR=/apps/slurm/plugins >/dev/null
expect /apps/slurm/plugins/torch_env.so installed plugin lib/torch_env.so

configured command "${others[@]}"
parts='agent|base|binding|bootstrap|cli|coordination|core|host|launch|net|program|run_values|step|supervision|worker'
makes bin/torchbridge 150 "bridge/($parts)"
pages=(share/bash-completion/completions/torchbridge share/man/man1/torchbridge-run.1)
expect "$(printf '/usr/local/%s\n' bin/torchbridge "${pages[@]}")" installed command bin/torchbridge "${pages[@]}"

# Where the command is copied to there may be no libstdc++. (With PMIx it needs libpmix.)
grep -q '^TORCHBRIDGE_SANITIZE:STRING=$' "$build_dir/CMakeCache.txt" || exit 0
needed() { readelf -d "$1" | sed -n '/^[^[]*(NEEDED)/{s/.*\[\(.*\)\]/\1/; /^libpmix/!p}' | sort; }
expect $'ld-linux-x86-64.so.2\nlibc.so.6' needed "$build_dir/bin/torchbridge"
