#!/usr/bin/env bash
# Sites with a second, fast network: MASTER_ADDR is the address of an interface or in a subnet of rank 0's node, which
# passes it to the other nodes; each node's interface is the one in that network.
source "$(dirname "$0")/case.sh"

hosts=$(on_node n0 cat /etc/hosts)
first=$(on_node n0 hostname -I | cut -d' ' -f1)
# A second network, whose interface has another name on each node. nodad: IPv6 without the wait for duplicates.
changed=()  # nodes with another /etc/hosts
restore() {
  for node in "${changed[@]}"; do on_node "$node" umount /etc/hosts; done
  on_node n0 sh -c "cat >/etc/hosts" <<<"$hosts"
  for i in 0 1 2; do on_node "n$i" ip link del "fast$i" 2>/dev/null || true; done
  for name in docker0 ib0; do on_node n0 ip link del "$name" 2>/dev/null || true; done
  rm -rf "$work"
}
trap restore EXIT
for i in 0 1 2; do
  on_node "n$i" ip link add link eth0 name "fast$i" type macvlan mode bridge ||
    skip "this machine cannot make a second interface"
  on_node "n$i" ip addr add "10.88.0.1$i/24" dev "fast$i"
  on_node "n$i" ip addr add "fd88::1$i/64" dev "fast$i" nodad
  on_node "n$i" ip link set "fast$i" up
done
# Names of that network, as sites have them: the nodes' host names with a suffix.
for i in 0 1 2; do printf '%s\n' "10.88.0.1$i n$i-fast"; done | on_node n0 sh -c 'cat >>/etc/hosts'
show='echo $RANK $(hostname) $MASTER_ADDR $GLOO_SOCKET_IFNAME ${NCCL_SOCKET_IFNAME-unset}'
torchbridge=$BUILD_DIR/bin/torchbridge

# tasks OPTIONS PROGRAM...: five tasks, three of them on n0.
tasks() { on_login srun -N3 -n5 -w n0,n1,n2 "$@"; }
spread() { printf '0 n0 %s\n1 n0 %s\n2 n0 %s\n3 n1 %s\n4 n2 %s' "$1 $2" "$1 $2" "$1 $2" "$1 $3" "$1 $4"; }
fast=("fast0 unset" "fast1 unset" "fast2 unset")

expect "$(spread 10.88.0.10 "${fast[@]}")" tasks --torch-env=addr=subnet:10.88.0.0/24 sh -c "$show"
expect "$(spread 10.88.0.10 "${fast[@]}")" tasks --torch-env=addr=iface:fast0,check sh -c "$show"
expect "$(spread fd88::10 "${fast[@]}")" tasks --torch-env=addr=subnet:fd88::/64,check sh -c "$show"
expect "$(spread 10.88.0.10 "${fast[@]}")" \
  tasks "$torchbridge" exec --torch-env=addr=subnet:10.88.0.0/24 -- sh -c "$show"
expect "$(spread 10.88.0.10 "${fast[@]}")" tasks --torch-env=addr=10.88.0.10 sh -c "$show"
expect "$(spread 10.88.0.10 "${fast[@]}")" tasks --torch-env=addr=suffix:-fast sh -c "$show"
expect "$(spread 10.88.0.10 "${fast[@]}")" tasks "$torchbridge" exec --torch-env=addr=suffix:-fast -- sh -c "$show"
expect $'0 n1 10.88.0.11 unset\n1 n1 10.88.0.11 unset' \
  on_login srun -N1 -n2 -w n1 --torch-env=addr=iface:fast1 sh -c "$show"
# An interface that the user selects is for NCCL too, and exact: to NCCL "eth0" is a prefix, "=eth0" one interface.
expect $'0 eth0 =eth0\n1 eth0 =eth0' \
  on_login srun -N2 -n2 --torch-env=iface=eth0 sh -c 'echo $RANK $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME'

# So does NCCL. By itself it passes over the bridge of containers, and takes an interface called ib before others.
if [[ -e $BUILD_DIR/lib/libtorchbridge_nccl.so ]]; then
  interface_of_nccl() { on_login srun -N1 -n1 -w n0 "$@" "$BUILD_DIR/bin/gpu_cases" interface cpu; }
  for name in docker0 ib0; do
    on_node n0 ip link add "$name" type bridge
    on_node n0 ip addr add 172.18.0.1/16 dev "$name"
    on_node n0 ip link set "$name" up
    expect "interface $([[ $name == ib0 ]] && echo ib0 || echo eth0)" interface_of_nccl
    expect 'interface eth0' interface_of_nccl --torch-env=iface=eth0
    on_node n0 ip link del "$name"
  done
fi

# Only rank 0's node reports that it has no such address.
expect_error 'torch-env: addr=iface:ib0: n0, .* has no such address: it has .*fast0 10.88.0.10' 20 \
  tasks --torch-env=addr=iface:ib0 true
expect_error 'torchbridge: addr=subnet:203.0.113.0/24: n0, .* has no such address' 20 \
  tasks "$torchbridge" exec --torch-env=addr=subnet:203.0.113.0/24 -- true
expect_error 'torch-env: iface=ib0: n0 has no such interface; it has lo, eth0, fast0' 20 \
  on_login srun -N1 -n1 -w n0 --torch-env=iface=ib0 true
expect_error 'torch-env: addr=iface:lo: 127.0.0.1 is a loopback address' 20 tasks --torch-env=addr=iface:lo true

