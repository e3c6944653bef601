"""What is looked at, check by check. Each gives rows (what, figure, verdict); verdict None: there is nothing to judge."""

import statistics
import tempfile

from jobs import Failed

PRECISIONS = ("fp32", "bf16", "fp16")
# What is trained: title, task, options, and the reference script that takes the same ones.
DIGITS = ["--epochs", "1000", "--batch-size", "32", "--optimizer", "sgd", "--lr", "0.02"]
GPT = ["--epochs", "100", "--batch-size", "32", "--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.1", "--no-decay-1d",
       "--clip-norm", "1", "--lr-schedule", "constant", "--warmup-steps", "0"]
TASKS = [
    ("digits, `mlp:2048,2048`", "digits", [*DIGITS, "--model", "mlp:2048,2048"], "train_reference.py"),
    ("digits, `cnn:16,32`", "digits", [*DIGITS, "--model", "cnn:16,32"], "train_reference.py"),
    ("text, `gpt:tiny`", "text", [*GPT, "--model", "gpt:tiny"], "train_reference.py"),
    ("text, `gpt:small`", "text", [*GPT, "--model", "gpt:small"], "train_reference.py"),
    ("table, `mlp:64`", "table", ["--epochs", "1000", "--batch-size", "32", "--model", "mlp:64"], None),
]


def loss_falls(lines):
    """(figure, verdict): the mean of the first and of the last tenth of the steps."""
    tenth = max(1, len(lines) // 10)
    first, last = (statistics.fmean(line["loss"] for line in part) for part in (lines[:tenth], lines[-tenth:]))
    return f"loss {first:.4f} to {last:.4f} in {len(lines)} steps", last < 0.9 * first


def rate(lines):
    """Samples per second, by the median step of the second half."""
    return statistics.median(line["samples_per_s"] for line in lines[len(lines) // 2:])


def nccl_connects_eagerly(jobs, steps):
    """Before any collective, by NCCL's own log."""
    if jobs.device == "cpu":
        return
    with tempfile.NamedTemporaryFile() as log:
        found = jobs.cases("eager", {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": log.name})
    seconds = {name: float(found[name][0]) for name in ("formed_s", "first_s", "second_s")}
    figure = "group {formed_s:.2f} s, first all-reduce {first_s:.4f} s, second {second_s:.4f} s".format(**seconds)
    yield f"`{found['backend'][0]}`: the communicator is there before the first collective", figure, found["connected"] == ["1"]


def tasks_learn(jobs, steps):
    for title, task, options, _ in TASKS:
        for precision in PRECISIONS:
            figure, verdict = loss_falls(jobs.train(task, [*options, "--max-steps", steps, "--precision", precision]))
            yield f"{title}, {precision}", figure, verdict


def scale_comes_down(jobs, steps):
    """From a loss scale at which every gradient overflows."""
    title, task, options, _ = TASKS[0]
    lines = jobs.train(task, [*options, "--max-steps", steps, "--precision", "fp16", "--loss-scale", "1e12"])
    figure, verdict = loss_falls(lines)
    yield f"{title}, fp16 from a loss scale of 1e12 (GradScaler)", figure, verdict


def two_share_the_gpu(jobs, steps):
    """NCCL refuses two ranks on one GPU; gloo copies by way of the CPU."""
    title, task, options, _ = TASKS[0]
    figure, verdict = loss_falls(jobs.train(task, [*options, "--max-steps", steps, "--backend", "gloo"], world_size=2))
    yield f"{title}, 2 processes sharing it over gloo", figure, verdict


def copies_overlap(jobs, steps):
    """At least half of the shorter of copying and computing is hidden behind the longer."""
    found = {name: float(values[0]) for name, values in jobs.cases("overlap").items()}
    figure = "copies {copy_s:.4f} s, products {compute_s:.4f} s, both {both_s:.4f} s".format(**found)
    if jobs.device == "cpu":
        yield "loader (nothing is copied on the CPU)", figure, None
        return
    hidden = found["copy_s"] + found["compute_s"] - found["both_s"]
    share = hidden / min(found["copy_s"], found["compute_s"])
    yield "batches come through pinned memory", "", found["pinned"] == 1
    yield "their copies overlap with products", f"{figure}: {share:.0%} hidden", share > 0.5


def generators_agree(jobs, steps):
    ask = f"import torch; torch.manual_seed(7); print(*('%.9g' % x for x in torch.randn(4, device='{jobs.device}').tolist()))"
    ours, python = jobs.cases("random")["number"], jobs.run([jobs.torch["python"], "-c", ask]).split()
    yield "the generator gives Python's numbers", f"{' '.join(ours)}", ours == python


def speed(jobs, steps):
    """Three turns each; weights and order of samples are the same, so the losses are close too."""
    compared = [row for row in TASKS if row[3]]
    for title, task, options, script in compared:
        for precision in ("fp32", "bf16"):
            words = [*options, "--max-steps", steps, "--precision", precision, "--momentum", "0"]
            ratios, rates = [], []
            for _ in range(3):
                ours, python = jobs.train(task, words), jobs.train_in_python(f"tests/reference/{script}", task, words)
                ratios.append(rate(ours) / rate(python))
                rates.append(rate(ours))
            apart = max(abs(a["loss"] - b["loss"]) / max(1.0, abs(b["loss"])) for a, b in zip(ours, python))
            figure = f"{statistics.median(rates):.0f} samples/s, {statistics.median(ratios):.2f} times Python's; losses within {apart:.1e}"
            yield f"{title}, {precision}, against Python's DistributedDataParallel", figure, None


CHECKS = [nccl_connects_eagerly, generators_agree, copies_overlap, tasks_learn, scale_comes_down, two_share_the_gpu, speed]


def rows_of(check, jobs, steps):
    """The check's rows; one that could not be looked at is a row too."""
    rows = []
    try:
        for row in check(jobs, steps):
            rows.append(row)
    except (Failed, KeyError, ValueError) as error:
        rows.append((check.__name__.replace("_", " "), str(error), False))
    return rows
