#!/usr/bin/env bash
# mpirun with no argument about ranks or addresses: on one host, over several by a remote shell, inside an allocation.
source "$(dirname "$0")/case.sh"
limit=150
trainer="$BUILD_DIR/bin/trainer"

"$within" "$limit" mpirun -np 16 "$trainer" --epochs 6 --batch-size 4 --metrics "$work/one.jsonl" ||
  fail "mpirun on one host"
expect_accuracy 0.95 "$work/one.jsonl"

on_node n0 mpirun --mca plm_rsh_agent "$SOURCE_DIR/scripts/cluster/node_sh" --host n0:2,n1:1,n3:1 -np 4 \
  "$trainer" --epochs 6 --batch-size 16 --metrics "$work/hosts.jsonl" | tee "$work/hosts.out" ||
  fail "mpirun over hosts"
grep -q '4 ranks on 3 nodes, started by openmpi,' "$work/hosts.out" || fail "the nodes are not those of --host"
expect_accuracy 0.95 "$work/hosts.jsonl"

on_login salloc -N2 -n4 --ntasks-per-node=2 mpirun "$trainer" --epochs 6 --batch-size 16 \
  --metrics "$work/salloc.jsonl" | tee "$work/salloc.out" || fail "mpirun in an allocation"
grep -q '4 ranks on 2 nodes, started by openmpi,' "$work/salloc.out" || fail "the nodes are not those of the allocation"
expect_accuracy 0.95 "$work/salloc.jsonl"
