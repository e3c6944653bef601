"""The checks of one GPU. Each yields rows (what, figure, verdict); verdict None: the figure is neither good nor bad."""

import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile

from jobs import Failed

PRECISIONS = ("fp32", "bf16", "fp16")
# The trainings: options, then (title, task, options, reference script with the same options).
DIGITS = ["--epochs", "1000", "--batch-size", "32", "--optimizer", "sgd", "--lr", "0.02"]
GPT = ["--epochs", "100", "--batch-size", "32", "--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.1",
       "--no-decay-1d", "--clip-norm", "1", "--lr-schedule", "constant", "--warmup-steps", "0"]
TASKS = [
    ("digits, `mlp:2048,2048`", "digits", [*DIGITS, "--model", "mlp:2048,2048"], "train_reference.py"),
    ("digits, `cnn:16,32`", "digits", [*DIGITS, "--model", "cnn:16,32"], "train_reference.py"),
    ("text, `gpt:tiny`", "text", [*GPT, "--model", "gpt:tiny"], "train_reference.py"),
    ("text, `gpt:small`", "text", [*GPT, "--model", "gpt:small"], "train_reference.py"),
    ("table, `mlp:64`", "table", ["--epochs", "1000", "--batch-size", "32", "--model", "mlp:64"], None),
]
# Faster options of the reference script. BEST adds what is common in fast scripts: no `.item()` in each step, workers,
# TF32, torch.compile.
TUNED = ["--loader", "batches", "--gradient-as-bucket-view"]
BEST = [*TUNED, "--log-every", 20, "--workers", 2]
COMMON = ["--fp32-precision", "tf32"]  # of both programs where ours is compared with BEST
NEAR = 1e-3  # largest distance between losses of the same training, computed in another order


def row(what, find):
    """(what, figure, verdict) of find(); an error becomes a failed row, and the later checks still run."""
    try:
        return (what, *find())
    except Failed as error:
        return what, str(error), False
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError, subprocess.SubprocessError) as error:
        return what, f"{type(error).__name__}: {error}", False


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
    return max(abs(line["loss"] - found[line["step"]]) / max(1.0, abs(found[line["step"]])) for line in lines)


