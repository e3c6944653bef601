#!/usr/bin/env bash
# A rank that uses the store after rank 0's program has ended: works with `import torchbridge`, and fails without, as
# docs/use/run_options.md says. Usage: agent_late_peer_test.sh TORCHBRIDGE PYTHON PACKAGE_FOLDER SCRIPT
set -euo pipefail
torchbridge=$1 python=$2 packages=$3 script=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# run KIND: its exit code; the script leaves files in $folder/KIND.
run() {
  local code=0
  mkdir "$folder/$1"
  PYTHON_EXEC=$python PYTHONPATH=$packages timeout 120 "$torchbridge" run --nproc-per-node 2 "$script" "$1" \
    "$folder/$1" 2>"$folder/$1/error" || code=$?
  echo "$code"
}
check() {
  "${@:2}" && return
  echo "FAILED: $1"
  cat "$folder"/*/error
  exit 1
}

imported=$(run import)
plain=$(run plain)
check "the import does not end with 0" test "$imported" = 0
check "rank 1 could not use the store" test -e "$folder/import/late"
check "rank 0 did not take the socket" grep -qx True "$folder/import/taken"
check "without the import it works, too: the page is wrong" test "$plain" != 0
check "without the import the socket is not left" grep -qx False "$folder/plain/taken"
echo PASSED
