#!/usr/bin/env bash
# Starts the cluster of some cases, after it removes one of an interrupted test. up_test.sh PLUGIN KEY=VALUE...
source "$(dirname "$0")/case.sh"
"$CLUSTER" down --name "$CLUSTER_NAME"
plugin=$1
shift
"$CLUSTER" up --name "$CLUSTER_NAME" --nodes 4 --cpus 8 --gpus 2 --plugin "$plugin" "${@/#/--conf=}"
