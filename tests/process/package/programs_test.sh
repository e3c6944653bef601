#!/usr/bin/env bash
# What all programs that are installed have in common: programs_test.sh VERSION PROGRAM...
set -euo pipefail
version=$1
build_dir=$(dirname "$2")/..
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# A call of libc whose buffer is too small ends the program. Sanitizers have more than that.
if grep -q '^TORCHBRIDGE_SANITIZE:STRING=$' "$build_dir/CMakeCache.txt" &&
  ! grep -q '^CMAKE_BUILD_TYPE:STRING=Debug$' "$build_dir/CMakeCache.txt"; then
  without=$(grep '"command": ' "$build_dir/compile_commands.json" | grep -v D_FORTIFY_SOURCE=2) || true
  [[ -z $without ]] || fail "this is compiled without FORTIFY_SOURCE: ${without::300}"
fi

for program in "${@:2}"; do
  name=${program##*/}
  expected="$name \(torchbridge\) ${version//./\\.}, built with (GCC|clang) [0-9]+\.[0-9]+ for glibc 2\.[0-9]+"
  # With what else, where that changes what the program can do.
  [[ $name != trainer ]] || expected+=', torch 2\.[0-9]+\.[0-9]+'
  [[ $name != torchbridge ]] || expected+=", (no )?PMIx, (no )?etcd, agents' protocol [0-9]+"
  said=$("$program" --version)
  [[ $said =~ ^$expected$ ]] || fail "$name --version prints '$said', expected '$expected'"

  # The commands that --help lists have help of their own.
  mapfile -t commands < <("$program" --help | sed -n '/^Subcommands:/,$s/^  \([a-z][a-z]*\) .*/\1/p')
  for command in '' "${commands[@]}"; do
    help=$("$program" $command --help)
    ! grep -E '.{101}' <<<"$help" || fail "$name $command --help has lines of more than 100 columns"
    ! grep -E '(INT|UINT|FLOAT|TEXT):| in \[|Option Group' <<<"$help" || fail "$name $command --help has noise"
    # Of a line with a name alone the text is on the next one.
    bare=$(awk 'name && substr($0, 1, 20) ~ /[^ ]/ { print name }
      { name = "" }
      /^  -[^ ]+( [^ ]+)? *$/ { name = $1 }
      END { print name }' <<<"$help")
    [[ -z $bare ]] || fail "$name $command --help has no text for $bare"
    mapfile -t options < <(sed -n 's/^  \(-h,\)\?\(--[a-z0-9-]*\).*/\2/p' <<<"$help")
    ((${#options[@]})) || fail "$name $command --help lists no option"
    # CommandLine.SuggestsTheNearestOption tries all of the trainer, which loads libtorch at each start.
    [[ $name != trainer ]] || options=("${options[@]:0:3}" "${options[@]: -3}")
    for option in "${options[@]}"; do
      message=$("$program" $command "${option}x" 2>&1) && fail "$name $command ${option}x is taken"
      [[ $message == *"unknown option '${option}x'; did you mean '$option'?"* && $message != *$'\n'* ]] ||
        fail "$name $command ${option}x: $message"
    done
  done
done
