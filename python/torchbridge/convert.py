"""Converts files of torch.save for the trainer, and the trainer's checkpoints for Python.

    python -m torchbridge.convert x.pt x.safetensors         the weights, for --init-from
    python -m torchbridge.convert x.pt runs/b                weights, optimizer and progress: a checkpoint in runs/b
    python -m torchbridge.convert runs/a/step-00000060 x.pt  the inverse; also of x.safetensors

It needs torch, safetensors and xxhash.
"""
import argparse
import itertools
import pathlib
import secrets
import sys
import zipfile

import torch

from . import torch_file
from .torch_file import ConversionError

try:
    from . import checkpoint_folder
except ImportError as missing:
    sys.exit(f"torchbridge.convert: {missing}: pip install safetensors xxhash")

WRAPPERS = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile
OUTER_NAMES = ("", "transformer.", "model.")  # of nanoGPT's and transformers' module
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
FLAGS = ("amsgrad", "maximize", "nesterov")
PROGRESS = ("step", "epoch", "epoch_samples_consumed", "samples_seen")
STEPS = ("global_step", "iteration", "iter_num")  # other programs' names of it, where no optimizer counts
SCHEDULES = ("scheduler", "lr_scheduler", "lr_schedulers", "schedulers")


def _unwrapped(name):
    while name.startswith(WRAPPERS):
        name = name.split(".", 1)[1]
    return name


def _without(outer, name):
    name = _unwrapped(name)
    return _unwrapped(name[len(outer):]) if name.startswith(outer) else name


def _fitted(names, known):
    """Without what other programs put before them, if more of them are known so: as fitted_names() does."""
    def count(variant):
        return len(known & set(variant)) if len(set(variant)) == len(variant) else 0
    return max([names, *([_without(outer, name) for name in names] for outer in OUTER_NAMES)], key=count)


def _without_common_wrappers(names):
    """Without the wrappers that all of them have: a submodule of the model may be called `module`."""
    wrapper = next((wrapper for wrapper in WRAPPERS if names and all(name.startswith(wrapper) for name in names)), None)
    return _without_common_wrappers([name[len(wrapper):] for name in names]) if wrapper else names


def _optimizer_files(folder, manifest):
    """The tensors of each one."""
    return [checkpoint_folder.load_listed(folder, manifest, file["name"])[0] for file in manifest["files"]
            if file["name"].startswith("optimizer-") and file["name"].endswith(".safetensors")]


class Like:
    """The names in a checkpoint of the trainer."""

    def __init__(self, folder):
        manifest = checkpoint_folder.read(folder)
        self.groups = [group["parameters"] for group in manifest["optimizer"]["groups"]]
        tensors, self.aliases = checkpoint_folder.load_listed(folder, manifest, checkpoint_folder.MODEL)
        self.names = {*tensors, *self.aliases}
        self.with_state = {name.rpartition(".")[0] for state in _optimizer_files(folder, manifest) for name in state}


class Weights:
    """A model's state_dict, without the prefixes of other programs."""

    def __init__(self, state_dict, like=None):
        written = list(state_dict)
        names = _fitted(written, like.names) if like else _without_common_wrappers(written)
        self.short = dict(zip(written, names))
        self.shapes, self.tensors, self.aliases, places = {}, {}, {}, {}
        for name, tensor in zip(names, state_dict.values()):
            self.shapes[name] = tensor.shape
            # The same elements of the same memory: weights with two names, which a safetensors file has once.
            place = (tensor.data_ptr() or name, tensor.dtype, tensor.shape, tensor.stride(), tensor.is_neg(),
                     tensor.is_conj())
            first = places.setdefault(place, name)
            if first == name:
                self.tensors[name] = tensor
            else:
                self.aliases[name] = first
        self.first_names = like.aliases if like else self.aliases

    def own_names(self, names):
        """Those of the optimizer's parameters in the trainer. The optimizer may have been made before its model got a
        wrapper, or behind one whose prefix the state_dict does not have."""
        is_written = set(names) <= set(self.short)
        names = [self.short[name] for name in names] if is_written else _fitted(names, set(self.shapes))
        return [self.first_names.get(name, name) for name in names]

    def save(self, path):
        checkpoint_folder.save(path, self.tensors, self.aliases)


