"""Trains a model of digits, or a GPT on a text, with Python's DistributedDataParallel: what the C++ trainer is compared
with.

    torchrun --nproc-per-node 2 tests/reference/train_reference.py --data data/digits --metrics metrics.jsonl

or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand; with --no-ddp as one process without a group.
Needs torch; numpy for images, and safetensors for files of weights.
"""

import argparse
import contextlib
import gc
import itertools
import json
import math
import os
import resource
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import gpt_model
import idx
import lr_schedule_reference


class Mlp(nn.Module):
    """Linear and ReLU in turn; the parameters are called layers.0.weight, layers.0.bias, layers.2.weight ..."""

    def __init__(self, inputs, hidden, classes):
        super().__init__()
        sizes = [inputs, *hidden]
        layers = []
        for size, next_size in zip(sizes, sizes[1:]):
            layers += [nn.Linear(size, next_size), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], classes))

    def forward(self, x):
        return self.layers(x)


class Cnn(nn.Module):
    """Stages of convolution, batch normalisation and ReLU, with pooling between them."""

    def __init__(self, shape, channels, classes):
        super().__init__()
        self.shape = shape
        layers, inputs = [], 1
        for width in channels:
            if inputs > 1:
                layers.append(nn.MaxPool2d(2))
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.classifier(self.features(x.view(-1, 1, *self.shape)).flatten(1))


def model_sizes(text):
    """mlp:128,64 -> ("mlp", [128, 64]); gpt:tiny -> ("gpt", {"layers": 4 ...})"""
    kind, _, sizes = text.partition(":")
    if kind == "gpt":
        return kind, gpt_model.parse_shape(sizes)
    if kind not in ("mlp", "cnn"):
        raise argparse.ArgumentTypeError(f"'{text}': expected mlp:SIZE,SIZE..., cnn:SIZE,SIZE... or gpt:PRESET")
    return kind, [int(size) for size in sizes.split(",") if size]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data/digits", metavar="PATH",
                        help="folder of IDX files, a text, or a folder with train.bin and val.bin")
    parser.add_argument("--model", type=model_sizes, default=("mlp", [128, 64]), metavar="KIND:SIZE,...",
                        help="mlp: hidden layers; cnn: channels of the convolutions; gpt: as the trainer's")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cpu: over gloo; cuda: over NCCL")
    parser.add_argument("--backend", choices=["gloo", "mpi"], default="gloo",
                        help="on the CPU; mpi: torchbridge's, under mpirun")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--max-steps", type=int, default=0, help="stop after so many steps; 0: no limit")
    parser.add_argument("--batch-size", type=int, default=32, help="samples a rank and step")
    parser.add_argument("--loader", choices=["items", "batches"], default="items",
                        help="items: DataLoader collates single samples, its usual way; "
                             "batches: one indexing operation a batch, which is faster (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes that make batches; 0: none")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--no-ddp", action="store_true", help="the model alone, without a process group")
    parser.add_argument("--compile", metavar="BACKEND",
                        help="of torch.compile: inductor, or eager, which compiles nothing")
    parser.add_argument("--optimizer", choices=["sgd", "adam", "adamw"], default="sgd")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.0, help="of sgd")
    parser.add_argument("--weight-decay", type=float, help="without it, the optimizer's default")
    parser.add_argument("--no-decay-1d", action="store_true",
                        help="no weight decay for parameters of at most one dimension")
    parser.add_argument("--lr-schedule", default="constant", help="as the trainer's, in closed form")
    parser.add_argument("--warmup-steps", type=int, default=0)
    parser.add_argument("--clip-norm", type=float, default=0.0, help="largest norm of the gradients; 0: no limit")
    parser.add_argument("--grad-accumulation", type=int, default=1, metavar="N",
                        help="batches a step; fewer where an epoch ends")
    parser.add_argument("--accumulation-mean", choices=["samples", "batches"], default="samples",
                        help="batches: each weighs the same, as usual (default: %(default)s)")
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--fp32-precision", choices=["auto", "ieee", "tf32"], default="auto", help="as the trainer's")
    parser.add_argument("--grad-comm", choices=["fp32", "bf16", "fp16"], default="fp32",
                        help="type in which gradients are summed")
    parser.add_argument("--loss-scale", type=float, default=65536.0, help="at the start, with fp16")
    parser.add_argument("--zero", action="store_true", help="ZeroRedundancyOptimizer")
    parser.add_argument("--bucket-cap-mb", type=float,
                        help="of DistributedDataParallel; its own default also makes the first bucket smaller")
    parser.add_argument("--gradient-as-bucket-view", action="store_true", help="of the same: saves a copy")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights and of the sampler")
    parser.add_argument("--seed-per-rank", action="store_true", help="the seed plus the rank, once the model is made")
    parser.add_argument("--init-from", metavar="FILE", help="safetensors file with the initial weights")
    parser.add_argument("--save-init", metavar="FILE", help="write the initial weights, as safetensors")
    parser.add_argument("--save-final", metavar="FILE", help="write the trained weights, as safetensors")
    parser.add_argument("--metrics", metavar="FILE", help="write one JSON object a step")
    parser.add_argument("--log-every", type=int, default=1, metavar="N",
                        help="steps: the loss is asked for, and written, in these only (default: %(default)s)")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="trace so many steps after the first ten")
    parser.add_argument("--profile-file", default="trace.json", metavar="FILE")
    parser.add_argument("--eval", action="store_true", help="print the loss on what is held out, at the end")
    return parser.parse_args()


