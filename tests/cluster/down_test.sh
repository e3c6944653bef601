#!/usr/bin/env bash
# After all cases: no node may have been drained by what they did.
source "$(dirname "$0")/case.sh"
drained=$(on_login sinfo --noheader --list-reasons)
"$CLUSTER" down --name "$CLUSTER_NAME"
[[ -z $drained ]] || fail "nodes were drained: $drained"
