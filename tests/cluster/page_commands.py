#!/usr/bin/env python3
"""Runs every command of README.md, docs/use, docs/admin and docs/develop/cluster.md, on a cluster of its own.

    page_commands.py PLUGIN [PART_OF_A_PAGE'S_NAME...]      by ctest, which sets CLUSTER, CLUSTER_NAME and the folders
    page_commands.py --read                                 reads all pages, and runs nothing

The commands of a page are run in their order, in one folder that has this tree's folders, a train.py and a ./trainer.
Each must end with 0, and its output must have each line that the page shows below `$ COMMAND`: numbers, times and
addresses may differ, and `...` stands for anything. Where such a line is an error, the command must fail.

The tables have what differs from the page: for placeholders, to end soon, and where a page leaves a script to its
reader. An entry that fits no command is an error.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/structure"))
from docs import Page  # noqa: E402

LIMIT = 150  # seconds for one command; a hang is a failure
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for folder in ("docs/use", "docs/admin")
                              for page in (ROOT / folder).glob("*.md")), "docs/develop/cluster.md"]
PROGRAMS = set("""apt-get cat cd cluster cmake ctest echo eval export git mksquashfs module mpirun objdump pip python
    python3 rpmbuild salloc sbatch scancel scontrol source srun squashfuse tar torchbridge torchbridge-ckpt torchrun
    trainer uv uvx""".split())

# By `PAGE: COMMAND`: which test runs it, or why none does.
NOT_RUN = {
    r"README.md: (export|.*RANK=\$SLURM_PROCID)": "cluster.first_page: it is wrong in five cases",
    r": pip install torchbridge": "process.wheel",
    r": apt-get install \./|: echo 'include": "process.packages",
    r": cmake --preset (plugin|command)|: (DESTDIR=\S+ )?cmake --install build-|install --no-install": "process.alone",
    r"frameworks.md: scripts/cluster/cluster run": "cluster.frameworks",
    r"site_setups.md: ": "cluster.site_setups",
    r"environments.md: .*/path/to/env/|mksquashfs|unshare --mount bash start.sh|squashfuse": "cluster.environments",
    r"gpu_check": "process.gpu_check, and gpu.check where there is a GPU",
    r"new_model\w*.md: (?!.*my_model)": "cluster.new_model, process.changed_copies: they make the page's changes",
    r"new_model.md: .*my_model": "process.new_trainer",
    r"--rdzv-backend etcd": "process.agent_etcd",
    r": git clone|: scripts/(quickstart|setup)|: cmake --preset full &&": "it makes the build that is tested",
    r": uvx?\b|scikit-learn|convert_digits": "it loads packages from PyPI",
    r"scikit-build-core|TORCHBRIDGE_MPI=1|rpmbuild": "it builds for minutes, from a file of a release",
    r"--requeue=expedite": "the Slurm of the tests rejects it",
    r": module load": "it needs environment modules, and an installation",
}

# What takes the place of a part of the command, by regular expression, one after the other.
INSTEAD = {
    r"--device cuda": "--device cpu",  # a GPU of this cluster is a device file
    r"-c 64": "-c 8",
    r"\bNODES\b": "4",
    r"\bFILE\b": "build/bin/torchbridge",
    r"(?<= )/(?=scratch/|shared/)": "./",
    r"path/to/mnist": "data/digits",
    r"build-plugin/lib/": "build/lib/",
    r"--task text": r"\g<0> --data part.txt",  # whose evaluation takes no time
    r"data/text/\S+": "part.txt",
    r"torch,transformers,": "torch,",  # not in .venv
    r"/var/lib/node_exporter/": "",
    r"--every 15 &": "",
    r"MASTER_ADDR=n0(?= .*exec)": "MASTER_ADDR=127.0.0.1",
    r"(?<!\.)\bsbatch(?= )": "sbatch --wait --output=job.out",
    r"JOB$": "$JOB && until_true grep 'SIGUSR1: stopped after step' job.out && scancel $JOB",
    r"^.*\bctest .*": r"\g<0> --show-only",
    r"^trainer (?=.*--sample-log)": "mpirun -np 4 trainer --epochs 3 --max-steps 0 ",
    r"--on-pending-save skip|trainer --checkpoint-dir runs/b$": r"\g<0> --max-steps 70",
    r"--nnodes 2:3 \.\.\.(.*)": r"--nnodes 2:3\1 --checkpoint-dir runs/a --epochs 100000 --max-steps 0",
    r"^(?!sbatch|.*--(max-steps|generate|predict|help|print-config|role)\b)(.* )?(\./|build/bin/)?trainer\b.*":
        r"\g<0> --max-steps 8",
    r"train_reference.py": r"\g<0> --max-steps 8",
    # One process on each node, or several on one.
    r"^mpirun -np 4 --map-by": r"salloc -Q -N4 \g<0>",
    r"^torchbridge run --nproc-per-node[= ]gpu": r"srun -n1 --gpus=2 \g<0>",
    r"^torchrun --nnodes=.*-node=(?=gpu)": r"srun -N2 --torch-env bash -c '\g<0>2 train.py' #",
    r"^(.*)'(.*\?rank=)1(&.*)'(.*)": r"""on_each 2 '\1"\2$i\3"\4'""",
    r"^torchbridge run .*c10d.*": r"on_each 4 '\g<0>'",
    r"^(torchbridge run --nnodes 4 --node-rank )2(.*)": r"on_each 4 '\1$i\2'",
    r"^(torchbridge run --nnodes \S+ .*)\.\.\.$":
        r"on_each 4 '\1--rdzv-backend c10d --rdzv-endpoint n0:29400 train.py'",
    r"^torchbridge run --nnodes 2:3.*": r"srun -N3 --no-kill \g<0> 2>&1 | tee nodes.out",
}

# What is run before it, by `PAGE: COMMAND`.
BEFORE = {
    r"(cluster|frameworks).md: scripts/": "export TORCHBRIDGE_CLUSTER=$TORCHBRIDGE_CLUSTER-2",
    r"checkpoint_python.md: .* python.pt": """
        [ -e python.pt ] || {
          trainer --checkpoint-dir runs/a --checkpoint-every 20 --max-steps 60
          python -m torchbridge.convert runs/a/step-00000060 python.pt; }""",
    r"checkpoint.md: .* verify": """
        trainer --checkpoint-dir scratch/runs/a --checkpoint-every 20 --max-steps 80
        file=scratch/runs/a/step-00000080/model.safetensors
        printf x | dd of=$file bs=1 seek=$(($(stat -c %s $file) / 2)) conv=notrunc""",
    r"checkpoint.md: .* list": "trainer --checkpoint-dir scratch/runs/a --checkpoint-every 10 --keep 2 --max-steps 90",
    r"command.md: .*=(zsh|fish)": "mkdir -p ~/.zfunc ~/.config/fish/completions",
    r"MV2_COMM": "export MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=1",
    r"scripts/run_page runs/a": """
        for run in a b; do
          trainer --max-steps 8 --checkpoint-dir runs/$run/checkpoints --metrics runs/$run/metrics.jsonl
        done""",
    r"scripts/run_page a.jsonl": "trainer --max-steps 8 --metrics a.jsonl --tensorboard runs/tb",
    r"mpi.md: .*sum.py": r"sed -n '/^```python/,/^```$/{//!p}' docs/use/mpi.md >sum.py",
    r"preemption.md: .*sbatch": "export OPTIONS='--max-steps 8 --checkpoint-every 4'",
    r"preemption.md: scancel": """
        export RUN=runs/c OPTIONS='--epochs 100000'
        JOB=$(sbatch --parsable --output job.out trainer_template/train.sbatch)
        until_true grep -q '"step":2,' runs/c/metrics.jsonl""",
    r"--stop-before-limit": "export SLURM_JOB_END_TIME=$(($(date +%s) + 3600))",
    r"trainer .*--sample-log": """
        rm -r runs/a
        for ranks in 2 3 1; do
          mpirun -np $ranks trainer --checkpoint-dir runs/a --sample-log runs/a.samples --max-steps $((steps += 10))
        done""",
    r"torch,my_module": """
        echo 'import threading