def _in_order_of(path, parameters, weights):
    """The parameters in the order of the file's weights: that in which model.parameters() gave them to the script. The
    model behind --like may have its layers in another one."""
    place_of = {name: place for place, name in enumerate(weights.shapes)}
    places = {}  # of a parameter with several names, the first of them
    for name in weights.shapes:
        places.setdefault(weights.first_names.get(name, name), place_of[weights.aliases.get(name, name)])
    missing = [name for name in parameters if name not in places]
    if missing:
        raise ConversionError(f"{path} has no weights of '{missing[0]}', which the optimizer of --like has")
    return sorted(parameters, key=places.get)


def _names_of_groups(path, groups, weights, like):
    """The names of each group's parameters, which Python numbers."""
    sizes = [len(group["params"]) for group in groups]
    if all(len(group.get("param_names") or ()) == size for group, size in zip(groups, sizes)):
        names = iter(weights.own_names([name for group in groups for name in group["param_names"]]))
        return [list(itertools.islice(names, size)) for size in sizes]
    if like and sizes == [len(group) for group in like.groups]:
        return [_in_order_of(path, group, weights) for group in like.groups]
    trained = {name for group in like.groups for name in group} if like else weights.tensors
    parameters = [name for name in weights.tensors if name in trained and not name.endswith(BUFFERS)]
    if sizes == [len(parameters)]:
        return [parameters]
    raise ConversionError(
        f"{path}: its optimizer has groups of {', '.join(map(str, sizes))} parameters without names, which cannot be "
        f"matched to the {len(parameters)} parameters of this model: give --like CHECKPOINT, of a run with the same "
        "groups, or create it with model.named_parameters()")


def _optimizer_state(path, saved, groups, weights, required):
    """Python's optimizer state, by the names of the parameters: {"layers.0.weight.exp_avg": tensor}."""
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    names = dict(zip(numbers, [name for group in groups for name in group]))
    if not len(set(numbers)) == len(set(names.values())) == len(numbers):
        raise ConversionError(f"{path}: its optimizer has a parameter twice")
    state, there = {}, set()
    for parameter, kinds in saved["state"].items():
        name = names.get(parameter)
        if name not in weights.shapes:
            raise ConversionError(f"{path}: its optimizer has state of '{name or parameter}', which is not a parameter "
                                  "of this model")
        shape = weights.shapes[name]
        for kind, value in kinds.items():
            if value is None:  # a momentum_buffer before the first step
                continue
            if kind == "step":  # a number in old files, in others a tensor of some type and shape
                tensor = torch.tensor(float(torch_file.number(path, f"{name}.step", value)))
            elif isinstance(value, (int, float, torch.Tensor)):
                tensor = torch.as_tensor(value)
            else:
                raise ConversionError(f"{path}: its optimizer's '{name}.{kind}' is neither a tensor nor a number")
            if tensor.dim() and tensor.shape != shape:
                raise ConversionError(
                    f"{path}: its optimizer's '{name}.{kind}' has shape {list(tensor.shape)}, the parameter "
                    f"{list(shape)}: does its optimizer have the parameters in another order?")
            state[f"{name}.{kind}"] = tensor
            there.add(name)
    missing = [name for name in names.values() if name in required and name not in there]
    if missing:
        raise ConversionError(f"{path}: its optimizer has no state of '{missing[0]}': if it was frozen in Python, give "
                              "--like CHECKPOINT, of a run in which it is frozen too")
    return state


def _record(groups, names):
    """The optimizer as a manifest has it."""
    def options(group):
        betas = group.get("betas")
        pair = betas if isinstance(betas, (tuple, list, torch.Tensor)) else ()
        given = {**group, **dict(zip(("beta1", "beta2"), pair))}
        keys = ("lr", "momentum", "dampening", "weight_decay", "eps", *FLAGS, "beta1", "beta2")
        return {key: float(given[key]) for key in keys if isinstance(given.get(key), (int, float, torch.Tensor))}

    first = groups[0] if groups else {}
    kind = "sgd" if "dampening" in first else ""
    if {"amsgrad", "decoupled_weight_decay"} <= set(first):  # older releases do not tell Adam from AdamW
        kind = "adamw" if first["decoupled_weight_decay"] else "adam"
    return {"kind": kind, "groups": [{"name": "python", "options": options(group), "parameters": own}
                                     for group, own in zip(groups, names)]}


