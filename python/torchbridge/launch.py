"""How this process was started, from liblaunch.so: python/launch_library.cpp has the other side of these types."""
import ctypes
import os


class _Launch(ctypes.Structure):
    _fields_ = [
        ("rank", ctypes.c_int),
        ("world_size", ctypes.c_int),
        ("local_rank", ctypes.c_int),
        ("port", ctypes.c_int),
        ("agent_store", ctypes.c_int),
        ("listen_fd", ctypes.c_int),
        ("host", ctypes.c_char * 256),
        ("error", ctypes.c_char * 4096),
    ]


def launch(scheme, seconds, options):
    """The facts of the launch as a dict. Collective; throws RuntimeError. listen_fd belongs to the caller, or is -1."""
    library = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "liblaunch.so"))
    library.torchbridge_launch.restype = None
    library.torchbridge_launch.argtypes = [ctypes.c_char_p, ctypes.c_double, ctypes.c_char_p, ctypes.POINTER(_Launch)]
    found = _Launch()
    library.torchbridge_launch(scheme.encode(), seconds, options.encode(), ctypes.byref(found))
    if found.error:
        raise RuntimeError(found.error.decode(errors="replace"))
    answer = {name: getattr(found, name) for name, _ in _Launch._fields_}
    return {**answer, "host": found.host.decode()}
