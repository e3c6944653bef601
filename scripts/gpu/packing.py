"""Writes an archive for a machine that has a GPU, libc and torch: programs, their other shared libraries, reference
scripts, data."""

import io
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile

from machine import BUILT_FOR, ROOT, Stop, requirements

CPU_PROGRAMS = ("bin/trainer", "bin/gpu_cases", "bin/sync_batch_norm_cases")  # all that a libtorch for the CPU builds
PROGRAMS = (*CPU_PROGRAMS, "bin/watched_trainer", "lib/libtorchbridge_nccl.so")
FILES = ("scripts/gpu_check", "scripts/gpu", "scripts/requirements.txt", "tests/reference", "data")
NEEDED = "build/lib/needed"
# glibc's libraries, which must be those of the machine, as its loader is.
_LIBC = re.compile(r"^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|util|pthread|resolv|nsl))\.so")


def shared_libraries(program):
    """Name to path of what the program links; None for a library that is not found."""
    answer = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    found = re.findall(r"^\s*(\S+)(?: => (\S+.*?))?(?: \(0x[0-9a-f]+\))?$", answer.stdout, re.MULTILINE)
    return {os.path.basename(name): None if path == "not found" else path or name for name, path in found}


def torch_folder(libraries):
    """The folder above the libtorch that a program was built with. All libraries below it are torch's, also nvidia/."""
    for name, path in libraries.items():
        if name == "libtorch_cpu.so" and path:
            return pathlib.Path(path).resolve().parent.parent.parent
    raise Stop("the programs do not find their libtorch_cpu.so: rebuild them")


def torch_version(folder):
    """torch.__version__ of the wheel in the folder; empty where libtorch is not of a wheel."""
    file = folder / "torch/version.py"
    found = re.search(r"^__version__ = '(.*)'$", file.read_text(), re.MULTILINE) if file.exists() else None
    return found[1] if found else ""


def version_built_for(build):
    """As 2.11.0+cu130; the pinned version where libtorch is not of a wheel."""
    return torch_version(torch_folder(shared_libraries(build / PROGRAMS[0]))) or requirements()["torch"]


def all_libraries(programs):
    libraries = {}
    for program in programs:
        libraries |= shared_libraries(program)
    return libraries


def libraries_to_pack(libraries, torch):
    """Those of neither libc nor torch."""
    needed = {}
    for name, path in sorted(libraries.items()):
        if path is None:
            raise Stop(f"{name}, which the programs need, is not found")
        if not _LIBC.match(name) and torch not in pathlib.Path(path).resolve().parents:
            needed[name] = pathlib.Path(path).resolve()
    return needed


def stripped(file, folder):
    copy = pathlib.Path(folder) / file.name
    subprocess.run(["strip", "--strip-debug", "-o", copy, file], check=True)
    return copy


def without_caches(entry):
    return None if "__pycache__" in entry.name else entry


def add_text(archive, name, text):
    entry = tarfile.TarInfo(name)
    entry.size = len(text.encode())
    archive.addfile(entry, io.BytesIO(text.encode()))


def pack(target, build):
    """Writes the archive, with the paths of the source tree below gpu_check/. Returns the packed libraries."""
    programs = [build / name for name in PROGRAMS]
    for program in programs:
        if not program.exists():
            raise Stop(f"{program} is missing: cmake --build --preset full --target trainer gpu_cases "
                       "sync_batch_norm_cases watched_trainer torchbridge_nccl_plugin", 2)
    libraries = all_libraries(programs)
    torch = torch_folder(libraries)
    needed, version = libraries_to_pack(libraries, torch), torch_version(torch)
    try:
        with tarfile.open(target, "w:gz", compresslevel=6) as archive, tempfile.TemporaryDirectory() as folder:
            for name, program in zip(PROGRAMS, programs):
                archive.add(stripped(program, folder), f"gpu_check/build/{name}")
            for name, path in needed.items():
                archive.add(path, f"gpu_check/{NEEDED}/{name}")
            if version:
                add_text(archive, f"gpu_check/{BUILT_FOR}", version + "\n")
            for name in FILES:
                archive.add(ROOT / name, f"gpu_check/{name}", filter=without_caches)
    except OSError as error:
        raise Stop(f"cannot write '{target}': {error.strerror}", 2) from error
    return needed
