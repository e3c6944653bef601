#!/usr/bin/env bash
# The packages that scripts/packages makes, by an administrator's hands: installed, used, upgraded and removed in empty
# roots of Debian without a compiler, with the Slurm that the suite has. packages_test.sh SOURCE_DIR
set -euo pipefail
[[ ${TORCHBRIDGE_RELEASE:-} ]] || { echo "SKIPPED: it builds for minutes: TORCHBRIDGE_RELEASE=1 runs it"; exit 77; }
SOURCE_DIR=$1
source "$SOURCE_DIR/tests/support/empty_root.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
skipped=()
((EUID == 0)) || { echo "SKIPPED: roots of Debian need root"; exit 77; }
out=$SOURCE_DIR/build-packages
version=$(sed -n 's/^project(torchbridge VERSION \([0-9.]*\) .*/\1/p' "$SOURCE_DIR/CMakeLists.txt")

# What the administrator does, within the root; /mnt has the packages.
cat >"$work/slurm.conf" <<'C'
ClusterName=fresh
SlurmctldHost=fresh
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
NodeName=fresh CPUs=2
PartitionName=all Nodes=fresh Default=YES State=UP
C
cat >"$work/steps" <<'S'
set -euo pipefail
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
says() {  # EXPECTED COMMAND...: sorted, with stderr
  local expected=$1 found
  shift
  found=$(timeout 60 "$@" 2>&1 | sort) || true
  [[ $found == "$expected" ]] || fail "$*: '$found', expected '$expected'"
  echo "ok: $*"
}
install_package() { apt-get install -y --allow-downgrades "$1" </dev/null 2>&1 | tr -d '\r'; }
! command -v gcc cc || fail "this root has a compiler"
mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd /run/munge
cp /mnt/slurm.conf /etc/slurm/
dd if=/dev/urandom bs=1 count=1024 of=/etc/munge/munge.key status=none
chown munge: /etc/munge/munge.key /run/munge
chmod 400 /etc/munge/munge.key
setpriv --reuid munge --regid munge --clear-groups munged --force
slurmctld
slurmd
for ((try = 0; try < 600; ++try)); do
  [[ $(sinfo -h -o %t) != idle ]] || break
  read -rt 0.1 <> <(:) || true
done
says idle sinfo -h -o %t
show='echo $RANK/$WORLD_SIZE'

# Debian's plugstack.conf includes the folder. Where a site's does not, the package alone changes nothing, and says so.
[[ $(cat /etc/slurm/plugstack.conf) == 'include /etc/slurm/plugstack.conf.d/*.conf' ]] ||
  fail "Debian's plugstack.conf is another"
: >/etc/slurm/plugstack.conf
install_package /mnt/plugin.deb >/tmp/log 2>&1 || { cat /tmp/log; fail "the installation"; }
grep -qx 'torchbridge: add to /etc/slurm/plugstack.conf: include /etc/slurm/plugstack.conf.d/\*.conf' /tmp/log ||
  fail "the installation does not name the line for plugstack.conf: $(cat /tmp/log)"
says / srun -Q -n1 sh -c "$show"
echo 'include /etc/slurm/plugstack.conf.d/*.conf' >>/etc/slurm/plugstack.conf
says $'0/2\n1/2' srun -Q -n2 --torch-env sh -c "$show"

# An upgrade while a step runs; a site's defaults stay.
echo 'optional torch_env.so on_failure=wait' >/etc/slurm/plugstack.conf.d/torch_env.conf
mkfifo /tmp/end
srun -Q -n1 --torch-env sh -c 'read line </tmp/end; echo $RANK' >/tmp/running 2>&1 &
running=$!
for ((try = 0; try < 600; ++try)); do
  [[ -z $(squeue -h -t R) ]] || break
  read -rt 0.1 <> <(:) || true