def load_data(options, split="train"):
    """What is trained on; with split="t10k" what is evaluated."""
    kind, sizes = options.model
    if kind == "gpt" and os.path.isdir(options.data):
        file = os.path.join(options.data, "train.bin" if split == "train" else "val.bin")
        return TensorDataset(*gpt_model.token_windows(file, sizes["context"]))
    if kind == "gpt":
        part = (0.0, 0.9) if split == "train" else (0.9, 1.0)
        return TensorDataset(*gpt_model.text_windows(options.data, sizes["context"], *part))
    images, labels = idx.read_split(options.data, split)
    pixels = images.reshape(len(images), -1).to(torch.float32) / 255
    dataset = TensorDataset(pixels, labels.long())
    dataset.shape = images.shape[1:]
    return dataset


def make_loader(dataset, sampler, options):
    """Both ways give the same batches; the last one of an epoch may be smaller.

    A DataLoader draws a seed for its workers at the start of each epoch: here not from the generator that dropout uses.
    """
    shared = dict(generator=torch.Generator(), pin_memory=options.device == "cuda",
                  num_workers=options.workers, persistent_workers=options.workers > 0)
    if options.loader == "items":
        return DataLoader(dataset, batch_size=options.batch_size, sampler=sampler, **shared)
    return DataLoader(dataset, batch_size=None, sampler=BatchSampler(sampler, options.batch_size, drop_last=False),
                      **shared)


def make_model(dataset, options):
    torch.manual_seed(options.seed)
    pixels, labels = dataset.tensors
    kind, sizes = options.model
    if kind == "gpt":
        model = gpt_model.Gpt(gpt_model.GPT2_VOCABULARY if os.path.isdir(options.data) else 256, **sizes)
    else:
        classes = int(labels.max()) + 1
        model = Mlp(pixels.shape[1], sizes, classes) if kind == "mlp" else Cnn(dataset.shape, sizes, classes)
    if options.init_from:
        from safetensors.torch import load_file  # here, for not every machine has it
        model.load_state_dict(load_file(options.init_from))
    if options.save_init and rank() == 0:
        save_weights(model, options.save_init)
    return model.to(options.device)


def save_weights(model, file):
    from safetensors.torch import save_file  # here, for not every machine has it
    save_file(model.state_dict(), file)


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


def make_optimizer(parameters, options):
    shared = dict(lr=options.lr, fused=True)
    if options.weight_decay is not None:
        shared["weight_decay"] = options.weight_decay
    if options.zero:
        from torch.distributed.optim import ZeroRedundancyOptimizer  # here, for it makes a process larger
        return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, **shared)
    if options.no_decay_1d:
        parameters = list(parameters)
        parameters = [dict(params=[p for p in parameters if p.dim() > 1]),
                      dict(params=[p for p in parameters if p.dim() <= 1], weight_decay=0.0)]
    if options.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=options.momentum, **shared)
    return (torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.Adam)(parameters, **shared)


def set_learning_rates(optimizer, lr, momentum):
    for group in optimizer.param_groups:
        group["lr"] = lr
        if momentum is not None and "betas" in group:
            group["betas"] = (momentum, group["betas"][1])
        elif momentum is not None:
            group["momentum"] = momentum


def mean_over_ranks(value):
    if not dist.is_initialized():
        return value.item()
    total = value.detach().clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return (total / dist.get_world_size()).item()


def forward_backward(ddp, parts, scaler, options):
    """Learns from the mean loss of the parts, and returns it."""
    types = dict(bf16=torch.bfloat16, fp16=torch.float16)
    loss = 0
    samples = sum(len(labels) for _, labels in parts)
    for i, batch in enumerate(parts):
        pixels, labels = (tensor.to(options.device, non_blocking=True) for tensor in batch)
        autocast = (torch.autocast(options.device, types[options.precision]) if options.precision in types else
                    contextlib.nullcontext())
        is_last = i == len(parts) - 1 or options.no_ddp
        with contextlib.nullcontext() if is_last else ddp.no_sync():
            with autocast:
                outputs = ddp(pixels)
                part_loss = F.cross_entropy(outputs.flatten(0, -2), labels.flatten())
                by_batches = options.accumulation_mean == "batches"
                part_loss = part_loss / (len(parts) if by_batches else samples / len(labels))
            scaler.scale(part_loss).backward()
        loss = part_loss.detach() if i == 0 else loss + part_loss.detach()
    return loss


