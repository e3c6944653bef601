"""Trains the cases of a table with Python's DistributedDataParallel; tests/programs/ddp_cases.cpp does the same in
C++.

    tests/reference/ddp_cases.py TABLE.json FOLDER

Writes to FOLDER the initial weights, for both sides, and a file WORLD.RANK a rank: the case's name, the loss of each
forward pass (bits and value), checksums of the last gradients and of the trained values. Keys of a case:

    name worlds model     worlds: the world sizes; model: MODELS below
    since                 the first libtorch 2.x of whose options the case has one
    complete              more world sizes, for tests with TORCHBRIDGE_COMPLETE=1
    epochs steps batch    steps 0: all of the epochs; batch: samples a rank and backward,
                          28 / (world size * accumulation) unless given
    optimizer lr          sgd, adamw (both fused) or plain
    accumulation autocast clip
    ddp hook delay        arguments of DDP; a name in HOOKS; {names, until} of delay_all_reduce
    join uneven           arguments of join(); steps of each rank
    with_branch           the model "branches" has its third output now and then
    all_outputs           and all of its outputs are in the loss
    logging_data          print some of it
    restart_at            C++ only: makes DDP anew after that step, with the saved layout of the buckets
"""

import contextlib
import gc
import json
import os
import pathlib
import struct
import sys
import zlib

from forked_ranks import run_ranks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

import idx

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PIXELS, CLASSES = 64, 10


def flat_floats(pixels):
    return pixels.view(-1, 64).to(torch.float32).div(255)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, 96), nn.ReLU(),
                                    nn.Linear(96, CLASSES))

    def forward(self, pixels):
        return self.layers(flat_floats(pixels))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.classifier = nn.Linear(64, CLASSES)

    def forward(self, pixels):
        images = pixels.unsqueeze(1).to(torch.float32).div(255)
        return self.classifier(self.features(images).flatten(1))


class Embedding(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.tokens = nn.Embedding(256, 12, sparse=sparse)
        self.places = nn.Embedding(PIXELS, 12)
        self.hidden = nn.Linear(12, 32)
        self.classifier = nn.Linear(32, CLASSES)

    def forward(self, pixels):
        embedded = self.tokens(pixels.view(-1, 64).to(torch.int64)) + self.places.weight
        return self.classifier(F.relu(self.hidden(embedded)).mean(1))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(PIXELS, 32)
        self.first, self.second, self.third, self.unused = (nn.Linear(32, CLASSES) for _ in range(4))

    def forward(self, pixels, with_branch):
        common = F.relu(self.trunk(flat_floats(pixels)))
        more = [self.third(common)] if with_branch else []
        return self.first(common), {"second": self.second(common)}, more


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(PIXELS, 32)
        self.middle = nn.Linear(32, 32)
        self.again = self.middle
        self.classifier = nn.Linear(32, CLASSES)
        self.tied = self.middle.weight

    def forward(self, pixels):
        hidden = F.relu(self.input(flat_floats(pixels)))
        hidden = F.relu(self.middle(F.relu(self.middle(hidden))))
        return self.classifier(F.linear(hidden, self.tied))


def frozen():
    model = Mlp()
    model.layers[0].weight.requires_grad_(False)
    return model


MODELS = {
    "mlp": Mlp, "cnn": Cnn, "embedding": Embedding, "sparse_embedding": lambda: Embedding(sparse=True),
    "branches": Branches, "shared": Shared, "frozen": frozen, "jit_mlp": lambda: torch.jit.script(Mlp()),
    "jit_cnn": lambda: torch.jit.script(Cnn()),
}


def own_hook(state, bucket):
    return default_hooks.allreduce_hook(None, bucket).then(lambda future: future.value() * 0.5)


HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "fp16_wrapper": default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
    "bf16_wrapper": default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook),
    "own": own_hook,
}


def values(model):
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def save_initial(folder, cases):
    torch.manual_seed(1)
    for kind in sorted({case["model"] for case in cases}):
        model = MODELS[kind]()
        if kind.startswith("jit_"):
            model.save(folder / f"{kind}.pt")
        else:
            save_file({name: value.detach() for name, value in values(model).items()}, folder / f"{kind}.safetensors")


def load_initial(folder, kind):
    if kind.startswith("jit_"):
        return torch.jit.load(folder / f"{kind}.pt").train()
    model = MODELS[kind]()
    saved = load_file(folder / f"{kind}.safetensors")
    with torch.no_grad():
        for name, value in values(model).items():
            value.copy_(saved[name])
    return model


def checksum(tensor):
    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    return zlib.crc32(dense.contiguous().numpy().tobytes())


