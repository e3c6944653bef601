#!/usr/bin/env bash
# slurm://, mpi:// and pmix:// find the other ranks only through the launcher that they name.
source "$(dirname "$0")/case.sh"
trainer="$BUILD_DIR/bin/trainer"

learns() {  # learns WHO URL LAUNCHER...
  local who=$1 url=$2
  shift 2
  "$@" "$trainer" --max-steps 2 --init-method "$url" >"$work/out" 2>"$work/stderr" || {
    cat "$work/stderr"
    fail "$* with $url"
  }
  grep -q "3 ranks on 2 nodes, started by $who, backend" "$work/out" || {
    cat "$work/out"
    fail "$* with $url: not 3 ranks on 2 nodes by $who"
  }
}
over_ssh=(on_node n0 mpirun --mca plm_rsh_agent "$SOURCE_DIR/scripts/cluster/node_sh" --host n0:2,n1:1 -np 3)

learns slurm slurm:// on_login srun -N2 -n3
# RANK of another numbering is ignored.
learns slurm slurm:// on_login env RANK=7 WORLD_SIZE=9 MASTER_ADDR=192.0.2.1 MASTER_PORT=1 srun -N2 -n3
# With the plugin its variables are used, because it has bound the port.
learns "slurm with torchrun's variables" slurm:// on_login srun -N2 -n3 --torch-env
learns slurm pmix:// on_login srun -N2 -n3 --mpi=pmix
learns openmpi mpi:// "${over_ssh[@]}"
learns openmpi pmix:// "${over_ssh[@]}"
learns slurm "slurm://?world_size=3" on_login srun -N2 -n3

expect_error 'trainer: rank 0: slurm://: .*start the program with srun' 20 \
  on_login mpirun -np 2 "$trainer" --init-method slurm://
expect_error 'trainer: rank 0: mpi://: this process was not started by mpirun' 20 \
  on_login srun -N2 -n2 "$trainer" --init-method mpi://
expect_error 'trainer: rank 0: pmix://: PMIX_NAMESPACE is not set' 20 \
  on_login srun -N2 -n2 "$trainer" --init-method pmix://
expect_error 'trainer: rank 0: the program gives rank 0 of 4, but this process is rank 0 of 2 according to slurm' 20 \
  on_login srun -N2 -n2 "$trainer" --init-method 'slurm://?world_size=4'
