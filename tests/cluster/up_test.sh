#!/usr/bin/env bash
# Starts the cluster of some cases, after it removes one of an interrupted test.
source "$(dirname "$0")/case.sh"
"$CLUSTER" down --name "$CLUSTER_NAME"
# A step that ends while srun still launches it holds srun for KillWait + 2 s (Slurm 22.05): 32 s by default.
exec "$CLUSTER" up --name "$CLUSTER_NAME" --nodes 4 --cpus 8 --gpus 2 --plugin "$1" --conf KillWait=10
