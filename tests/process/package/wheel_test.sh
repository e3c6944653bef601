#!/usr/bin/env bash
# The wheels that scripts/wheel makes: their tag, the symbols that they need, and what a user does with them in an empty
# virtual environment, in empty roots of Debian without a compiler, and by qemu for the other processor.
# wheel_test.sh SOURCE_DIR [PYTHON_WITH_TORCH]
set -euo pipefail
[[ ${TORCHBRIDGE_RELEASE:-} ]] || { echo "SKIPPED: it builds for minutes: TORCHBRIDGE_RELEASE=1 runs it"; exit 77; }
SOURCE_DIR=$1 torch_python=${2:-}
source "$SOURCE_DIR/tests/support/empty_root.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
skipped=()
version=$(sed -n 's/^project(torchbridge VERSION \([0-9.]*\) .*/\1/p' "$SOURCE_DIR/CMakeLists.txt")

# expect EXPECTED COMMAND...: the sorted output is just that.
expect() {
  local expected=$1 found
  shift
  printf '$ %s\n' "$*"
  found=$("$@" | sort) || fail "exit code $?"
  [[ $found == "$expected" ]] || fail "it printed '$found', expected '$expected'"
}

processors=(x86_64 aarch64)
tools=${XDG_CACHE_HOME:-$HOME/.cache}/torchbridge/manylinux/bin
"$SOURCE_DIR/scripts/wheel" "${processors[@]}" || {
  [[ ! -x $tools/auditwheel ]] || fail "scripts/wheel"
  echo "SKIPPED: scripts/wheel cannot get its tools"
  exit 77
}
wheels=$SOURCE_DIR/build-wheel/dist

# newest FILE...: the newest glibc of which a symbol is needed.
newest() { objdump -T "$@" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1; }
# The tag is kept by each file; libstdc++ and libgcc are in them, and what all need is glibc's.
for processor in "${processors[@]}"; do
  wheel=$wheels/torchbridge-$version-py3-none-manylinux_2_28_$processor.whl
  [[ -e $wheel ]] || fail "no $wheel: $(ls "$wheels")"
  "$tools/auditwheel" show "$wheel" >"$work/audit"
  platform=$(tr '\n' ' ' <"$work/audit" | sed -n 's/.*platform tag: *"manylinux_2_\([0-9]*\)_.*/\1/p')
  ((platform <= 28)) || fail "auditwheel: $(cat "$work/audit")"
  mkdir "$work/$processor"
  python3 -m zipfile -e "$wheel" "$work/$processor"
  files=("$work/$processor"/torchbridge/liblaunch.so "$work/$processor"/torchbridge-*.data/scripts/torchbridge)
  for file in "${files[@]}"; do
    needs=$(newest "$file")
    printf '%s, %s: %s\n' "$processor" "${file##*/}" "$needs"
    [[ $(printf '%s\n' "$needs" GLIBC_2.28 | sort -V | tail -n 1) == GLIBC_2.28 ]] || fail "$file needs $needs"
    ! readelf -d "$file" | grep NEEDED |
      grep -vE '\[(libc|libm|libdl|libpthread|libutil|librt|ld-linux-[a-z0-9-]*)\.so\.[0-9]+\]' ||
      fail "$file needs more than glibc"
  done
done
[[ $(readelf -h "$work"/aarch64/torchbridge/liblaunch.so) == *AArch64* ]] || fail "the wheel for aarch64 has no AArch64"

# An empty environment, not activated, as a batch script calls it.
wheel=$wheels/torchbridge-$version-py3-none-manylinux_2_28_$(uname -m).whl
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-index --disable-pip-version-check "$wheel"
cat >"$work/ranks.py" <<'P'
import os, sys
environment = os.path.basename(os.path.dirname(os.path.dirname(sys.executable)))
os.write(1, f"{os.environ['RANK']} {os.environ['WORLD_SIZE']} {environment}\n".encode())  # in one piece
P
env=(timeout 120 env -i PATH=/usr/bin:/bin HOME="$work")
expect $'0 2 venv\n1 2 venv' "${env[@]}" "$work/venv/bin/torchbridge" run --nproc-per-node 2 \
  "$work/ranks.py"
expect "0 1 venv" "${env[@]}" "$work/venv/bin/torchbridge" exec -- "$work/venv/bin/python" "$work/ranks.py"
[[ $("$work/venv/bin/torchbridge" --version) == "torchbridge (torchbridge) $version"* ]] || fail "--version"
for page in man/man1/torchbridge-run.1 bash-completion/completions/torchbridge; do
  [[ -s $work/venv/share/$page ]] || fail "no share/$page"
