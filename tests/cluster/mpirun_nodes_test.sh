#!/usr/bin/env bash
# The launch by real mpiruns and srun over several nodes, on a cluster of this case's own. The ranks exchange their
# nodes by TCP, PMIx or PMI, and the programs that they become must work afterwards.
# Usage: mpirun_nodes_test.sh CLUSTER_TOOL PRINT_LAUNCH MPI_RANKS_OPENMPI MPI_RANKS_MPICH MPI_LAUNCH_OPENMPI \
#   MPI_LAUNCH_MPICH
set -euo pipefail

cluster=$1 print_launch=$2 openmpi_ranks=$3 mpich_ranks=$4 openmpi_launch=$5 mpich_launch=$6
name=launch$$
limit=60
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
((EUID == 0)) || { echo "SKIPPED: a cluster on one machine needs root"; exit 77; }

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

work=$(mktemp -d)
trap '"$cluster" down --name "$name" >/dev/null; rm -rf "$work"' EXIT
"$cluster" up --name "$name" --nodes 3 --cpus 8 >/dev/null || fail "the cluster does not start"
node_sh=$(dirname "$(readlink -f "$cluster")")/node_sh
within=$(dirname "$0")/../support/within  # a limit in machine time
on_n0() { "$within" "$limit" "$cluster" exec --name "$name" --node n0 -- "$@"; }
on_login() { "$within" "$limit" "$cluster" run --name "$name" -- "$@"; }

# expect EXPECTED COMMAND...: the sorted output, with addresses and ids as words, is EXPECTED.
expect() {
  local expected=$1 found
  shift
  found=$("$@" 2>&1 | grep -v 'plm:rsh: Warning: setpgid' |
    sed -E 's/store [0-9.]+:[0-9]+/store ADDRESS/; s/ (bound|-) [a-z]+-[^ ]+$/ \1 ID/' | sort) || fail "$*: $found"
  [[ $found == "$(sort <<<"$expected")" ]] || { diff <(sort <<<"$expected") <(echo "$found") || true; fail "$*"; }
  echo "ok: $*"
}

# Two ranks on the first node, one on the second.
layout() {
  echo "$1 rank 0/3 local 0/2 node 0/2 store ADDRESS bound ID"
  echo "$1 rank 1/3 local 1/2 node 0/2 store ADDRESS - ID"
  echo "$1 rank 2/3 local 0/1 node 1/2 store ADDRESS - ID"
}
mpi=$(for rank in 0 1 2; do echo "MPI rank $rank of 3, ranks add up to 3"; done)
# Communicators of a program that uses MPI itself: the world, and ranks 0, 2 and 1, of which 0 and 1 are on the first
# node.
communicators() {
  layout "world mpi"
  echo "even mpi rank 0/2 local 0/1 node 0/2 store ADDRESS bound ID"
  echo "even mpi rank 1/2 local 0/1 node 1/2 store ADDRESS - ID"
  echo "odd mpi rank 0/1 local 0/1 node 0/1 store ADDRESS bound ID"
}
# A program without MPI, of which one rank ends before the others: these must not be killed.
uneven='[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && exit; sleep 0.5; echo late'