@torch.no_grad()
def evaluate(model, options):
    """Mean loss over what is evaluated; by one rank."""
    model.eval()
    dataset = load_data(options, "t10k")
    total = 0.0
    for inputs, targets in DataLoader(dataset, batch_size=options.batch_size):
        total += F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten()).item() * len(targets)
    return total / len(dataset)


def steps_of(loader, parts):
    """Lists of so many batches; the last of an epoch may be shorter."""
    batches = iter(loader)
    return iter(lambda: list(itertools.islice(batches, parts)), [])


class Trace:
    """Traces the steps of --profile, as the trainer does; nothing where none are to be traced."""

    def __init__(self, options):
        self.first, self.last, self.file = 11, 10 + options.profile, options.profile_file
        self.profiler = None

    def before(self, step):
        if step == self.first <= self.last:
            self.profiler = torch.profiler.profile()
            self.profiler.start()

    def after(self, step):
        if self.profiler and step == self.last:
            self.profiler.stop()
            self.profiler.export_chrome_trace(self.file)


def train(ddp, optimizer, loader, sampler, options, metrics):
    total = options.epochs * math.ceil(len(loader) / options.grad_accumulation)
    total = min(total, options.max_steps or total)
    scaler = torch.amp.GradScaler(options.device, init_scale=options.loss_scale, enabled=options.precision == "fp16")
    schedule = lr_schedule_reference.values_of(options.lr_schedule, options.lr, total, options.warmup_steps)
    step = samples = 0
    trace = Trace(options)
    before = time.perf_counter()
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for parts in steps_of(loader, options.grad_accumulation):
            trace.before(step + 1)
            set_learning_rates(optimizer, *schedule[step])
            optimizer.zero_grad()
            loss = forward_backward(ddp, parts, scaler, options)
            if options.clip_norm:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(ddp.parameters(), options.clip_norm)
            scaler.step(optimizer)
            scaler.update()
            step += 1
            trace.after(step)
            samples += sum(len(labels) for _, labels in parts) * world_size()
            if step % options.log_every != 0 and step != total:
                continue
            mean_loss = mean_over_ranks(loss)  # waits for the device
            now = time.perf_counter()
            if metrics:
                # Every float32 is a double, and JSON holds the digits that give the same double again.
                record = dict(step=step, epoch=epoch, loss=mean_loss, lr=optimizer.param_groups[0]["lr"],
                              samples_per_s=samples / (now - before))
                print(json.dumps(record), file=metrics)
            before, samples = now, 0
            if step == total:
                return


def set_fp32_precision(options):
    if options.fp32_precision != "auto":
        torch.set_float32_matmul_precision("high" if options.fp32_precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = options.fp32_precision == "tf32"


def peak_bytes(options):
    """The most bytes of the GPU that were in use at once; on the CPU those of the process."""
    if options.device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(options):
    set_fp32_precision(options)
    if options.deterministic:  # the call imports torch._inductor, which takes seconds
        torch.use_deterministic_algorithms(True)
    dataset = load_data(options)
    sampler = DistributedSampler(dataset, world_size(), rank(), shuffle=True, seed=options.seed)
    model = make_model(dataset, options)
    if options.seed_per_rank:
        torch.manual_seed(options.seed + rank())
    if options.compile:
        model.compile(backend=options.compile)
    ddp = model if options.no_ddp else DistributedDataParallel(
        model, bucket_cap_mb=options.bucket_cap_mb, gradient_as_bucket_view=options.gradient_as_bucket_view)
    if options.grad_comm != "fp32":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # here, for it makes a process larger
        ddp.register_comm_hook(None, getattr(default_hooks, f"{options.grad_comm}_compress_hook"))
    optimizer = make_optimizer(ddp.parameters(), options)
    is_first = rank() == 0
    metrics = open(options.metrics, "w", buffering=1, encoding="utf-8") if options.metrics and is_first else None
    train(ddp, optimizer, make_loader(dataset, sampler, options), sampler, options, metrics)
    if metrics:
        metrics.close()
    if is_first:
        print("peak_bytes", peak_bytes(options))
    if options.eval and is_first:
        print("eval_loss", repr(evaluate(model, options)))
    if options.save_final and is_first:
        save_weights(model, options.save_final)


def shut_down():
    """Ends gloo's threads while the interpreter still runs.

    They end with the last reference to the group. The DDP module holds one, in a cycle; left to the interpreter's end,
    a thread may drop a tensor then, ask for the GIL and abort the process (torch 2.11: 1 run in 10).
    """
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


def main():
    options = parse_options()
    if options.no_ddp:
        run(options)
        return
    if options.device == "cuda":
        # Where all ranks share one GPU, each sees that one alone.
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    else:
        if options.backend == "mpi":
            import torchbridge  # noqa: F401 brings it
        dist.init_process_group(options.backend)
    run(options)
    shut_down()


if __name__ == "__main__":
    main()
