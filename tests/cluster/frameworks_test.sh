#!/usr/bin/env bash
# The matrix of docs/use/frameworks.md, and Lightning's requeue, where scripts/frameworks has made its environment.
CLUSTER_NAME+=-f
source "$(dirname "$0")/case.sh"
"$SOURCE_DIR/scripts/frameworks" --no-setup --build "$BUILD_DIR"

trap '"$CLUSTER" down --name "$CLUSTER_NAME"; rm -rf "$work"' EXIT
"$CLUSTER" up --name "$CLUSTER_NAME" --nodes 1 --cpus 8 --plugin "$BUILD_DIR/lib/torch_env.so"
# requeues SRUN_OPTION [ARGUMENT]: at SIGUSR1 Lightning saves, Slurm starts the job again, and it goes on.
python=${TORCHBRIDGE_FRAMEWORKS:-${XDG_CACHE_HOME:-$HOME/.cache}/torchbridge/frameworks}/bin/python
ended() { [[ -z $(on_login squeue --noheader --jobs "$1" 2>/dev/null) ]]; }
both_wait() { [[ -e $1/waits-0 && -e $1/waits-1 ]]; }
requeues() {
  local folder job
  folder=$(mktemp -d -p "$work")
  printf '#!/bin/sh\nOMP_NUM_THREADS=1 srun %s "%s" "%s" "%s" %s\n' \
    "$1" "$python" "$SOURCE_DIR/tests/programs/frameworks/lightning_requeue.py" "$folder" "${2-}" >"$folder/job"
  job=$(on_login sbatch --parsable --requeue --open-mode=append -N1 --ntasks-per-node=2 -o "$folder/output" \
    "$folder/job")
  wait_for 120 both_wait "$folder"
  on_login scancel --signal=USR1 "$job"
  wait_for 180 ended "$job"
  (($(grep -cE '^rank [01] goes on at step 5$' "$folder/output") == 2)) ||
    { cat "$folder/output"; fail "Lightning did not save and requeue: $*"; }
}
requeues --torch-env=elastic=no
requeues --torch-env plugin
