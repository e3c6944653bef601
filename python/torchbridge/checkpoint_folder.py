"""Reads and writes checkpoints of the trainer: docs/develop/checkpoint_format.md."""
import errno
import json
import mmap
import os
import secrets
import shutil
import stat

import safetensors
import safetensors.torch
import torch
import xxhash

from .torch_file import ConversionError

VERSION = 2
MODEL, KEPT = "model.safetensors", "kept.safetensors"
_PART = 64 << 20  # bytes of a checksum: the ranks of a resume share the work of comparing them


def save(path, tensors, metadata=None):
    """A new safetensors file, on the disk."""
    copies = {name: tensor.detach().resolve_neg().resolve_conj().clone(memory_format=torch.contiguous_format)
              for name, tensor in tensors.items()}
    safetensors.torch.save_file(copies, path, {**(metadata or {}), "format": "pt"})
    _sync(path)


def write_file(target, save_file):
    """A new file that `save_file` saves to a path. It has its name when all of it is on the disk, and replaces none."""
    temporary = target.with_name(f".convert-{secrets.token_hex(4)}")
    try:
        save_file(temporary)
        _sync(temporary)
        try:
            os.link(temporary, target)
        except OSError:  # it exists, or the file system has no links
            if os.path.lexists(target):
                raise ConversionError(f"{target} exists: give another name, or remove it") from None
            temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(target.parent)


def load(path):
    """The tensors of a safetensors file, and which other names its metadata gives them."""
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
    tensors = safetensors.torch.load_file(path)
    return tensors, {name: first for name, first in metadata.items() if first in tensors and name not in tensors}


def load_listed(folder, manifest, name):
    """Those of a file in a checkpoint. Of a file that the manifest does not list nobody has compared the bytes."""
    if name not in (file["name"] for file in manifest["files"]):
        raise ConversionError(f"{folder}: manifest.json does not list {name}")
    with _opened(folder / name) as file:
        return load(f"/proc/self/fd/{file.fileno()}")


def read(folder):
    """The manifest. All files that it lists agree with it."""
    with _opened(folder / "manifest.json") as file:
        text = file.read()
    end = len(_end_of_manifest(b""))
    if _end_of_manifest(text[:-end]) != text[-end:]:
        raise ConversionError(f"{folder}: manifest.json is damaged: its checksum differs")
    try:
        manifest = json.loads(text)
        _check(manifest)
    except ConversionError as error:
        raise ConversionError(f"{folder}: manifest.json {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConversionError(f"{folder}: manifest.json is invalid: {type(error).__name__}: {error}") from None
    for file in manifest["files"]:
        data, begin = _mapped(folder / file["name"]), 0
        for size, checksum in file.get("parts") or [[file["size"], file["xxh3_128"]]]:
            if len(data) != file["size"] or _checksum(data[begin:begin + size]) != checksum:
                raise ConversionError(f"{folder}: {file['name']} is damaged: its size or checksum differs")
            begin += size
    return manifest


def _check(manifest):
    """The rules of trainer_template/runtime/checkpoint_format/manifest.cpp."""
    if manifest["format"] != "torchbridge-checkpoint":
        raise ConversionError("is not a checkpoint's manifest")
    if manifest["version"] != VERSION:
        raise ConversionError(f"has format version {manifest['version']}, this program reads {VERSION}")
    position = [_integer(manifest[key]) for key in ("step", "epoch", "epoch_samples_consumed")]
    _integer(manifest["samples_seen"])
    if min(position) < 0 or _integer(manifest["world_size"]) < 1:
        raise ConversionError("has a negative position or a world size below 1")
    names = set()
    for file in manifest["files"]:
        name, left = file["name"], _integer(file["size"])
        if not name or name.startswith(".") or "/" in name:
            raise ConversionError(f"names a file outside of its folder: '{name}'")
        if name in names:
            raise ConversionError(f"names '{name}' twice")
        names.add(name)
        for size, _ in file.get("parts", ()):
            if not 0 <= _integer(size) <= left:
                raise ConversionError(f"has parts that are longer than '{name}'")
            left -= size
        if left if file.get("parts") else not file.get("xxh3_128"):
            raise ConversionError(f"has no checksum for every byte of '{name}'")


def _integer(value):
    if type(value) is not int or abs(value) >= 1 << 63:  # True is an int too
        raise ConversionError(f"is invalid: it has {value!r} where an integer in the range of its type is expected")
    return value


def write(root, files, manifest):
    """A new checkpoint in `root`: its folder. `files`: name -> what saves it to a path. The folder has its name when
    everything in it is on the disk, and DONE last."""
    folder = root / f"step-{manifest['step']:08}"
    if folder.exists():
        raise ConversionError(f"{folder} exists: give another folder, or remove it")
    temporary = root / f".tmp-{folder.name}-{secrets.token_hex(4)}"
    temporary.mkdir(parents=True)
    try:
        records = []
        for name, save_file in files.items():
            save_file(temporary / name)
            data = _mapped(temporary / name)
            parts = [data[begin:begin + _PART] for begin in range(0, len(data), _PART)]
            records.append({"name": name, "size": len(data), "parts": [[len(part), _checksum(part)] for part in parts]})
        text = json.dumps({**manifest, "files": records}, indent=2)[:-2].encode()
        (temporary / "manifest.json").write_bytes(text + _end_of_manifest(text))
        for path in (temporary / "manifest.json", temporary):
            _sync(path)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    (folder / "DONE").touch()
    for path in (folder / "DONE", folder, root):
        _sync(path)
    return folder


def _end_of_manifest(text):
    return f',\n  "xxh3_128": "{_checksum(text)}"\n}}\n'.encode()


def _checksum(data):
    return xxhash.xxh3_128_hexdigest(data)


def _opened(path):
    """A regular file, no link to one. No pipe under its name makes the program wait."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        reason = "is a link, which is not followed" if is_link else f"cannot be opened: {error.strerror}"
        raise ConversionError(f"{path} {reason}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConversionError(f"{path} is not a regular file")
    return open(descriptor, "rb")


def _mapped(path):
    with _opened(path) as file:
        is_empty = os.fstat(file.fileno()).st_size == 0  # of which there is no map
        return memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Of the disk, or one that may pass. Any other error says that the file system cannot sync.
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ETIMEDOUT, errno.ESTALE, errno.EAGAIN):
            raise
    finally:
        os.close(descriptor)
