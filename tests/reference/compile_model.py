"""Compiles the trainer's digits model with AOTInductor for its --compiled-eval: compile_model.py HIDDEN,... FILE.pt2

The weights in the package do not matter: the trainer puts its own in their place.
"""

import sys

import torch

import train_reference

PIXELS, CLASSES = 64, 10


def main():
    hidden, file = sys.argv[1:]
    model = train_reference.Mlp(PIXELS, [int(width) for width in hidden.split(",")], CLASSES).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    exported = torch.export.export(model, (torch.zeros(4, PIXELS),), dynamic_shapes=({0: batch},))
    torch._inductor.aoti_compile_and_package(exported, package_path=file)


if __name__ == "__main__":
    main()
