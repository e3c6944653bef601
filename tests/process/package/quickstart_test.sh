#!/usr/bin/env bash
# scripts/quickstart builds each program that it, or the section "Use it" of README.md, starts.
# quickstart_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=$1 build_dir=$2
read -ra targets <<<"$(sed -n 's/^show cmake --build --preset full --target //p' "$source_dir/scripts/quickstart")"
mapfile -t built < <(
  ninja -C "$build_dir" -t commands "${targets[@]}" | grep -oE -- '-o (bin|lib)/[^ ]+' | cut -c4-)
mapfile -t started < <(
  grep -oE '\bbuild/(bin|lib)/[a-z_.-]+\b' "$source_dir/scripts/quickstart" | sed 's:^build/::'
  sed -n '/^## Use it/,/^## /p' "$source_dir/README.md" | grep -oE '(torchbridge|\./trainer) ' |
    sed 's:^\(\./\)\?:bin/:; s: $::')
((${#started[@]} > 5)) || { echo "FAILED: found only ${started[*]}"; exit 1; }
missing=$(comm -23 <(printf '%s\n' "${started[@]}" | sort -u) <(printf '%s\n' "${built[@]}" | sort -u))
[[ -z $missing ]] || { echo "FAILED: quickstart does not build ${missing//$'\n'/ }"; exit 1; }
