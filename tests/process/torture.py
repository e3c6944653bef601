#!/usr/bin/env python3
"""Trains while ranks are killed or stopped and checkpoints are damaged at random instants; checks after each fault that
nothing is lost.

    scripts/torture 10                      # builds, then ten minutes
    tests/process/torture.py 0 --runs 20     # 20 faults instead, without building
    tests/process/torture.py 10 --mpirun     # over the backend mpi, started by OpenMPI's mpirun
    scripts/torture --exhaustive            # kill -9 at every hit of every failpoint of a short training instead

After each fault: the other ranks end by themselves, the newest complete checkpoint is at least as new as before, and
the losses so far are those of the undisturbed run, bit for bit. After each completed training: the complete curve, and
a folder with nothing but checkpoints.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/benchmarks"))
import bench  # noqa: E402

POLL = 0.005
TIMEOUT = 60  # seconds until ranks count as hanging
FAULTS_PER_TRAINING = 8  # then the training runs to its end
STEPS, EVERY = 90, 3
# Of the training that is killed at every hit: it resumes from step 4; the save of step 6 removes
# the checkpoint of step 2.
SHORT_STEPS, SHORT_EVERY, PREPARED = 7, 2, 4


class TortureError(Exception):
    """Data was lost, or a process did not end."""


def state_of(pid):
    """The state letter in /proc; "X" if the process does not exist."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


class MpiRank:
    """A process that mpirun started, with the methods of Popen that are used here."""

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        return None if state_of(self.pid) not in "XZ" else 0

    def send_signal(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self):
        while self.poll() is None:
            time.sleep(POLL)


class MpiRanks(bench.Ranks):
    """The same by OpenMPI's mpirun. `processes` are the ranks; only mpirun knows their exit codes."""

    SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_hwloc_base_binding_policy": "none", "OMP_NUM_THREADS": "1"}

    def __init__(self, command, world_size):
        self.command = ["mpirun", "-np", str(world_size), *(str(word) for word in command), "--backend", "mpi"]
        self.errors = tempfile.TemporaryFile()
        with tempfile.TemporaryDirectory(prefix="torchbridge-torture-pids-") as folder:
            wrapped = ["sh", "-c", f'echo $$ > {folder}/.$$; mv {folder}/.$$ {folder}/$OMPI_COMM_WORLD_RANK; exec "$@"',
                       "sh"]
            self.mpirun = subprocess.Popen(self.command[:3] + wrapped + self.command[3:], stdout=subprocess.DEVNULL,
                                           stderr=self.errors, cwd=bench.ROOT, env=os.environ | self.SETTINGS)
            files = [pathlib.Path(folder) / str(rank) for rank in range(world_size)]
            while not all(path.exists() for path in files):
                if self.mpirun.poll() is not None:
                    self.give_up("the ranks did not start")
                time.sleep(POLL)
            self.processes = [MpiRank(int(path.read_text())) for path in files]

    def __exit__(self, *_):
        super().__exit__()
        self.codes()

    def codes(self):
        """The exit code of mpirun. If mpirun hangs after all ranks have ended, it is killed and a line is printed."""
        try:
            return [self.mpirun.wait(TIMEOUT)]
        except subprocess.TimeoutExpired:
            print(f"torture: mpirun still runs {TIMEOUT} s after its ranks had ended, and is killed", flush=True)
            self.mpirun.kill()
            return [self.mpirun.wait()]

    def wait(self, seconds):
        try:
            code = self.mpirun.wait(seconds)
        except subprocess.TimeoutExpired:
            self.give_up(f"not done after {seconds} s")
        if code != 0:
            self.give_up(f"exit code {code}")


