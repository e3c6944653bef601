"""Finds the NVIDIA driver with its GPUs, and a Python whose torch is the libtorch that the programs were built for."""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VENV = ROOT / ".venv"
BUILT_FOR = "build/torch_version"  # in an archive: torch.__version__ of the libtorch that its programs were built with


class Stop(Exception):
    """Nothing can be checked. The message is one line, `code` the exit code of the process."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


def why_no_gpu():
    """The reason in one line; None where the driver shows a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1)"
    count = ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code not in (0, 100):  # CUDA_ERROR_NO_DEVICE
        return f"the NVIDIA driver returns error {code}"
    return None if count.value else "the NVIDIA driver shows no GPU"


def visible_gpus():
    """The number of GPUs that the driver shows. REQUIRES: why_no_gpu() is None."""
    count = ctypes.c_int(0)
    ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count))
    return count.value


def driver_version():
    """As "580.65.06"; empty where NVML, which has it, is missing."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ""
    text = ctypes.create_string_buffer(96)
    found = nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0
    return text.value.decode() if found else ""


# CUDA's major version to the oldest driver that supports it (CUDA's release notes, "Minor Version Compatibility").
OLDEST_DRIVER = {12: 525, 13: 580}


def check_driver(torch):
    """Raises Stop where the driver is too old for torch's CUDA."""
    newest = ctypes.c_int(0)  # the newest CUDA that it supports: 13000 for 13.0
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(newest))
    newest_supported, major = f"{newest.value // 1000}.{newest.value % 1000 // 10}", int(torch["cuda"].split(".")[0])
    if newest.value // 1000 < major:
        oldest = f"; it needs a driver from {OLDEST_DRIVER[major]} on" if major in OLDEST_DRIVER else ""
        driver = f"the NVIDIA driver {driver_version()}".rstrip()
        raise Stop(f"{driver} supports CUDA {newest_supported} at most, but torch {torch['version']} is for CUDA "
                   f"{torch['cuda']}{oldest}")


def requirements():
    """Name to pinned version."""
    text = (ROOT / "scripts/requirements.txt").read_text()
    return dict(re.findall(r"^([a-z0-9]+)==(\S+)$", text, re.MULTILINE))


_PRINT_TORCH = """
import json, os, torch
gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
print(json.dumps({"version": torch.__version__, "lib": os.path.join(os.path.dirname(torch.__file__), "lib"),
                  "cuda": torch.version.cuda, "gpu": gpu}))
"""


def torch_of(python):
    """Version, CUDA version, GPU and folder of that Python's torch; None where it has none."""
    try:
        answer = subprocess.run([str(python), "-c", _PRINT_TORCH], capture_output=True, text=True, timeout=300)
    except OSError as error:
        raise Stop(f"{python}: {error.strerror}", 2) from error
    except subprocess.TimeoutExpired as error:
        raise Stop(f"{python}: torch is not imported within {error.timeout:.0f} s", 2) from error
    return json.loads(answer.stdout) | {"python": str(python)} if answer.returncode == 0 else None


def recorded_version():
    """As 2.11.0+cu130 in an archive, else empty."""
    recorded = ROOT / BUILT_FOR
    return recorded.read_text().strip() if recorded.exists() else ""


def fits(torch, needed, device):
    """Whether programs that need this version can use this torch. A torch for the CPU or another CUDA has the same
    version up to the +, but lacks libraries that the programs need."""
    if torch is None or (device == "cuda" and torch["cuda"] is None):
        return False
    return needed in (torch["version"], torch["version"].split("+")[0])


def make_venv(needed):
    package = f"torch=={needed.split('+')[0]}"
    print(f"gpu_check: no torch {needed} here; installing {package} into {VENV}", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([VENV / "bin/pip", "install", "-q", "--disable-pip-version-check", package], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Stop(f"cannot make {VENV} with {package}: {error}; give --python a Python that has it") from error


def fitting(python, needed, device):
    found = torch_of(python)
    if fits(found, needed, device):
        return found
    has = f"has torch {found['version']}" if found else "has no torch"
    raise Stop(f"{python} {has}; the programs need {needed}{' for CUDA' if device == 'cuda' else ''}", 2)


def find_torch(given, needed, device):
    """The torch of the given Python, or else of the one that runs this, of .venv or of a new .venv."""
    if given:
        return fitting(given, needed, device)
    for python in (sys.executable, VENV / "bin/python"):
        found = torch_of(python) if os.access(python, os.X_OK) else None
        if fits(found, needed, device):
            return found
    make_venv(needed)
    return fitting(VENV / "bin/python", needed, device)
