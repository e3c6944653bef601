"""The checks of one GPU, in the order of their worth. Each yields rows."""

import collections
import itertools
import math
import pathlib
import random
import re
import shutil
import statistics
import tempfile
import time
from functools import partial

import traces
from jobs import last_lines, reports_of, values_of
from machine import ROOT
from rows import Failed, Row, once

PRECISIONS = ("fp32", "bf16", "fp16")
# The trainings: options, then (title, task, options, whether the reference script has it too).
DIGITS = ["--epochs", "1000", "--batch-size", "32", "--optimizer", "sgd", "--lr", "0.02"]
GPT = ["--epochs", "100", "--batch-size", "32", "--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.1",
       "--no-decay-1d", "--clip-norm", "1", "--lr-schedule", "constant", "--warmup-steps", "0"]
TASKS = [
    ("digits, `mlp:2048,2048`", "digits", [*DIGITS, "--model", "mlp:2048,2048"], True),
    ("digits, `cnn:16,32`", "digits", [*DIGITS, "--model", "cnn:16,32"], True),
    ("text, `gpt:tiny`", "text", [*GPT, "--model", "gpt:tiny"], True),
    ("text, `gpt:small`", "text", [*GPT, "--model", "gpt:small"], True),
    ("table, `mlp:64`", "table", ["--epochs", "1000", "--batch-size", "32", "--model", "mlp:64"], False),
]
# Faster options of the reference script. BEST adds what is common in fast scripts: no `.item()` in each step, workers,
# TF32, torch.compile.
TUNED = ["--loader", "batches", "--gradient-as-bucket-view"]
BEST = [*TUNED, "--log-every", 20, "--workers", 2]
NO_COMPILER = "not measured: torch.compile needs a C compiler (cc, gcc or clang) here"
COMMON = ["--fp32-precision", "tf32"]  # of both programs where ours is compared with BEST
NEAR = 1e-3  # largest distance between losses of the same training, computed in another order


def loss_falls(lines):
    """(figure, verdict) by the mean loss of the first and of the last tenth of the steps."""
    first, last = (mean_loss(part) for part in (lines[:tenth(lines)], lines[-tenth(lines):]))
    return f"loss {first:.4f} to {last:.4f} in {len(lines)} steps", last < 0.9 * first


