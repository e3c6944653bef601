#!/usr/bin/env bash
# Every system call about files or the network that has a frame of the plugin on its stack, in slurmstepd and its tasks,
# is made with the user's rights, but for the unnamed pair of sockets that slurmstepd shares with its tasks: slurmstepd
# runs under strace, and the job is an unprivileged user's.
source "$(dirname "$0")/case.sh"
needs_other_users
command -v strace >/dev/null || skip "no strace: run scripts/setup --tests"
name=$(basename "$1")
user=$(id -u nobody)

calls=file,network,setuid,setreuid,setresuid,clone,clone3,fork,vfork
with_slurmstepd n1 "/usr/bin/strace -f -k -s 256 -e trace=$calls -o $work/\$\$.trace"

expect $'0 n0\n1 n1\n2 n1' on_login runuser -u nobody -- \
  srun -Q -n3 -m arbitrary -w n0,n1,n1 --torch-env=verbose,ranks=block sh -c 'echo $RANK $(hostname)'
TORCHBRIDGE_OPTIONS=ranks=block expect $'0\n1' on_login runuser -u nobody -- srun -Q -N1 -n2 -w n1 sh -c 'echo $RANK'
RANK=7 expect_error "^srun: error: torch-env: RANK='7'" 30 \
  on_login runuser -u nobody -- srun -Q -N1 -n2 -w n1 --torch-env true
all_ended() { ! pgrep -f "$work/slurmstepd" >/dev/null; }
wait_for 30 all_ended

# A line is "PID CALL" or "PID --- SIGNAL", followed by its stack in lines that begin with " > ". A process has the
# rights that it set last, and those of its parent before. The first time through the files is for who forks whom: the
# number of the child stands at the end of a line that may come after the child's first one.
awk -v plugin="/$name(" -v user="$user" '
  { begins_fork = $2 ~ /^(clone3?|v?fork)\(/; is_fork = begins_fork || $3 ~ /^(clone3?|v?fork)$/ }
  !second { if (is_fork && $(NF - 1) == "=") parent[$NF] = $1; next }
  /^[0-9]+ / {
    pid = $1; call = $0; counted = $2 == "---" || is_fork || / socketpair\(AF_UNIX, | SO_SNDBUFFORCE, /
    if (!(pid in is_user) && pid in parent) is_user[pid] = at_fork[parent[pid]]
  }
  begins_fork { at_fork[pid] = is_user[pid] }
  /^[0-9]+ +set(re|res)?uid\(/ {
    is_user[pid] = index($0, "setreuid(" user ", " user) || index($0, "setresuid(" user ", " user ", " user) ||
      index($0, "setresuid(-1, " user ", -1")
  }
  index($0, " > ") == 1 && index($0, plugin) && !counted {
    counted = 1
    if (is_user[pid]) ++seen; else { print "as root: " substr(call, 1, 150); bad = 1 }
  }
  END { print seen + 0 " calls with the rights of the user"; exit bad || seen < 10 }' \
  "$work"/*.trace second=1 "$work"/*.trace ||
  fail "not with the rights of the user alone"
