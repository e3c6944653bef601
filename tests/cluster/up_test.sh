#!/usr/bin/env bash
# The cluster that the other cases use. One that an interrupted test left behind is removed first.
source "$(dirname "$0")/case.sh"
"$CLUSTER" down --name "$CLUSTER_NAME"
exec "$CLUSTER" up --name "$CLUSTER_NAME" --nodes 4 --cpus 8 --gpus 2 --plugin "$1"
