#!/usr/bin/env bash
# Nothing of a container's image is opened before the user's program runs: no library, no file, no socket. The image has
# a planted module for each service of nsswitch.conf. slurmstepd runs under strace, and the job is an unprivileged
# user's. The container is entered in task_init, as pyxis does, and in task_init_privileged, as its old releases did.
source "$(dirname "$0")/case.sh"
needs_other_users
ours="optional $1\n" container="required $2" planted=$3
command -v strace >/dev/null || skip "no strace: run scripts/setup --tests"

# The image: a shell with its libraries.
image=$work/image
mkdir -p "$image"/{usr/bin,etc,proc,sys,dev,tmp,run}
cp -L "$(type -P sh)" "$image/usr/bin/sh"
while read -r library; do
  mkdir -p "$image${library%/*}"
  cp -L "$library" "$image$library"
done < <(ldd "$(type -P sh)" | grep -o '/[^ ]*')
libraries=$(dirname "$(find "$image" -name 'libc.so.6')")
readonly services=(files dns myhostname mymachines resolve compat hesiod nis systemd sss ldap)
for service in "${services[@]}"; do cp "$planted" "$libraries/libnss_$service.so.2"; done
cp "$planted" "$libraries/libgcc_s.so.1"
for database in passwd group shadow hosts networks protocols services ethers rpc netgroup; do
  echo "$database: ${services[*]}"
done >"$image/etc/nsswitch.conf"
chmod -R go+rX "$work"

with_slurmstepd n1 "/usr/bin/strace -f -s 256 -e trace=file,network,process,setns -o $work/\$\$.trace"
strace_files=("${changed[@]}")
# In place of with_plugstack, which would take the wrapper of slurmstepd away.
find_plugstack
with_order() {
  printf '%b' "$1" >"$work/n1.conf"
  [[ " ${changed[*]} " == *" n1 $plugstack "* ]] || with_file n1 "$plugstack" "$work/n1.conf"
}

show='echo $RANK/$WORLD_SIZE; if [ -e /tmp/loaded ]; then while read -r line; do echo "$line"; done </tmp/loaded; fi'
as_user() { on_login runuser -u nobody -- env -C / "$@"; }
run() { as_user srun -Q -N1 -n2 -w n1 --torch-env="$1" sh -c "$show"; }

for mode in "" privileged; do
  with_order "$container root=$image $mode\n$ours"
  for list in "" addr=n1 check=5 addr=iface:eth0 cpus=gpu,gpus=closest; do
    expect $'0/2\n1/2' run "$list"
  done
  # The nodes ask the controller where srun has no plugin, and where a name does not resolve there.
  TORCHBRIDGE_OPTIONS=omp=2 expect $'0/3\n1/3\n2/3' from_login_with "" \
    runuser -u nobody -- env -C / srun -Q -n3 -m arbitrary -w n1,n0,n1 sh -c 'echo $RANK/$WORLD_SIZE'
  expect_error "^srun: error: torch-env: addr=iface:none0: n1, the node of rank 0, has no such address" 15 \
    as_user srun -Q -N1 -n2 -w n1 --torch-env=addr=iface:none0 sh -c "$show"
  expect_error "^srun: error: torch-env: first to fail: rank 1 on n1, .*: exit code 3$" 15 \
    as_user srun -Q -N1 -n2 -w n1 --torch-env sh -c 'exit $((RANK * 3))'
done

all_ended() { ! pgrep -f "$work/slurmstepd" >/dev/null; }
wait_for 30 all_ended
# A process is in the image from setns(CLONE_NEWNS) on, or from its start where its parent is, and is the user's program
# from execve on. The call that starts a child may return after the child's first calls: the first reading of the traces
# finds its parent. Not counted:
# - /proc, /sys and /dev: the kernel's, as enroot mounts them. Where an image leaves them unmounted its files are read,
#   as text within bounds and with the user's rights, and nothing of them is loaded (SECURITY.md).
# - O_PATH of the folder of error files: it opens neither a file nor a device or a pipe, and runs nothing; it gives the
#   place in which slurmstepd's child, with the user's rights, looks for the file later.
# - Connections to addresses, but for a resolver's port: tasks speak to srun and to each other.
awk '
  function begin(process, parent) {
    if (process in begun) return
    begun[process] = 1
    inside[process] = inside[parent]
    if (inside[process]) ++inherited
  }
  { starts = / (clone|clone3|fork|vfork)(\(| resumed>).* = [0-9]+$/ }
  reading == 1 { if (starts) parent_of[$NF] = $1; next }
  { begin($1, parent_of[$1]) }
  starts { begin($NF, $1) }
  / setns\(.*CLONE_NEWNS/ { inside[$1] = 1; ++entered }
  / execve(\(| resumed>).* = 0$/ { inside[$1] = 0 }
  inside[$1] && / (open|openat|openat2|connect)\(|htons\(53\)/ {
    if ($0 ~ /"\/(proc|sys|dev)\//) next
    if ($0 ~ /"\/tmp\/torch-env-[0-9]+\/", O_RDONLY\|O_CLOEXEC\|O_PATH\|O_DIRECTORY/) next
    if ($0 ~ / openat\(AT_FDCWD, "\/tmp\/torch-env-[0-9]+\/", O_/ && $0 ~ /O_PATH/) next
    if ($0 ~ / connect\(/ && $0 !~ /sun_path="\/|htons\(53\)/) next
    print "in the image: " substr($0, 1, 200); bad = 1
  }
  END {
    print entered + 0 " tasks have entered the image, and started " inherited + 0 " processes there"
    exit bad || entered < 20 || inherited < 10
  }' reading=1 "$work"/*.trace reading=2 "$work"/*.trace ||
  fail "a file of the image was opened, or a name resolved, before the program ran"
