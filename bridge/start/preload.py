"""The interpreter of `torchbridge run --preload`: it imports modules once, and each worker is a fork of it.

The agent starts it as `python -S -c THIS_TEXT ...`, with what follows Python's name on the command line of a worker. It
becomes `python -u train.py ...` with this text as the module sitecustomize, which Python imports before it opens the
script. There it imports the modules and waits for the agent. In a fork that import ends, and Python runs the script as
always: nothing of this file is below it on the stack.
"""

import os
import sys

# What a script may import by the end of its first step of DDP, beyond `torch`: DDP itself, @record, saving and loading,
# and the worker processes of a DataLoader, which CPython 3.14 starts by a server.
OF_TORCH = ("torch._dynamo", "torch.distributed.elastic.multiprocessing.errors", "torch.utils.serialization",
            "torch.profiler._cupti_monitor", "multiprocessing.popen_fork", "multiprocessing.popen_forkserver",
            "multiprocessing.queues")

# What the agent gives each worker, and not this interpreter.
OF_WORKERS = {f"{scope}{what}" for scope in ("", "LOCAL_", "GROUP_", "ROLE_") for what in ("RANK", "WORLD_SIZE")}
OF_WORKERS |= {"MASTER_ADDR", "MASTER_PORT"}

# AMD's, Intel's, Huawei's, and those of the kernel's class of accelerators.
DEVICES = ("/dev/kfd", "/dev/dri/", "/dev/davinci", "/dev/accel")


class Refusal(Exception):
    """Why workers must not be forks of this process."""


def archive(name, data):
    """A zip with one file, which is not compressed."""
    import binascii
    import struct
    entry = struct.pack("<5H3I2H", 20, 0, 0, 0, 33, binascii.crc32(data), len(data), len(data), len(name), 0)
    local = b"PK\3\4" + entry + name + data
    central = b"PK\1\2\24\0" + entry + bytes(14) + name
    return local + central + b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 1, 1, len(central), len(local), 0)


def become_script(channel, agent, names, *command):
    """Executes Python once more, with this text as a module of PYTHONPATH that is in memory alone."""
    if sys.version_info < (3, 10) or sys.implementation.name != "cpython":
        raise Refusal("Python is %s %d.%d: it takes CPython 3.10 or newer" %
                      (sys.implementation.name, *sys.version_info[:2]))
    program, *options, text = sys.orig_argv[:4]
    if options != ["-S", "-c"] or os.getppid() != int(agent):
        raise Refusal("Python is a wrapper, which adds options or a process: let PYTHON_EXEC name the interpreter")
    with open("/proc/self/comm", "rb") as file:
        own_name = file.read().rstrip(b"\n")
    with open("/proc/self/environ", "rb") as file:
        given = dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)
    text += f"\nmain({channel}, {agent}, {names.split(',')}, {own_name!r}, {given!r})\n"
    file = os.memfd_create("sitecustomize.zip", 0)
    os.write(file, archive(b"sitecustomize.py", text.encode()))
    folders = [b"/proc/self/fd/%d" % file, given.get(b"PYTHONPATH")]
    variables = given | {b"PYTHONPATH": b":".join(filter(None, folders))}  # without what this Python has set
    os.execve("/proc/self/exe", [program, *command], variables)


def set_variable(name, value):
    os.environb.pop(name, None)
    if value is not None:
        os.environb[name] = value


def leave_path(given):
    """Takes this text off PYTHONPATH and sys.path."""
    own = os.environ["PYTHONPATH"].partition(":")[0]
    set_variable(b"PYTHONPATH", given.get(b"PYTHONPATH"))
    sys.path.remove(own)
    sys.path_importer_cache.pop(own, None)
    os.close(int(own.rpartition("/")[2]))


