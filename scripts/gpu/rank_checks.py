"""The checks of several ranks, each with a GPU of its own, over NCCL; on the CPU, which only tests the script, over
gloo."""

import functools
import pathlib
import signal
import tempfile

from checks import GPT, NEAR, TASKS, apart, row, speed_of
from jobs import last_lines

SOON_S = 30  # time for the others to end after a rank is lost: 4 s without a heartbeat, 7 s where NCCL's abort hangs


def nccl_equals_gloo(jobs, steps):
    """The same training over both: gloo copies through the CPU, and sums in another order."""
    for title, task, options, _ in (TASKS[0], TASKS[2]):
        def find():
            words = [*options, "--max-steps", min(steps, 20)]
            ours, gloo = (jobs.train(task, [*words, *more], jobs.ranks, more=jobs.own_gpus())
                          for more in ([], ["--backend", "gloo"]))
            distance = apart(ours, gloo)
            return f"losses of {len(ours)} steps within {distance:.1e}", distance < NEAR
        yield row(f"{title}, {jobs.ranks} ranks, {jobs.backend} against gloo", find)


def gradients_are_averaged(jobs, steps):
    """Both ways of ZeRO, once with ranks that have no element, and gradients in bf16: the losses are those without."""
    @functools.cache
    def train(task, *words):
        return jobs.train(task, words, jobs.ranks, more=jobs.own_gpus())

    def find(task, words, more, near):
        plain, ours = train(task, *words), train(task, *words, *more)
        distance = apart(ours, plain)
        return f"losses of {len(ours)} steps within {distance:.1e} of those without", distance < near
    gpt = ("text", [*GPT, "--model", "gpt:tiny", "--max-steps", min(steps, 20)])
    # 11 numbers: from three ranks on the last ones have no element.
    table = ("table", ["--model", "linear", "--max-steps", min(steps, 20)])
    cases = [(*gpt, ["--zero", "1"], NEAR), (*gpt, ["--zero", "1", "--zero-gradients", "all-reduce"], NEAR),
             (*table, ["--zero", "1"], NEAR), (*gpt, ["--grad-comm", "bf16"], 0.02)]
    for task, words, more, near in cases:
        yield row(f"{task}, {jobs.ranks} ranks, `{' '.join(more)}`", lambda: find(task, words, more, near))


def subgroups(jobs, steps):
    def find():
        found = jobs.cases("subgroups", jobs.own_gpus(), jobs.ranks)
        wrong = [name for name, values in found.items() if values != ["1"]]
        return "sums are " + (f"wrong: {', '.join(wrong)}" if wrong else f"right: {', '.join(found)}"), not wrong
    yield row(f"groups of some of the {jobs.ranks} ranks", find)


def lost_rank_ends_the_job(jobs, steps):
    """The last rank is killed, stopped, or fails while the others are in an all-reduce."""
    last = jobs.ranks - 1

    def find(number):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "metrics.jsonl"
            lost = jobs.lose_last_rank(
                [*jobs.trainer("digits"), *jobs.sized("digits", TASKS[0][2]), "--epochs", 1_000_000, "--metrics", file],
                number, lambda: file.exists() and len(file.read_text().splitlines()) >= 20, SOON_S)
        return judge(lost, f"rank {last}")

    def find_failed():
        lost = jobs.lose_last_rank(jobs.gpu_cases("abort"), None, lambda: True, 4 * SOON_S)
        return judge(lost, f"rank {last}: failed on purpose")

    def judge(lost, reason):
        """Counts the lines of our programs; those of NCCL's watchdog do not begin with their names."""
        reports = [line for line in lost.errors.splitlines() if line.startswith(("trainer: ", "gpu_cases: "))]
        fits = all(code == 1 for code in lost.codes[:last]) and len(reports) == 1 and reason in reports[0]
        shown = " / ".join(reports) or last_lines(lost.errors)
        return f"exit codes {lost.codes}, after {lost.seconds:.1f} s: {shown}", fits

    for what, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        yield row(f"rank {last} of {jobs.ranks} is {what}", lambda: find(number))
    yield row(f"rank {last} of {jobs.ranks} fails", find_failed)


def all_reduce_bandwidth(jobs, steps):
    """The bus bandwidth of nccl-tests: bytes that each rank sends, independent of the number of ranks."""
    def find():
        found = jobs.cases("bandwidth", jobs.own_gpus(), jobs.ranks)
        figures = (f"{name.removeprefix('mib_')} MiB: {float(value):.2f} GB/s" for name, (value,) in found.items())
        return ", ".join(figures), None
    yield row(f"all-reduce of {jobs.ranks} ranks, bus bandwidth", find)


def speed_of_ranks(jobs, steps):
    more = ["--max-steps", steps, "--precision", "bf16"]
    for title, task, options, script in (TASKS[0], TASKS[3]):
        yield row(f"{title}, {jobs.ranks} ranks, bf16, against Python's DistributedDataParallel",
                  lambda: speed_of(jobs, task, [*options, *more], script, jobs.ranks))


RANK_CHECKS = [nccl_equals_gloo, gradients_are_averaged, subgroups, lost_rank_ends_the_job, all_reduce_bandwidth,
               speed_of_ranks]
