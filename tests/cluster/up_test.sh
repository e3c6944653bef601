#!/usr/bin/env bash
# Starts the cluster that the other cases use, after it removes one of an interrupted test.
source "$(dirname "$0")/case.sh"
"$CLUSTER" down --name "$CLUSTER_NAME"
exec "$CLUSTER" up --name "$CLUSTER_NAME" --nodes 4 --cpus 8 --gpus 2 --plugin "$1"
