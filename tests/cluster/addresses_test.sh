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

# Only rank 0's node reports that it has no such address.
expect_error 'torch-env: addr=iface:ib0: n0, .* has no such address: it has .*fast0 10.88.0.10' 20 \
  tasks --torch-env=addr=iface:ib0 true
expect_error 'torchbridge: addr=subnet:203.0.113.0/24: n0, .* has no such address' 20 \
  tasks "$torchbridge" exec --torch-env=addr=subnet:203.0.113.0/24 -- true
expect_error 'torch-env: iface=ib0: n0 has no interface of that name' 20 \
  on_login srun -N1 -n1 -w n0 --torch-env=iface=ib0 true
expect_error 'torch-env: addr=iface:lo: 127.0.0.1 is a loopback address' 20 tasks --torch-env=addr=iface:lo true

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