threading.Thread(name="Thread-1", target=threading.Event().wait, daemon=True).start()' >my_module.py""",
    r"work\.sh": """
        script work.sh '((TORCHELASTIC_RESTART_COUNT)) || { ((RANK)) || exec sleep 60; kill -KILL $$; }
          echo rank $RANK, restart $TORCHELASTIC_RESTART_COUNT, store at $MASTER_PORT'""",
    r"--max-restarts 2 --rdzv-id night": """
        [ -e train.sh ] || script train.sh '((TORCHELASTIC_RESTART_COUNT)) || exit 1
          read restarts agent <runs/night.restarts
          [ -e killed ] || { touch killed; kill -KILL $agent; exec sleep 60; }
          echo restart $TORCHELASTIC_RESTART_COUNT'""",
    r"--tee 2 --json-summary": """
        script train.sh '((RANK == 1)) || exec sleep 60
          echo step 7: loss is nan >&2; exit 3'""",
    r"shared/night": "mkdir -p shared",
    r"torchbridge status": """
        export TORCHBRIDGE_RDZV_TOKEN=0123456789abcdef
        script train.sh '((RANK != 9 || TORCHELASTIC_RESTART_COUNT)) || exit 3
          exec sleep 60'
        on_each 3 'torchbridge run --nnodes 2:3 --active 2 --nproc-per-node 8 --max-restarts 3 --rdzv-id night \
          --rdzv-backend c10d --rdzv-endpoint n0:29400 ./train.sh' >status.out 2>&1 &
        # The third node may join after the restart.
        has_restarted() { (($(torchbridge status n0:29400 2>&1 | grep -cE 'running, round 1|waiting') == 2)); }
        until_true has_restarted""",
    r"--nnodes 2:3 \.\.\. \./trainer": """
        (until_true [ -e runs/a/step-00000020/DONE ]
          cluster exec --node n2 -- sh -c 'kill -KILL $(pgrep --ns $$ --nslist net -f "[b]in/torchbridge run")'
          until_true grep -qs 'resumes from step' nodes.out
          scancel --signal=TERM $(squeue --noheader --format %A)) &""",
    r"--predict": """
        python -c '
import numpy, PIL.Image
images = numpy.fromfile("data/digits/t10k-images-idx3-ubyte", "u1")
PIL.Image.fromarray(images[16:80].reshape(8, 8)).save("image.png")
'""",
}

