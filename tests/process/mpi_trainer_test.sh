#!/usr/bin/env bash
# The trainer over the MPI backend: equal to itself bit for bit, to gloo up to the order of summation; ranks that stop
# or die are named.
# Usage: mpi_trainer_test.sh MPIRUN TRAINER GROUP_CASES
set -euo pipefail
mpirun=$1 trainer=$2 group_cases=$3
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
[[ -x $mpirun ]] || { echo "SKIPPED: no mpirun for the MPI that was built against"; exit 77; }
grep -qi "open.mpi" <<<"$("$mpirun" --version)" || {
  echo "SKIPPED: the options of this mpirun are not OpenMPI's"
  exit 77
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
losses() { sed 's/.*"loss":\([0-9.e-]*\).*/\1/' "$1"; }

# --- the same losses
run() {
  timeout 60 "$mpirun" -n 2 "$trainer" --max-steps 10 --metrics "$work/$1" --backend "${@:2}" >"$work/$1.out" ||
    fail "trainer over ${*:2}"
}
run mpi mpi
run again mpi
run gloo gloo
run zero mpi --zero 1
grep -q '2 ranks on 1 node, started by openmpi, backend mpi, ' "$work/mpi.out" ||
  fail "the settings do not say that it was MPI: $(head -1 "$work/mpi.out")"
[[ $(wc -l <"$work/mpi") == 10 ]] || fail "10 steps have $(wc -l <"$work/mpi") lines"
cmp <(losses "$work/mpi") <(losses "$work/again") || fail "two runs over MPI differ"
paste <(losses "$work/mpi") <(losses "$work/gloo") |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1 }' ||
  fail "the losses over MPI and gloo differ by more than rounding"

# Over MPI gradients are summed by reduce-scatter, of two ranks in whatever order.
cmp <(losses "$work/mpi") <(losses "$work/zero") || fail "the losses with ZeRO differ from those without"

# --- a signal to mpirun: exit code 75, and the next run goes on with the losses of one that nothing stopped
endless=(timeout 100 "$mpirun" -n 2 "$trainer" --quiet --backend mpi --epochs 1000000)
saved=(--checkpoint-dir "$work/saved" --metrics "$work/stopped")
"${endless[@]}" "${saved[@]}" 2>"$work/stop" &
job=$!
until [[ -s $work/stopped ]]; do kill -0 "$job" || fail "the trainer ended: $(cat "$work/stop")"; sleep 0.05; done
code=0
kill -USR1 "$(pgrep -P "$job")"
wait "$job" || code=$?
[[ $code == 75 ]] || fail "SIGUSR1 ended mpirun with $code: $(cat "$work/stop")"
grep -q 'trainer: SIGUSR1: stopped after step' "$work/stop" || fail "the stop is not reported: $(cat "$work/stop")"
steps=$(($(wc -l <"$work/stopped") + 5))
"${endless[@]}" "${saved[@]}" --max-steps "$steps" >"$work/out" || fail "the run that goes on: $(cat "$work/out")"
"${endless[@]}" --max-steps "$steps" --metrics "$work/whole" >"$work/out" ||
  fail "the run that nothing stops: $(cat "$work/out")"
cmp <(losses "$work/stopped") <(losses "$work/whole") || fail "the losses after a stop differ from those without"

# --- mpirun gives rank 0 a terminal: a file is still none
! grep -q $'\e' "$work/mpi.out" || fail "a bar was drawn into a file: $(cat -v "$work/mpi.out")"

# --- subgroups, and an exception while the others wait
timeout 60 "$mpirun" -n 4 "$group_cases" with_backend mpi >"$work/parts" || fail "subgroups over MPI"
[[ $(sort -u "$work/parts") == mpi ]] || fail "the group's name: $(cat "$work/parts")"
timeout 60 "$mpirun" --enable-recovery -n 3 \
  sh -c '"$0" "$@"; echo "code $?"' "$group_cases" an_exception mpi >"$work/codes" 2>"$work/exception" || true
[[ $(sort "$work/codes" | uniq -c | xargs) == "3 code 1" ]] ||
  fail "an exception on rank 1 ended the ranks with $(xargs <"$work/codes"): $(cat "$work/exception")"
grep -q 'the disk of rank 1 is full' "$work/exception" || fail "the exception is not reported: $(cat "$work/exception")"

# --- ranks that MPI did not start
code=0
RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 \
  timeout 60 "$trainer" --backend mpi --init-method "file://$work/store" 2>"$work/one" &
other=$!
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 \
  timeout 60 "$trainer" --backend mpi --init-method "file://$work/store" 2>"$work/zero" || code=$?
wait "$other" || true
[[ $code == 1 ]] || fail "two processes that MPI did not start ended in $code"
grep -q "but in MPI rank 0 of 1: start the ranks with mpirun" "$work/zero" "$work/one" ||
  fail "the message does not name the rank in MPI: $(cat "$work/zero" "$work/one")"

# --- a rank that stops, and one that dies; mpirun is told not to end the others by itself
pid_of_rank_1() {
  grep -lzx OMPI_COMM_WORLD_RANK=1 $(pgrep -P "$1" | sed 's|.*|/proc/&/environ|') 2>/dev/null |
    sed 's|/proc/\([0-9]*\)/.*|\1|'
}
for signal in STOP KILL; do
  rm -f "$work/curve"
  timeout 100 "$mpirun" --enable-recovery -n 3 \
    "$trainer" --quiet --backend mpi --epochs 1000000 --heartbeat-timeout 2 --metrics "$work/curve" 2>"$work/errors" &
  job=$!
  until [[ -s $work/curve ]]; do kill -0 "$job" || fail "the trainer ended: $(cat "$work/errors")"; sleep 0.05; done
  launcher=$(pgrep -P "$job") rank_1=$(pid_of_rank_1 "$launcher")
  kill -"$signal" "$rank_1"
  SECONDS=0
  until grep -q 'trainer: rank' "$work/errors"; do
    ((SECONDS < 20)) || fail "SIG$signal: no rank reports it"
    sleep 0.05
  done
  kill -KILL "$rank_1" 2>/dev/null || true
  wait "$job" || true
  case $signal in
    STOP) expected='rank 1 on .* sent no heartbeat for 2 s: process stopped or node hung' ;;
    KILL) expected='the connection to rank 1 on .* was lost' ;;
  esac
  grep -q "$expected" "$work/errors" || fail "SIG$signal: $(cat "$work/errors")"
  [[ $(grep -c 'trainer: rank' "$work/errors") == 1 ]] || fail "SIG$signal: several speak: $(cat "$work/errors")"
done
