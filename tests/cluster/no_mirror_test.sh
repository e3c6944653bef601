#!/usr/bin/env bash
# scripts/releases and scripts/slurm_headers without a Debian mirror that answers: one line for each suite, and 77,
# which CI can tell from a failure; nothing is made. no_mirror_test.sh SOURCE_DIR
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
  (($(grep -cE "$pattern" "$work/out") == 1)) || fail "$*: not one line '$pattern'"
}
ends 77 '^trixie: SKIPPED: no mirror of Debian that has the suite trixie answers, of http://127.0.0.1:9$' \
  "$scripts/releases" trixie
! grep -q passed "$work/out" || fail "it counts cases that it did not run"
[[ ! -e $work/roots/trixie ]] || fail "there is a root"
ends 2 "^releases: '../x' is no name of a Debian suite$" "$scripts/releases" ../x
ends 77 '^SKIPPED Debian trixie: no mirror of Debian that has the suite trixie answers, of http://127.0.0.1:9$' \
  "$scripts/slurm_headers"
grep -q '^ok     Slurm .*, installed here$' "$work/out" || fail "the installed headers are not checked"
ends 2 "is no git clone$" "$scripts/slurm_headers" /none