def run_sitecustomize():
    """The one of the user or the site, which this one hides. True where there is one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    spec = PathFinder.find_spec("sitecustomize")
    if spec is None:
        return False
    sys.modules["sitecustomize"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return True


def folder_of_script():
    """What Python will put before sys.path; None: nothing."""
    from pkgutil import get_importer
    program = sys.argv[0]
    if getattr(sys.flags, "safe_path", False):
        return None
    if program in ("-c", "-m"):
        return os.getcwd()
    return program if get_importer(program) else os.path.dirname(os.path.realpath(program))


def names_of(tasks, known):
    """Of threads or processes, by their numbers."""
    names = []
    for number in tasks:
        try:
            with open(f"/proc/{number}/comm") as file:
                names.append(known.get(int(number)) or file.read().strip())
        except OSError:  # it has just ended
            pass
    return sorted(names)


def thread_names():
    """Of all threads but this one, also those that Python has not started. Not jemalloc's, as of pyarrow, which no lock
    of a fork waits for: see background_thread_postfork_child() in its background_thread.c."""
    threading = sys.modules.get("threading")
    known = {thread.native_id: thread.name for thread in threading.enumerate()} if threading else {}
    names = names_of(set(os.listdir("/proc/self/task")) - {str(os.getpid())}, known)
    return [name for name in names if name != "jemalloc_bg_thd"]


def child_names():
    """Of all that run."""
    try:
        with open("/proc/thread-self/children") as file:
            children = file.read().split()
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return []
    return names_of([child for child in children if not has_ended(int(child))], {})


def has_ended(child):
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # a module has taken its status
        return True


def those_that_stay(names):
    """/proc has a thread a little longer than pthread_join, and a child longer than its output."""
    import time
    for _ in range(100):
        if not names():
            break
        time.sleep(0.001)
    return names()


def threads_after_fork():
    """OpenBLAS ends its threads when the process forks."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return those_that_stay(thread_names)


def has_device():
    """Whether this process has used a GPU, which a fork of it then cannot."""
    import ctypes
    files = [os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in os.listdir("/proc/self/fd")]
    if any(file.startswith(DEVICES) for file in files):
        return True
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0  # 3 before cuInit


def shared_memory():
    """The names in /dev/shm of what all forks would have in common: multiprocessing's locks and memory, tensors."""
    with open("/proc/self/maps") as file:
        return [line.partition("/dev/shm/")[2].split()[0] for line in file if " rw-s " in line and "/dev/shm/" in line]


def check_fork(cause, remedy=""):
    """Raises Refusal where a fork of this process is not as good as a new one. `cause` is the subject of the reason."""
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        raise Refusal(f"{cause} forms a process group{remedy}")
    if has_device():
        raise Refusal(f"{cause} initializes a GPU{remedy}")
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi and mpi.Is_initialized():
        raise Refusal(f"{cause} initializes MPI{remedy}")
    shared = shared_memory()
    if shared:
        raise Refusal(f"{cause} makes locks or memory that all workers would share ({shared[0]}){remedy}")
    names = those_that_stay(child_names)
    if names:
        raise Refusal(f"{cause} starts processes ({', '.join(names)}){remedy}")
    names = thread_names() and threads_after_fork()
    if names:
        raise Refusal(f"{cause} starts threads ({', '.join(names)}){remedy}")


def state_of(file):
    try:
        stat = os.stat(file)
        return stat.st_mtime_ns, stat.st_size
    except OSError:
        return None


def watch(files, names):
    """Adds files that are not there yet: of the modules in the list, and of all in no folder of installed packages."""
    from sysconfig import get_path
    installed = ("/site-packages/", "/dist-packages/", get_path("stdlib") + "/")
    for name, module in list(sys.modules.items()):
        if getattr(module, "__dict__", None) is globals():  # this text, whose archive is closed
            continue
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        file = getattr(loader, "archive", None) or getattr(module, "__file__", None)  # or of a zip
        if isinstance(file, str) and file not in files and (
                name in names or not any(part in file for part in installed)):
            files[file] = state_of(file)


