"""The state folder of a cluster: its path, its lock and its files."""
import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import sys
import time

DEFAULT_ROOT = "/run/torchbridge-clusters"
LOCK_WAIT_S = 120
LONGEST_SOCKET_PATH = 107


class ClusterError(Exception):
    def __init__(self, message, exit_code=1):
        super().__init__(message)
        self.exit_code = exit_code


def report(message):
    for line in message.splitlines():
        print(f"cluster: {line}", file=sys.stderr, flush=True)


def state_root():
    chosen = os.environ.get("TORCHBRIDGE_STATE")
    if chosen:
        return os.path.realpath(chosen)
    if os.path.isdir(DEFAULT_ROOT) or os.access(os.path.dirname(DEFAULT_ROOT), os.W_OK):
        return DEFAULT_ROOT
    return temporary_root()


def temporary_root():
    return f"/tmp/torchbridge-clusters-{os.getuid()}"


def all_clusters():
    """The clusters that have a state folder or a lock."""
    try:
        entries = os.listdir(state_root())
    except OSError:
        return []
    return [Cluster(name) for name in sorted({entry.removeprefix(".").removesuffix(".lock") for entry in entries})]


class Cluster:
    def __init__(self, name):
        self.name = name
        self.folder = os.path.join(state_root(), name)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def exists(self):
        return os.path.isdir(self.folder)

    def has_traces(self):
        return self.exists() or os.path.exists(self.lock_path())

    def lock_path(self):
        return os.path.join(os.path.dirname(self.folder), f".{self.name}.lock")

    def is_ready(self):
        return os.path.isfile(self.path("cluster.json"))

    def environment(self):
        """What a program needs to use this cluster."""
        environment = {"SLURM_CONF": self.path("slurm.conf"), "TORCHBRIDGE_CLUSTER": self.name,
                       "TORCHBRIDGE_STATE": os.path.dirname(self.folder)}
        if os.getuid() == 0:
            environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        return environment

    def check_paths(self, longest_node):
        if not re.fullmatch(r"[\w/.+-]+", self.folder, re.ASCII):
            raise ClusterError(f"slurm.conf does not allow the folder '{self.folder}': set TORCHBRIDGE_STATE to one of "
                               "letters, digits and _ / . + -")
        longest_socket = self.path("nodes", longest_node, "spool", "stepd.slurm.pmix.1000000.1000")
        if len(longest_socket) > LONGEST_SOCKET_PATH:
            raise ClusterError(f"'{longest_socket}' is too long for a socket ({LONGEST_SOCKET_PATH} characters): "
                               "choose a shorter --name, --prefix or TORCHBRIDGE_STATE")

    def create_folders(self, node_names):
        for part in ("munge", "controller", "log", "dev"):
            os.makedirs(self.path(part))
        for node in node_names:
            for part in ("munge", "spool", "tmp"):
                os.makedirs(self.path("nodes", node, part))
        os.makedirs(self.path("nodes", "controller"))

    def write_record(self, record):
        write(self.path("cluster.json.new"), json.dumps(record, indent=2) + "\n")
        os.rename(self.path("cluster.json.new"), self.path("cluster.json"))

    def read_record(self):
        """What `up` wrote when the cluster was ready; None before."""
        try:
            with open(self.path("cluster.json")) as file:
                return json.load(file)
        except FileNotFoundError:
            return None

    def remove_files(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path("cluster.json"))
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.exists():
            raise ClusterError(f"could not remove {self.folder}")

    @contextlib.contextmanager
    def lock(self):
        """One command at a time changes a cluster. A killed command's lock is free once its children have exec'd."""
        root, path = os.path.dirname(self.folder), self.lock_path()
        descriptor = self._open_locked(root, path)
        try:
            yield
        finally:
            os.unlink(path)
            os.close(descriptor)
            if root in (DEFAULT_ROOT, temporary_root()):
                with contextlib.suppress(OSError):
                    os.rmdir(root)

    def _open_locked(self, root, path):
        deadline = time.monotonic() + LOCK_WAIT_S
        has_reported = False
        while True:
            make_private_folder(root)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:
                continue  # another cluster's `down` has just removed the empty root
            except OSError as error:
                raise ClusterError(f"cannot lock {path}: {error.strerror}")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if same_file(descriptor, path):
                    return descriptor
            except BlockingIOError:
                if not has_reported:
                    report(f"waiting for another command that changes '{self.name}'")
                    has_reported = True
                time.sleep(0.02)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            if time.monotonic() > deadline:
                raise ClusterError(f"another command has held {path} for {LOCK_WAIT_S} s")


def make_private_folder(root):
    """The folder must belong to this user or root, and only its owner may write in it: daemons use its files."""
    try:
        os.makedirs(root, 0o755, exist_ok=True)
        status = os.lstat(root)
    except OSError as error:
        raise ClusterError(f"cannot make the state folder {root}: {error.strerror}")
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022:
        raise ClusterError(f"the state folder {root} must be a folder that belongs to you and that only you can write "
                           "in (set TORCHBRIDGE_STATE to another)")


def same_file(descriptor, path):
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def write(path, text, mode=0o644):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(text)
