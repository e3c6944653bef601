"""Prints the parameters after some steps of torch.optim's optimizers (fused=True) for each case of a file, and the
norms and scales on the way: what the C++ ones are compared with.

    tests/reference/optimizer_reference.py tests/reference/optimizer_cases.txt
"""

import sys

import torch

STEPS, WITHOUT_GRADIENT, OVERFLOW = 6, 2, 3


def make(name, groups, values):
    values = dict(values)
    if name != "sgd":
        values["betas"] = (values.pop("beta1", 0.9), values.pop("beta2", 0.999))
    for flag in ("nesterov", "amsgrad", "maximize"):
        if flag in values:
            values[flag] = values[flag] != 0
    return dict(sgd=torch.optim.SGD, adam=torch.optim.Adam, adamw=torch.optim.AdamW)[name](groups, fused=True, **values)


def text(tensor):
    return "".join(f" {value:.9g}" for value in tensor.detach().flatten().tolist())


def run(name, values):
    torch.manual_seed(5)
    values = dict(lr=0.01) | values
    clip, norm_type, scales = values.pop("clip", None), values.pop("norm_type", 2.0), values.pop("scaler", 0) != 0
    matrix, vector = torch.randn(9, 7, requires_grad=True), torch.randn(5, requires_grad=True)
    groups = [dict(params=[matrix]), dict(params=[vector], lr=values["lr"] * 3, weight_decay=0.0)]
    optimizer = make(name, groups, values)
    scaler = torch.amp.GradScaler("cpu", growth_interval=2, enabled=scales)
    out = ""
    for step in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(torch.zeros(1))
        matrix.grad = torch.randn(9, 7) * scaler.get_scale()
        gradient = torch.randn(5) * scaler.get_scale()
        if step != WITHOUT_GRADIENT:
            vector.grad = gradient
        if scales and step == OVERFLOW:
            vector.grad[1] = float("inf")
        if clip is not None:
            scaler.unscale_(optimizer)
            out += text(torch.nn.utils.clip_grad_norm_([matrix, vector], clip, norm_type))
        before = matrix.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        if scales:
            out += f" {'skipped' if torch.equal(before, matrix) else 'stepped'} {scaler.get_scale():.17g}"
    return out + text(matrix) + text(vector)


def main():
    for line in open(sys.argv[1], encoding="utf-8"):
        line = line.rstrip("\n")
        if not line or line.startswith("#"):
            continue
        name, *items = line.split()
        print(f"{line}:{run(name, {key: float(value) for key, value in (item.split('=') for item in items)})}")


if __name__ == "__main__":
    main()
