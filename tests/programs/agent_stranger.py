#!/usr/bin/env python3
"""Another user on the network of a run of several nodes, who reaches the coordinator's port and knows the run's id.

    agent_stranger.py HOST:PORT RUN_ID SHAPE ATTACK...      SHAPE: MIN,MAX,ACTIVE,RESTARTS

Attacks: guess (a key), join, line, silent, replay PORT (of a victim's `torchbridge status`, which is led to this
program), member (joins with the run's id, which is enough where the run has no token), and coordinate WAY (listens at
the port before anybody else). Prints "FOUND ..." for whatever it gets, and ends with 1 then. Python's standard
library only.
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
    """Empty where the connection is closed before."""
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
    return {"kind": "join", "run_id": RUN_ID, "shape": SHAPE, "host": host, "pid": 4711, "workers": 1,
            "order": -1, "node": "", "role": "default"}


def ended(exit_code=0):
    return {"kind": "ended", "can_restart": False, "start_error": ESCAPES, "start_exit_code": exit_code,
            "report": {"restart_count": 0, "started": 0, "lifetime": 0.0, "failures": [], "interruption": ""}}


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


# As connection_proof.cpp makes it of the run's id.
KEY_OF_ID = hmac.new(b"torchbridge run, id", RUN_ID.encode(), hashlib.sha256).digest()


def proof(purpose, server_nonce, client_nonce, key=KEY_OF_ID):
    text = "\n".join(["torchbridge run, protocol 2", purpose, server_nonce, client_nonce])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def prove(connection, purpose="agent", key=KEY_OF_ID):
    nonce = os.urandom(16).hex()
    server_nonce = first_line(connection).split()[2]
    send(connection, f"{purpose} {nonce} {proof(purpose, server_nonce, nonce, key)}")
    return first_line(connection)


def guess():
    """A proof with a key that is not the run's."""
    for purpose in ("agent", "status"):
        for key in (KEY_OF_ID, os.urandom(32)):
            if answer := prove(connect(), purpose, key):
                find(f"guess: {purpose}: the answer {answer[:200]}")


def lead(agent, way):
    """As the coordinator of its run, which then ends with 0."""
    def expect(kind):
        while (message := json.loads(first_line(agent)))["kind"] != kind:
            pass
        return message

    nonce = os.urandom(16).hex()
    send(agent, f"torchbridge-run 2 {nonce}")
    send(agent, "coordinator " + proof("coordinator", nonce, first_line(agent).split()[1]))
    expect("join")
    send(agent, {"kind": "welcome", "keep_alive_interval": 60, "keep_alive_attempts": 3})
    store = expect("ready")["store"]
    alone = {"node_count": 1, "node_rank": 0, "world_size": 1, "first_rank": 0, "local_world_size": 1,
             "first_local_rank": 0, "role_world_size": 1, "first_role_rank": 0}
    start = {"kind": "start-round", "round": 0, "store": store, "restart_count": 0, "max_restarts": 0, **alone}
    end = {"kind": "end-run", "exit_code": 0, "reason": ""}
    if way == "early":
        send(agent, end)
    elif way == "at-once":
        send(agent, json.dumps(start) + "\n" + json.dumps(end))
    else:
        send(agent, start)
        if way == "stopped":
            send(agent, {"kind": "stop-workers", "reason": "n9 leaves", "after_grace": False, "for_signal": False})
        expect("ended")
        if way == "stopped":
            expect("ready")
        send(agent, end)
    first_line(agent)


def coordinate(way):
    """WAY: when it ends the run: early, before a round; at-once, as one begins; stopped, after it has stopped the
    workers; done, when they have ended by themselves. Returns after the first run."""
    server = socket.create_server((HOST, int(PORT)))
    print("listens", flush=True)
    while True:
        with server.accept()[0] as agent:
            try:
                return lead(agent, way)
            except (OSError, ValueError, IndexError) as error:  # it has closed the connection
                print("refused:", error, flush=True)


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
    elif attack == "coordinate":
        coordinate(attacks.pop(0))
    else:
        {"guess": guess, "join": join, "line": line, "silent": silent, "member": member}[attack]()
sys.exit(1 if found else 0)
