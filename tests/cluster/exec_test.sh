#!/usr/bin/env bash
# torchbridge exec, env and explain with programs that do not know torchbridge: under srun without the plugin's option,
# under mpirun, and without a launcher.
source "$(dirname "$0")/case.sh"
torchbridge="$BUILD_DIR/bin/torchbridge"
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE'

expect "0/4 0/3 0/2
1/4 1/3 0/2
2/4 2/3 0/2
3/4 0/1 1/2" on_login srun -N2 -n4 "$torchbridge" exec -- sh -c "$show"
expect "0/4 0/3 0/2
1/4 1/3 0/2
2/4 2/3 0/2
3/4 0/1 1/2" on_login srun -N2 -n4 -m cyclic "$torchbridge" exec --torch-env=ranks=block -- sh -c "$show"
expect "0/3 0/3 0/1
1/3 1/3 0/1
2/3 2/3 0/1" "$within" "$limit" mpirun -np 3 "$torchbridge" exec -- sh -c "$show"
expect "0/3 0/2 0/2
1/3 1/2 0/2
2/3 0/1 1/2" on_node n0 mpirun --mca plm_rsh_agent "$SOURCE_DIR/scripts/cluster/node_sh" --host n0:2,n1:1 -np 3 \
  "$torchbridge" exec -- sh -c "$show"
expect "0/1 0/1 0/1" "$torchbridge" exec -- sh -c "$show"
# A node that is twice in MPICH's list runs two of its daemons, but is one node.
if command -v mpiexec.mpich >/dev/null; then
  expect "0/4 0/2 0/2
1/4 0/2 1/2
2/4 1/2 0/2
3/4 1/2 1/2" on_node n0 mpiexec.mpich -launcher-exec "$SOURCE_DIR/scripts/cluster/node_sh" \
    -hosts n0:1,n1:1,n0:1,n1:1 -np 4 "$torchbridge" exec -- sh -c "$show"
fi
# Rank 0 does not start: another rank reports it.
expect_error 'torchbridge: .*did not arrive|torchbridge: .*within 2 s' 30 \
  on_login mpirun -np 1 sleep 20 : -np 2 "$torchbridge" exec --timeout 2 -- true
expect_error "torchbridge: .*'nan'" 10 on_login "$torchbridge" exec --timeout nan -- true

# The same as the plugin, variable for variable: the values of srun --torch-env.
names='RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_ADDR|TORCHELASTIC_|TORCH_|OMP_|GLOO_|NCCL_|PET_'
variables='env | grep -E "^('$names')" | sed -E "s/slurm-[0-9]+/RUN/; s/:[0-9]+$//; /PET_MASTER_PORT/d" |
  sort > "'$work'/$0.$RANK"'
on_login srun -N2 -n4 -w n0,n1 --torch-env sh -c "$variables" plugin
on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec -- sh -c "$variables" exec
for rank in 0 1 2 3; do
  diff "$work/plugin.$rank" "$work/exec.$rank" || fail "plugin (<) and exec (>) differ on rank $rank"
done

arguments='[a,b]|[]|{}|[[1,2],[3]]|--torch-env=x|--|'
[[ $("$torchbridge" exec -- printf '%s|' '[a,b]' '[]' '{}' '[[1,2],[3]]' --torch-env=x --) == "$arguments" ]] ||
  fail "the arguments were changed"
# The process becomes the program: exit code, standard input, process id.
"$torchbridge" exec -- sh -c 'exit 7' && fail "exit code lost" || (($? == 7)) || fail "another exit code"
[[ $(echo hello | "$torchbridge" exec -- cat) == hello ]] || fail "standard input lost"
[[ $(sh -c 'echo $$; exec "$0" exec -- sh -c "echo \$\$"' "$torchbridge" | sort -u | wc -l) == 1 ]] ||
  fail "another process id"
"$torchbridge" exec -- no-such-program 2>"$work/stderr" && fail "it ran nothing" || (($? == 127)) ||
  fail "expected exit code 127"
grep -q "^torchbridge: cannot run 'no-such-program': No such file or directory$" "$work/stderr" ||
  fail "not named: $(cat "$work/stderr")"

(eval "$("$torchbridge" env)" && [[ $RANK/$WORLD_SIZE == 0/1 ]]) || fail "env cannot be sourced"
"$torchbridge" env --format json |
  /usr/bin/python3 -c 'import json, sys; assert json.load(sys.stdin)["WORLD_SIZE"] == "1"' || fail "env --format json"