done
install_package /mnt/newer.deb >/tmp/log 2>&1 || { cat /tmp/log; fail "the installation of the newer one"; }
! grep -q 'add to' /tmp/log || fail "it names a line that is there: $(cat /tmp/log)"
echo >/tmp/end
wait "$running"
[[ $(cat /tmp/running) == 0 ]] || fail "a step that ran during the upgrade printed $(cat /tmp/running)"
grep -qx 'optional torch_env.so on_failure=wait' /etc/slurm/plugstack.conf.d/torch_env.conf ||
  fail "the site's defaults are lost"
says $'0/2\n1/2' srun -Q -n2 --torch-env sh -c "$show"

# The package for another release is not installed. Forced in this one's place, no job fails: Slurm itself says that it
# does not load the file. The site's defaults stay.
if [[ -e /mnt/other.deb ]]; then
  ! install_package /mnt/other.deb >/tmp/log || fail "the package for another release is installed"
  grep -q '^torchbridge: this machine has Slurm [0-9.]*, which does not load a plugin for ' /tmp/log ||
    fail "the installation does not name both releases: $(cat /tmp/log)"
  says $'0/2\n1/2' srun -Q -n2 --torch-env sh -c "$show"
  dpkg -r "$(dpkg-deb -f /mnt/plugin.deb Package)" >/dev/null
  TORCHBRIDGE_ANY_SLURM=1 install_package /mnt/other.deb >/tmp/log || { cat /tmp/log; fail "the forced installation"; }
  srun -Q -n1 true 2>/tmp/log || fail "a plain step fails with another release's plugin"
  ! grep -vE 'Incompatible Slurm plugin|dlopen\(torch_env|Dlopen of plugin' /tmp/log ||
    fail "a plain step has a message"
  ! srun -Q -n1 --torch-env true 2>/tmp/log || fail "--torch-env is taken with another release's plugin"
  grep -q "unrecognized option '--torch-env'" /tmp/log || fail "$(cat /tmp/log)"
  ! TORCHBRIDGE_OPTIONS=ranks=block srun -Q -n1 true 2>/tmp/log || fail "TORCHBRIDGE_OPTIONS has no effect"
  grep -q 'torch-env: TORCHBRIDGE_OPTIONS is set, but torch_env.so in plugstack.conf was built for' /tmp/log ||
    fail "$(cat /tmp/log)"
  grep -qx 'optional torch_env.so on_failure=wait' /etc/slurm/plugstack.conf.d/torch_env.conf ||
    fail "the site's defaults are lost"
  dpkg -r "$(dpkg-deb -f /mnt/other.deb Package)" >/dev/null
  install_package /mnt/plugin.deb >/tmp/log || { cat /tmp/log; fail "back to this release's"; }
  says $'0/2\n1/2' srun -Q -n2 --torch-env sh -c "$show"
fi

# Removed: steps run on, and say nothing. Purged, nothing is left.
name=$(dpkg-deb -f /mnt/plugin.deb Package)
dpkg -r "$name" >/dev/null
srun -Q -n1 true 2>/tmp/log || fail "a plain step fails without the plugin"
[[ ! -s /tmp/log ]] || fail "a plain step without the plugin says $(cat /tmp/log)"
dpkg -P "$name" >/dev/null 2>&1
srun -Q -n1 true 2>/tmp/log || fail "a plain step fails after the purge"
left=$(find / -xdev -name '*torch_env*' -not -path '/mnt/*')
[[ -z $left ]] || fail "left behind: $left"
[[ $(sinfo -h -o %t) == idle ]] || fail "the node is $(sinfo -h -o %t)"
S

roots=()
for suite in ${TORCHBRIDGE_SUITES:-bookworm trixie}; do
  packages=slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,libslurm-dev,munge,iproute2,procps
  if root=$(empty_root "slurm-$suite" "$suite" "$packages"); then
    roots+=("$root")
    SLURM_ROOT=$root "$SOURCE_DIR/scripts/packages" plugin >/dev/null
  else
    skipped+=("Debian $suite: $root")
  fi
