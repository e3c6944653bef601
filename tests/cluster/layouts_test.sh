#!/usr/bin/env bash
# "RANK/WORLD_SIZE LOCAL_RANK/LOCAL_WORLD_SIZE GROUP_RANK/GROUP_WORLD_SIZE HOST NODE_OF_MASTER_ADDR" on layouts even,
# uneven and odd, by the plugin and by torchbridge exec.
source "$(dirname "$0")/case.sh"
torchbridge="$BUILD_DIR/bin/torchbridge"
cat >"$work/show" <<'SHOW'
#!/bin/sh
read -r _ master_name <<NAMES
$(getent hosts "$MASTER_ADDR")
NAMES
echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $(hostname) $master_name"
SHOW
chmod +x "$work/show"

# layout EXPECTED LIST SRUN_OPTIONS... [: SRUN_OPTIONS...]: the same for both. LIST is that of --torch-env; `job` is
# what srun runs in, if anything.
job=()
layout() {
  local expected=$1 list=$2 word plugin=("${job[@]}" srun) exec=("${job[@]}" srun)
  shift 2
  for word in "$@" ""; do
    if [[ -n $word && $word != : ]]; then
      plugin+=("$word")
      exec+=("$word")
      continue
    fi
    plugin+=("--torch-env=$list" "$work/show" ${word:+"$word"})
    exec+=("$torchbridge" exec "--torch-env=$list" -- "$work/show" ${word:+"$word"})
  done
  # Nodes that still end the job before are passed over.
  wait_for 60 all_nodes_are_idle
  expect "$expected" on_login "${plugin[@]}"
  wait_for 60 all_nodes_are_idle
  expect "$expected" on_login "${exec[@]}"
}

layout "0/4 0/2 0/2 n0 n0
1/4 1/2 0/2 n0 n0
2/4 0/2 1/2 n1 n0
3/4 1/2 1/2 n1 n0" ranks=slurm -N2 -n4 --ntasks-per-node=2

uneven="0/8 0/5 0/4 n0 n0
1/8 1/5 0/4 n0 n0
2/8 2/5 0/4 n0 n0
3/8 3/5 0/4 n0 n0
4/8 4/5 0/4 n0 n0
5/8 0/1 1/4 n1 n0
6/8 0/1 2/4 n2 n0
7/8 0/1 3/4 n3 n0"
layout "$uneven" ranks=slurm -N4 -n8
layout "$uneven" ranks=slurm -N4 -n8 --export=NONE

layout "0/3 0/3 0/1 n2 n2
1/3 1/3 0/1 n2 n2
2/3 2/3 0/1 n2 n2" ranks=slurm -N1 -n3 -w n2

layout "0/4 0/3 0/2 n0 n0
1/4 0/1 1/2 n1 n0
2/4 1/3 0/2 n0 n0
3/4 2/3 0/2 n0 n0" ranks=slurm -N2 -n4 -m cyclic

node_by_node="0/4 0/3 0/2 n0 n0
1/4 1/3 0/2 n0 n0
2/4 2/3 0/2 n0 n0
3/4 0/1 1/2 n1 n0"
layout "$node_by_node" ranks=block -N2 -n4 -m cyclic

layout "0/6 0/4 0/3 n0 n0
1/6 1/4 0/3 n0 n0
2/6 0/1 1/3 n1 n0
3/6 0/1 2/3 n2 n0
4/6 2/4 0/3 n0 n0
5/6 3/4 0/3 n0 n0" ranks=slurm -N3 -n6 -m plane=2

# Placed one by one: no variable tells n0 that rank 0 is on n1.
one_by_one="0/3 0/2 1/2 n1 n1
1/3 0/1 0/2 n0 n1
2/3 1/2 1/2 n1 n1"
layout "$one_by_one" ranks=slurm -m arbitrary -n3 -w n1,n0,n1
layout "0/3 0/1 0/2 n0 n0
1/3 0/2 1/2 n1 n0
2/3 1/2 1/2 n1 n0" ranks=block -m arbitrary -n3 -w n1,n0,n1
printf '%s\n' n1 n0 n1 >"$work/hosts"
SLURM_HOSTFILE=$work/hosts layout "$one_by_one" ranks=slurm -n3