class Training:
    """One command for all starts of a training, and the losses of an undisturbed run."""

    def __init__(self, program, ranks, saving, folder, steps=STEPS, every=EVERY, launch=bench.Ranks, stranger=None):
        self.ranks, self.steps, self.launch, self.stranger = ranks, steps, launch, stranger
        self.damaged = set()  # inodes of folders
        self.runs, self.metrics = folder / "runs", folder / "curve.jsonl"
        if program.name == "trainer":
            self.command = [program, "--quiet", "--model", "mlp:200,200", "--optimizer", "adamw", "--lr", "0.001",
                            "--max-steps", steps, "--heartbeat-timeout", 2]
            where = ["--checkpoint-dir", self.runs, "--checkpoint-every", every, "--keep", 2]
        else:
            self.command = [program, "--width", 400, "--steps", steps]
            where = ["--folder", self.runs, "--every", every, "--keep", 2]
        self.command += ["--metrics", self.metrics, "--timeout", 10]
        self.saving_command = self.command + where + saving
        begin = time.monotonic()
        with launch(self.command, ranks) as undisturbed:
            undisturbed.wait(TIMEOUT)
        self.seconds = time.monotonic() - begin
        self.whole = self.losses()
        self.metrics.unlink()

    def losses(self):
        lines = self.metrics.read_text().splitlines() if self.metrics.exists() else []
        return [json.loads(line)["loss"] for line in lines if line.endswith("}")]

    def check_curve(self):
        losses = self.losses()
        if losses != self.whole[:len(losses)]:
            raise TortureError(f"losses differ within the first {len(losses)} steps")
        return losses

    def complete(self):
        """The steps of complete checkpoints that were not damaged, ascending."""
        steps = []
        for folder in self.runs.glob("step-*"):
            try:
                is_complete = re.fullmatch(r"step-\d+", folder.name) and (folder / "DONE").exists()
                if is_complete and folder.stat().st_ino not in self.damaged:
                    steps.append(int(folder.name[5:]))
            except FileNotFoundError:
                pass  # removed in the meantime
        return sorted(steps)

    def damage(self):
        """Flips one bit of one file of the newest checkpoint."""
        folder = self.runs / f"step-{self.complete()[-1]:08}"
        path = random.choice([path for path in folder.iterdir() if path.stat().st_size > 0])
        content = bytearray(path.read_bytes())
        bit = random.randrange(len(content) * 8)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        self.damaged.add(folder.stat().st_ino)

    def check_names(self):
        known = r"\.lock|latest|step-\d+|step-\d+\.aside|\.tmp-.*"
        for path in self.runs.iterdir() if self.runs.exists() else []:
            if not re.fullmatch(known, path.name):
                raise TortureError(f"{path.name} was left behind")

    def check_clean(self):
        left = [path.name for path in self.runs.iterdir() if path.name.startswith(".tmp-")]
        left += [path.name for path in self.runs.glob("step-*")
                 if ".aside" not in path.name and not (path / "DONE").exists()]
        if left:
            raise TortureError(f"{', '.join(left)} was left behind by a completed training")


def kill_one(ranks):
    random.choice(ranks.processes).kill()


def kill_all(ranks):
    for process in ranks.processes:
        process.kill()


def stop_one(ranks):
    if len(ranks.processes) > 1:
        random.choice(ranks.processes).send_signal(signal.SIGSTOP)
    else:
        ranks.processes[0].kill()


KILL_ALL, DAMAGE = "kill -9 of all ranks", "kill -9 of all ranks, and a bit of the newest checkpoint flipped"
FAULTS = {"kill -9 of one rank": kill_one, KILL_ALL: kill_all, "SIGSTOP of one rank": stop_one, DAMAGE: kill_all}


def wait_for_ends(ranks):
    """Waits until all ranks but stopped ones have ended, then kills those. Returns the seconds until then."""
    begin = time.monotonic()
    while True:
        left = [process for process in ranks.processes if process.poll() is None]
        if all(state_of(process.pid) in "TX" for process in left):
            for process in left:
                process.kill()
                process.wait()
            return time.monotonic() - begin
        if time.monotonic() - begin > TIMEOUT:
            raise TortureError(f"{len(left)} ranks hang")
        time.sleep(POLL)


def error_output(ranks):
    ranks.errors.seek(0)
    return ranks.errors.read().decode(errors="replace")


