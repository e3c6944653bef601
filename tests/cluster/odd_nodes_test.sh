#!/usr/bin/env bash
# Unusual nodes as sites have them: a loopback address for the own name, another port range, one port for two steps.
source "$(dirname "$0")/case.sh"
torchbridge=$BUILD_DIR/bin/torchbridge
show='echo $RANK $MASTER_ADDR:$MASTER_PORT'
same_on_all() {  # same_on_all TASKS COMMAND...: all tasks print one address and port
  local tasks=$1
  shift
  printf '$ %s\n' "$*"
  "$@" >"$work/stdout" 2>"$work/stderr" || { cat "$work/stderr"; fail "exit code $?"; }
  [[ $(wc -l <"$work/stdout") == "$tasks" && $(cut -d' ' -f2 "$work/stdout" | sort -u | wc -l) == 1 ]] || {
    cat "$work/stdout"
    fail "they differ"
  }
}
address=$(on_node n0 hostname -I | cut -d' ' -f1)

# Debian's installer writes such a line for the host's own name.
hosts=/etc/hosts
on_node n0 sh -c "sed 's/^[0-9.]*\\( *n0\\)/127.0.1.1\\1/; s/\\(^[0-9.]*[ \\t].*\\)\\<n0\\>/\\1/' $hosts >'$work/hosts'
  echo '127.0.1.1 n0' >>'$work/hosts'; sed -i '1i127.0.1.1 n0' '$work/hosts'"
on_node n0 mount --bind "$work/hosts" "$hosts"
trap 'on_node n0 umount /etc/hosts
  on_node n1 sh -c "echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range"; rm -rf "$work"' EXIT
[[ $(on_node n0 getent ahostsv4 n0 | head -n 1) == 127.0.1.1* ]] || fail "n0 has no loopback address"
wait_for 60 all_nodes_are_idle
for way in "--torch-env=check=5" "$torchbridge exec --"; do
  case $way in
    --*) same_on_all 3 on_login srun -N2 -n3 -w n0,n1 $way sh -c "$show" ;;
    *) same_on_all 3 on_login srun -N2 -n3 -w n0,n1 $way sh -c "$show" ;;
  esac
  grep -q "^0 $address:" "$work/stdout" || { cat "$work/stdout"; fail "not the address that other nodes reach"; }
done

# The kernel of n1 assigns ephemeral ports from another range.
on_node n1 sh -c 'echo "20000 60999" >/proc/sys/net/ipv4/ip_local_port_range'
same_on_all 3 on_login srun --resv-ports=0 -N2 -n3 -w n0,n1 --torch-env sh -c "$show"

# addr= with a loopback address is rejected where there are several nodes.
expect_error 'torch-env: addr=127.0.0.1 is a loopback address' 20 \
  on_login srun -N2 -n2 --torch-env=addr=127.0.0.1 true

# Two steps with one port: the second ends before any program of it starts. The first waits until the second has ended.
mkfifo "$work/first" "$work/go"
first="test \$RANK = 1 || { echo up >$work/first; cat $work/go; }"
on_login salloc -Q -N2 -n8 -w n0,n1 sh -c "srun --overlap -N2 -n2 --torch-env=port=21500 sh -c '$first' &
  read -r up <$work/first
  srun --overlap -N2 -n4 --torch-env=port=21500 sleep 1000 2>$work/second
  echo over >$work/go; wait"
grep -q 'torch-env: MASTER_PORT=21500 is already in use on n0' "$work/second" || {
  cat "$work/second"
  fail "the second step has no error"
}
