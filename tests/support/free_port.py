"""A port for a job that a test starts: free_port.h in Python. As a program it prints one."""

import collections
import os
import socket
import sys

HELD = collections.deque(maxlen=64)  # sockets whose names keep other tests from our latest ports


def free_port():
    for offset in range(17_000):
        port = 15_000 + (os.getpid() * 7 + offset) % 17_000
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0torchbridge-test/{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        HELD.append(name)
        return port
    sys.exit("no port in [15000, 32000) is free")


if __name__ == "__main__":
    print(free_port())