def watch_imports():
    """Notes what modules do from now on. {variable of a worker: module that looks for it, where it is not}; and {id:
    weak reference} of the generators of Python's made without a seed, which a process of its own would seed by chance.
    With the function that ends it."""
    import random
    from weakref import ref
    environ, generator = os.environ, random.Random
    plain, seed, set_state = type(environ), generator.seed, generator.setstate
    read, unseeded = {}, {}

    class Environment(plain):
        def __getitem__(self, name):
            try:
                return super().__getitem__(name)
            except KeyError:
                if name in OF_WORKERS or str(name).startswith("TORCHELASTIC_"):
                    read[name] = caller()
                raise

    def note_seed(self, a=None, version=2):
        unseeded.pop(id(self), None)
        if a is None:
            unseeded[id(self)] = ref(self)
        seed(self, a, version)

    def note_state(self, state):  # of a copy too
        unseeded.pop(id(self), None)
        set_state(self, state)

    def end():
        if type(environ) is Environment:  # else a module has put another one there
            environ.__class__ = plain
        if generator.seed is note_seed:
            generator.seed = seed
        if generator.setstate is note_state:
            generator.setstate = set_state

    environ.__class__, generator.seed, generator.setstate = Environment, note_seed, note_state
    return read, unseeded, end


def caller():
    """The module that has called a function of os.environ's."""
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__") in ("os", "collections.abc", "_collections_abc") and frame.f_back:
        frame = frame.f_back
    return frame.f_globals.get("__name__")


def import_modules(names):
    """{file: its state when it was imported}, of what the agent is told when it changes; and the generators that each
    worker seeds, by weak references."""
    import gc
    from importlib import import_module
    files = {}
    thresholds, rare = gc.get_threshold(), 10**6
    gc.set_threshold(rare)  # collections take a sixth of the time of imports, which leave hardly any garbage
    folder, process = folder_of_script(), (os.getcwd(), sys.argv[:])
    read, unseeded, end_watch = watch_imports()
    if folder is not None:
        sys.path.insert(0, folder)
    for name in names:
        try:
            import_module(name)
            for more in OF_TORCH if name == "torch" else ():
                try:
                    import_module(more)
                except ModuleNotFoundError as error:
                    if not error.name or not more.startswith(error.name):  # else it is of another version of torch
                        raise
        except BaseException as error:
            raise Refusal(f"module '{name}' cannot be imported: {type(error).__name__}: {error}") from error
        watch(files, names)
        if (os.getcwd(), sys.argv) != process:  # before Python has opened the script
            raise Refusal(f"module '{name}' changes the working directory or sys.argv: leave it out of the list")
        if folder is not None and sys.path[:1] != [folder]:  # before it Python will put the script's
            raise Refusal(f"module '{name}' changes the begin of sys.path: leave it out of the list")
        if read:
            variable, reader = min(read.items())
            found = f"'{name}'" if reader == name else f"'{name}' ({reader})"
            raise Refusal(f"module {found} looks for {variable}, which only workers have: leave it out of the list")
        check_fork(f"module '{name}'", ": leave it out of the list")
    end_watch()
    if folder in sys.path:
        sys.path.remove(folder)
    if gc.get_threshold()[0] == rare:  # else a module has set its own
        gc.set_threshold(*thresholds)
    return files, unseeded


def fork_worker():
    """True in the worker. Its parent has ended, and so it is a child of the agent, which adopts what is orphaned."""
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            if os.fork() != 0:
                os._exit(0)
        except OSError:
            os._exit(1)
        os.close(writing)
        if not os.read(reading, 1):  # the interpreter has ended
            os._exit(1)
        os.close(reading)
        return True
    os.waitpid(middle, 0)
    os.write(writing, b"!")
    os.close(reading)
    os.close(writing)
    return False


