"""Reads MNIST's IDX files, plain or gzip."""

import gzip
import pathlib
import struct

import torch


def read(path):
    """The tensor of bytes that an IDX file holds; `path` or `path`.gz."""
    path = pathlib.Path(path)
    content = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(path.name + ".gz").read_bytes())
    dimensions = content[3]
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an IDX file of unsigned bytes (starts {content[:4].hex()})")
    start = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).reshape(shape)


def read_split(folder, split):
    """Images (N, height, width) and labels (N) of `split`: "train" or "t10k"."""
    folder = pathlib.Path(folder)
    return read(folder / f"{split}-images-idx3-ubyte"), read(folder / f"{split}-labels-idx1-ubyte")