def _progress(path, content, given):
    """By the file's keys and what is `given`. The step is None where no key has it."""
    found = {key: torch_file.number(path, key, content.get(key)) for key in PROGRESS}
    if given.get("epoch") is not None:
        found["epoch_samples_consumed"] = 0
    return {**found, **{key: value for key, value in given.items() if value is not None}}


def _step_of(path, content, state):
    """That of Adam, else what other programs call it."""
    steps = [int(tensor) for name, tensor in state.items() if name.endswith(".step")]
    named = [torch_file.number(path, key, content[key]) for key in STEPS if key in content]
    return max(steps, default=0) or next(iter(named), None) or 0


def _check_position(path, content, progress):
    """Schedule and data go on at the step and at the position in the epochs: one without the other is no progress."""
    step, place = progress["step"], next((key for key in PROGRESS[1:3] if progress[key]), None)
    if place and not step:
        raise ConversionError(f"{path}: '{place}' is {progress[place]} and the step is not known: the schedule would "
                              "begin anew: give --step N, the steps of the optimizer so far")
    if step and not place:
        _note(f"{path} has no epoch: the data begin at epoch 0 after step {step}, unless --epoch N gives the next one")
    left_out = next((key for key in SCHEDULES if content.get(key)), None)
    if left_out:
        _note(f"{path}: '{left_out}' is left out: the run that resumes has its own schedule, at step {step}")


def to_checkpoint(path, root, like=None, given=()):
    """Writes weights, optimizer and progress as a checkpoint in the folder `root`, and returns its path. `given`: pairs
    of PROGRESS that count instead of the file's."""
    content = torch_file.load(path)
    state_dict, saved = torch_file.find_state_dict(path, content), torch_file.find_optimizer(path, content)
    like = like and Like(like)
    weights = Weights(state_dict, like)
    groups = saved["param_groups"]
    names = _names_of_groups(path, groups, weights, like)
    progress = _progress(path, content, dict(given))
    required = set()
    if progress["step"] or any(saved["state"].values()):  # SGD without momentum has none
        required = {name for group, own in zip(groups, names) if group.get("momentum") != 0 for name in own}
    state = _optimizer_state(path, saved, names, weights, required & like.with_state if like else required)
    if progress["step"] is None:
        progress["step"] = _step_of(path, content, state)
    _check_position(path, content, progress)
    files = {
        checkpoint_folder.MODEL: weights.save,
        "optimizer-00000-of-00001.safetensors": lambda file: checkpoint_folder.save(file, state),
        "rank-00000.safetensors": lambda file: checkpoint_folder.save(file, {}),  # generators begin as in a new run
    }
    return checkpoint_folder.write(root, files, {
        "format": "torchbridge-checkpoint", "version": checkpoint_folder.VERSION, "run": secrets.token_hex(4),
        **{key: value or 0 for key, value in progress.items()}, "world_size": 1, "options": {},
        "versions": {"torch": torch.__version__}, "ddp_buckets": [], "optimizer": _record(groups, names),
        # Of time and evaluations nothing is known.
        "state": {"run.seconds": 0, "best.without": 0, **torch_file.scaler_numbers(path, content)}})


def to_weights(path, target):
    """Writes the model's state_dict in a file of torch.save as a safetensors file."""
    weights = Weights(torch_file.find_state_dict(path, torch_file.load(path)))
    checkpoint_folder.write_file(target, weights.save)


def _python_optimizer(record, state):
    """The state_dict of an optimizer with fused=True: every key that the class reads, because load_state_dict()
    replaces whole groups."""
    kinds, groups, by_number = {}, [], {}
    for key, tensor in state.items():
        name, _, kind = key.rpartition(".")
        kinds.setdefault(name, {})[kind] = tensor
    for group in record["groups"]:
        options = {key: bool(value) if key in FLAGS else value for key, value in group["options"].items()}
        if "beta1" in options:
            options.update(betas=(options.pop("beta1"), options.pop("beta2")), capturable=False,
                           decoupled_weight_decay=record["kind"] == "adamw")
        names, count = group["parameters"], sum(len(each["params"]) for each in groups)
        numbers = range(count, count + len(names))
        by_number.update({number: kinds[name] for number, name in zip(numbers, names) if name in kinds})
        groups.append({**options, "foreach": None, "differentiable": False, "fused": True, "params": list(numbers),
                       "param_names": names})
    return {"state": by_number, "param_groups": groups}


