"""Prints the learning rates of torch.optim.lr_scheduler for each case of a file: what the C++ ones are compared with.

    tests/reference/lr_schedule_reference.py tests/reference/lr_schedule_cases.txt
    tests/reference/lr_schedule_reference.py --rounding

The values are those of the closed forms where Python has one. --rounding prints, kind by kind, how far the values that
step() reaches by repeated multiplication are from them.
"""

import argparse
import warnings

import torch
from torch.optim import lr_scheduler

warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")


def optimizer_with(base):
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base, momentum=0.9)


def parse(schedule):
    """step:step_size=3,gamma=0.7 -> "step", {"step_size": 3, "gamma": 0.7}"""
    kind, _, items = schedule.partition(":")
    options = {}
    for item in filter(None, items.split(",")):
        key, value = item.split("=")
        if value in ("true", "false"):
            options[key] = value == "true"
        elif key == "milestones":
            options[key] = [int(step) for step in value.split("+")]
        else:
            options[key] = int(value) if key in ("step_size", "patience", "cooldown") else float(value)
    return kind, options


def scheduler_of(kind, options, optimizer, total):
    if kind == "constant":
        return lr_scheduler.ConstantLR(optimizer, factor=1.0)
    if kind == "step":
        return lr_scheduler.StepLR(optimizer, **{"step_size": 30, **options})
    if kind == "multi-step":
        return lr_scheduler.MultiStepLR(optimizer, **options)
    if kind == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, total, **options)
    if kind == "polynomial":
        return lr_scheduler.PolynomialLR(optimizer, total, **{"power": 1.0, **options})
    anneal = "linear" if options.pop("linear", False) else "cos"
    return lr_scheduler.OneCycleLR(optimizer, optimizer.param_groups[0]["lr"], total, anneal_strategy=anneal, **options)


def warm_up(base, steps):
    if steps == 1:
        return [base]
    scheduler = lr_scheduler.LinearLR(optimizer_with(base), start_factor=1 / steps, total_iters=steps - 1)
    values = []
    for step in range(steps):
        scheduler.last_epoch = step
        values += scheduler._get_closed_form_lr()
    return values


def values_of(schedule, base, total, warmup):
    """The learning rate of each step, and the momentum, or None where the schedule does not change it."""
    kind, options = parse(schedule)
    optimizer = optimizer_with(base)
    scheduler = scheduler_of(kind, dict(options), optimizer, total - warmup)
    cycles = kind == "one-cycle" and options.get("cycle_momentum", True)
    momentum = lambda: optimizer.param_groups[0]["momentum"] if cycles else None
    values = [(lr, momentum()) for lr in warm_up(base, warmup)] if warmup else []
    for step in range(total - warmup):
        if kind == "one-cycle":  # has no other form than this, and it is closed
            lr = optimizer.param_groups[0]["lr"]
        else:
            scheduler.last_epoch = step
            lr = scheduler._get_closed_form_lr()[0]
        values.append((lr, momentum()))
        if kind == "one-cycle":
            scheduler.step()
    return values


def shown(lr, momentum):
    return f"{lr:.17g}" if momentum is None else f"{lr:.17g}/{momentum:.17g}"


def plateau_values(schedule, base, measured):
    _, options = parse(schedule)
    if options.pop("absolute", False):
        options["threshold_mode"] = "abs"
    optimizer = optimizer_with(base)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **options)
    values = []
    for value in measured:
        scheduler.step(value)
        values.append(f"{optimizer.param_groups[0]['lr']:.17g}")
    return values


def print_cases(path):
    for line in open(path, encoding="utf-8"):
        line = line.rstrip("\n")
        if not line or line.startswith("#"):
            continue
        schedule, base, *numbers = line.split()
        if schedule.startswith("plateau"):
            values = plateau_values(schedule, float(base), [float(number) for number in numbers])
        else:
            values = [shown(*value) for value in values_of(schedule, float(base), *map(int, numbers))]
        print(line, *values)


def print_rounding(steps=10_000):
    for schedule in ("step:step_size=100,gamma=0.9", "multi-step:milestones=100+200+4000,gamma=0.3", "cosine",
                     "polynomial", "polynomial:power=2"):
        kind, options = parse(schedule)
        optimizer = optimizer_with(0.1)
        scheduler = scheduler_of(kind, options, optimizer, steps)
        worst = 0.0
        for _ in range(steps - 1):
            optimizer.step()
            scheduler.step()
            closed = scheduler._get_closed_form_lr()[0]
            worst = max(worst, abs(scheduler.get_last_lr()[0] - closed) / closed)
        print(f"{schedule}: {worst:.1e} of the value, in {steps} steps")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", help="file of cases")
    parser.add_argument("--rounding", action="store_true")
    options = parser.parse_args()
    if options.cases:
        print_cases(options.cases)
    if options.rounding:
        print_rounding()


if __name__ == "__main__":
    main()