# Interfaces by which other nodes do not reach a node are rejected, whoever names them, before a program starts.
unreached="has no such interface that other nodes can reach; it has eth0, fast"
two() { on_login srun -N2 -n2 -w n0,n1 "$@"; }
expect_error "torch-env: iface=lo: n[01] $unreached" 20 two --torch-env=iface=lo true
for name in GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME; do
  declare -x "$name=lo"
  expect_error "torch-env: $name='lo': n[01] $unreached" 30 two --torch-env sleep 1000
  declare -x "$name=fast0"
  expect_error "^torchbridge: rank 1 on n1: $name='fast0': n1 $unreached" 30 two "$torchbridge" exec -- sleep 1000
  expect_error "^torchbridge: n1: $name='fast0': n1 $unreached" 30 \
    two "$torchbridge" run --nproc-per-node 1 sleep 1000
  unset "$name"
done
NCCL_SOCKET_IFNAME=^lo,fast GLOO_SOCKET_IFNAME=eth0 expect $'0 eth0\n1 eth0' \
  two "$torchbridge" exec -- sh -c 'echo $RANK $GLOO_SOCKET_IFNAME'

# A name with two addresses, which each node's resolver returns in another order: all nodes select the same.
known_as() {  # known_as NODE ADDRESSES...: the addresses of n0 on that node
  { printf '%s n0\n' "${@:2}"; sed '/\<n0\>/d' <<<"$hosts"; } >"$work/hosts.$1"
  on_node "$1" mount --bind "$work/hosts.$1" /etc/hosts
  changed+=("$1")
  [[ $(on_node "$1" getent ahostsv4 n0 | head -n 1) == "$2 "* ]] || fail "$1 does not resolve $2 first"
}
known_as n0 "$first" 10.88.0.10
known_as n1 10.88.0.10 "$first"
selected=$(printf '%s\n' "$first" 10.88.0.10 | LC_ALL=C sort | head -n 1)
show='echo $RANK $MASTER_ADDR'
expect "0 $selected
1 $selected" on_login srun -N2 -n2 -w n0,n1 --torch-env sh -c "$show"
expect "0 $selected
1 $selected" on_login srun -N2 -n2 -w n0,n1 "$torchbridge" exec -- sh -c "$show"

# A node that knows only one of them connects to that one.
known_as n2 10.88.0.10
cat >"$work/connect.py" <<'PY'
import os, socket, time
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    listener = socket.socket(fileno=int(os.environ["TORCHBRIDGE_LISTEN_FD"]))
    listener.listen()
    for _ in range(2):
        listener.accept()
else:
    deadline = time.monotonic() + 20
    while True:  # until rank 0 listens
        try:
            socket.create_connection(address, 5)
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
print(os.environ["RANK"], address[0])
PY
expect "0 $selected
1 $selected
2 10.88.0.10" on_login srun -N3 -n3 -w n0,n1,n2 --torch-env /usr/bin/python3 "$work/connect.py"

# Host names that are not the nodes' names, as in pods: without an entry for a node, its own tasks take the address of
# an interface, and those of other nodes ask Slurm's controller.
echo '127.0.0.1 localhost' >"$work/hosts.none"
address_of() { on_node "$1" hostname -I | cut -d' ' -f1; }
known_as_pod() {
  on_node "$1" hostname "pod-$1"
  on_node "$1" mount --bind "$work/hosts.none" /etc/hosts
}
as_node() {
  on_node "$1" umount /etc/hosts
  on_node "$1" hostname "$1"
}
for node in n1 n2; do known_as_pod "$node"; done
for option in "" --torch-env=addr=iface:eth0; do
  expect "$(printf '0 %s\n1 %s' "$(address_of n1)" "$(address_of n1)")" \
    on_login srun -N1 -n2 -w n1 "$torchbridge" exec $option -- sh -c "$show"
  expect "$(printf '0 %s\n1 %s\n2 %s' $(for i in 1 2 3; do address_of n1; done))" \
    on_login srun -N2 -n3 -w n1,n2 "$torchbridge" exec $option -- sh -c "$show"
done
for node in n1 n2; do as_node "$node"; done

# One task of a node asks the name server for all of them.
serve='import socket, sys, threading
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(("127.0.0.1", 53))
print("ready", flush=True)
def answer():
    while True:
        query, asker = server.recvfrom(512)
        is_ipv4 = query[-4:-2] == b"\0\1"
        print("query", flush=True)
        found = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(sys.argv[1]) if is_ipv4 else b""
        counts = b"\0\1" + (b"\0\1" if found else b"\0\0") + b"\0\0\0\0"
        server.sendto(query[:2] + b"\x81\x80" + counts + query[12:] + found, asker)
threading.Thread(target=answer, daemon=True).start()
sys.stdin.read()'
echo '127.0.0.1 localhost' >"$work/hosts.n3"
echo 'nameserver 127.0.0.1' >"$work/resolv.conf"
on_node n3 mount --bind "$work/hosts.n3" /etc/hosts
changed+=(n3)
mkfifo "$work/stdin"
on_node n3 /usr/bin/python3 -c "$serve" "$first" <"$work/stdin" >"$work/queries" &
exec 3>"$work/stdin"
wait_for 20 grep -q ready "$work/queries"
on_node n3 mount --bind "$work/resolv.conf" /etc/resolv.conf
expect "$(printf '%s\n' 0 1 2 3 4 5 6 7 8)" \
  on_login srun -n9 -m arbitrary -w n0,n3,n3,n3,n3,n3,n3,n3,n3 --torch-env sh -c 'echo $RANK'
on_node n3 umount /etc/resolv.conf
exec 3>&-
wait
queries=$(grep -c query "$work/queries")
((queries == 2)) || fail "$queries queries of one node's tasks for IPv4 and IPv6, expected 2"