def seed_generators(unseeded):
    """Those that a process seeds by chance. Python's default one does so itself at each fork."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    for generator in [reference() for reference in unseeded.values()]:
        if generator is not None:
            sys.modules["random"].Random.seed(generator)
    if "torch.random" in sys.modules:
        generator = sys.modules["torch.random"].default_generator
        if generator.initial_seed() >= 2**32:  # 64 bits by chance, as in each process; else a module has set it
            generator.seed()


def become_worker(descriptors, agent, given, changes, unseeded):
    """What start_process() does in C++, and what a new process would have of its own."""
    import atexit
    import ctypes
    import gc
    request, status, out, err, *listener = descriptors
    os.setsid()
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != agent:
        os._exit(1)
    cpus, count, *words = os.pread(request, os.fstat(request).st_size, 0).split(b"\0")[:-1]
    if cpus:
        os.sched_setaffinity(0, map(int, cpus.split(b",")))
    command = [os.fsdecode(word) for word in words[:int(count)]]
    sys.orig_argv[1:] = command[1:]
    sys.argv[1:] = command[len(command) - len(sys.argv) + 1:]
    os.environb.clear()
    for variable in words[int(count):]:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    for name, value in changes.items():
        if os.environb.get(name) == given.get(name):  # else the agent gave this worker its own
            set_variable(name, value)
    if listener:
        os.set_inheritable(listener[0], True)
        os.environ["TORCHBRIDGE_LISTEN_FD"] = str(listener[0])
    for path, importer in list(sys.path_importer_cache.items()):
        if importer is None:  # a folder that was not there, and may be now
            del sys.path_importer_cache[path]
        elif hasattr(importer, "archive"):  # a zip, which may be another one now
            importer.invalidate_caches()
    seed_generators(unseeded)
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
    atexit.register(gc.unfreeze)  # else the objects of __main__ would not be finalized
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.write(status, str(os.getpid()).encode())
    for descriptor in (request, status, out, err):
        os.close(descriptor)


def answer(files):
    """To the agent, which asks before each attempt."""
    changed = [file for file, state in files.items() if state_of(file) != state]
    if changed:
        return "changed " + changed[0]
    check_fork("the interpreter")
    return "ready"


def serve(channel, agent, files, given, unseeded):
    """Returns in each worker. Ends with the agent. `given` is the environment that the agent gave this process."""
    import gc
    import signal
    import socket
    variables = {*given, *os.environb}  # also what a .pth file or a module sets, which runs here alone
    changes = {name: os.environb.get(name) for name in variables if os.environb.get(name) != given.get(name)}
    gc.collect()
    gc.freeze()  # a collection in a worker would copy the pages of all these objects
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF})
    send(channel.fileno(), "serving")
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 1, 8, socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)
        if not descriptors:
            send(channel.fileno(), answer(files))
        elif fork_worker():
            channel.close()
            return become_worker(descriptors, agent, given, changes, unseeded)
        for descriptor in descriptors:
            os.close(descriptor)


def send(channel, text):
    os.write(channel, os.fsencode(text)[:4000])


def unlink_locks():
    """The named ones of multiprocessing. Its tracker, which does so at the end of a program, is ended by the agent."""
    util, synchronize = (sys.modules.get("multiprocessing." + name) for name in ("util", "synchronize"))
    for finalizer in list(util._finalizer_registry.values()) if synchronize else []:
        if finalizer._callback is synchronize.SemLock._cleanup:
            finalizer()


def refuse(channel, error):
    try:
        try:
            unlink_locks()
        except Exception:  # a Python that differs
            pass
        send(channel, f"refused {error if isinstance(error, Refusal) else repr(error)}")
    finally:
        os._exit(0)  # else Python would run the script here


def main(descriptor, agent, names, own_name, given):
    """As the module sitecustomize. `own_name` is what the kernel calls a process that was started as a worker is: it
    calls this one "exe"."""
    interpreter = os.getpid()
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(own_name)
        leave_path(given)
        import signal
        import socket
        channel = socket.socket(fileno=descriptor)
        os.set_inheritable(descriptor, False)
        send(descriptor, "importing")
        # Slurm sends a signal to each process of a job; for the workers they are as the agent has them.
        faults = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS,
                  signal.SIGTRAP}
        own = {signal.SIGCHLD, signal.SIGPIPE, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF}  # of a module
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults - own)
        has_other = run_sitecustomize()
        check_fork("sitecustomize or a .pth file")
        files, unseeded = import_modules(names)
        serve(channel, agent, files, given, unseeded)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except BaseException as error:
        if os.getpid() != interpreter:  # a worker: its agent sees the end of `status`
            os._exit(1)
        refuse(descriptor, error)
    if not has_other:
        raise ImportError(name="sitecustomize")  # which Python's site takes as: there is none


if __name__ == "__main__":
    try:
        become_script(*sys.argv[1:])
    except Exception as failure:
        refuse(int(sys.argv[1]), failure)