def tenth(lines):
    return max(1, len(lines) // 10)


def mean_loss(lines):
    return statistics.fmean(line["loss"] for line in lines)


def apart(lines, others):
    """The largest distance between two losses of the same step."""
    found = {line["step"]: line["loss"] for line in others}
    distances = [abs(line["loss"] - found[line["step"]]) / max(1.0, abs(found[line["step"]])) for line in lines]
    return max(distances) if all(map(math.isfinite, distances)) else math.inf


def rate(lines):
    """Samples per second: the median of the second half of the steps."""
    return statistics.median(line["samples_per_s"] for line in lines[len(lines) // 2:])


def first_start(jobs, options):
    """The first start reads libtorch's and CUDA's libraries from the disk; the second has them in memory."""
    title, task, words, _ = TASKS[0]

    def find():
        begin = time.monotonic()
        lines = jobs.train(task, [*words, "--max-steps", 100])
        seconds = time.monotonic() - begin
        figure, verdict = loss_falls(lines)
        first_step_ms = 1000 * int(words[words.index("--batch-size") + 1]) / lines[0]["samples_per_s"]
        return f"{figure}, {seconds:.1f} s from start to exit, first step {first_step_ms:.1f} ms", verdict
    for which in ("first", "second"):
        yield Row(f"{title}, {which} start", find, timed=True)


def nccl_connects_eagerly(jobs, options):
    """The connection exists before any collective, by NCCL's own log."""
    if jobs.device == "cpu":
        return

    def find():
        with jobs.folder() as folder:
            found = jobs.cases("eager", {"NCCL_DEBUG_FILE": str(folder / "nccl.log")}, folder=folder)
        seconds = {name: float(found[name][0]) for name in ("formed_s", "first_s", "second_s")}
        figure = "{backend}: group {formed_s:.2f} s, first all-reduce {first_s:.4f} s, second {second_s:.4f} s".format(
            backend=found["backend"][0], **seconds)
        return figure, found["connected"] == ["1"] and found["recorded"] == ["1"]
    yield Row("NCCL's communicator is there before the first collective, which flight_record() has", find, timed=True)


def copies_overlap(jobs, options):
    """A copy starts and ends while products that were queued before it are still being computed."""
    if jobs.device == "cpu":
        yield Row("loader (nothing is copied on the CPU)", lambda: ("", None))
        return

    def find():
        found = {name: float(values[0]) for name, values in jobs.cases("overlap").items()}
        facts = {"pinned memory": found["pinned"], "copied first": found["copied_first"], "whole": found["equal"]}
        figure = ("begun after {begin_s:.4f} s, done after {copied_s:.4f} s, "
                  "products after {computed_s:.4f} s").format(**found)
        missing = "".join(f"; not {name}" for name, fact in facts.items() if fact != 1)
        return figure + missing, not missing and found["begin_s"] < 0.1 * found["computed_s"]
    yield Row("batches are copied from pinned memory while products are computed", find, timed=True)


def generators_agree(jobs, options):
    ask = ("import torch; torch.manual_seed(7); "
           f"print(*('%.9g' % x for x in torch.randn(4, device='{jobs.device}').tolist()))")

    def find():
        ours, python = jobs.cases("random")["number"], jobs.run([jobs.torch["python"], "-c", ask]).split()
        return f"{' '.join(ours)}", ours == python
    yield Row("the generator gives Python's numbers", find)


def write_random_tokens(folder, windows, context):
    """train.bin and val.bin, as nanoGPT's: tokens of two bytes below 32,768, which GPT-2's vocabulary has."""
    numbers = random.Random(0)
    for name, count in (("train.bin", windows * context + 1), ("val.bin", context + 1)):
        tokens = bytearray(numbers.randbytes(2 * count))
        tokens[1::2] = tokens[1::2].translate(bytes(value & 0x7f for value in range(256)))
        (folder / name).write_bytes(tokens)


def context_of(jobs):
    return 1024 if jobs.device == "cuda" else 32


def sized_for_gpt2(jobs, more, batch):
    """The options of a GPT, with another batch, and more."""
    words = [*GPT, *more]
    return [batch if before == "--batch-size" else word for before, word in zip(["", *words], words)]


def gpt2(jobs, options):
    """GPT-2 of 124 million parameters in bf16, on random tokens, against a script without DDP, as it is and with
    torch.compile."""
    is_cuda = jobs.device == "cuda"
    context, (steps, every) = context_of(jobs), (40, 10) if is_cuda else (10, 5)
    words = ["--model", "gpt:gpt2", "--precision", "bf16", *COMMON, "--max-steps", steps, "--log-every", every]
    python = ["--no-ddp", "--loader", "batches"]

    def train(how, batch, more, folder):
        """The metrics, and the seconds from the start to the exit."""
        with tempfile.TemporaryDirectory() as data:
            write_random_tokens(pathlib.Path(data), steps * batch, context)
            begin = time.monotonic()
            sized = sized_for_gpt2(jobs, [*words, *more], batch)
            return how("text", sized, data=data, folder=folder), time.monotonic() - begin

    @once
    def ours(batch, round_number):
        with jobs.folder() as folder:
            return train(jobs.train, batch, [], folder)

    @once
    def pythons(batch, round_number, *more):
        with jobs.folder() as folder:
            return train(jobs.train_in_python, batch, [*python, *more], folder)

    def find(batch, more):
        found = [(ours(batch, number), pythons(batch, number, *more)) for number in range(options.rounds)]
        mine, other = (statistics.median(rate(pair[which][0]) for pair in found) * context for which in (0, 1))
        ratio = statistics.median(rate(pair[0][0]) / rate(pair[1][0]) for pair in found)
        distance, mfu = apart(found[0][1][0], found[0][0][0]), found[-1][0][0][-1].get("mfu")
        figure = f"{mine:.0f} tokens/s{f', MFU {100 * mfu:.1f} %' if mfu else ''}"
        figure += f"; Python {other:.0f}: {ratio:.3f} times"
        figure += f"; start to exit {found[0][0][1]:.1f} s, Python {found[0][1][1]:.1f} s; losses within {distance:.1e}"
        return figure, distance < 0.02

    def find_trace(how, more):
        with jobs.folder() as folder:
            trace = folder / "trace.json"
            train(how, 16, ["--profile", 3, "--profile-file", trace, *more], folder)
            return str(traces.summary_of(trace, 3)) if is_cuda else "not traced on the CPU", None

    compiled = compiles(jobs)
    for batch in (16, 32):
        yield Row(f"GPT-124M, bf16, batches of {batch}, against Python", partial(find, batch, []), timed=True)
        yield Row(f"GPT-124M, bf16, batches of {batch}, against torch.compile",
                  partial(find, batch, compiled) if compiled else lambda: (NO_COMPILER, None), timed=True)
    yield Row("GPT-124M, bf16, batches of 1, against Python", partial(find, 1, []), timed=True)
    for title, how, more in (("ours", jobs.train, []), ("Python's", jobs.train_in_python, python)):
        yield Row(f"GPT-124M, bf16, batches of 16, trace of {title}", partial(find_trace, how, more), timed=True)


def steps_wait(jobs, options):
    """Which functions of a step make the host wait for the GPU, as libtorch's sync debug mode sees them."""
    title, task, words, _ = TASKS[2]

    def find(more):
        with jobs.folder() as folder:
            found = jobs.watch(task, [*words, "--max-steps", 25, *more], folder)
            seen = (folder / "stderr").read_text().count("called a synchronizing CUDA operation")  # by other threads
        if seen == 0:
            raise Failed("waits of other threads are not seen, not even the one of the program itself")
        waits = collections.Counter(found.get("sync", [])) + collections.Counter({"another thread": seen - 1})
        named = "".join(f", {name} {count}" for name, count in waits.most_common())
        return f"{waits.total()} waits in {found['steps'][0]} steps{named}", not waits
    for more in (["--precision", "bf16"], ["--precision", "fp16"], ["--zero", "1"]):
        yield Row(f"{title}, `{' '.join(more)}`, waits for the GPU in sync debug mode", partial(find, more))


def memory_peaks(jobs, options):
    """The most bytes of the GPU that libtorch gave out at once; on the CPU, which only tests the script, those of the
    process."""
    batch, steps = 16, 25
    words = sized_for_gpt2(jobs, ["--model", "gpt:gpt2", "--precision", "bf16", "--max-steps", steps], batch)

    def find():
        with tempfile.TemporaryDirectory() as data, jobs.folder() as own, jobs.folder() as pythons:
            write_random_tokens(pathlib.Path(data), steps * batch, context_of(jobs))
            ours = int(jobs.watch("text", words, own, data)["peak_bytes"][0])
            jobs.train_in_python("text", [*words, "--no-ddp", "--loader", "batches"], data=data, folder=pythons)
            python = int(values_of((pythons / "stdout").read_text())["peak_bytes"][0])
        return f"{ours / 2**30:.2f} GiB, Python {python / 2**30:.2f}: {ours / python:.2f} times", None
    yield Row(f"GPT-124M, bf16, batches of {batch}, peak of memory, against Python", find)


def python_agrees(jobs, options):
    """The same training by the reference script, with deterministic algorithms: the same bits."""
    yield from equality_rows(jobs, 1, {})


def equality_rows(jobs, ranks, where):
    def find(task, words):
        # NCCL_ALGO as ProcessGroupNCCL sets it with deterministic algorithms: Python's group may be of another class.
        variables = where | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "^NVLS"}
        ours = jobs.train(task, words, ranks, more=variables)
        distance = apart(jobs.train_in_python(task, words, ranks, variables), ours)
        return f"losses of {len(ours)} steps: {'equal' if distance == 0 else f'within {distance:.1e}'}", distance == 0
    for title, task, words, has_reference in TASKS:
        for precision in PRECISIONS if has_reference else ():
            # With clipping Python divides gradients by the loss scale before its fused optimizer, as the trainer always
            # does; without, in the kernel of the optimizer, which rounds otherwise on a GPU.
            more = ["--max-steps", 20, "--momentum", 0, "--precision", precision, "--deterministic", "--clip-norm", 1]
            what = f"{title}, {precision}{f', {ranks} ranks' if ranks > 1 else ''}, deterministic, against Python's"
            yield Row(what, partial(find, task, [*words, *more]))


# Seconds of a save of the model and its optimizer by Python's torch.save, and of the part of DCP's that holds training.
_SAVE_IN_PYTHON = """
import sys, time, torch, gpt_model, torch.distributed.checkpoint as dcp
model = gpt_model.Gpt(gpt_model.GPT2_VOCABULARY, **gpt_model.parse_shape(sys.argv[1])).to(sys.argv[2])
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
sum(parameter.sum() for parameter in model.parameters()).backward()
optimizer.step()
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
for number in range(2):
    begin = time.perf_counter()
    torch.save(state, f"{sys.argv[3]}/{number}.pt")
    print("torch.save", time.perf_counter() - begin)
    begin = time.perf_counter()
    dcp.save(state, checkpoint_id=f"{sys.argv[3]}/dcp-{number}", no_dist=True)
    print("DCP", time.perf_counter() - begin)
"""


def checkpoint_costs(jobs, options):
    """By how much a save holds a training up, against how long Python's saves take. Saves are far enough apart that one
    has ended before the next begins."""
    model, batch = "gpt:gpt2", 4
    every, saves = (100, 3) if jobs.device == "cuda" else (5, 2)
    steps = every * saves + 5
    words = sized_for_gpt2(jobs, ["--model", model, "--max-steps", steps, "--precision", "bf16"], batch)

    def find(*more):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as data:
            write_random_tokens(pathlib.Path(data), steps * batch, context_of(jobs))
            saving = ["--checkpoint-dir", folder, "--checkpoint-every", every, *more]
            lines = jobs.train("text", [*words, *saving], data=data)
        seconds = {line["step"]: batch / line["samples_per_s"] for line in lines}
        usual = statistics.median(seconds.values())
        holds = [seconds[number * every + 1] - usual for number in range(1, saves + 1)]
        return f"{', '.join(f'{hold:.2f}' for hold in holds)} s, a step {usual:.3f} s", None

    def find_in_python():
        with tempfile.TemporaryDirectory() as folder:
            shape = jobs.sized("text", [model])[0].partition(":")[2]
            lines = jobs.run([jobs.torch["python"], "-c", _SAVE_IN_PYTHON, shape, jobs.device, folder],
                             more={"PYTHONPATH": str(ROOT / "tests/reference")}).splitlines()
        times = (line.rsplit(" ", 1) for line in lines)
        return "; ".join(f"{name} {float(value):.2f} s" for name, value in times), None
    yield Row("GPT-124M, saves hold the training up for", find, timed=True)
    yield Row("GPT-124M, saves with `--async-save` for", partial(find, "--async-save"), timed=True)
    yield Row("GPT-124M, Python's saves take", find_in_python, timed=True)


def tasks_learn(jobs, options):
    """Losses in half precision are near those in fp32, but differ: equal losses would be fp32 under another name."""
    @once
    def train(task, precision, *words):
        return jobs.train(task, [*words, "--max-steps", options.steps, "--precision", precision])

    def find(task, words, precision):
        lines = train(task, precision, *words)
        figure, verdict = loss_falls(lines)
        if precision == "fp32":
            return figure, verdict
        whole = train(task, "fp32", *words)
        early, final = apart(lines[:10], whole), mean_loss(whole[-tenth(whole):])
        end = abs(mean_loss(lines[-tenth(lines):]) - final)
        near = apart(lines[:1], whole) < 0.02 and end < 0.1 * max(1.0, final)
        figure += f"; from fp32 {early:.1e} in the first 10 steps, {end:.1e} at the end"
        return figure, verdict and near and early > 1e-6
    for title, task, words, _ in TASKS:
        for precision in PRECISIONS:
            yield Row(f"{title}, {precision}", partial(find, task, words, precision))


def scale_comes_down(jobs, options):
    """From a loss scale at which every gradient overflows: about 25 steps are skipped until it is low enough."""
    title, task, words, _ = TASKS[0]

    def find():
        lines = jobs.train(task, [*words, "--max-steps", max(options.steps, 100),
                                  "--precision", "fp16", "--loss-scale", "1e12"])
        figure, verdict = loss_falls(lines)
        first, second = (sum(line.get("skipped", False) for line in part)
                         for part in (lines[:len(lines) // 2], lines[len(lines) // 2:]))
        # A scale just below the limit may overflow once more.
        figure += f"; {first} steps left out in the first half, {second} in the second"
        return figure, verdict and first > 0 and second < 3
    yield Row(f"{title}, fp16 from a loss scale of 1e12 (GradScaler)", find)


def two_share_the_gpu(jobs, options):
    """Over gloo, which copies through the CPU, because NCCL rejects two ranks on one GPU. The losses are those of the
    CPU: gradients are averaged."""
    title, task, words, _ = TASKS[0]
    steps, compared = options.steps, min(options.steps, 20)

    def find():
        over_gloo = [*words, "--backend", "gloo", "--max-steps"]
        lines = jobs.train(task, [*over_gloo, steps], world_size=2)
        figure, verdict = loss_falls(lines)
        distance = apart(lines[:compared], jobs.train(task, [*over_gloo, compared], world_size=2, device="cpu"))
        return f"{figure}; {distance:.1e} from the CPU's in the first {compared}", verdict and distance < NEAR
    yield Row(f"{title}, 2 processes sharing it over gloo", find)


def resume_continues(jobs, options):
    """From step 20 of 40, with dropout: restores weights, optimizer, order of samples and the device's generator."""
    model = "gpt:layers=2,heads=2,width=64,context=64,dropout=0.2"
    words = [*GPT, "--model", model, "--max-steps", 40]

    def find(way):
        with tempfile.TemporaryDirectory() as folder:
            whole = jobs.train("text", [*words, *way, "--checkpoint-dir", folder, "--checkpoint-every", 20])
            resumed = jobs.train("text", [*words, "--resume", pathlib.Path(folder) / "step-00000020"])
        if [line["step"] for line in resumed] != list(range(21, 41)):
            return f"{len(resumed)} steps after step 20 of 40", False
        distance = apart(resumed, whole)
        found = "equal" if distance == 0 else f"within {distance:.1e}"
        return f"losses of the steps after it: {found}", distance < NEAR
    for way in ([], ["--async-save"]):
        yield Row(f"text, `{model}`, resumed from step 20{' of `--async-save`' if way else ''}", partial(find, way))


def options_work(jobs, options):
    """Options that change how a training is computed, but not its result: the losses are those without them."""
    title, task, words, _ = TASKS[0]
    words = [*words, "--max-steps", 30]  # the profile begins with step 11, an epoch has 45

    @once
    def plain():
        return jobs.train(task, words)

    def compare(lines):
        distance = apart(lines, plain())
        return f"losses within {distance:.1e} of those without", distance < NEAR

    def find(words, variables=None):
        return compare(jobs.train(task, words, more=variables))

    def find_profile():
        with jobs.folder() as folder:
            file = folder / "trace.json"
            figure, verdict = compare(jobs.train(task, [*words, "--profile", 3, "--profile-file", file], folder=folder))
            is_whole = '"step 13"' in file.read_text()
            traced = traces.summary_of(file, 3) if jobs.device == "cuda" else "not traced on the CPU"
        return f"{figure}; {traced}", verdict and is_whole

    cases = [(["--zero", "1"], {}), (["--deterministic"], {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})]
    if jobs.device == "cuda":
        cases.append((["--backend", "nccl"], {}))
    for more, variables in cases:
        yield Row(f"{title}, `{' '.join(more)}`", partial(find, [*words, *more], variables))
    # The same samples a step, in two parts.
    value = words.index("--batch-size") + 1
    halves = [*words[:value], "16", *words[value + 1:], "--grad-accumulation", "2"]
    yield Row(f"{title}, `--batch-size 16 --grad-accumulation 2`", partial(find, halves))
    yield Row(f"{title}, `--profile 3`", find_profile)


def device_error_ends_the_job(jobs, options):
    """An index outside of its table: CUDA's device-side assert, after which each call of CUDA fails."""
    if jobs.device == "cpu":
        return

    def find():
        with jobs.folder() as folder:
            try:
                jobs.cases("assert", folder=folder)
                return "the program ends with exit code 0", False
            except Failed as failure:
                errors = (folder / "stderr").read_text()
                reports = reports_of(errors)
                is_named = len(reports) == 1 and "device-side assert" in reports[0]
                return " / ".join(reports) or last_lines(errors), is_named and str(failure).startswith("exit code 1:")
    yield Row("a device-side assert ends the program with one line", find)


def compiles(jobs):
    """The option of torch.compile. Its code for a GPU needs a C compiler; the CPU, which only tests the script, takes
    eager."""
    if jobs.device == "cpu":
        return ["--compile", "eager"]
    return ["--compile", "inductor"] if any(map(shutil.which, ("cc", "gcc", "clang"))) else []


def speed_rows(jobs, options, title, task, words, ranks=1):
    """Ours against the reference script with usual, TUNED and BEST options, each a row. Weights and order of samples
    are the same, so the losses are close too."""
    words, where = [*words, "--momentum", "0"], jobs.own_gpus() if ranks > 1 else {}
    compiled = compiles(jobs)
    best = [*BEST, *compiled]
    without = "" if compiled else ", without torch.compile, which needs a C compiler here"
    ways = {"Python's DistributedDataParallel": ([], []), "the same, tuned": (TUNED, []),
            f"the same, at its best (`{' '.join(map(str, best))}`), both with TF32{without}": (best, COMMON)}

    @once
    def ours(round_number, *common):
        return jobs.train(task, [*words, *common], ranks, more=where)

    def find(more, common):
        found = [(ours(number, *common), jobs.train_in_python(task, [*words, *more, *common], ranks, where))
                 for number in range(options.rounds)]
        mine, other = (statistics.median(rate(pair[which]) for pair in found) for which in (0, 1))
        ratio = statistics.median(rate(pair[0]) / rate(pair[1]) for pair in found)
        distance = apart(found[0][1], found[0][0])
        return f"{mine:.0f} samples/s, Python {other:.0f}: {ratio:.2f} times; losses within {distance:.1e}", None
    for way, (more, common) in ways.items():
        yield Row(f"{title}, against {way}", partial(find, more, common), timed=True)


def speed(jobs, options):
    is_cuda = jobs.device == "cuda"
    compared = [task for task in TASKS if task[3]]
    for (title, task, words, _), precision in itertools.product(compared if is_cuda else compared[:1],
                                                                ("fp32", "bf16") if is_cuda else ("bf16",)):
        more = ["--max-steps", options.steps, "--precision", precision]
        yield from speed_rows(jobs, options, f"{title}, {precision}", task, [*words, *more])


CHECKS = [first_start, nccl_connects_eagerly, generators_agree, copies_overlap, steps_wait, memory_peaks, gpt2,
          python_agrees, tasks_learn, resume_continues, options_work, scale_comes_down, two_share_the_gpu,
          device_error_ends_the_job, checkpoint_costs, speed]
