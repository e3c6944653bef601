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
# makes FILE STEPS FOLDERS: by at most so many steps, as few as a unity build has, from sources in folders that match
# the pattern.
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

# One message has the packages of all that is missing.
missing=(-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON)
if cmake -S "$source_dir" --preset command -B "$work/missing" "${missing[@]}" >"$work/log" 2>&1; then
  fail "cmake: no error without CLI11"
fi
for line in "Debian libcli11-dev, EL cli11-devel, conda-forge cli11" \
  "Debian nlohmann-json3-dev, EL json-devel, conda-forge nlohmann_json"; do
  grep -qx " *$line" "$work/log" || { cat "$work/log"; fail "expected $line"; }
done

others=(GTest PMIx MPI Libtorch ZLIB PNG benchmark Python3 PkgConfig)
configured plugin "${others[@]}" CLI11 nlohmann_json
makes lib/torch_env.so 40 'bridge/(base|binding|bootstrap|core|host|net|step)|spank_plugin'
mapfile -t files < <(installed plugin lib/torch_env.so)
plugin=${files[1]}
[[ ${files[0]} == /etc/slurm/plugstack.conf.d/torch_env.conf && ${#files[@]} == 2 ]] || fail "installed: ${files[*]}"
grep -q '^-- .*: include /etc/slurm/plugstack.conf.d/\*.conf$' "$work/log" || fail "no line for plugstack.conf"
[[ $plugin == /*/torch_env.so && -e ${plugin%/*}/auth_munge.so ]] ||
  fail "installed are $plugin: expected torch_env.so beside Slurm's own plugins"
# A Slurm elsewhere, by what its libslurm says and by name.
printf '%s\0' /opt/slurm/etc/slurm.conf /var/lib/slurm /opt/slurm/lib64/slurm >"$work/libslurm.so.40.0.0"
cmake "$work/plugin" -USLURM_PLUGIN_DIR -USLURM_CONF_DIR -DSLURM_LIBRARY="$work/libslurm.so.40.0.0" >/dev/null
conf=/opt/slurm/etc/plugstack.conf.d/torch_env.conf
expect $conf$'\n'/opt/slurm/lib64/slurm/torch_env.so installed plugin lib/torch_env.so
cmake "$work/plugin" -DSLURM_PLUGIN_DIR=/apps/slurm/plugins >/dev/null
expect /apps/slurm/plugins/torch_env.so$'\n'$conf installed plugin lib/torch_env.so
# The defaults that a site has written stay, and all else can be removed.
DESTDIR=$work/root cmake --install "$work/plugin" >/dev/null
echo 'optional torch_env.so ranks=block' >"$work/root$conf"
DESTDIR=$work/root cmake --install "$work/plugin" >/dev/null
expect 'optional torch_env.so ranks=block' cat "$work/root$conf"
DESTDIR=$work/root cmake --build "$work/plugin" --target uninstall >/dev/null
expect "$work/root$conf" find "$work/root" -type f
rm -r "$work/root"

configured command "${others[@]}"
parts='agent|base|binding|bootstrap|cli|coordination|core|host|launch|net|program|run_values|start|step|supervision'
parts+='|worker'
makes bin/torchbridge 60 "bridge/($parts)"
pages=(share/bash-completion/completions/torchbridge share/fish/vendor_completions.d/torchbridge.fish
  share/man/man1/torchbridge-run.1 share/man/man1/torchbridge.1 share/zsh/site-functions/_torchbridge)
expect "$(printf '/usr/local/%s\n' bin/torchbridge share/doc/torchbridge/copyright "${pages[@]}" | sort)" \
  installed command bin/torchbridge "${pages[@]}"

# Where the command is copied to there may be no libstdc++, and no libpmix, which is opened where a
# launcher needs it.
grep -q '^TORCHBRIDGE_SANITIZE:STRING=$' "$build_dir/CMakeCache.txt" || exit 0
needed() { readelf -d "$1" | sed -n '/^[^[]*(NEEDED)/s/.*\[\(.*\)\]/\1/p' | sort; }
expect $'ld-linux-x86-64.so.2\nlibc.so.6' needed "$build_dir/bin/torchbridge"

# The glibc that both run from is that of the page, in the row of this compiler.
compiled_by() {
  sed -n "s/^set(CMAKE_CXX_COMPILER_$1 \"\([^.\"]*\).*/\\1/p" "$build_dir"/CMakeFiles/*/CMakeCXXCompiler.cmake
}
compiler=$(compiled_by ID)
release=$(compiled_by VERSION)
of_page=$(sed -nE "s/^\\| (.*, )?${compiler/GNU/GCC} $release \\| ([0-9.]+) .*/\2/p" "$source_dir/docs/use/install.md")
[[ $of_page ]] || { echo "docs/use/install.md has no row for $compiler $release: no glibc to compare with"; exit 0; }
oldest_glibc() { objdump -T "$@" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1; }
expect "GLIBC_$of_page" oldest_glibc "$build_dir/bin/torchbridge" "$build_dir/lib/torch_env.so"
