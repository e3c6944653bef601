"""One rank of a step: rank 0 listens at MASTER_PORT, and the others connect and send their run id.

Prints the largest resident set of the slurmstepd that started it, in KiB; with --torch-env rank 0 adds the port, and
from when to when it was open. Imports little, for thousands are started.
"""
import os
import socket
import sys
import time

TIMEOUT = 120


def peak_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(next(line.split()[1] for line in file if line.startswith("VmHWM:")))


def serve(endpoint, run, others):
    begin = time.monotonic()
    with socket.create_server(endpoint) as listener:
        listener.settimeout(TIMEOUT)
        for _ in range(others):
            caller, _ = listener.accept()
            with caller:
                received = caller.recv(1000)
                if received != run:
                    sys.exit(f"MASTER_PORT={endpoint[1]} of {run!r} received a connection of {received!r}")
                caller.sendall(run)
        return f" {endpoint[1]} {begin} {time.monotonic()}"


def call(endpoint, run):
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            with socket.create_connection(endpoint) as connection:
                connection.sendall(run)
                answer = connection.recv(1000)
                if answer != run:
                    sys.exit(f"MASTER_PORT={endpoint[1]} of {run!r} answered {answer!r}")
                return ""
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


line = f"{peak_of(os.getppid())}"
if "RANK" in os.environ:
    endpoint = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    run = os.environ["TORCHELASTIC_RUN_ID"].encode()
    is_first = os.environ["RANK"] == "0"
    line += serve(endpoint, run, int(os.environ["WORLD_SIZE"]) - 1) if is_first else call(endpoint, run)
os.write(1, f"{line}\n".encode())
