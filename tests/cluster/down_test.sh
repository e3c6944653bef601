#!/usr/bin/env bash
# After all cases of a cluster: none of them has drained a node.
source "$(dirname "$0")/case.sh"
reasons() { on_login sinfo --noheader --list-reasons --format '%N %E'; }
# Also where its controller does not answer.
trap 'rm -rf "$work"; "$CLUSTER" down --name "$CLUSTER_NAME" || exit 1' EXIT
drained=$(reasons)
on_login scontrol update nodename=n3 state=drain reason=canary  # shows that the command finds one
control=$(reasons)
[[ -z $drained ]] || fail "nodes were drained: $drained"
[[ $control == "n3 canary" ]] || fail "a drained node is not found: $control"
