#!/usr/bin/env bash
# A node whose /tmp is full, and one whose name server never answers: steps without the plugin run, steps with it run or
# end with a line within seconds, and no node is drained.
source "$(dirname "$0")/case.sh"
limit=40
show='echo "$RANK/$WORLD_SIZE ${MASTER_PORT:+port} ${TORCHELASTIC_RUN_ID:+run}"'
whole=$'0/3 port run\n1/3 port run\n2/3 port run'
cd /

# No folder of error files can be made.
on_node n1 mount -t tmpfs -o size=4k,nr_inodes=2 tmpfs /tmp
changed+=("n1 /tmp")
on_node n1 sh -c 'echo full >/tmp/file'
! on_node n1 mkdir /tmp/folder 2>/dev/null || fail "/tmp is not full"
expect "$whole" on_login srun -Q -N2 -n3 -w n1,n2 --torch-env sh -c "$show"
[[ $(grep -c '^torch-env: ' "$work/stderr") == 1 ]] || fail "not one line"
grep -q '^torch-env: cannot create /tmp/torch-env-0: No space left on device: the tasks of n1 have no error file' \
  "$work/stderr" || fail "no line on the missing error files: $(cat "$work/stderr")"
expect_error 'torch-env: first to fail: rank 0 on n1, .*: exit code 3$' 20 \
  on_login srun -Q -N2 -n3 -w n1,n2 --torch-env sh -c 'exit $((RANK == 0 ? 3 : 0))'
as_before

# Neither the hosts file nor the name server resolves the nodes' names.
printf 'nameserver 192.0.2.1\noptions timeout:30 attempts:3\n' >"$work/resolv.conf"
echo '127.0.0.1 localhost' >"$work/hosts"
on_node n1 sh -c 'ip link add void type veth peer name nowhere && ip addr add 192.0.2.2/24 dev void &&
  ip link set nowhere up && ip link set void up && ip neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev void'
trap 'on_node n1 ip link del void; as_before; rm -rf "$work"' EXIT
with_file n1 /etc/resolv.conf "$work/resolv.conf"
with_file n1 /etc/hosts "$work/hosts"
status=0
on_node n1 timeout 2 getent hosts n0 || status=$?
((status == 124)) || fail "the name server answers: exit code $status of getent"
expect $'n1\nn1\nn2' on_login srun -Q -N2 -n3 -w n1,n2 hostname
for nodes in n0,n1 n1,n2; do
  status=0
  on_login srun -Q -N2 -n3 -w "$nodes" --torch-env sh -c "$show" >"$work/stdout" 2>"$work/stderr" || status=$?
  cat "$work/stdout" "$work/stderr"
  if ((status == 0)); then
    [[ $(sort "$work/stdout") == "$whole" ]] || fail "not all ranks ran"
  else
    ((status != 124)) || fail "no end within $limit s"
    grep -qE 'torch-env: .*(name|resolve)' "$work/stderr" || fail "no line about the name server"
  fi
done
! on_login sinfo --noheader --Node --format='%N %T %E' | grep -E 'drain|down' || fail "a node is drained"
