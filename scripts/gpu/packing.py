"""An archive of what a machine with a GPU needs beside libc and torch: programs, their shared libraries, reference scripts, data."""

import os
import pathlib
import re
import subprocess
import tarfile
import tempfile

from machine import ROOT, Stop

PROGRAMS = ("bin/trainer", "bin/gpu_cases", "lib/libtorchbridge_nccl.so")
FILES = ("scripts/gpu_check", "scripts/gpu", "scripts/requirements.txt", "tests/reference", "data")
NEEDED = "build/lib/needed"
# glibc's own, which come with the kernel's loader and must be the machine's.
_LIBC = re.compile(r"^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|util|pthread|resolv|nsl))\.so")


def shared_libraries(program):
    """Name to path; None for one that is not found."""
    answer = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    found = re.findall(r"^\s*(\S+)(?: => (\S+.*?))?(?: \(0x[0-9a-f]+\))?$", answer.stdout, re.MULTILINE)
    return {os.path.basename(name): None if path == "not found" else path or name for name, path in found}


def torch_folder(libraries):
    """Of the libtorch that a program was built with; libraries of it and beside it (nvidia/) are torch's."""
    for name, path in libraries.items():
        if name == "libtorch_cpu.so" and path:
            return pathlib.Path(path).resolve().parent.parent.parent
    raise Stop("the programs do not find their libtorch_cpu.so: build them anew")


def beyond_libc_and_torch(programs):
    libraries = {}
    for program in programs:
        libraries |= shared_libraries(program)
    torch = torch_folder(libraries)
    needed = {}
    for name, path in sorted(libraries.items()):
        if path is None:
            raise Stop(f"{name}, which the programs need, is not here")
        if not _LIBC.match(name) and torch not in pathlib.Path(path).resolve().parents:
            needed[name] = pathlib.Path(path).resolve()
    return needed


def stripped(file, folder):
    copy = pathlib.Path(folder) / file.name
    subprocess.run(["strip", "--strip-debug", "-o", copy, file], check=True)
    return copy


def without_caches(entry):
    return None if "__pycache__" in entry.name else entry


def pack(target, build):
    """Writes the archive; its files lie as in the source tree, below gpu_check/."""
    programs = [build / name for name in PROGRAMS]
    for program in programs:
        if not program.exists():
            raise Stop(f"{program} is missing: cmake --build --preset full --target trainer gpu_cases torchbridge_nccl_plugin", 2)
    needed = beyond_libc_and_torch(programs)
    try:
        with tarfile.open(target, "w:gz") as archive, tempfile.TemporaryDirectory() as folder:
            for name, program in zip(PROGRAMS, programs):
                archive.add(stripped(program, folder), f"gpu_check/build/{name}")
            for name, path in needed.items():
                archive.add(path, f"gpu_check/{NEEDED}/{name}")
            for name in FILES:
                archive.add(ROOT / name, f"gpu_check/{name}", filter=without_caches)
    except OSError as error:
        raise Stop(f"cannot write '{target}': {error.strerror}", 2) from error
    return needed
