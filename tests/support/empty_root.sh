# Functions for tests in roots of Debian's suites without this project and without a compiler; sourced. They need root.
# A root is made once and kept beside those of scripts/releases; what a command changes in it ends with the command.
readonly empty_roots=${TORCHBRIDGE_ROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/torchbridge/roots}

# empty_root NAME SUITE PACKAGE,...: prints the folder of the root, or the reason why there is none and returns 77.
empty_root() {
  local name=$1 suite=$2 packages=$3 mirror root=$empty_roots/empty-$1
  ((EUID == 0)) || { echo "a root of Debian needs root"; return 77; }
  command -v debootstrap wget >/dev/null ||
    { echo "debootstrap or wget is not installed: scripts/setup --tests"; return 77; }
  mkdir -p "$empty_roots"
  (
    flock 9
    [[ ! -d $root ]] || exit 0
    mirror=$("$SOURCE_DIR/scripts/debian_mirror" "$suite") || { echo "$mirror"; exit 77; }
    rm -rf --one-file-system "$root.new"
    debootstrap --variant=minbase --include="$packages" "$suite" "$root.new" "$mirror" >"$root.log" 2>&1 ||
      { echo "debootstrap of $suite failed: see $root.log"; exit 77; }
    rm -rf "$root.new/var/cache/apt/archives"/*.deb
    mv "$root.new" "$root"
  ) 9>"$empty_roots/.$name.lock" || return
  echo "$root"
}

# in_root ROOT FOLDER COMMAND...: runs the command as root of the root, without a network, for $in_root_limit seconds at
# most; FOLDER is /mnt there, read-only but for what is mounted below it. Its changes are in memory.
in_root() {
  timeout "${in_root_limit:-300}" unshare --mount --pid --fork --kill-child --uts --ipc --net sh -c '
    set -e
    root=$1 folder=$2
    shift 2
    # An interface beside lo: without one getaddrinfo finds no address for Slurm, which asks with AI_ADDRCONFIG.
    ip link set lo up
    ip link add eth0 type veth peer name eth1
    ip address add 10.77.0.1/24 dev eth0
    ip link set eth0 up
    ip link set eth1 up
    layers=$(mktemp -d)
    mount -t tmpfs tmpfs "$layers"
    mkdir "$layers/upper" "$layers/work" "$layers/root"
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$layers/upper,workdir=$layers/work" "$layers/root"
    cd "$layers/root"
    mount --rbind "$folder" mnt
    mount -o remount,bind,ro mnt
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    [ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup sys/fs/cgroup
    mount --rbind /dev dev
    mount -t tmpfs tmpfs tmp
    mount -t tmpfs tmpfs run
    hostname fresh
    printf "127.0.0.1 localhost\n10.77.0.1 fresh\n" >etc/hosts
    mkdir -p old
    pivot_root . old
    umount -l old
    cd /root
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive "$@"
    exit $?' sh "$@"
}