on_login srun -N2 -n4 "$torchbridge" explain >"$work/table"
grep -q '^4 ranks on 2 nodes, started by slurm' "$work/table" || fail "no table: $(cat "$work/table")"
on_login srun -N1 -n2 "$torchbridge" explain >"$work/table"
grep -q '^2 ranks on 1 node, started by slurm' "$work/table" || fail "no table of one node: $(cat "$work/table")"
"$torchbridge" explain | grep -q '^1 rank on 1 node, started without a launcher$' || fail "no table of a world of one"
expect_one_report "--torch-env: unknown option 'x'" \
  on_login srun -N2 -n4 "$torchbridge" exec --torch-env=x -- echo started
expect_one_report "--torch-env: unknown option 'x'" \
  on_login mpirun -np 3 "$torchbridge" exec --torch-env=x -- echo started

# Wrong usage has an exit code of its own.
expect_usage_error() {  # expect_usage_error ARGUMENTS...
  local status=0
  "$torchbridge" "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
  ((status == 2)) || fail "torchbridge $*: exit code $status, expected 2"
  (($(wc -l <"$work/stderr") == 1)) && [[ ! -s $work/stdout ]] ||
    fail "torchbridge $*: expected one line on standard error"
}
for list in ranks=blck x ranks= ,; do
  expect_usage_error exec --torch-env="$list" -- true
  expect_usage_error env --torch-env="$list"
  expect_usage_error explain --torch-env="$list"
  TORCHBRIDGE_OPTIONS=$list expect_usage_error exec -- true
  TORCHBRIDGE_OPTIONS=$list expect_usage_error env
  TORCHBRIDGE_OPTIONS=$list expect_usage_error explain
done
expect_usage_error
expect_usage_error exec
expect_usage_error exec true
expect_usage_error exec --timeout nan -- true
expect_usage_error env --format xml
expect_usage_error explain -- true

# An error that only one rank sees ends all ranks, and that rank reports it.
on_node n0 ip link add only0 type bridge
on_node n0 ip addr add 10.99.0.1/24 dev only0
on_node n0 ip link set only0 up
expect_one_report 'rank 3 on n1: iface=only0: n1 has no such interface that other nodes can reach; it has eth0$' \
  on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec --torch-env=iface=only0 -- sleep 1000
expect_one_report 'rank 2 on n1: iface=only0: n1 has no such interface that other nodes can reach; it has eth0$' \
  on_node n0 mpirun --mca plm_rsh_agent "$SOURCE_DIR/scripts/cluster/node_sh" --host n0:2,n1:1 -np 3 \
  "$torchbridge" exec --torch-env=iface=only0 -- sleep 1000
on_node n0 ip link del only0
# Of an error on each node one rank of each reports.
expect_error '^torchbridge: (rank [12] on n0: )?iface=only0: n0 has no such interface that other nodes can reach' 30 \
  on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec --torch-env=iface=only0 -- sleep 1000
(($(grep -c '^torchbridge: ' "$work/stderr") <= 2)) || fail "expected one report a node"
expect_one_report 'addr=iface:only0: n0, the node of rank 0, has no such address' \
  on_login srun -N2 -n4 -w n0,n1 "$torchbridge" exec --torch-env=addr=iface:only0 -- echo started
# Neither PMI nor any variable of Hydra's names the job.
if command -v mpiexec.mpich >/dev/null; then
  expect_one_report '(rank [0-9] on .*: )?iface=only0: ' \
    on_login mpiexec.mpich -n 4 "$torchbridge" exec --torch-env=iface=only0 -- sleep 1000
fi
# mpirun's ranks do not end the step that its daemons are in.
limit=30 on_login salloc -Q -N2 -n4 --ntasks-per-node=2 \
  mpirun.openmpi -np 4 "$torchbridge" exec --torch-env=iface=only0 -- sleep 1000 2>"$work/stderr" && fail "it succeeded"
grep -q '^torchbridge: .*iface=only0: ' "$work/stderr" || fail "no rank reports it: $(cat "$work/stderr")"
! grep -E 'lost communication|CANCELLED' "$work/stderr" || fail "mpirun's daemons were ended"
# A name that only one node does not resolve: that node reports it, and the step ends.
{ on_node n0 cat /etc/hosts; echo "$(on_node n0 hostname -I | cut -d' ' -f1) only-here"; } >"$work/hosts"
with_file n0 /etc/hosts "$work/hosts"
advice="give that node's, as in --torch-env=addr=10.1.0.5 or MASTER_ADDR=10.1.0.5"
expect_one_report "rank 1 on n1: MASTER_ADDR=only-here: .*'only-here' does not resolve on n1: .*: $advice" \
  on_login srun -N2 -n2 -w n0,n1 "$torchbridge" exec --torch-env=addr=only-here -- sleep 1000
as_before
