#!/usr/bin/env bash
# torchbridge run --preload under srun and mpirun, with and without the plugin: each agent has one interpreter, from
# which its workers and their restarts are forked, and which ends with the step.
source "$(dirname "$0")/case.sh"
export PYTHON_EXEC=/usr/bin/python3
run=("$BUILD_DIR/bin/torchbridge" run --preload preloaded)

# A worker that is not forked would import it in its own process.
mkdir "$work/imported"
cat >"$work/preloaded.py" <<EOF
import os
open(f"$work/imported/{os.uname().nodename}.{os.getpid()}", "x").close()
EOF
# interpreters NUMBER: so many processes have imported the module since the last time.
interpreters() {
  (($(find "$work/imported" -type f | wc -l) == $1)) || fail "expected $1 interpreters: $(ls "$work/imported")"
  rm -f "$work"/imported/*
}

cat >"$work/place.py" <<'EOF'
import os, preloaded
names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"
place = "{}/{} {}/{} {}/{}".format(*(os.environ[name] for name in names))
os.write(1, f"{place} {os.uname().nodename}\n".encode())
EOF
by_node='0/4 0/2 0/2 n0
1/4 1/2 0/2 n0
2/4 0/2 1/2 n1
3/4 1/2 1/2 n1'
for plugin in '' --torch-env; do
  expect "$by_node" on_login srun -N2 -w n0,n1 --ntasks-per-node=1 $plugin "${run[@]}" --nproc-per-node 2 \
    "$work/place.py"
  interpreters 2
  expect "$by_node" on_login srun -N2 -w n0,n1 --ntasks-per-node=2 $plugin "${run[@]}" "$work/place.py"
  interpreters 4
done
expect "0/2 0/2 0/1 $(uname -n)
1/2 1/2 0/1 $(uname -n)" "$within" "$limit" mpirun -np 1 --bind-to none "${run[@]}" --nproc-per-node 2 "$work/place.py"
interpreters 1
expect "$by_node" on_node n0 mpirun --mca plm_rsh_agent "$SOURCE_DIR/scripts/cluster/node_sh" --host n0,n1 -np 2 \
  --bind-to none -x PYTHON_EXEC "${run[@]}" --nproc-per-node 2 "$work/place.py"
interpreters 2

# A killed worker: all are forked once more, without an import.
cat >"$work/killed.py" <<'EOF'
import os, preloaded, signal, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    os.write(1, f"{os.environ['RANK']} again\n".encode())
elif os.environ["RANK"] == "3":
    os.kill(os.getpid(), signal.SIGKILL)
else:
    time.sleep(600)
EOF
expect '0 again
1 again
2 again
3 again' on_login srun -N2 -w n0,n1 --ntasks-per-node=1 "${run[@]}" --nproc-per-node 2 --max-restarts 1 \
  "$work/killed.py"
interpreters 2

# Nothing is left of a step that is cancelled.
cat >"$work/waits.py" <<EOF
import os, preloaded, time
open(f"$work/up.{os.environ['RANK']}", "w").close()
time.sleep(600)
EOF
export PRELOAD_MARKER=$work
on_login srun --job-name=cancelled -N2 -w n0,n1 --ntasks-per-node=1 "${run[@]}" --nproc-per-node 2 "$work/waits.py" \
  2>"$work/error" & job=$!
for rank in 0 1 2 3; do wait_for 30 test -e "$work/up.$rank"; done
unset PRELOAD_MARKER
nothing_is_left() { ! grep -qsz "^PRELOAD_MARKER=$work$" /proc/[0-9]*/environ; }
! nothing_is_left || fail "no process of the step is found"
on_login scancel --name=cancelled
wait "$job" && fail "a cancelled step succeeded"
wait_for 60 nothing_is_left