# Steps smaller than their job, and beside another step on the same nodes.
job=(salloc -Q -N3 -n6 --ntasks-per-node=2)
layout "0/2 0/2 0/1 n2 n2
1/2 1/2 0/1 n2 n2" ranks=slurm -N1 -n2 --relative=2
layout "$one_by_one" ranks=slurm -m arbitrary -n3 -w n1,n0,n1
job=(salloc -Q -N2 -n4 srun -N1 -n1 --overlap)  # a task of one step starts another
layout "$node_by_node" ranks=slurm -n4 -m block --overlap

# Heterogeneous: ranks and groups run through all components, each of which has its own distribution. The tasks wait for
# each other, because nodes ask the controller for the components of a step, which must not have ended.
job=()
components="0/7 0/2 0/4 n0 n0
1/7 0/1 1/4 n1 n0
2/7 1/2 0/4 n0 n0
3/7 0/3 2/4 n2 n0
4/7 1/3 2/4 n2 n0
5/7 2/3 2/4 n2 n0
6/7 0/1 3/4 n3 n0"
layout "$components" ranks=slurm,check=30 -N2 -n3 -m cyclic : -N2 -n4 -m block
layout "0/7 0/2 0/4 n0 n0
1/7 1/2 0/4 n0 n0
2/7 0/1 1/4 n1 n0
3/7 0/3 2/4 n2 n0
4/7 1/3 2/4 n2 n0
5/7 2/3 2/4 n2 n0
6/7 0/1 3/4 n3 n0" ranks=block,check=30 -N2 -n3 -m cyclic : -N2 -n4 -m cyclic
job=(salloc -Q -N4 -n8 --ntasks-per-node=4)
layout "0/4 0/1 0/3 n0 n0
1/4 0/2 1/3 n1 n0
2/4 0/1 2/3 n2 n0
3/4 1/2 1/3 n1 n0" ranks=slurm,check=30 -N1 -n1 : -N2 -n3 -m cyclic
job=(salloc -Q -N1 -n1 : -N2 -n3)
layout "0/3 0/2 0/2 n1 n1
1/3 1/2 0/2 n1 n1
2/3 0/1 1/2 n2 n1" ranks=slurm,check=30 --het-group=1
layout "0/4 0/1 0/3 n0 n0
1/4 0/2 1/3 n1 n0
2/4 1/2 1/3 n1 n0
3/4 0/1 2/3 n2 n0" ranks=slurm,check=30 --het-group=0,1
# Slurm sorts the names of the nodes, and numbers them component by component.
job=()
layout "0/4 0/2 2/3 n3 n3
1/4 1/2 2/3 n3 n3
2/4 0/1 1/3 n2 n3
3/4 0/1 0/3 n0 n3" ranks=slurm,check=30 -n2 -w n3 : -n1 -w n2 : -n1 -w n0
layout "0/4 0/1 0/3 n0 n0
1/4 0/1 1/3 n2 n0
2/4 0/2 2/3 n3 n0
3/4 1/2 2/3 n3 n0" ranks=block,check=30 -n2 -w n3 : -n1 -w n2 : -n1 -w n0
job=(salloc -Q -n2 -w n2 : -n2 -w n1)
layout "0/4 0/2 1/2 n2 n2
1/4 1/2 1/2 n2 n2
2/4 0/2 0/2 n1 n2
3/4 1/2 0/2 n1 n2" ranks=slurm,check=30 --het-group=0,1

# Of several components placed by different rules the tasks are told one; the plugin asks the controller. The first
# component must be there until all have asked. The option given to one component holds for all.
mkdir "$work/shown"
show_together='"'$work'/show"; touch "'$work'/shown/$RANK"; until [ $(ls "'$work'/shown" | wc -l) = 4 ]; do :; done'
expect "0/4 0/2 1/3 n1 n1
1/4 0/1 0/3 n0 n1
2/4 1/2 1/3 n1 n1
3/4 0/1 2/3 n2 n1" on_login srun -m arbitrary -n3 -w n1,n0,n1 sh -c "$show_together" : \
  -N1 -n1 -m block -w n2 --torch-env sh -c "$show_together"