class Track:
    """The results by fault, and their table."""

    def __init__(self):
        self.runs = collections.Counter()
        self.end, self.resume = collections.defaultdict(float), collections.defaultdict(float)
        self.errors = []

    def count(self, fault, took):
        self.runs[fault] += 1
        self.end[fault] = max(self.end[fault], took)

    def table(self):
        rows = [[fault, self.runs[fault], f"{self.end[fault]:.1f} s", f"{self.resume[fault]:.1f} s"]
                for fault in FAULTS if self.runs[fault]]
        return bench.table(["fault", "runs", "worst time until all had ended",
                            "worst time from start to the next step"], rows)


class Run:
    """The ranks from their start to a fault or to their end. `after` is the fault of the previous run, or None."""

    def __init__(self, training, after, track):
        self.training, self.after, self.track = training, after, track
        self.before = training.complete()
        self.metrics_before = training.metrics.stat().st_ino if training.metrics.exists() else None

    def go(self, is_last):
        """Returns the fault; None if the training completed."""
        training = self.training
        fault = random.choice(list(FAULTS))
        with training.launch(training.saving_command, training.ranks) as ranks:
            ended = self.wait(ranks, None if is_last else random.uniform(0, 1.1 * training.seconds))
            if not ended:
                FAULTS[fault](ranks)
                took = wait_for_ends(ranks)
            codes = ranks.codes()
            text = error_output(ranks)
        self.check(text)
        if ended:
            self.check_end(text, codes)
            return None
        if fault == DAMAGE and len(training.complete()) < 2:
            fault = KILL_ALL
        if fault == DAMAGE:
            training.damage()
        self.track.count(fault, took)
        return fault

    def wait(self, ranks, seconds):
        """Whether the ranks have ended within that time. None: no limit."""
        begin = last_change = time.monotonic()
        resumed, progress = False, None
        while any(process.poll() is None for process in ranks.processes):
            passed = time.monotonic() - begin
            if not resumed and self.has_resumed():
                resumed = True
                if self.after:
                    self.track.resume[self.after] = max(self.track.resume[self.after], passed)
                if self.training.stranger:
                    self.training.stranger.write_text(f"{ranks.port}\n")
            if seconds is not None and passed > seconds:
                return False
            now = (len(self.training.losses()), self.training.complete())
            if now != progress:
                progress, last_change = now, time.monotonic()
            if time.monotonic() - last_change > TIMEOUT:
                raise TortureError(f"no progress without a fault after step {now[0]}, checkpoints {now[1]}: "
                                   f"{error_output(ranks)}")
            time.sleep(POLL)
        return True

    def has_resumed(self):
        """Whether the file of losses has a step after the checkpoint from which the ranks resumed."""
        metrics, resumed = self.training.metrics, self.before[-1] if self.before else 0
        return (metrics.exists() and metrics.stat().st_ino != self.metrics_before and
                len(self.training.losses()) > resumed)

    def check(self, text):
        training = self.training
        if not training.damaged and "checkpoint skipped" in text:
            raise TortureError(f"a checkpoint was damaged without a fault of this test: {text}")
        training.check_names()
        training.check_curve()
        complete = training.complete()
        if self.before and (not complete or complete[-1] < self.before[-1]):
            raise TortureError(f"the checkpoint of step {self.before[-1]} is gone")

    def check_end(self, text, codes):
        steps = len(self.training.losses())
        if any(codes) or steps != self.training.steps:
            raise TortureError(f"exit codes {codes} after {steps} steps: {text}")
        self.training.check_clean()


def run_training(training, track, is_over):
    """One training from its first step to its last, with faults."""
    shutil.rmtree(training.runs, ignore_errors=True)
    training.metrics.unlink(missing_ok=True)
    training.damaged.clear()
    fault = None
    for number in range(FAULTS_PER_TRAINING + 1):
        fault = Run(training, fault, track).go(is_last=number == FAULTS_PER_TRAINING or is_over())
        if fault is None:
            return


