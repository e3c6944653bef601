"""The checks of several ranks, each with a GPU of its own, over NCCL; on the CPU, which only tests the script, over
gloo."""

import pathlib
import signal
import tempfile
from functools import partial

from checks import GPT, NEAR, TASKS, apart, equality_rows, speed_rows
from jobs import last_lines, reports_of
from rows import Row, once

SOON_S = 30  # time for the others to end after a rank is lost: 4 s without a heartbeat, 7 s where NCCL's abort hangs
START_S = 4 * SOON_S  # the same from the start of the programs, which read their libraries and reach the GPU first


def nccl_equals_gloo(jobs, options):
    """The same training over both: gloo copies through the CPU, and sums in another order."""
    def find(task, words):
        words = [*words, "--max-steps", min(options.steps, 20)]
        ours, gloo = (jobs.train(task, [*words, *more], jobs.ranks, more=jobs.own_gpus())
                      for more in ([], ["--backend", "gloo"]))
        distance = apart(ours, gloo)
        return f"losses of {len(ours)} steps within {distance:.1e}", distance < NEAR
    for title, task, words, _ in (TASKS[0], TASKS[2]):
        yield Row(f"{title}, {jobs.ranks} ranks, {jobs.backend} against gloo", partial(find, task, words))


def gradients_are_averaged(jobs, options):
    """Both ways of ZeRO, once with ranks that have no element, and gradients in bf16: the losses are those without."""
    @once
    def train(task, *words):
        return jobs.train(task, words, jobs.ranks, more=jobs.own_gpus())

    def find(task, words, more, near):
        plain, ours = train(task, *words), train(task, *words, *more)
        distance = apart(ours, plain)
        return f"losses of {len(ours)} steps within {distance:.1e} of those without", distance < near
    gpt = ("text", [*GPT, "--model", "gpt:tiny", "--max-steps", min(options.steps, 20)])
    # 11 numbers: from three ranks on the last ones have no element.
    table = ("table", ["--model", "linear", "--max-steps", min(options.steps, 20)])
    cases = [(*gpt, ["--zero", "1"], NEAR), (*gpt, ["--zero", "1", "--zero-gradients", "all-reduce"], NEAR),
             (*table, ["--zero", "1"], NEAR), (*gpt, ["--grad-comm", "bf16"], 0.02)]
    for task, words, more, near in cases:
        yield Row(f"{task}, {jobs.ranks} ranks, `{' '.join(more)}`", partial(find, task, words, more, near))


def subgroups(jobs, options):
    def find():
        found = jobs.cases("subgroups", jobs.own_gpus(), jobs.ranks)
        names = ["halves", "node", "all", "halves-again"]
        wrong = [name for name in names if found.get(name) != ["1"]]
        return "sums are " + (f"wrong: {', '.join(wrong)}" if wrong else f"right: {', '.join(names)}"), not wrong
    yield Row(f"groups of some of the {jobs.ranks} ranks", find)


def sync_batch_norm(jobs, options):
    """Each rank's share of a batch against BatchNorm over the whole one, forward and backward."""
    def find():
        samples = ",".join(str(2 + rank) for rank in range(jobs.ranks))
        lines = jobs.run([jobs.build / "bin/sync_batch_norm_cases", samples, jobs.device], jobs.ranks,
                         jobs.libraries() | jobs.own_gpus()).splitlines()
        return "largest difference of each case: " + ", ".join(lines), len(lines) >= 10
    yield Row(f"SyncBatchNorm, {jobs.ranks} ranks", find)


def resume_of_ranks(jobs, options):
    """With ZeRO and --async-save: each rank copies its shard of the state in pinned memory."""
    words = [*GPT, "--model", "gpt:tiny", "--max-steps", 40, "--zero", "1", "--async-save"]

    def find():
        with tempfile.TemporaryDirectory() as folder:
            saving = ["--checkpoint-dir", folder, "--checkpoint-every", 20]
            whole = jobs.train("text", [*words, *saving], jobs.ranks, more=jobs.own_gpus())
            resumed = jobs.train("text", [*words, "--resume", pathlib.Path(folder) / "step-00000020"], jobs.ranks,
                                 more=jobs.own_gpus())
        distance = apart(resumed, whole)
        return f"losses of {len(resumed)} steps after it within {distance:.1e}", len(resumed) == 20 and distance < NEAR
    yield Row(f"text, `gpt:tiny`, {jobs.ranks} ranks, `--zero 1 --async-save`, resumed from step 20", find)


def lost_rank_ends_the_job(jobs, options):
    """The last rank is killed, stopped, or fails or is late while the others are in an all-reduce."""
    last = jobs.ranks - 1

    def find(number):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "metrics.jsonl"
            lost = jobs.lose_last_rank(
                [*jobs.trainer("digits"), *jobs.sized("digits", TASKS[0][2]), "--epochs", 1_000_000, "--metrics", file],
                number, lambda: file.exists() and len(file.read_text().splitlines()) >= 20, SOON_S)
        return judge(lost, f"rank {last}")

    def find_failed():
        lost = jobs.lose_last_rank(jobs.gpu_cases("abort"), None, lambda: True, START_S)
        return judge(lost, f"rank {last}: failed on purpose")

    def find_late():
        lost = jobs.lose_last_rank(jobs.gpu_cases("late"), 0, lambda: True, START_S)  # signal 0 does nothing
        return judge(lost, f"rank {last} on ")

    def judge(lost, reason):
        reports = reports_of(lost.errors)
        fits = all(code == 1 for code in lost.codes[:last]) and len(reports) == 1 and reason in reports[0]
        shown = " / ".join(reports) or last_lines(lost.errors)
        return f"exit codes {lost.codes}, after {lost.seconds:.1f} s: {shown}", fits

    for what, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        yield Row(f"rank {last} of {jobs.ranks} is {what}", partial(find, number))
    yield Row(f"rank {last} of {jobs.ranks} fails", find_failed)
    yield Row(f"rank {last} of {jobs.ranks} does not come to a collective", find_late)


def all_reduce_bandwidth(jobs, options):
    """The bus bandwidth of nccl-tests: bytes that each rank sends, independent of the number of ranks."""
    def find():
        found = jobs.cases("bandwidth", jobs.own_gpus(), jobs.ranks)
        figures = (f"{name.removeprefix('mib_')} MiB: {float(value):.2f} GB/s" for name, (value,) in found.items())
        return ", ".join(figures), None
    yield Row(f"all-reduce of {jobs.ranks} ranks, bus bandwidth", find, timed=True)


def ranks_agree_with_python(jobs, options):
    """The same training by Python's DistributedDataParallel over NCCL, with deterministic algorithms: the same bits."""
    yield from equality_rows(jobs, jobs.ranks, jobs.own_gpus())


def speed_of_ranks(jobs, options):
    more = ["--max-steps", options.steps, "--precision", "bf16"]
    for title, task, words, _ in (TASKS[0], TASKS[3]):
        yield from speed_rows(jobs, options, f"{title}, {jobs.ranks} ranks, bf16", task, [*words, *more], jobs.ranks)


RANK_CHECKS = [nccl_equals_gloo, ranks_agree_with_python, gradients_are_averaged, subgroups, sync_batch_norm,
               resume_of_ranks, lost_rank_ends_the_job, all_reduce_bandwidth, speed_of_ranks]