PRELUDE = """
# on_each N COMMAND: on N nodes at once, with $i; its exit code is one other than 0, if there is one.
on_each() {
  local node started=() code=0
  for ((node = 0; node < $1; node++)); do
    cluster exec --node n$node -- env i=$node bash -c "$2" &
    started+=($!)
  done
  for node in "${started[@]}"; do wait $node || code=$?; done
  return $code
}
script() { printf '#!/bin/bash\\n%s\\n' "$2" >$1; chmod +x $1; }
until_true() { until "$@"; do read -rt 0.1 <> <(:) || true; done; }
"""

TRAIN = """
import os
rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
assert 0 <= local <= rank < world and os.environ["MASTER_ADDR"] and int(os.environ["MASTER_PORT"])
print("rank", rank, "of", world)
"""

used = set()  # entries of the tables


def uses(pattern, text):
    found = re.search(pattern, text)
    if found:
        used.add(pattern)
    return found


class Command:
    def __init__(self, page, line, text, exports):
        self.page, self.line, self.text = page, line, re.sub(r"\s+# .*", "", text)
        self.name = f"{page}: {self.text}"
        self.shown = []  # the lines of its output
        self.not_run = [reason for pattern, reason in NOT_RUN.items() if uses(pattern, self.name)]
        before = [textwrap.dedent(lines) for pattern, lines in BEFORE.items() if uses(pattern, self.name)]
        self.text_run = self.text
        for pattern, replacement in INSTEAD.items():
            if uses(pattern, self.text_run):
                self.text_run = re.sub(pattern, replacement, self.text_run)
        self.script = "\n".join(["set -e", PRELUDE, *exports, *before, "set +e", self.text_run, "exit"])

    def wrong(self, code, output):
        """What is not as the page shows it, or None."""
        if code is None:
            return f"no end within {LIMIT} s"
        fails = any(re.search(r"error:|failed after|is damaged|^Killed", line) for line in self.shown)
        if fails != (code != 0):
            return f"exit code {code}" + (", but the page shows an error" if fails else "")
        output = " ".join(output.split())
        for line in self.shown:
            if not re.search(pattern_of(line), output):
                return f"its output has no line like: {line}"
        return None


def pattern_of(line):
    """Of a line of output. Words with digits may be others, as `vm`, a host, and the name of the cluster."""
    parts = re.split(r"(\.\.\.|\w*\d\w*|\bvm\b|torchbridge(?=' is up| -- srun))", " ".join(line.split()))
    return "".join(".*" if part == "..." else r"[\w-]+" if at % 2 else re.escape(part) for at, part in enumerate(parts))


def is_command(line):
    word = re.sub(r"^([A-Z_]+=\S* )*", "", line).split(" ")[0]
    return word in PROGRAMS or re.match(r"[.~]?/\S|(\.venv|scripts|build)/", word) is not None


def commands_of(page):
    """In a block with lines `$ COMMAND` the others are output; elsewhere each line is a command, or none is."""
    text = (ROOT / page).read_text()
    for start, block in sorted(Page(page, text).blocks):
        lines = textwrap.dedent(block).split("\n") if block.lstrip("\n").startswith("    ") else block.split("\n")
        numbered = enumerate(lines, text.count("\n", 0, start) + 1)
        has_prompts, exports, command = any(line.startswith("$ ") for line in lines), [], None
        if not has_prompts and not any(map(is_command, lines)):
            continue
        for number, line in numbered:
            while line.endswith("\\"):
                line = line[:-1] + next(numbered)[1].lstrip()
            if has_prompts and not line.startswith("$ "):
                if command and line:
                    command.shown.append(line)
            elif line:
                line = line.removeprefix("$ ")
                if not is_command(line):
                    sys.exit(f"{page}:{number}: not known as a command: {line}")
                command = Command(page, number, line, [*exports])
                if line.startswith("export "):
                    exports.append(command.text)
                yield command