class KillsAtEveryHit:
    """One training that resumes from a checkpoint, saves during training and at its end, and is killed at each hit."""

    def __init__(self, program, ranks, saving, folder):
        self.ranks, self.saved = ranks, folder / "prepared"
        self.training = Training(program, ranks, saving, folder, SHORT_STEPS, SHORT_EVERY)
        self.verify = [program.parent / "torchbridge-ckpt", "verify", self.training.runs]
        shorter = ["--steps" if program.name == "small_training" else "--max-steps", PREPARED]
        with bench.Ranks([*self.training.saving_command, *shorter], ranks) as first:
            first.wait(TIMEOUT)
        shutil.copytree(self.training.runs, self.saved / "runs", symlinks=True)
        shutil.copy(self.training.metrics, self.saved / "curve")

    def restore(self):
        shutil.rmtree(self.training.runs)
        shutil.copytree(self.saved / "runs", self.training.runs, symlinks=True)
        shutil.copy(self.saved / "curve", self.training.metrics)

    def run(self, victim, what):
        """Exit codes, stderr of the ranks, and seconds until all had ended."""
        with bench.Ranks(self.training.saving_command, self.ranks,
                         more={victim: {"TORCHBRIDGE_FAIL": what}} if what else None) as ranks:
            begin = time.monotonic()
            for process in ranks.processes:
                try:
                    process.wait(TIMEOUT)
                except subprocess.TimeoutExpired:
                    raise TortureError("a rank hangs") from None
            return [process.returncode for process in ranks.processes], error_output(ranks), time.monotonic() - begin

    def hits(self):
        """(rank, phase, number) of all hits."""
        found = []
        for rank in range(self.ranks):
            self.restore()
            codes, text, _ = self.run(rank, "count")
            counts = re.search(r"^failpoints:(.*)$", text, re.MULTILINE)
            if any(codes) or not counts:
                raise TortureError(f"undisturbed: exit codes {codes}: {text}")
            for phase, count in (word.split(":") for word in counts.group(1).split()):
                found += [(rank, phase, number + 1) for number in range(int(count))]
        return found

    def kill(self, rank, phase, number, track):
        self.restore()
        codes, text, took = self.run(rank, f"{phase}:{number}")
        if codes[rank] != -signal.SIGKILL:
            raise TortureError(f"exit codes {codes} where rank {rank} was to be killed: {text}")
        track.count(phase, took)
        self.check(text)
        codes, text, _ = self.run(0, None)
        self.check(text)
        if any(codes) or self.training.losses() != self.training.whole:
            raise TortureError(f"resumed with exit codes {codes} and wrote {len(self.training.losses())} of "
                               f"{SHORT_STEPS} steps: {text}")
        self.training.check_clean()
        # An older one may remain from a run that was killed before it removed it.
        if self.training.complete()[-2:] != [SHORT_STEPS - 1, SHORT_STEPS]:
            raise TortureError(f"checkpoints of steps {self.training.complete()} at the end")

    def check(self, text):
        self.training.check_names()
        self.training.check_curve()
        if "checkpoint skipped" in text:
            raise TortureError(f"a checkpoint was damaged without a fault of this test: {text}")
        if self.training.complete()[-1:] < [PREPARED]:
            raise TortureError(f"the checkpoint of step {PREPARED} is gone, there are {self.training.complete()}")
        verified = subprocess.run(self.verify, capture_output=True, text=True)
        if verified.returncode != 0:
            raise TortureError(f"torchbridge-ckpt verify: {verified.stdout}{verified.stderr}")


class HitTrack:
    """The kills by way of saving and phase, and their table."""

    def __init__(self):
        self.way, self.runs, self.end = "", collections.Counter(), collections.defaultdict(float)

    def count(self, phase, took):
        self.runs[phase, self.way] += 1
        self.end[phase] = max(self.end[phase], took)

    def table(self, ways):
        rows = [[phase, *(self.runs[phase, way] for way in ways), f"{took:.1f} s"] for phase, took in self.end.items()]
        rows.append(["all", *(sum(count for (_, of), count in self.runs.items() if of == way) for way in ways),
                     f"{max(self.end.values()):.1f} s"])
        return bench.table(["killed at", *(f"kills, {way}" for way in ways),
                            "worst time from start until all had ended"], rows)


