#!/usr/bin/env bash
# The five cases of README.md: in each the lines of shell that many job scripts have are wrong, and srun --torch-env
# and srun torchbridge exec are right. The lines are those of the page.
source "$(dirname "$0")/case.sh"
limit=150
torchbridge="$BUILD_DIR/bin/torchbridge"
python="$SOURCE_DIR/.venv/bin/python"
[[ -x $python ]] || skip "no .venv: run scripts/setup"

page=$(sed -n '/^    export MASTER_ADDR=/,/^    srun bash -c/p' "$SOURCE_DIR/README.md")
(($(wc -l <<<"$page") == 4)) || fail "README.md has other lines of shell: $page"
train="$python $work/train.py"
cat >"$work/job.sh" <<JOB
case \$1 in
shell)
${page//python train.py/$train}
;;
plugin) srun --torch-env $train ;;
exec) srun $torchbridge exec -- $train ;;
esac
JOB
# job WAY OPTIONS...: a job with the options of salloc.
job() { on_login salloc --quiet "${@:2}" bash "$work/job.sh" "$1"; }

# Each rank prints the sum of ones over all ranks. What a case adds happens in between, by variables of the case.
cat >"$work/train.py" <<'PY'
import datetime, os, pathlib, time
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def wait_for_end():
    deadline = time.monotonic() + 120
    while not os.path.exists(os.environ["ENDED"]) and time.monotonic() < deadline:
        time.sleep(0.05)


def leave_behind():
    """A process that Slurm does not find below the task any more, with the socket of the store."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork() == 0:
        wait_for_end()
    os._exit(0)


@record
def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=float(os.environ.get("LIMIT", 60))))
    rank, total = dist.get_rank(), torch.ones(1)
    if rank == int(os.environ.get("FAILING", -1)):
        raise ValueError("this rank is the first")
    dist.all_reduce(total)
    if mark := os.environ.get("STARTED"):
        if rank == 0:  # not before it has left one
            if os.environ.get("LEFT_BEHIND"):
                leave_behind()
            pathlib.Path(mark).touch()
        wait_for_end()
    dist.barrier()
    os.write(1, f"{rank}: {int(total)}\n".encode())  # one write: ranks share a pipe
    dist.destroy_process_group()


main()
PY
ways=(plugin exec)
[[ -n ${TORCHBRIDGE_COMPLETE:-} ]] || ways=(plugin)

# fails PATTERN COMMAND...: the command fails, and its output has the pattern.
fails() {
  local pattern=$1
  shift
  printf '$ %s\n' "$*"
  ! "$@" >"$work/output" 2>&1 || { cat "$work/output"; fail "the lines of shell were right"; }
  grep -qE -- "$pattern" "$work/output" || { cat "$work/output"; fail "nothing matches '$pattern'"; }
}

wait_for 60 all_nodes_are_idle

# limit_of WAY SECONDS: what the ranks wait for each other; the way that is wrong need not wait long.
limit_of() { if [[ $1 == shell ]]; then echo "$2"; else echo 60; fi; }

# 1. Two steps of a job at once: the second finds the port taken.
two_steps() {
  rm -f "$work/started" "$work/ended"
  cat >"$work/two.sh" <<STEPS
export SLURM_OVERLAP=1
STARTED=$work/started ENDED=$work/ended bash $work/job.sh $1 & first=\$!
until [ -e $work/started ] || ! kill -0 \$first 2>/dev/null; do read -rt 0.05 <> <(:); done
code=0
LIMIT=$(limit_of "$1" 5) bash $work/job.sh $1 || code=\$?
touch $work/ended
wait \$first && exit \$code
STEPS
  on_login salloc --quiet -N2 -n2 --ntasks-per-node=1 bash "$work/two.sh"
}
fails 'EADDRINUSE|address already in use' two_steps shell
for way in "${ways[@]}"; do
  expect "0: 2
0: 2
1: 2
1: 2" two_steps "$way"
done

# 2. Nodes with different numbers of tasks: the job has no SLURM_NTASKS_PER_NODE, and the product is 0.
uneven=(-N2 -n3)
fails 'world size cannot be 0' job shell "${uneven[@]}"
for way in "${ways[@]}"; do
  expect "0: 3
1: 3
2: 3" job "$way" "${uneven[@]}"
done

# 3. The host's name is a loopback address on the host itself, as Debian writes /etc/hosts: gloo listens there.
for node in n0 n1; do
  on_node "$node" cat /etc/hosts | sed -E "s/^[0-9.]+( +$node)$/127.0.1.1\1/" >"$work/hosts.$node"
  grep -q "^127.0.1.1 *$node$" "$work/hosts.$node" || fail "no line of $node: $(cat "$work/hosts.$node")"
  with_file "$node" /etc/hosts "$work/hosts.$node"
done
even=(-N2 -n2 --ntasks-per-node=1 -w n0,n1)
LIMIT=5 fails 'onnection refused|imed out' job shell "${even[@]}"
for way in "${ways[@]}"; do
  expect "0: 2
1: 2" job "$way" "${even[@]}"
done
as_before

# 4. A rank fails, and the others after it: who was the first?
FAILING=1 fails 'task 1: Exited with exit code 1' job shell "${even[@]}"
! grep -q 'first to fail' "$work/output" || fail "srun names the first: $(cat "$work/output")"
FAILING=1 fails 'torch-env: first to fail: rank 1 on n1' job plugin "${even[@]}"
grep -q 'torch-env: .*ValueError: this rank is the first' "$work/output" || fail "no reason: $(cat "$work/output")"

# 5. A requeued job has its number again, and so the port, which a process of the first start still has.
requeued() {
  rm -f "$work"/start.*
  cat >"$work/requeued.sh" <<JOB
#!/bin/bash
if [[ ! \${SLURM_RESTART_COUNT:-} ]]; then
  LEFT_BEHIND=1 STARTED=$work/start.1 ENDED=$work/start.code bash $work/job.sh $1
else
  LIMIT=$(limit_of "$1" 10) bash $work/job.sh $1 >$work/start.output 2>$work/start.error
  echo \$? >$work/start.part
  mv $work/start.part $work/start.code
fi
JOB
  on_login sbatch --parsable --requeue -o /dev/null -N2 -n2 --ntasks-per-node=1 -w n0,n1 "$work/requeued.sh" \
    >"$work/id"
  wait_for 120 test -e "$work/start.1"
  on_login scontrol requeue "$(<"$work/id")"
  wait_for 300 test -e "$work/start.code"
  cat "$work/start.output"
  cat "$work/start.error" >&2
  return "$(<"$work/start.code")"
}
fails 'EADDRINUSE|address already in use' requeued shell
for way in "${ways[@]}"; do
  expect "0: 2
1: 2" requeued "$way"
done