done
"$work/venv/bin/pip" uninstall -q -y torchbridge
[[ -z $(find "$work/venv" -iname '*torchbridge*') ]] || fail "pip leaves $(find "$work/venv" -iname '*torchbridge*')"

# Init methods of the package, with a torch of any Python; without torch the import says so.
if [[ -x $torch_python ]] && "$torch_python" -c 'import torch' 2>/dev/null; then
  expect "slurm: 0 1 1" "${env[@]}" PYTHONPATH="$work/$(uname -m)" SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=0 \
    SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1 SLURM_NNODES=1 \
    SLURM_STEP_NODELIST="$(hostname)" SLURM_STEP_TASKS_PER_NODE=1 SLURM_TASKS_PER_NODE=1 SLURMD_NODENAME="$(hostname)" \
    SLURM_DISTRIBUTION=block "$torch_python" -c 'if True:
      import torch, torch.distributed as d, torchbridge
      d.init_process_group("gloo", init_method="slurm://")
      t = torch.ones(1); d.all_reduce(t)
      print("slurm:", d.get_rank(), d.get_world_size(), int(t)); d.destroy_process_group()'
  [[ $("${env[@]}" PYTHONPATH="$work/$(uname -m)" "$torch_python" -m torchbridge.convert --help) == "usage: "* ]] ||
    fail "the wheel has no torchbridge.convert"
else
  skipped+=("init methods: no Python with torch")
fi

# Roots without a compiler: from the glibc before that of the tag's successor to the newest.
cp "$work/ranks.py" "$wheel" "$work/$(uname -m)/"
for suite in bullseye bookworm trixie; do
  if ! root=$(empty_root "python-$suite" "$suite" python3,python3-venv,iproute2); then
    skipped+=("Debian $suite: $root")
    continue
  fi
  expect $'0 2 env\n1 2 env' in_root "$root" "$work/$(uname -m)" sh -c '
    set -e
    ! command -v gcc cc
    python3 -m venv env
    env/bin/pip install -q --no-index --disable-pip-version-check /mnt/*.whl
    env/bin/torchbridge run --nproc-per-node 2 /mnt/ranks.py'
done

# scripts/setup of a user in such a root: what PyPI has, here torch was there before, and the names of the rest.
mkdir -p "$work/tree/scripts" "$work/tree/wheels"
cp "$SOURCE_DIR"/scripts/{setup,requirements.txt,wheel_requirements.txt} "$work/tree/scripts/"
"$tools/pip" download -q --disable-pip-version-check --no-deps --dest "$work/tree/wheels" \
  -r <(grep -E '^(cmake|ninja)=' "$SOURCE_DIR/scripts/wheel_requirements.txt")
if root=$(empty_root python-bookworm bookworm python3,python3-venv,iproute2); then
  expect $'/tmp/tree/.venv/bin/cmake\nends with 1' in_root "$root" "$work/tree" \
    setpriv --reuid 1000 --clear-groups sh -c '
    cp -r /mnt /tmp/tree && cd /tmp/tree && python3 -m venv .venv || exit
    sed "/^#/d" scripts/requirements.txt >.venv/requirements.installed
    PIP_NO_INDEX=1 PIP_FIND_LINKS=/mnt/wheels scripts/setup >/tmp/out 2>&1
    echo "ends with $?"
    grep -q "^  apt-get install .* g++ pkg-config libslurm-dev" /tmp/out || cat /tmp/out
    PATH=$PWD/.venv/bin:$PATH
    cmake --version >/dev/null && command -v cmake'
fi

# The other processor, with the C library of its Debian packages.
if command -v qemu-aarch64-static >/dev/null && mirror=$("$SOURCE_DIR/scripts/debian_mirror" bullseye); then
  file=$(wget -q -O - "$mirror/dists/bullseye/main/binary-arm64/Packages.xz" | xz -d |
    awk '/^Package: /{here = $2 == "libc6"} here && /^Filename: /{file = $2} END{print file}')
  wget -q -O "$work/libc.deb" "$mirror/$file"
  dpkg-deb -x "$work/libc.deb" "$work/arm64"
  ranks=$'0 2\n1 2'
  command=("$work"/aarch64/torchbridge-*.data/scripts/torchbridge)
  chmod +x "$command"
  expect "$ranks" timeout 120 qemu-aarch64-static -L "$work/arm64" "$command" run --nproc-per-node 2 --no-python \
    /bin/sh -c 'echo $RANK $WORLD_SIZE'
else
  skipped+=("aarch64: qemu-aarch64-static (Debian: qemu-user-static), or a mirror, is missing")
fi
((${#skipped[@]} == 0)) || { printf 'SKIPPED: %s\n' "${skipped[@]}"; exit 77; }
