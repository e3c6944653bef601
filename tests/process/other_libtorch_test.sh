#!/usr/bin/env bash
# A program that finds another libtorch than its own ends with one line that names both versions; the Python package
# with an exception. other_libtorch_test.sh VERSION TRAINER FOLDER [PYTHON PACKAGES]
# FOLDER: of a libtorch 2.99; PACKAGES: the folder that holds torchbridge
set -euo pipefail
version=$1 trainer=$2 folder=$3 python=${4:-} packages=${5:-}
own=${version%.*}
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

expected="torchbridge: this program was built with libtorch $own, and finds libtorch 2.99: build it again with the \
latter, or let LD_LIBRARY_PATH name the folder of libtorch $own"
for setting in LD_BIND_NOW= LD_BIND_NOW=1; do  # addresses of functions when they are called, or all at the start
  status=0
  found=$(env "$setting" LD_LIBRARY_PATH="$folder" "$trainer" --version 2>&1) || status=$?
  [[ $status == 1 && $found == "$expected" ]] || fail "$setting: exit code $status, '$found', expected '$expected'"
done
"$trainer" --version >/dev/null || fail "exit code $? with its own libtorch"

[[ -n $python ]] || exit 0
found=$(PYTHONPATH=$packages "$python" -c '
import torch
import torchbridge
torch.__version__ = "2.99.0"
try:
    torch.distributed.init_process_group("mpi")
except ImportError as error:
    print(error)')
expected="torchbridge was built with torch $own, and finds torch 2.99.0: build it again with the latter"
[[ $found == "$expected" ]] || fail "Python: '$found', expected '$expected'"
