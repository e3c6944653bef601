#!/usr/bin/env bash
# scripts/releases and scripts/slurm_headers without a reachable Debian mirror: one line for each suite, and exit code
# 77, by which CI knows that nothing failed; nothing is downloaded. no_mirror_test.sh SOURCE_DIR
set -euo pipefail
scripts=$1/scripts
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
((EUID == 0)) || { echo "SKIPPED: scripts/releases needs root"; exit 77; }
command -v debootstrap wget >/dev/null || { echo "SKIPPED: debootstrap and wget are not installed"; exit 77; }
export TORCHBRIDGE_ROOTS=$work/roots TORCHBRIDGE_MIRROR=http://127.0.0.1:9

# ends CODE PATTERN COMMAND...
ends() {
  local code=$1 pattern=$2 status=0
  shift 2
  "$@" >"$work/out" 2>&1 || status=$?
  cat "$work/out"
  ((status == code)) || fail "$*: exit code $status, expected $code"
  (($(grep -cE "$pattern" "$work/out") == 1)) || fail "$*: expected one line '$pattern'"
}
ends 77 '^trixie: SKIPPED: no reachable Debian mirror has the suite trixie, tried: http://127.0.0.1:9$' \
  "$scripts/releases" trixie
! grep -q passed "$work/out" || fail "it counts cases that it did not run"
! ls -d "$work"/roots/trixie-* 2>/dev/null || fail "a root filesystem exists"
# A root that cannot be entered: exit code 1, as that of a case that failed, but no case ran.
root=$work/roots/trixie-$(sed -n '/^readonly packages=(/,/)$/p; /^readonly packages_sum=/p' "$scripts/releases" |
  (source /dev/stdin && echo "$packages_sum"))
mkdir -p "$root" "$work/bin"
printf '#!/bin/sh\necho "unshare: not permitted"; exit 1\n' >"$work/bin/unshare"
chmod 755 "$work/bin/unshare"
PATH=$work/bin:$PATH ends 1 '^trixie: FAILED with exit code 1$' "$scripts/releases" trixie
rmdir "$root"
ends 2 "^releases: '../x' is not the name of a Debian suite$" "$scripts/releases" ../x
ends 77 '^SKIPPED Debian trixie: no reachable Debian mirror has the suite trixie, tried: http://127.0.0.1:9$' \
  "$scripts/slurm_headers"
grep -q '^ok     Slurm .*, installed here$' "$work/out" || fail "the installed headers are not checked"
ends 2 "is not a git clone$" "$scripts/slurm_headers" /none
