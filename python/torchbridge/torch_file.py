"""Reads what training scripts save by torch.save, without executing any code in it."""
import collections
import struct
import zipfile

import torch

MOST = 999_999_999_999  # also the largest step in the name of a checkpoint


class ConversionError(Exception):
    pass


class Opaque:
    """Takes the place of an object whose class, `of`, is not one of weights: it is not called."""

    def __new__(cls, *_, **__):
        return object.__new__(cls)

    def __init__(self, *_, **__):
        pass

    def __setstate__(self, _):
        pass


class Dtype(Opaque):
    """Takes the place of numpy.dtype, for Scalar."""

    def __init__(self, code="", *_):
        self.code, self.order = code, "="

    def __setstate__(self, state):
        self.order = state[1]  # of (version, order, ...)


class Scalar(Opaque):
    """Makes numbers of numpy's: what warm-ups by numpy.interp leave as a learning rate."""

    FORMATS = {"f2": "e", "f4": "f", "f8": "d", "b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q",
               "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}

    def __new__(cls, dtype=None, data=b"", *_):
        code = cls.FORMATS.get(getattr(dtype, "code", None))
        if code is None or not isinstance(data, bytes) or struct.calcsize("=" + code) != len(data):
            return super().__new__(cls)
        return struct.unpack((dtype.order if dtype.order in "<>" else "=") + code, data)[0]


SCALARS = {"numpy.dtype": Dtype, "numpy.core.multiarray.scalar": Scalar, "numpy._core.multiarray.scalar": Scalar}

# torch.load takes the items of an object only if its type is one of these: of a subclass they are read as if they were
# in such an object.
CONTAINERS = {"Can only SETITEM": collections.OrderedDict, "Can only append to lists": list,
              "Can only extend lists": list}


def _load(path):
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    stand_ins = {name: type(name, (SCALARS.get(name, Opaque),), {"of": name}) for name in names}
    while True:
        try:
            with torch.serialization.safe_globals([(stand_in, name) for name, stand_in in stand_ins.items()]):
                return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:
            text = str(error)
            kind = next((kind for start, kind in CONTAINERS.items() if start in text), None)
            name = next((name for name in names if f"got {stand_ins[name]}" in text), None)
            if not kind or not name:
                raise
            stand_ins[name] = type(name, (Opaque,), {"__new__": lambda *_, kind=kind, **__: kind()})


def load(path):
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch.load compares no checksums
    except zipfile.BadZipFile:
        raise ConversionError(f"{path} is not a torch.save archive (PyTorch 1.6 or later), or is cut off") from None
    if damaged:
        raise ConversionError(f"{path} is damaged: the checksum of its record '{damaged}' differs")
    try:
        return _load(path)
    except Exception as error:
        # The first paragraph that is not torch's advice to load it without weights_only.
        texts = [text for text in str(error).split("\n\n") if not text.lstrip().startswith("Weights only")]
        reason = " ".join((texts or [str(error)])[0].split())
        raise ConversionError(f"{path} is rejected by torch.load(weights_only=True): {reason}") from None


def is_state_dict(value):
    return isinstance(value, dict) and all(isinstance(key, str) and isinstance(tensor, torch.Tensor)
                                           for key, tensor in value.items())


def find_state_dict(path, content):
    """The model's state_dict: all of it, or under one of three keys."""
    if isinstance(content, Opaque):
        raise ConversionError(f"{path} contains an object of {content.of}: save model.state_dict(), not the model")
    if not isinstance(content, dict):
        raise ConversionError(f"{path} contains no state_dict: save model.state_dict(), not the model")
    places = [content, *(content.get(key) for key in ("model", "state_dict", "model_state_dict"))]
    for place in places:
        if is_state_dict(place):
            return place
    opaque = [f"; '{key}' is an object of {value.of}, and only plain values and tensors are read"
              for place in places if isinstance(place, dict) for key, value in place.items()
              if isinstance(value, Opaque)]
    raise ConversionError(
        f"{path} contains no state_dict, also not under 'model', 'state_dict' or 'model_state_dict'; its keys are "
        f"{', '.join(map(repr, list(content)[:8]))}{''.join(opaque[:1])}")


def find_optimizer(path, content):
    """The optimizer's state_dict."""
    for key in ("optimizer", "optimizer_state_dict", "optim"):
        found = content.get(key)
        if isinstance(found, dict) and isinstance(found.get("state"), dict) and \
                isinstance(found.get("param_groups"), list):
            return found
    raise ConversionError(f"{path} contains no optimizer state_dict under 'optimizer', 'optimizer_state_dict' or "
                          "'optim': for the weights alone, give a target that ends in .safetensors")


def number(path, key, value, least=0, most=MOST, expected=f"a whole number from 0 to {MOST}", is_whole=True):
    """The value, or that of a tensor with one element, if it is a number in range; None for None."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if value is None:
        return None
    if not isinstance(value, (int, float)):
        raise ConversionError(f"{path} has '{key}', which is not a number: expected {expected}")
    if not least <= value <= most or (is_whole and value != int(value)):
        raise ConversionError(f"{path} has '{key}' {value:g}: expected {expected}")
    return int(value) if is_whole else value


def scaler_numbers(path, content):
    """The state of a GradScaler as a manifest has it; empty without one."""
    scaler = content.get("scaler") or {}
    limits = torch.finfo(torch.float32)
    scale = number(path, "scale", scaler.get("scale"), limits.tiny, limits.max, "a finite loss scale above 0", False)
    tracker = number(path, "_growth_tracker", scaler.get("_growth_tracker"))
    if (scale is None) != (tracker is None):
        raise ConversionError(f"{path}: the state of the GradScaler is incomplete")
    return {} if scale is None else {"grad_scaler.scale": scale, "grad_scaler.growth_tracker": tracker}