def kill_at_every_hit(program, ranks, ways, most):
    """The number of errors. `most`: the number of kills, at random hits; 0: one at every hit."""
    names = {way: " ".join(ways[way]) or "synchronous" for way in range(len(ways))}
    track, errors = HitTrack(), 0
    with tempfile.TemporaryDirectory(prefix="torchbridge-torture-") as folder:
        killed, plan = [], []
        for way in names:
            path = pathlib.Path(folder) / str(way)
            path.mkdir()
            killed.append(KillsAtEveryHit(program, ranks, ways[way], path))
            plan += [(way, *hit) for hit in killed[way].hits()]
        print(f"{len(plan)} hits, {ranks} ranks", flush=True)
        for way, rank, phase, number in random.sample(plan, most) if most else plan:
            track.way = names[way]
            try:
                killed[way].kill(rank, phase, number, track)
            except TortureError as error:
                errors += 1
                print(f"torture: {names[way]}: {phase}:{number} of rank {rank}: {error}", flush=True)
    print(track.table(list(names.values())))
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float, nargs="?", default=0)
    parser.add_argument("--exhaustive", action="store_true",
                        help="kill at every hit of every failpoint; with --runs at N random hits")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help="at most N faults")
    parser.add_argument("--build", default="build", metavar="DIR", help="build folder (default: %(default)s)")
    parser.add_argument("--program", default="trainer", choices=["trainer", "small_training"],
                        help="default: %(default)s")
    parser.add_argument("--ranks", default="1,2,3,4", help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--mpirun", action="store_true", help="the trainer by OpenMPI's mpirun, over the backend mpi")
    # In CI one seed for each commit: a second run says more of the first.
    parser.add_argument("--seed", type=int,
                        default=os.environ.get("TORCHBRIDGE_SEED", random.randrange(10**6)))
    parser.add_argument("--stranger", type=pathlib.Path, metavar="PIPE",
                        help="write the store's port there when the first step is done, each time the ranks start")
    options = parser.parse_args()
    if options.mpirun and (options.exhaustive or options.program != "trainer" or options.stranger):
        parser.error("--mpirun starts the trainer, for faults at random instants")
    if options.mpirun and not (shutil.which("mpirun") and
                               "Open" in subprocess.run(["mpirun", "--version"], capture_output=True,
                                                        text=True).stdout):
        print("SKIPPED: no mpirun of OpenMPI")
        sys.exit(77)
    random.seed(options.seed)
    program = ROOT / options.build / "bin" / options.program
    bench.require(program)
    print(f"seed {options.seed}", flush=True)
    ways = [[], ["--async-save" if options.program == "trainer" else "--async"]]

    if options.exhaustive:
        errors = [kill_at_every_hit(program, int(ranks), ways, options.runs) for ranks in options.ranks.split(",")]
        sys.exit(1 if any(errors) else 0)

    track, trainings, deadline = Track(), {}, time.monotonic() + 60 * options.minutes
    def is_over():
        return time.monotonic() > deadline if not options.runs else sum(track.runs.values()) >= options.runs
    with tempfile.TemporaryDirectory(prefix="torchbridge-torture-") as folder:
        while not is_over() and not track.errors:
            key = (random.choice([int(number) for number in options.ranks.split(",")]), random.choice(range(len(ways))))
            if key not in trainings:
                path = pathlib.Path(folder) / f"{key[0]}-{key[1]}"
                path.mkdir()
                trainings[key] = Training(program, key[0], ways[key[1]], path,
                                          launch=MpiRanks if options.mpirun else bench.Ranks,
                                          stranger=options.stranger)
            try:
                run_training(trainings[key], track, is_over)
            except TortureError as error:
                track.errors.append(f"{key[0]} ranks {' '.join(ways[key[1]])}: {error}")
    print(track.table())
    for error in track.errors:
        print(f"torture: {error} (seed {options.seed})")
    sys.exit(1 if track.errors else 0)


if __name__ == "__main__":
    main()