def _python_scaler(numbers):
    """The state_dict of a GradScaler; empty without a loss scale. The trainer saves none of its options."""
    if "grad_scaler.scale" not in numbers:
        return {}
    return {"scaler": {**torch.amp.GradScaler("cpu").state_dict(), "scale": numbers["grad_scaler.scale"],
                       "_growth_tracker": int(numbers["grad_scaler.growth_tracker"])}}


def content_of(folder):
    """A checkpoint as Python scripts save one, with the optimizer's state of all ranks joined."""
    manifest = checkpoint_folder.read(folder)
    if any(file["name"] == checkpoint_folder.KEPT for file in manifest["files"]):
        _note(f"{folder}: the tensors in {checkpoint_folder.KEPT}, which the program keeps, are left out")
    model, pieces = _with_all_names(*checkpoint_folder.load_listed(folder, manifest, checkpoint_folder.MODEL)), {}
    for tensors in _optimizer_files(folder, manifest):
        for name, tensor in tensors.items():
            pieces.setdefault(name, []).append(tensor)
    state = {name: torch.cat([piece.flatten() for piece in parts]).view(model[name.rpartition(".")[0]].shape)
             if parts[0].dim() else parts[0] for name, parts in pieces.items()}
    return {"model": model, "optimizer": _python_optimizer(manifest["optimizer"], state),
            **{key: manifest[key] for key in PROGRESS}, **_python_scaler(manifest.get("state", {}))}


def to_torch_file(source, target):
    """Writes a checkpoint, or the weights of a safetensors file, as a file of torch.save."""
    content = content_of(source) if source.is_dir() else _with_all_names(*checkpoint_folder.load(source))

    def save(path):
        with open(path, "xb") as file:  # torch.save would write the temporary name into the archive
            torch.save(content, file)
    checkpoint_folder.write_file(target, save)


def _with_all_names(tensors, aliases):
    return {**tensors, **{name: tensors[first] for name, first in aliases.items()}}


def convert(source, target, like=None, given=()):
    """Returns the path of what was written."""
    if not source.is_dir() and not source.is_file():
        raise ConversionError(f"{source} is not a regular file" if source.exists() else f"{source} does not exist")
    is_to_torch = target.suffix in (".pt", ".pth")
    if is_to_torch == (source.is_file() and (source.suffix in (".pt", ".pth") or zipfile.is_zipfile(source))):
        raise ConversionError("expected a .pt file and a new .safetensors file or a folder of checkpoints, or a "
                              "checkpoint or .safetensors file and a new .pt file")
    if not is_to_torch and target.suffix != ".safetensors":
        return to_checkpoint(source, target, like, given)
    if like or any(value is not None for _, value in given):
        raise ConversionError("--like, --step and --epoch are for a .pt file that becomes a checkpoint")
    if target.exists():
        raise ConversionError(f"{target} exists: give another name, or remove it")
    if is_to_torch:
        to_torch_file(source, target)
    else:
        to_weights(source, target)
    return target


def _printable(text):
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _note(text):
    print(_printable(f"torchbridge.convert: {text}"), file=sys.stderr)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m torchbridge.convert", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="a file of torch.save, a checkpoint, or a .safetensors file")
    parser.add_argument("target", type=pathlib.Path, help="a new .safetensors or .pt file, or a folder of checkpoints")
    parser.add_argument("--like", type=pathlib.Path, metavar="CHECKPOINT",
                        help="a checkpoint of the same model and parameter groups, whose names are taken")
    parser.add_argument("--step", type=int, metavar="N", help="the steps of the optimizer so far, for the file's")
    parser.add_argument("--epoch", type=int, metavar="N", help="the epoch that comes next, from 0, for the file's")
    options = parser.parse_args(arguments)
    given = [("step", options.step), ("epoch", options.epoch)]
    try:
        for key, value in given:
            torch_file.number("the command line", key, value)
        print(convert(options.source, options.target, options.like, given))
    except ConversionError as error:
        sys.exit(_printable(f"torchbridge.convert: {error}"))
    except Exception as error:  # of a file whose content is unusual
        sys.exit(_printable(f"torchbridge.convert: {options.source} is not converted: {type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