class PlainSgd:
    """Takes sparse gradients as well."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-self.lr)


class CaseRun:
    def __init__(self, case, folder, data, out):
        self.case, self.data, self.out = case, data, out
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.model = load_initial(folder, case["model"])
        self.ddp = self.make_ddp()
        self.optimizer = self.make_optimizer()
        self.gradients = {}

    def print(self, *words):
        print(*words, file=self.out)

    def make_ddp(self):
        arguments = dict(self.case.get("ddp", {}))
        ignored = arguments.pop("ignore", None)
        if ignored:
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.model, ignored)
        if "delay" in self.case:
            named = dict(self.model.named_parameters())
            arguments["delay_all_reduce_named_params"] = [(name, named[name]) for name in self.case["delay"]["names"]]
            arguments["param_to_hook_all_reduce"] = named[self.case["delay"]["until"]]
        ddp = DistributedDataParallel(self.model, **arguments)
        if "hook" in self.case:
            ddp.register_comm_hook(None, HOOKS[self.case["hook"]])
        return ddp

    def make_optimizer(self):
        lr, kind = self.case.get("lr", 0.05), self.case.get("optimizer", "sgd")
        if kind == "adamw":
            return torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.01, fused=True)
        if kind == "sgd":
            return torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9, weight_decay=0.001, fused=True)
        return PlainSgd(self.model.parameters(), lr)

    def train(self):
        steps = self.case["uneven"][self.rank] if "uneven" in self.case else self.case.get("steps", 0)
        scope = self.ddp.join(**self.case["join"]) if "join" in self.case else contextlib.nullcontext()
        try:
            with scope:
                self.loop(steps)
        except RuntimeError as error:
            if "exhausted" not in str(error):
                raise
            self.print("inputs exhausted")
        self.print_end()

    def batches(self):
        pixels, labels = self.data
        size = self.case.get("batch", max(1, 28 // (self.world_size * self.case.get("accumulation", 1))))
        sampler = DistributedSampler(labels, seed=3)
        for epoch in range(self.case.get("epochs", 1)):
            sampler.set_epoch(epoch)
            indices = torch.tensor(list(sampler))
            for chosen in indices.split(size):
                yield pixels[chosen], labels[chosen]

    def loop(self, max_steps):
        accumulation = self.case.get("accumulation", 1)
        for number, (pixels, labels) in enumerate(self.batches(), 1):
            if max_steps and number > max_steps * accumulation:
                return
            is_last = number % accumulation == 0
            with contextlib.nullcontext() if is_last else self.ddp.no_sync():
                self.part_of_step(pixels, labels, number, accumulation)
            if is_last:
                if "delay" in self.case:
                    dist.barrier()  # Python waits for no delayed all-reduce.
                if "clip" in self.case:
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.case["clip"])
                self.optimizer.step()
                self.gradients = {name: 0 if p.grad is None else checksum(p.grad)
                                  for name, p in self.model.named_parameters()}
                for parameter in self.model.parameters():
                    parameter.grad = None

    def part_of_step(self, pixels, labels, number, accumulation):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.case.get("autocast", False)):
            if isinstance(self.model, Branches):
                with_branch = self.case.get("with_branch", False) and number % 3 == self.rank % 3
                first, named, more = self.ddp(pixels, with_branch)
                loss = F.cross_entropy(first, labels)
                for output in [*more, *(named.values() if self.case.get("all_outputs") else [])]:
                    loss = loss + F.cross_entropy(output, labels)
            else:
                loss = F.cross_entropy(self.ddp(pixels), labels)
        value = loss.item()
        self.print(struct.pack(">f", value).hex(), f"{value:.9g}")
        (loss / accumulation if accumulation > 1 else loss).backward()

    def print_end(self):
        for name, total in sorted(self.gradients.items()):
            self.print("gradient", name, f"{total:08x}")
        for name, value in values(self.model).items():
            self.print("value", name, f"{checksum(value):08x}")
        if self.case.get("logging_data"):
            data = self.ddp._get_ddp_logging_data()
            for key in ("bucket_sizes", "rebuilt_bucket_sizes", "dtypes", "backend_name"):
                self.print(key, data.get(key, "none"))
            for key in ("world_size", "rank", "iteration", "bucket_cap_bytes", "first_bucket_bytes",
                        "find_unused_parameters",
                        "gradient_as_bucket_view", "broadcast_buffers", "has_rebuilt_buckets", "num_parameter_tensors",
                        "total_parameter_size_bytes", "static_graph", "has_error"):
                self.print(key, data.get(key, -1))


def run_cases(cases, folder, world_size):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{world_size}", rank=int(os.environ["RANK"]),
                            world_size=world_size)
    images, labels = idx.read_split(ROOT / "data/digits", "train")
    data = images, labels.long()
    with open(folder / f"{world_size}.{dist.get_rank()}", "w", encoding="utf-8") as out:
        for case in cases:
            if world_size in case["worlds"]:
                print("case", case["name"], file=out)
                CaseRun(case, folder, data, out).train()
                gc.collect()
    dist.barrier()
    dist.destroy_process_group()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    cases = json.loads(pathlib.Path(sys.argv[1]).read_text())["cases"]
    folder = pathlib.Path(sys.argv[2])
    save_initial(folder, cases)
    for world_size in sorted({size for case in cases for size in case["worlds"]}):
        codes = run_ranks(world_size, run_cases, cases, folder, world_size)
        if codes:
            sys.exit(f"{world_size} ranks: exit codes {codes}")


if __name__ == "__main__":
    main()