done
# release_of ROOT: 22.05
release_of() { sed -n 's/^Version: \([0-9]*\.[0-9]*\).*/\1/p' <(dpkg --root="$1" -s slurmd); }
for root in "${roots[@]}"; do
  release=$(release_of "$root") given=$work/${root##*/}
  mkdir "$given"
  cp "$work/slurm.conf" "$work/steps" "$given/"
  cp "$out/torchbridge-plugin-slurm${release}_${version}_amd64.deb" "$given/plugin.deb"
  # The next version: the same files by another number.
  cpack --config "$SOURCE_DIR/build-plugin-${root##*/}/CPackConfig.cmake" -G DEB -B "$work/newer" \
    -D CPACK_PACKAGE_VERSION="$version.1" >/dev/null
  mv "$work"/newer/*.deb "$given/newer.deb"
  for other in "${roots[@]}"; do
    [[ $other == "$root" ]] ||
      cp "$out/torchbridge-plugin-slurm$(release_of "$other")_${version}_amd64.deb" "$given/other.deb"
  done
  echo "Slurm $release:"
  in_root "$root" "$given" bash /mnt/steps || fail "Slurm $release"
done

# The command, from the oldest glibc that it is for here.
"$SOURCE_DIR/scripts/packages" command >/dev/null
for package in "$out"/*.deb; do
  files=$(dpkg-deb -c "$package")
  [[ $files == *" ./usr/share/doc/$(dpkg-deb -f "$package" Package)/copyright"* ]] || fail "$package has no license"
done
mkdir "$work/command"
cp "$out/torchbridge_${version}_amd64.deb" "$out/torchbridge-$version-linux-x86_64.tar.gz" "$work/command/"
if root=$(empty_root python-bullseye bullseye python3,python3-venv,iproute2); then
  in_root "$root" "$work/command" sh -euc '
    dpkg -i /mnt/torchbridge_*.deb >/dev/null
    [ "$(torchbridge run --nproc-per-node 2 --no-python sh -c "echo \$RANK" | sort | tr "\n" " ")" = "0 1 " ]
    dpkg -P torchbridge >/dev/null
    [ -z "$(find / -xdev -iname "*torchbridge*" -not -path "/mnt/*")" ]
    tar xzf /mnt/torchbridge-*.tar.gz
    torchbridge-*/bin/torchbridge exec -- sh -c "[ \$RANK = 0 ]"' || fail "the package of the command"
else
  skipped+=("Debian bullseye: $root")
fi

# rpm knows the same life, without EL's own packages.
if command -v rpm >/dev/null && compgen -G "$out/torchbridge-plugin-*.rpm" >/dev/null; then
  rpm_() { rpm --root "$work/rpm" --dbpath /db --nodeps "$@"; }
  mkdir "$work/rpm"
  file=$(find "$out" -name 'torchbridge-plugin-*.rpm' ! -name '*.src.rpm' | head -n 1)
  rpm_ -i --noscripts "$file"
  conf=$work/rpm/etc/slurm/plugstack.conf.d/torch_env.conf
  [[ -e $conf && $(find "$work/rpm" -name torch_env.so) ]] || fail "rpm -i: $(find "$work/rpm" -name 'torch_env*')"
  echo '# edited' >>"$conf"
  rpm_ -U --force --noscripts "$file"
  grep -qx '# edited' "$conf" || fail "rpm -U loses the site's defaults"
  rpm_ -e "$(rpm -qp --qf '%{NAME}' "$file")"
  [[ -z $(find "$work/rpm" -name torch_env.so) ]] || fail "rpm -e leaves the plugin"
else
  skipped+=("rpm is not installed")
fi
((${#skipped[@]} == 0)) || { printf 'SKIPPED: %s\n' "${skipped[@]}"; exit 77; }
