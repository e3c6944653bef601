#!/usr/bin/env bash
# Under mpirun, a rank that is stopped before it has connected to any other, or after it has left the group, ends the
# job within seconds. Usage: stopped_ranks_test.sh MPIRUN SMALL_TRAINING
set -euo pipefail

mpirun=$1 small_training=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none
export OMP_NUM_THREADS=1
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
[[ -x $mpirun ]] || { echo "SKIPPED: no mpirun for the MPI that was built against"; exit 77; }
grep -qi "open.mpi" <<<"$("$mpirun" --version)" || { echo "SKIPPED: this mpirun is not OpenMPI's"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# stop RANK PHASE LINE: "exec" is before the program, in the shell that becomes it, and "script" in a program that the
# shell waits for. The program's heartbeat timeout is
# two seconds, its time to join sixty.
stop() {
  local code=0
  SECONDS=0
  timeout 100 "$mpirun" -n 3 sh -c \
    'if [ "$OMPI_COMM_WORLD_RANK" = "$0" ]; then
       case $1 in
         exec) kill -STOP $$ ;;
         script) sh -c "kill -STOP \$\$"; exit 3 ;;
         *) export TORCHBRIDGE_FAIL=$1:1:stop ;;
       esac
     fi
     if [ "$1" = script ]; then shift; "$@"; exit $?; fi
     shift
     exec "$@"' \
    "$1" "$2" "$small_training" --steps 3 --timeout 60 >"$work/output" 2>&1 || code=$?
  ((code != 0 && code != 124)) || fail "rank $1 at $2: exit code $code: $(cat "$work/output")"
  ((SECONDS < 20)) || fail "rank $1 at $2: the job ended after $SECONDS s: $(cat "$work/output")"
  grep -qE "$3" "$work/output" || fail "rank $1 at $2: no '$3' in: $(cat "$work/output")"
}

stop 0 start 'rank 0 on .* has been stopped for 2 s while the ranks start \(process [0-9]+, state T\)'
stop 0 exec 'rank 0 on .* has been stopped for 2 s while the ranks start \(process [0-9]+, state T\)'
stop 1 script 'rank 1 on .* has been stopped for 2 s while the ranks start \(process [0-9]+, state T\)'
stop 2 start 'rank 2 on .* has been stopped for 2 s while the ranks start \(process [0-9]+, state T\)'
stop 1 left 'signal 9 \(Killed\)'