def run(command, folder, environment):
    """(exit code or None, output) of a command, of which nothing is left."""
    log = folder.with_suffix(".log")
    with log.open("w") as out:
        process = subprocess.Popen(["bash", "-c", command.script], cwd=folder, env=environment, stdout=out,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return code, log.read_text(errors="replace")


def read_pages():
    """The commands, and what is wrong with the tables."""
    commands = [command for page in PAGES for command in commands_of(page)]
    return commands, [f"no command of a page is like: {pattern}" for pattern in {**NOT_RUN, **INSTEAD, **BEFORE}
                      if pattern not in used]


def run_pages(work, only):
    """On the login node of the cluster."""
    commands, failures = read_pages()
    build, python = pathlib.Path(os.environ["BUILD_DIR"]), ROOT / ".venv/bin"
    tests = subprocess.run(["ctest", "--test-dir", build, "--show-only"], capture_output=True, text=True).stdout
    failures += [f"there is no test {name}" for name in re.findall(r"\w+\.\w+", " ".join(NOT_RUN.values()))
                 if f": {name}\n" not in tests]
    environment = {name: os.environ[name] for name in ("SLURM_CONF", "TORCHBRIDGE_CLUSTER", "TORCHBRIDGE_STATE")} | {
        "HOME": str(work), "PYTHONPATH": str(build / "python"), "LANG": "C.UTF-8",
        "CUDA_VISIBLE_DEVICES": "-1", "OMP_NUM_THREADS": "1",  # threads of a loaded machine wait for each other
        "PATH": f"{build}/bin:{ROOT}/scripts/cluster:{python}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm_rsh_agent": str(ROOT / "scripts/cluster/node_sh"),
    }
    for page in [page for page in PAGES if not only or any(part in page for part in only)]:
        folder = work / page.replace("/", "_").removesuffix(".md")
        (folder / "package").mkdir(parents=True)
        for name in ("CMakeLists.txt", "CMakePresets.json", "data", "docs", "scripts", "tests", "trainer_template",
                     ".venv"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "build").symlink_to(build)
        (folder / "trainer").symlink_to(build / "bin/trainer")
        for name in ("train.py", "package/train.py", "my_model.py"):
            (folder / name).write_text(TRAIN if "train" in name else "")
        (folder / "part.txt").write_text((ROOT / "data/text/pentateuch.txt").read_text()[:20000])
        for command in [command for command in commands if command.page == page]:
            place = f"{page}:{command.line}: {command.text}"
            if command.not_run:
                print(f"not run: {place} ({command.not_run[0]})", flush=True)
                continue
            began = time.monotonic()
            code, output = run(command, folder, environment)
            wrong = command.wrong(code, output)
            print(f"{time.monotonic() - began:.1f} s: {place}", flush=True)
            if wrong:
                print(f"FAILED: {wrong}\n{textwrap.indent(output[-4000:], '    ')}", flush=True)
                failures.append(f"{place}: {wrong}")
    for failure in failures:
        print(f"FAILED: {failure}", flush=True)
    return 1 if failures else 0


def main():
    if sys.argv[1] == "--read":
        commands, failures = read_pages()
        sys.exit("\n".join(failures) or (None if commands else "the pages have no commands"))
    cluster, name = os.environ["CLUSTER"], os.environ["CLUSTER_NAME"] + "-pages"
    if sys.argv[1] == "--on-login-node":
        sys.exit(run_pages(pathlib.Path(sys.argv[2]), sys.argv[3:]))
    if os.geteuid() != 0 or not (ROOT / ".venv/bin/torchrun").exists():
        print("SKIPPED: a cluster on one machine needs root, and the pages .venv: run scripts/setup")
        sys.exit(77)
    plugin, *only = sys.argv[1:]
    # `cluster status` ends with 1 if a cluster of another test is starting or ending.
    state = os.environ["TORCHBRIDGE_STATE"] = f"/run/{name}"

    def down():
        for one in (f"{name}-2", name):
            subprocess.run([cluster, "down", "--name", one], check=True)
        if os.path.isdir(state):
            os.rmdir(state)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the time limit: `finally` ends the clusters
    down()
    with tempfile.TemporaryDirectory() as work:
        try:
            subprocess.run([cluster, "up", "--name", name, "--gpus", "8", "--plugin", plugin, "--conf", "KillWait=10"],
                           check=True)
            inside = subprocess.run([cluster, "run", "--name", name, "--", sys.executable, __file__, "--on-login-node",
                                     work, *only])
        finally:
            down()
    sys.exit(inside.returncode)


if __name__ == "__main__":
    main()
