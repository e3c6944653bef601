#!/usr/bin/env bash
# The lines of docs/use/environments.md: a venv by its path and activated, conda, uv, an environment in a squashfs file.
source "$(dirname "$0")/case.sh"
torchbridge="$BUILD_DIR/bin/torchbridge"
cd "$work"
cat >show.py <<'PY'
import os, sys
os.write(1, f"{os.environ['RANK']} {sys.prefix}\n".encode())
PY
# ranks PREFIX: what four ranks print.
ranks() { for rank in 0 1 2 3; do echo "$rank $1"; done; }
wait_for 60 all_nodes_are_idle

/usr/bin/python3 -m venv --without-pip env
by_rank=(srun -N2 --ntasks-per-node=2 --torch-env)
by_node=(srun -N2 --ntasks-per-node=1 "$torchbridge" run --nproc-per-node 2)
expect "$(ranks "$work/env")" on_login "${by_rank[@]}" env/bin/python show.py
expect "$(ranks "$work/env")" on_login "${by_rank[@]}" --export=NONE env/bin/python show.py
expect "$(ranks "$work/env")" on_login "${by_node[@]}" env/bin/python show.py
echo 'source env/bin/activate; exec "$@"' >batch.sh
expect "$(ranks "$work/env")" on_login bash batch.sh "${by_rank[@]}" python show.py
expect "$(ranks "$work/env")" on_login bash batch.sh "${by_node[@]}" python show.py
# The interpreter that is forked from is the activated one.
expect "$(ranks "$work/env")" on_login bash batch.sh "${by_node[@]}" --preload json show.py

# A prefix as conda makes it: a Python that finds its modules beside itself, without pyvenv.cfg.
mkdir -p conda/bin conda/lib conda/conda-meta
library=$(/usr/bin/python3 -c 'import os; print(os.path.dirname(os.__file__))')
cp "$(readlink -f /usr/bin/python3)" conda/bin/python
ln -s "$library" conda/lib/
cp "$torchbridge" conda/bin/
expect "$(ranks "$work/conda")" on_login "${by_rank[@]}" conda/bin/python show.py
expect "$(ranks "$work/conda")" on_login "${by_rank[@]}" --export=NONE conda/bin/python show.py
expect "$(ranks "$work/conda")" on_login srun -N2 --ntasks-per-node=1 conda/bin/torchbridge run --nproc-per-node 2 \
  show.py
expect "$(ranks "$work/conda")" on_login "${by_node[@]}" conda/bin/python show.py
# What `conda activate` sets.
echo 'export CONDA_PREFIX=$PWD/conda PATH=$PWD/conda/bin:$PATH; exec "$@"' >activated.sh
expect "$(ranks "$work/conda")" on_login bash activated.sh "${by_rank[@]}" python show.py
expect "$(ranks "$work/conda")" on_login bash activated.sh "${by_node[@]}" show.py
expect "$(ranks "$work/conda")" on_login bash activated.sh "${by_node[@]}" --preload json show.py

if command -v mksquashfs squashfuse >/dev/null; then
  mksquashfs env env.sqsh -quiet -no-progress >/dev/null
  mkdir mounted
  # Its own mount namespace: the mount ends with the step.
  expect "$(ranks "$work/mounted")" on_login srun -N2 --ntasks-per-node=1 unshare --mount bash -c \
    "squashfuse env.sqsh mounted && exec $torchbridge run --nproc-per-node 2 mounted/bin/python show.py"
else
  echo "not tried: squashfs-tools and squashfuse are not installed"
fi

if uv=$(type -P uv); then
  mkdir project
  cd project
  printf '[project]\nname = "project"\nversion = "0"\nrequires-python = ">=3.8"\n' >pyproject.toml
  export UV_OFFLINE=1 UV_PYTHON=/usr/bin/python3
  "$uv" sync --quiet
  expect "$(ranks "$work/project/.venv")" on_login "${by_rank[@]}" "$uv" run --no-sync ../show.py
  expect "$(ranks "$work/project/.venv")" on_login "${by_node[@]}" .venv/bin/python ../show.py
  expect "$(ranks "$work/project/.venv")" on_login srun -N2 --ntasks-per-node=1 "$uv" run --no-sync \
    "$torchbridge" run --nproc-per-node 2 --preload json ../show.py
else
  echo "not tried: uv is not installed"
fi