openmpi() { local hosts=$1; shift; on_n0 mpirun.openmpi --mca plm_rsh_agent "$node_sh" --host "$hosts" -np 3 "$@"; }
if [[ -x $openmpi_ranks ]] && command -v mpirun.openmpi >/dev/null; then
  expect "$(layout openmpi; echo "$mpi")" openmpi n0:2,n1:1 "$print_launch" "$openmpi_ranks"
  # No rank on the node where mpirun runs.
  expect "$(layout openmpi; echo "$mpi")" openmpi n2:2,n1:1 "$print_launch" "$openmpi_ranks"
  expect "$(layout openmpi; echo "$mpi")" on_login salloc -Q -N2 -n3 mpirun.openmpi "$print_launch" "$openmpi_ranks"
  # A rank on it, but not rank 0.
  printf 'rank %s slot=0\n' 0=n2 1=n0 2=n1 >"$work/rankfile"
  expect "$(for rank in 0 1 2; do
      echo "openmpi rank $rank/3 local 0/1 node $rank/3 store ADDRESS $([[ $rank == 0 ]] && echo bound || echo -) ID"
    done
    echo "$mpi")" \
    openmpi n0,n1,n2 --rankfile "$work/rankfile" "$print_launch" "$openmpi_ranks"
  expect "$(communicators; echo "$mpi")" openmpi n0:2,n1:1 "$openmpi_launch"
  expect "$(layout openmpi; layout openmpi; echo "$mpi")" \
    openmpi n0:2,n1:1 "$print_launch" "$print_launch" "$openmpi_ranks"
  expect "$(layout openmpi; echo late; echo late)" openmpi n0:2,n1:1 "$print_launch" sh -c "$uneven"
  # Names in full, which OpenMPI cuts at the dot: PMIx is asked at once, not after half of the timeout of 20 s.
  printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=${1%%%%.*}\nshift\nexec %s $host "$@"\n' \
    "$node_sh" >"$work/in_full"
  chmod +x "$work/in_full"
  on_n0 sed 's/ n[0-9]$/&.in.full/' /etc/hosts >"$work/hosts"
  for node in n0 n1 n2; do "$cluster" exec --name "$name" --node "$node" -- mount --bind "$work/hosts" /etc/hosts; done
  for bridges in without with; do
    limit=8 expect "$(layout openmpi)" on_n0 mpirun.openmpi --mca plm_rsh_agent "$work/in_full" \
      --host n2.in.full:2,n1.in.full:1 -np 3 "$print_launch"
    [[ $bridges == without ]] || break
    # With an interface that has the same address on each host, as Docker's.
    for node in n0 n1 n2; do
      "$cluster" exec --name "$name" --node "$node" -- sh -c \
        'ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && ip link set docker0 up'
    done
  done
  for node in n0 n1 n2; do "$cluster" exec --name "$name" --node "$node" -- ip link del docker0; done
  for node in n0 n1 n2; do "$cluster" exec --name "$name" --node "$node" -- umount /etc/hosts; done
  # PMIx is used only where mpirun's secret is missing.
  pmix='echo "rank $OMPI_COMM_WORLD_RANK PMIX_MCA_gds=$PMIX_MCA_gds"'
  expect "$(layout openmpi; for rank in 0 1 2; do echo "rank $rank PMIX_MCA_gds="; done)" \
    openmpi n0:2,n1:1 "$print_launch" sh -c "$pmix"
  expect "$(layout openmpi; for rank in 0 1 2; do echo "rank $rank PMIX_MCA_gds=hash"; done)" \
    openmpi n0:2,n1:1 env -u OMPI_MCA_orte_precondition_transports "$print_launch" sh -c "$pmix"
  expect "$(layout slurm; echo "$mpi")" on_login srun -N2 -n3 --mpi=pmix "$print_launch" "$openmpi_ranks"
else
  echo "not tested: openmpi-bin and libopenmpi-dev are missing"
fi

mpich() { on_n0 mpiexec.mpich -launcher ssh -launcher-exec "$node_sh" -hosts n0:2,n1:1 -n 3 "$@"; }
if [[ -x $mpich_ranks ]] && command -v mpiexec.mpich >/dev/null; then
  expect "$(layout hydra; echo "$mpi")" mpich "$print_launch" "$mpich_ranks"
  expect "$(communicators; echo "$mpi")" mpich "$mpich_launch"
  expect "$(layout hydra; layout hydra; echo "$mpi")" mpich "$print_launch" "$print_launch" "$mpich_ranks"
  expect "$(layout hydra; echo late; echo late)" mpich "$print_launch" sh -c "$uneven"
  expect "$(layout hydra; echo "$mpi")" on_login salloc -Q -N2 -n3 mpiexec.mpich -n 3 "$print_launch" "$mpich_ranks"
else
  echo "not tested: mpich and libmpich-dev are missing"
fi

expect "$(layout slurm)" on_login srun -N2 -n3 "$print_launch"
expect "$(layout slurm)" on_login srun -N2 -n3 --mpi=pmi2 "$print_launch"
# srun inside a rank of mpirun passes mpirun's variables on.
expect "$(layout slurm)" on_login salloc -Q -N2 -n3 mpirun.openmpi -np 1 \
  env -u SLURM_CPU_BIND srun -Q --overlap -m block -N2 -n3 "$print_launch"
