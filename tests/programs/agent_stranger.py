#!/usr/bin/env python3
"""Another user on the network of a run of several nodes, who reaches the coordinator's port and knows the run's id.

    agent_stranger.py HOST:PORT RUN_ID SHAPE ATTACK...      SHAPE: MIN,MAX,ACTIVE,RESTARTS

Attacks: status, join, line, silent, replay PORT (of a victim's `torchbridge status`, which is led to this program), and
member (joins with the run's id, which is enough where the run has no token). Prints "FOUND ..." for whatever it gets,
and ends with 1 then. Python's standard library only.
"""

import hashlib
import hmac
import json
import os
import socket
import sys
import time

HOST, PORT = sys.argv[1].rsplit(":", 1)
RUN_ID = sys.argv[2]
SHAPE = dict(zip(("min_nodes", "max_nodes", "active_nodes", "max_restarts"), map(int, sys.argv[3].split(","))))
ESCAPES = "n9\x1b[2J\x1b]0;owned\x07\ntorchbridge: a false line"
found = []


def find(text):
    found.append(text)
    print("FOUND " + repr(text), flush=True)


def connect():
    return socket.create_connection((HOST, int(PORT)), timeout=10)


def lines(connection, seconds=8.0):
    """What the coordinator sends until it closes the connection, or for so long; and whether it closed it."""
    data, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        connection.settimeout(max(0.01, end - time.monotonic()))
        try:
            part = connection.recv(1 << 16)
        except TimeoutError:
            break
        except ConnectionError:
            part = b""
        if not part:
            return data.decode(errors="replace").splitlines(), True
        data += part
    return data.decode(errors="replace").splitlines(), False


def first_line(connection):
    data = b""
    while not data.endswith(b"\n"):
        data += connection.recv(1) or b"\n"
    return data.decode().strip()


def send(connection, *messages):
    try:
        for message in messages:
            connection.sendall((message if isinstance(message, str) else json.dumps(message)).encode() + b"\n")
    except OSError:
        pass  # it has closed the connection


def judge(name, connection):
    """The challenge is all that a stranger gets."""
    answer, is_closed = lines(connection)
    for line in answer:
        if not line.startswith("torchbridge-run "):
            find(f"{name}: the answer {line[:200]}")
    if not is_closed:
        find(f"{name}: the connection stays open")


def joining(host="n9"):
    return {"kind": "join", "protocol": 1, "run_id": RUN_ID, "shape": SHAPE, "host": host, "pid": 4711, "workers": 1,
            "order": -1, "node": "", "role": "default"}


def ended(exit_code=0):
    return {"kind": "ended", "can_restart": False, "start_error": ESCAPES, "start_exit_code": exit_code,
            "report": {"restart_count": 0, "started": 0, "lifetime": 0.0, "failures": [], "interruption": ""}}


def status():
    connection = connect()
    send(connection, {"kind": "status?", "run_id": ""})
    judge("status", connection)


def join():
    ready = {"kind": "ready", "store": {"host": "127.0.0.1", "port": 1}}
    for host in ("n9", ESCAPES):
        connection = connect()
        send(connection, joining(host), ready, ended())
        judge("join", connection)


def line():
    for start in ((), (joining(),)):
        connection = connect()
        send(connection, *start)
        begin, sent = time.monotonic(), 0
        try:
            while sent < 60_000_000:
                sent += connection.send(b"[" * 1_000_000)
        except OSError:
            pass
        if sent >= 50_000_000:
            find(f"line: {sent} bytes were read in {time.monotonic() - begin:.1f} s")


def silent():
    """Keeps 200 connections until the coordinator ends them."""
    connections = [connect() for _ in range(200)]
    print("silent", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + 10
    for connection in connections:
        _, is_closed = lines(connection, max(0.1, end - time.monotonic()))
        if not is_closed:
            return find("silent: a connection stays open")


def replay(port):
    """Leads a victim to this program with a challenge of the coordinator, and uses the victim's proof elsewhere."""
    server = socket.create_server(("127.0.0.1", port))
    coordinator = connect()
    challenge = first_line(coordinator)
    print("listens", flush=True)
    victim = server.accept()[0]
    victim.sendall(challenge.encode() + b"\n")
    proof = first_line(victim)
    print("has the proof of a " + proof.split()[0], flush=True)
    # In a connection of its own; as a proof of another purpose; and as the coordinator's towards the victim.
    other = connect()
    send(other, proof)
    judge("replay", other)
    send(coordinator, "agent" + proof[proof.index(" "):], joining())
    judge("replay as an agent", coordinator)
    victim.sendall(b"coordinator " + proof.split()[-1].encode() + b"\n")


def run_key():
    """As connection_proof.cpp makes it of the run's id."""
    return hmac.new(b"torchbridge run, id", RUN_ID.encode(), hashlib.sha256).digest()


def prove(connection, purpose="agent"):
    nonce = os.urandom(16).hex()
    server_nonce = first_line(connection).split()[2]
    text = "\n".join(["torchbridge run, protocol 2", purpose, server_nonce, nonce])
    send(connection, f"{purpose} {nonce} {hmac.new(run_key(), text.encode(), hashlib.sha256).hexdigest()}")
    return first_line(connection)


def member():
    """Where the id is enough it joins, and then sends what no agent does."""
    bad = ({**ended(), "start_exit_code": 0}, "x" * 2_000_000, {"kind": "ready", "store": {"host": ESCAPES, "port": 1}},
           {"kind": "leave", "signal": 99999}, {"kind": "alive", "clock": 1e300, "answered_clock": -1})
    for message in bad:
        connection = connect()
        if not prove(connection).startswith("coordinator "):
            return find("member: the id is not enough, so the test shows nothing")
        send(connection, joining(ESCAPES), message)
        answer, is_closed = lines(connection)
        if not any('"welcome"' in each for each in answer):
            return find(f"member: it could not join: {answer}")
        if not is_closed:
            find(f"member: it is a member after {str(message)[:80]}")
    connection = connect()
    prove(connection)
    send(connection, joining(ESCAPES), {**ended(), "start_exit_code": 255})  # all that is printed of a peer
    lines(connection, 2)


attacks = sys.argv[4:]
while attacks:
    attack = attacks.pop(0)
    if attack == "replay":
        replay(int(attacks.pop(0)))
    else:
        {"status": status, "join": join, "line": line, "silent": silent, "member": member}[attack]()
sys.exit(1 if found else 0)