def rate(lines):
    """Samples per second: the median of the second half of the steps."""
    return statistics.median(line["samples_per_s"] for line in lines[len(lines) // 2:])


def nccl_connects_eagerly(jobs, steps):
    """The connection exists before any collective, by NCCL's own log."""
    if jobs.device == "cpu":
        return

    def find():
        with tempfile.NamedTemporaryFile() as log:
            found = jobs.cases("eager", {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": log.name})
        seconds = {name: float(found[name][0]) for name in ("formed_s", "first_s", "second_s")}
        figure = "{backend}: group {formed_s:.2f} s, first all-reduce {first_s:.4f} s, second {second_s:.4f} s".format(
            backend=found["backend"][0], **seconds)
        return figure, found["connected"] == ["1"]
    yield row("NCCL's communicator is there before the first collective", find)


def tasks_learn(jobs, steps):
    """Losses in half precision are near those in fp32, but differ: equal losses would be fp32 under another name."""
    for title, task, options, _ in TASKS:
        whole = []

        def find(precision):
            lines = jobs.train(task, [*options, "--max-steps", steps, "--precision", precision])
            figure, verdict = loss_falls(lines)
            if precision == "fp32":
                whole.extend(lines)
                return figure, verdict
            if not whole:
                return f"{figure}; no fp32 run to compare with", False
            early, final = apart(lines[:10], whole), mean_loss(whole[-tenth(whole):])
            end = abs(mean_loss(lines[-tenth(lines):]) - final)
            near = apart(lines[:1], whole) < 0.02 and end < 0.1 * max(1.0, final)
            figure += f"; from fp32 {early:.1e} in the first 10 steps, {end:.1e} at the end"
            return figure, verdict and near and early > 1e-6
        for precision in PRECISIONS:
            yield row(f"{title}, {precision}", lambda: find(precision))


def scale_comes_down(jobs, steps):
    """From a loss scale at which every gradient overflows: about 25 steps are skipped until it is low enough."""
    title, task, options, _ = TASKS[0]

    def find():
        lines = jobs.train(task, [*options, "--max-steps", max(steps, 100),
                                  "--precision", "fp16", "--loss-scale", "1e12"])
        figure, verdict = loss_falls(lines)
        first, second = (sum(line.get("skipped", False) for line in part)
                         for part in (lines[:len(lines) // 2], lines[len(lines) // 2:]))
        # A scale just below the limit may overflow once more.
        figure += f"; {first} steps left out in the first half, {second} in the second"
        return figure, verdict and first > 0 and second < 3
    yield row(f"{title}, fp16 from a loss scale of 1e12 (GradScaler)", find)


def two_share_the_gpu(jobs, steps):
    """Over gloo, which copies through the CPU, because NCCL rejects two ranks on one GPU. The losses are those of the
    CPU: gradients are averaged."""
    title, task, options, _ = TASKS[0]

    def find():
        words, compared = [*options, "--backend", "gloo", "--max-steps"], min(steps, 20)
        lines = jobs.train(task, [*words, steps], world_size=2)
        figure, verdict = loss_falls(lines)
        distance = apart(lines[:compared], jobs.train(task, [*words, compared], world_size=2, device="cpu"))
        return f"{figure}; {distance:.1e} from the CPU's in the first {compared}", verdict and distance < NEAR
    yield row(f"{title}, 2 processes sharing it over gloo", find)


def resume_continues(jobs, steps):
    """From step 20 of 40, with dropout: restores weights, optimizer, order of samples and the device's generator."""
    model = "gpt:layers=2,heads=2,width=64,context=64,dropout=0.2"
    words = [*GPT, "--model", model, "--max-steps", 40]
    for way in ([], ["--async-save"]):
        def find():
            with tempfile.TemporaryDirectory() as folder:
                whole = jobs.train("text", [*words, *way, "--checkpoint-dir", folder, "--checkpoint-every", 20])
                resumed = jobs.train("text", [*words, "--resume", pathlib.Path(folder) / "step-00000020"])
            if [line["step"] for line in resumed] != list(range(21, 41)):
                return f"{len(resumed)} steps after step 20 of 40", False
            distance = apart(resumed, whole)
            found = "equal" if distance == 0 else f"within {distance:.1e}"
            return f"losses of the steps after it: {found}", distance < NEAR
        yield row(f"text, `{model}`, resumed from step 20{' of `--async-save`' if way else ''}", find)


def options_work(jobs, steps):
    """Options that change how a training is computed, but not its result: the losses are those without them."""
    title, task, options, _ = TASKS[0]
    words = [*options, "--max-steps", 30]  # the profile begins with step 11, an epoch has 45
    plain = []

    def compare(lines):
        if not plain:
            raise Failed("no run to compare with")
        distance = apart(lines, plain)
        return f"losses within {distance:.1e} of those without", distance < NEAR

    def find_plain():
        plain.extend(jobs.train(task, words))
        return f"loss {plain[0]['loss']:.4f} to {plain[-1]['loss']:.4f} in {len(plain)} steps", None

    def find_profile():
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "trace.json"
            figure, verdict = compare(jobs.train(task, [*words, "--profile", 3, "--profile-file", file]))
            trace = file.read_text()
        kernels = len(re.findall(r'"cat": *"kernel"', trace))
        is_traced = '"step 13"' in trace and (kernels > 0 or jobs.device == "cpu")
        return f"{figure}; {kernels} kernels traced", verdict and is_traced

    yield row(f"{title}, what the rows below are compared with", find_plain)
    cases = [(["--zero", "1"], {}), (["--deterministic"], {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})]
    if jobs.device == "cuda":
        cases.append((["--backend", "nccl"], {}))
    for more, variables in cases:
        yield row(f"{title}, `{' '.join(more)}`", lambda: compare(jobs.train(task, [*words, *more], more=variables)))
    # The same samples a step, in two parts.
    value = words.index("--batch-size") + 1
    halves = [*words[:value], "16", *words[value + 1:], "--grad-accumulation", "2"]
    yield row(f"{title}, `--batch-size 16 --grad-accumulation 2`", lambda: compare(jobs.train(task, halves)))
    yield row(f"{title}, `--profile 3`", find_profile)


def copies_overlap(jobs, steps):
    """A copy starts and ends while products that were queued before it are still being computed."""
    if jobs.device == "cpu":
        yield "loader (nothing is copied on the CPU)", "", None
        return

    def find():
        found = {name: float(values[0]) for name, values in jobs.cases("overlap").items()}
        facts = {"pinned memory": found["pinned"], "copied first": found["copied_first"], "whole": found["equal"]}
        figure = ("begun after {begin_s:.4f} s, done after {copied_s:.4f} s, "
                  "products after {computed_s:.4f} s").format(**found)
        missing = "".join(f"; not {name}" for name, fact in facts.items() if fact != 1)
        return figure + missing, not missing and found["begin_s"] < 0.1 * found["computed_s"]
    yield row("batches are copied from pinned memory while products are computed", find)


def generators_agree(jobs, steps):
    ask = ("import torch; torch.manual_seed(7); "
           f"print(*('%.9g' % x for x in torch.randn(4, device='{jobs.device}').tolist()))")

    def find():
        ours, python = jobs.cases("random")["number"], jobs.run([jobs.torch["python"], "-c", ask]).split()
        return f"{' '.join(ours)}", ours == python
    yield row("the generator gives Python's numbers", find)


def compiles(jobs):
    """The option of torch.compile. Its code for a GPU needs a C compiler; the CPU, which only tests the script, takes
    eager."""
    if jobs.device == "cpu":
        return ["--compile", "eager"]
    return ["--compile", "inductor"] if any(map(shutil.which, ("cc", "gcc", "clang"))) else []


def speed_of(jobs, task, options, script, ranks=1):
    """(figure, None): ours against the reference script with usual, TUNED and BEST options, in three rounds; on the CPU
    in one, without TUNED, which BEST contains. Weights and order of samples are the same, so the losses are close
    too."""
    words, where = [*options, "--momentum", "0"], jobs.own_gpus() if ranks > 1 else {}
    best = [*BEST, *compiles(jobs)]
    ways = {"Python's": [], "Python's tuned": TUNED, "Python's best": [*best, *COMMON]}
    if jobs.device == "cpu":
        del ways["Python's tuned"]
    rates, ratios = [], {way: [] for way in ways}
    for _ in range(3 if jobs.device == "cuda" else 1):
        ours, with_tf32 = (jobs.train(task, [*words, *more], ranks, more=where) for more in ([], COMMON))
        rates.append(rate(with_tf32))
        for way, more in ways.items():
            python = jobs.train_in_python(f"tests/reference/{script}", task, [*words, *more], ranks, where)
            ratios[way].append(rate(with_tf32 if way == "Python's best" else ours) / rate(python))
            distance = apart(python, ours) if way == "Python's" else distance
    found = ", ".join(f"{statistics.median(each):.2f} times {way}" for way, each in ratios.items())
    how = f"`{' '.join(map(str, best))}`{'' if '--compile' in best else ', no C compiler here'}, both with TF32"
    return f"{statistics.median(rates):.0f} samples/s, {found} ({how}); losses within {distance:.1e}", None


def speed(jobs, steps):
    is_cuda = jobs.device == "cuda"
    for title, task, options, script in TASKS if is_cuda else TASKS[:1]:
        for precision in (("fp32", "bf16") if is_cuda else ("bf16",)) if script else ():
            yield row(f"{title}, {precision}, against Python's DistributedDataParallel",
                      lambda: speed_of(jobs, task, [*options, "--max-steps", steps, "--precision", precision], script))


CHECKS = [nccl_connects_eagerly, generators_agree, copies_overlap, tasks_learn, scale_comes_down, two_share_the_gpu,
          resume_continues, options_work, speed]
