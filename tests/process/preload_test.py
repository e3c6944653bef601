#!/usr/bin/env python3
"""What `torchbridge run --preload` does around its workers, with modules of Python alone.

    preload_test.py TORCHBRIDGE FOLDER_OF_FAKE_DRIVER [CASE...]

It refuses what is not safe and says why, notices what has changed, outlives its interpreter, and leaves nothing.
"""

import contextlib
import io
import os
import pathlib
import pty
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from case_runner import check, Failure, run_cases  # noqa: E402
from free_port import free_port  # noqa: E402

TORCHBRIDGE, DRIVER = map(os.path.abspath, sys.argv[1:3])
PYTHON = sys.executable
LIMIT = 60
NO_EFFECT = "torchbridge: --preload has no effect, each worker imports by itself: "
# Prints where the worker comes from: a fork of the interpreter has not its rank in what execve() gave it.
ORIGIN = """
import os
def origin():
    with open("/proc/self/environ", "rb") as file:
        return "started" if b"\\0RANK=" in b"\\0" + file.read() else "forked"
"""
SHOW = ORIGIN + "os.write(1, f\"{os.environ['RANK']} {origin()}\\n\".encode())\n"


def eventually(fact, what):
    deadline = time.monotonic() + LIMIT
    while not (value := fact()):
        check(time.monotonic() < deadline, f"not within {LIMIT} s: {what}")
        time.sleep(0.005)
    return value


def with_marker(marker):
    found = []
    for path in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_alive = path.name.isdigit() and state_of(path.name) not in "ZX"
            if is_alive and marker.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Run:
    """One run in a folder of its own, where it finds `files`. At the end of a `with` nothing of it is left."""

    def __init__(self, files, *command, stdin=subprocess.DEVNULL, environment=None, within=(), **more):
        self.work = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.work.name)
        for name, text in files.items():
            (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        self.marker = f"PRELOAD_{uuid.uuid4().hex}"
        self.process = subprocess.Popen(
            [*within, TORCHBRIDGE, more.get("command", "run"),
             *(word.replace("{folder}", self.work.name) for word in command)], cwd=self.folder, stdin=stdin, text=True,
            stdout=more.get("stdout", subprocess.PIPE), stderr=more.get("stderr", subprocess.PIPE),
            env=os.environ | {"PYTHON_EXEC": PYTHON, self.marker: "1", "TMPDIR": self.work.name} | (environment or {}))

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        try:
            eventually(lambda: not with_marker(self.marker), f"processes {with_marker(self.marker)} end")
        finally:
            self.work.cleanup()

    def end(self, code=0):
        """The lines of standard output, sorted, and standard error."""
        out, error = self.process.communicate(timeout=5 * LIMIT)
        check(self.process.returncode == code, f"exit code {self.process.returncode}, not {code}:\n{out}\n{error}")
        return sorted(out.splitlines()), error

    def text(self, name):
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / name).read_text()
        return ""

    def agent(self):
        return eventually(lambda: children_of(self.process.pid), "the agent runs")[0]

    def interpreter(self, workers=()):
        """The child of the agent that is no worker."""
        found = set(children_of(self.agent())) - set(workers)
        return found.pop() if len(found) == 1 else None


def refused(reason, files, *options, environment=None, code=0, modules="module"):
    """The workers run all the same, and one line has the reason."""
    with Run({"train.py": SHOW} | files, "--nproc-per-node", "2", "--preload", modules, *options, "train.py",
             environment=environment) as run:
        lines, error = run.end(code)
    check(lines == ["0 started", "1 started"], lines, error)
    own = [line for line in error.splitlines() if line.startswith("torchbridge:")]
    check(len(own) == 1 and re.fullmatch(re.escape(NO_EFFECT) + reason, own[0]), error)
    return error


def threads():
    refused(r"module 'module' starts threads \(mine\): leave it out of the list",
            {"module.py": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), name='mine',"
                          " daemon=True).start()\n"})


def threads_of_the_site():
    refused(r"sitecustomize or a .pth file starts threads \(of site\)",
            {"sitecustomize.py": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True,"
                                 " name='of site').start()\n"}, modules="json", environment={"PYTHONPATH": "."})


def processes():
    refused(r"module 'module' starts processes \(sleep\): leave it out of the list",
            {"module.py": "import subprocess\nP = subprocess.Popen(['sleep', '600'])"})


def shared_memory():
    """A worker that is killed with a lock would have it for ever, in all others and in the next attempt."""
    before = set(os.listdir("/dev/shm"))
    for made in ("Lock()", "get_context('spawn').Lock()", "Value('i', 3)", "shared_memory.SharedMemory(None, True, 8)"):
        module = f"import multiprocessing.shared_memory\nX = multiprocessing.{made}\nif hasattr(X, 'unlink'):\n" \
                 "    X.unlink()\n"
        refused(r"module 'module' makes locks or memory that all workers would share \([\w.-]+\): leave it out of the"
                " list", {"module.py": module, "train.py": SHOW + "import module\n"})
    left = {name for name in set(os.listdir("/dev/shm")) - before if name.startswith(("sem.mp-", "psm_", "pym-"))}
    check(not left, left)


def rank_at_import():
    """Of a module that remembers what it finds then."""
    for read in ("os.environ.get('RANK')", "'LOCAL_RANK' in os.environ", "os.getenv('WORLD_SIZE', '1')",
                 "os.environ.setdefault('MASTER_ADDR', 'localhost')"):
        name = re.search("[A-Z_]+", read)[0]
        refused(rf"module 'module' \(used\) looks for {name}, which only workers have: leave it out of the list",
                {"module.py": "import used\n", "used.py": f"import os\nX = {read}\n"})
    with Run({"train.py": SHOW + "print(type(os.environ).__name__, os.environ['RANK'])", "module.py": "def rank():\n"
              "    import os\n    return os.environ['RANK']\n"}, "--preload", "module", "train.py") as run:
        check(run.end() == (["0 forked", "_Environ 0"], ""))


def second_module_is_named():
    refused(r"module 'second' starts threads \(Thread-1 \(sleep\)\): leave it out of the list",
            {"second.py": "import threading, time\n"
                          "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"},
            modules="json,second,decimal")


def threads_that_end_at_a_fork():
    files = {"train.py": SHOW, "module.py": """
import os, threading
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
def stop():
    end.set()
    thread.join()
os.register_at_fork(before=stop)
"""}
    with Run(files, "--preload", "module", "train.py") as run:
        check(run.end() == (["0 forked"], ""))


def not_to_be_imported():
    refused(r"module 'module' cannot be imported: ModuleNotFoundError: No module named 'module'", {})
    refused(r"module 'module' cannot be imported: ZeroDivisionError: division by zero", {"module.py": "1/0"})
    refused(r"module 'module' cannot be imported: SystemExit: 3", {"module.py": "raise SystemExit(3)"})
    refused(r"the interpreter \(pid \d+\) ended with exit code 4 before it has imported the modules",
            {"module.py": "import os\nos._exit(4)"})
    refused(r"the interpreter \(pid \d+\) was killed by signal 6 \(Aborted\) before it has imported the modules",
            {"module.py": "import os\nos.abort()"})
    refused(r"module 'module' cannot be imported: ValueError: \\x1b\\x0a", {"module.py": r"raise ValueError('\x1b\n')"})


def working_directory_and_arguments():
    for module in ("import os\nos.chdir('/')", "import sys\nsys.argv.append('x')"):
        refused("module 'module' changes the working directory or sys.argv: leave it out of the list",
                {"module.py": module})


def begin_of_the_path():
    """A folder before the script's, which Python puts there later."""
    for changed in ("sys.path.insert(0, 'third')", "sys.path.pop(0)"):
        refused("module 'module' changes the begin of sys.path: leave it out of the list",
                {"module.py": f"import sys\n{changed}\n"})


def folder_that_comes_later():
    """One of PYTHONPATH, which the first attempt makes."""
    script = SHOW + "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n    os.mkdir('made')\n" \
                    "    open('made/late.py', 'w').close()\n    os._exit(1)\nimport late\n"
    with Run({"train.py": script}, "--max-restarts", "1", "--preload", "decimal", "train.py",
             environment={"PYTHONPATH": "made"}) as run:
        check(run.end()[0] == ["0 forked", "0 forked"])


def gpu():
    module = "import ctypes\ndriver = ctypes.CDLL('libcuda.so.1')\n"
    environment = {"LD_LIBRARY_PATH": DRIVER}
    refused("module 'module' initializes a GPU: leave it out of the list", {"module.py": module + "driver.cuInit(0)"},
            environment=environment)
    with Run({"train.py": SHOW, "module.py": module}, "--preload", "module", "train.py",
             environment=environment) as run:
        check(run.end() == (["0 forked"], ""))


def no_python():
    with Run({}, "--preload", "json", "sh", "-c", "echo $RANK") as run:
        lines, error = run.end()
    check(lines == ["0"] and error == "torchbridge: --preload has no effect: 'sh' is not run by Python\n", error)


def wrapper(text):
    folder = tempfile.mkdtemp()
    path = pathlib.Path(folder, "python")
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"PYTHON_EXEC": str(path)}


def wrappers():
    why = "Python is a wrapper, which adds options or a process: let PYTHON_EXEC name the interpreter"
    refused(why, {}, environment=wrapper(f'exec {PYTHON} -I "$@"'), modules="json")
    refused(why, {}, environment=wrapper(f'{PYTHON} "$@"; exit $?'), modules="json")
    closes = "import os, sys; os.closerange(3, 100); os.execv(sys.argv[1], sys.argv[1:])"  # also what --preload needs
    error = refused(r"the interpreter \(pid \d+\) (ended with exit code 0|was killed by signal 9 \(Killed\)) before it"
                    " has imported the modules", {}, modules="json",
                    environment=wrapper(f'exec {PYTHON} -c "{closes}" {PYTHON} "$@"'))
    check("sitecustomize" not in error, error)
    with Run({"train.py": SHOW}, "--preload", "json", "train.py",
             environment=wrapper(f'exec {PYTHON} "$@"')) as run:
        check(run.end() == (["0 forked"], ""))
    with Run({"train.py": SHOW}, "--preload", "json", "train.py", environment={"PYTHON_EXEC": "/no/python"}) as run:
        error = run.end(127)[1]
        check(NO_EFFECT + "cannot run '/no/python': No such file or directory" in error, error)


def start_method():
    """The module `torch` here is not PyTorch's, which has a test of its own."""
    files = {"train.py": ORIGIN + "import sys\nprint(origin(), 'torch' in sys.modules)", "torch.py": ""}
    for options, line in ((["--start-method", "forkserver"], "forked True"),
                          (["--start-method", "spawn"], "started False"),
                          (["--start-method", "forkserver", "--preload", "json"], "forked False")):
        with Run(files, *options, "train.py") as run:
            check(run.end() == ([line], ""), options)


def changes():
    """A script and a module that change between attempts; a module of an installation is not looked at."""
    script = ORIGIN + """
import json, module, sys
print(os.environ["TORCHELASTIC_RESTART_COUNT"], origin(), module.VALUE, VERSION, flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with open("train.py") as file: text = file.read()
    with open("new.py", "w") as file: file.write(text.replace("VERSION = 1", "VERSION = 2"))
    os.replace("new.py", "train.py")
    sys.exit(1)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    with open("module.py", "w") as file: file.write("VALUE = 'changed'")
    sys.exit(2)
"""
    files = {"train.py": "VERSION = 1" + script, "module.py": "VALUE = 'first'"}
    with Run(files, "--preload", "json,module", "--max-restarts", "2", "train.py") as run:
        lines, error = run.end()
        check(lines == ["0 forked first 1", "1 forked first 2", "2 forked changed 2"], lines, error)
        expected = f"torchbridge: --preload: '{run.folder}/module.py' has changed: imported again\n"
        check(error.count("--preload") == 1 and expected in error, error)


def zip_of(**modules):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in modules.items():
            archive.writestr(name + ".py", text)
    return data.getvalue()


def changes_of_zips():
    """That of the script, and one with a module of the list."""
    script = ORIGIN + """
import beside, module, sys
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print(count, origin(), beside.VALUE, module.VALUE, flush=True)
if count < 2:
    os.replace(*(("app.next", "app.zip"), ("lib.next", "lib.zip"))[count])
    sys.exit(count + 1)
"""
    files = {"app.zip": zip_of(__main__=script, beside="VALUE = 1"), "lib.zip": zip_of(module="VALUE = 1"),
             "app.next": zip_of(other="#" * 999, __main__=script, beside="VALUE = 2"),
             "lib.next": zip_of(module="VALUE = 22")}
    with Run(files, "--preload", "module", "--max-restarts", "2", "{folder}/app.zip",
             environment={"PYTHONPATH": "lib.zip"}) as run:
        lines, error = run.end()
        check(lines == ["0 forked 1 1", "1 forked 2 1", "2 forked 2 22"], lines, error)
        check(error.count("--preload") == 1 and f"'{run.folder}/lib.zip' has changed: imported again" in error, error)


def change_while_others_are_imported():
    second = "import module\nif module.VALUE == 1:\n    open('module.py', 'w').write('VALUE = 22')\n"
    with Run({"train.py": ORIGIN + "import module\nprint(origin(), module.VALUE)", "module.py": "VALUE = 1",
              "second.py": second}, "--preload", "module,second", "train.py") as run:
        lines, error = run.end()
    check(lines == ["forked 22"] and error.count("has changed: imported again") == 1, lines, error)


def change_that_is_wrong():
    files = {"module.py": "", "train.py": SHOW + "open('module.py', 'w').write('import nothing.at.all')\n"
                                                 "exit(int(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))\n"}
    with Run(files, "--preload", "module", "--max-restarts", "1", "train.py") as run:
        lines, error = run.end()
    check(lines == ["0 forked", "0 started"] and "'nothing'" in error, lines, error)


def change_at_each_import():
    files = {"train.py": SHOW, "helper.py": "", "first.py": "import helper\n",
             "second.py": "import os\nopen('helper.py', 'a').write(f'# {os.getpid()}\\n')\n"}
    with Run(files, "--preload", "first,second", "train.py") as run:
        lines, error = run.end()
        expected = f"{NO_EFFECT}'{run.folder}/helper.py' changes at each import\n"
    check(lines == ["0 started"] and expected in error, lines, error)


def modules_may():
    """Have an open file, which workers write to, a timer that rings, and a process that has ended."""
    module = "import signal, subprocess\nLOG = open('log.txt', 'a')\n" \
             "RELEASE = subprocess.Popen(['uname', '-r'], stdout=subprocess.PIPE).stdout.read()\n" \
             "signal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, .01)\n" \
             "signal.pause()\n"
    script = SHOW + "import module, sys\nmodule.LOG.write('line\\n')\nmodule.LOG.flush()\n" \
                    "sys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))\n"
    with Run({"train.py": script, "module.py": module}, "--preload", "json,module", "--max-restarts", "1",
             "train.py") as run:
        lines, error = run.end()
    check(lines == ["0 forked", "0 forked"] and "--preload" not in error, lines, error)


WAITS = SHOW + """
import sys, time
name = "pid" + os.environ["RANK"]
open(name + ".new", "w").write(str(os.getpid()))
os.replace(name + ".new", name)
while not os.path.exists("go"): time.sleep(.01)
"""


def killed_interpreter():
    """While workers run: they go on, and the next attempt is again of forks. Signals for all processes do nothing."""
    script = WAITS + "os.remove('go')\nsys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))\n"
    module = "import os\nopen(f'imported{os.getpid()}', 'w')\n"
    with Run({"train.py": script, "module.py": module}, "--preload", "module", "--max-restarts", "1",
             "train.py") as run:
        worker = int(eventually(lambda: run.text("pid0"), "the worker"))
        first = run.interpreter([worker])
        blocked = int(re.search(r"SigBlk:\s*(\w+)", pathlib.Path(f"/proc/{first}/status").read_text())[1], 16)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGXCPU, signal.SIGALRM):
            check(blocked >> (number - 1) & 1, f"the interpreter heeds signal {number}")
            os.kill(first, number)

        def idle(last):
            found = run.interpreter([worker])
            return found != last and found and (run.folder / f"imported{found}").exists() and state_of(found) == "S"

        second = first
        for _ in range(6):  # more than in a row before it has imported
            os.kill(second, signal.SIGKILL)
            eventually(lambda: idle(second), "another")
            second = run.interpreter([worker])
        (run.folder / "go").touch()
        eventually(lambda: run.text("pid0") != str(worker), "the next worker")
        next_worker = int(run.text("pid0"))
        check(run.interpreter([next_worker]) == second, "the second interpreter is another one")
        (run.folder / "go").touch()
        lines, error = run.end()
        check(lines == ["0 forked", "0 forked"], lines, error)
        check(f"torchbridge: --preload: the interpreter (pid {first}) was killed by signal 9 (Killed): started again"
              in error, error)


def killed_before_its_first_answer():
    """After it has imported: it is started again, but not without end."""
    module = """
import os, signal, sys
class Asked:
    calls = 0
    def is_available(self):
        self.calls += 1
        if self.calls > 1:  # the first is of the import
            with open("kills", "a") as file: file.write(".")
            if os.path.getsize("kills") <= int(os.environ["KILLS"]): os.kill(os.getpid(), signal.SIGKILL)
sys.modules["torch.distributed"] = Asked()
"""
    for kills, how in ((1, "forked"), (1000, "started")):
        with Run({"train.py": SHOW, "module.py": module}, "--preload", "module", "train.py",
                 environment={"KILLS": str(kills)}) as run:
            lines, error = run.end()
            killed = len(run.text("kills"))
        check(lines == [f"0 {how}"], lines, error)
        check(("has no effect" in error) == (how == "started"), error)
        check(killed <= 4, f"{killed} kills", error)


def stopped_interpreter():
    """One that does not answer is ended, and one that is killed is missed though its channel stays open."""
    script = WAITS + "os.remove('go')\nsys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))\n"
    daemon = "import os, time\nif os.fork() == 0:\n    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\n" \
             "os.wait()\n"
    for number, module, what in ((signal.SIGSTOP, "", "does not answer"),
                                 (signal.SIGKILL, daemon, "was killed by signal 9 (Killed)")):
        with Run({"train.py": script, "module.py": module}, "--preload", "module", "--max-restarts", "1",
                 "train.py") as run:
            worker = int(eventually(lambda: run.text("pid0"), "the worker"))
            first = min(set(children_of(run.agent())) - {worker})
            os.kill(first, number)
            if number == signal.SIGKILL:
                eventually(lambda: first not in children_of(run.agent()), "the agent has seen it")
            (run.folder / "go").touch()
            eventually(lambda: run.text("pid0") != str(worker), "the next worker")
            (run.folder / "go").touch()
            lines, error = run.end()
        check(lines == ["0 forked", "0 forked"], lines, error)
        check(f"torchbridge: --preload: the interpreter (pid {first}) {what}: started again" in error, error)


def interpreter_that_stops_in_a_fork():
    """It is ended, and the worker started without it."""
    script = WAITS + "sys.exit(0)\n"
    with Run({"train.py": script, "module.py": "import os, signal\nos.register_at_fork(before=lambda: os.path.exists("
              "'stop') and os.kill(os.getpid(), signal.SIGSTOP))\nopen('stop', 'w')"},
             "--preload", "module", "train.py") as run:
        eventually(lambda: run.text("pid0"), "the worker")
        (run.folder / "go").touch()
        lines, error = run.end()
        check(lines == ["0 started"] and "cannot be forked: ended" in error, lines, error)


def signal_while_it_imports():
    module = "import time\nopen('importing', 'w').close()\ntime.sleep(600)\n"
    for number in (signal.SIGTERM, signal.SIGINT):
        with Run({"train.py": SHOW, "module.py": module}, "--preload", "module", "train.py") as run:
            eventually((run.folder / "importing").exists, "the module is being imported")
            begin = time.monotonic()
            run.process.send_signal(number)
            lines, error = run.end(128 + number)
            check(lines == [] and time.monotonic() - begin < 5, lines, error)


def stop_of_a_run():
    """The signal does not wait for the interpreter, and where that is killed while workers save none is started."""
    script = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: open('saving', 'w'))\n" + WAITS
    with Run({"train.py": script}, "--preload", "json", "--grace", "60", "train.py") as run:
        worker = int(eventually(lambda: run.text("pid0"), "the worker"))
        run.process.send_signal(signal.SIGTERM)
        eventually((run.folder / "saving").exists, "the worker has the signal")
        first = run.interpreter([worker])
        os.kill(first, signal.SIGKILL)
        eventually(lambda: children_of(run.agent()) == [worker], "the interpreter ends")
        (run.folder / "go").touch()
        lines, error = run.end(143)
    check(lines == ["0 forked"] and "--preload" not in error, lines, error)


def kills():
    """Of the agent and of the guardian, while modules are imported and while workers run."""
    module = "import os, time\nopen('importing', 'w').close()\nwhile os.path.exists('hang'): time.sleep(.01)\n"
    for is_importing in (True, False):
        for victim in ("agent", "guardian"):
            files = {"train.py": WAITS, "module.py": module} | ({"hang": ""} if is_importing else {})
            with Run(files, "--nproc-per-node", "2", "--preload", "module", "train.py") as run:
                eventually((run.folder / ("importing" if is_importing else "pid1")).exists, "it runs")
                check(len(with_marker(run.marker)) >= 3, "the processes are not found")
                os.kill(run.agent() if victim == "agent" else run.process.pid, signal.SIGKILL)
                run.process.communicate(timeout=LIMIT)


def random_kills():
    """Of workers, interpreter, agent and guardian: the run goes on to its end, and each run leaves nothing."""
    count = 200 if os.environ.get("TORCHBRIDGE_COMPLETE") else 20
    # In CI one seed for each commit: a second run says more of the first.
    seed = int(os.environ.get("TORCHBRIDGE_SEED", random.randrange(1 << 30)))
    print(f"random_kills: seed {seed}", flush=True)
    chance = random.Random(seed)
    script = SHOW + """
import pathlib, time
for step in range(10 ** 9):
    if os.path.exists("end"): break
    time.sleep(.005)
"""
    kinds = dict.fromkeys(("worker", "interpreter", "agent", "guardian"), 0)
    while sum(kinds.values()) < count:
        with Run({"train.py": script}, "--nproc-per-node", "2", "--max-restarts", str(count), "--grace", "5",
                 "--preload", "json,multiprocessing", "train.py") as run:
            for _ in range(10):
                time.sleep(chance.uniform(0, 0.4))
                if run.process.poll() is not None:
                    break
                agent = run.agent()
                kind = chance.choices(list(kinds), weights=(6, 6, 1, 1))[0]
                children = children_of(agent) or [agent]  # before it has any, the agent itself
                victim = {"worker": max(children), "interpreter": min(children), "agent": agent,
                          "guardian": run.process.pid}[kind]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                kinds[kind] += 1
                if victim in (agent, run.process.pid):
                    run.process.communicate(timeout=LIMIT)
            (run.folder / "end").touch()
            out, error = run.process.communicate(timeout=LIMIT)
            check(run.process.returncode in (0, -9, 137), f"exit code {run.process.returncode}: {out}\n{error}")
            off = [line for line in error.splitlines() if "has no effect" in line]
            check(all("before it has imported the modules" in line for line in off), error)
            if run.process.returncode == 0 and not off and "cannot be forked" not in error:
                check(out.splitlines()[-1].endswith("forked"), out, error)
    print(f"random_kills: {kinds}", flush=True)


def restarts():
    """Descriptors and memory of agent and interpreter do not grow."""
    count = 1000 if os.environ.get("TORCHBRIDGE_COMPLETE") else 60
    script = ORIGIN + """
import pathlib, sys
count, agent = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), os.getppid()
children = pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
with open("seen", "a") as file:
    for process in (agent, os.getpid()):
        rss = [line.split()[1] for line in open(f"/proc/{process}/status") if line.startswith("VmRSS")][0]
        file.write(f"{len(os.listdir(f'/proc/{process}/fd'))} {rss} ")
    file.write(f"{len(children)} {origin()}\\n")
sys.exit(count % 5 + 1 if count < COUNT else 0)
""".replace("< COUNT", f"< {count}")
    with Run({"train.py": script}, "--preload", "json,decimal", "--max-restarts", str(count), "train.py") as run:
        run.end()
        seen = [line.split() for line in run.text("seen").splitlines()]
    check(len(seen) == count + 1 and all(line[-2:] == ["2", "forked"] for line in seen), seen)
    for column in (0, 2):  # a worker may look before the agent has closed what it used to start it
        first, last = (min(int(line[column]) for line in part) for part in (seen[:20], seen[-20:]))
        check(first == last, "descriptors:", seen)
    check(int(seen[-1][1]) - int(seen[5][1]) < 1000 and int(seen[-1][3]) - int(seen[5][3]) < 1000, "memory, kB:", seen)


def random_numbers():
    """Of two ranks and two attempts: all differ, those with a seed do not. Hashes differ between two runs."""
    module = "import copy, random\nclass Seeds(random.Random):\n  def seed(self, a): super().seed(a)\n" \
             "OWN, SEEDED, LATER, SEEDS = random.Random(), random.Random(3), random.Random(), Seeds(None)\n" \
             "LATER.seed(4)\nCOPY = copy.deepcopy(SEEDED)\n"
    script = """
import module
assert module.SEEDED.random() == module.COPY.random() == 0.23796462709189137
assert module.LATER.random() == 0.23604808973743452
import hashlib, multiprocessing, os, random, secrets, sys, tempfile, uuid
open("values", "a").write("\\n".join(map(str, [random.random(), uuid.uuid4(), secrets.token_hex(),
    module.OWN.random(), module.SEEDS.random(),
    multiprocessing.current_process().authkey.hex(), next(tempfile._get_candidate_names())])) + "\\n")
open("hash", "a").write(f"{hash('a')}\\n")
sys.exit(int(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"))
"""
    hashes = []
    for _ in range(2):
        with Run({"train.py": script, "module.py": module}, "--nproc-per-node", "2", "--max-restarts", "1", "--preload",
                 "module,random,uuid,secrets,multiprocessing,tempfile", "train.py") as run:
            run.end()
            values = run.text("values").split()
            check(len(values) == len(set(values)) and len(values) >= 21, values)  # one may be ended before it writes
            hashes.append(set(run.text("hash").split()))
    check(len(hashes[0]) == 1 and hashes[0] != hashes[1], hashes)


def environment_at_import():
    """No variable of one rank or attempt, and OMP_NUM_THREADS as workers have it."""
    module = "import os\nSEEN = dict(os.environ)\n"
    script = "import module, os\nprint(sorted(set(os.environ) - set(module.SEEN)), [n for n, v in module.SEEN.items()" \
             " if os.environ.get(n) != v])\n"
    with Run({"train.py": script, "module.py": module}, "--nproc-per-node", "2", "--preload", "module", "train.py",
             environment={"RANK": "7", "WORLD_SIZE": "9"}) as run:
        lines, error = run.end()
    names = re.findall(r"'(\w+)'", lines[1])
    check(lines[1].endswith("[]") and "RANK" in names and "WORLD_SIZE" in names, lines)
    check("OMP_NUM_THREADS" not in names, lines)


def local_ranks():
    """What only the command line of one worker has."""
    script = SHOW + "import sys\nprint(sys.argv, sys.orig_argv[2:], os.environ['LOCAL_RANK'], " \
             "os.environ['CUDA_VISIBLE_DEVICES'])\n"
    with Run({"train.py": script}, "--nproc-per-node", "2", "--virtual-local-rank", "--preload", "json", "train.py",
             "${local_rank}", "x", environment={"CUDA_VISIBLE_DEVICES": "3,5"}) as run:
        words = "['train.py', '{0}', 'x'] ['train.py', '{0}', 'x'] 0 {1}"
        check(run.end()[0] == ["0 forked", "1 forked", words.format(0, 3), words.format(1, 5)])
    with Run({"train.py": script}, "--preload", "json", "train.py", command="launch",
             environment={"CUDA_VISIBLE_DEVICES": "3"}) as run:
        words = "['train.py', '--local-rank=0'] ['train.py', '--local-rank=0'] 0 3"
        check(run.end()[0] == ["0 forked", words])


def numa_binding():
    """Where sysfs has two GPUs, the first near CPU 1, the second near CPU 0; and with what OpenMP reads when loaded."""
    within = ["unshare", "--map-root-user", "--mount"]
    if not {0, 1} <= os.sched_getaffinity(0) or subprocess.run([*within, "true"], check=False).returncode != 0:
        return print("numa_binding: SKIPPED: no two CPUs, or no mount namespace")
    script = ORIGIN + "os.write(1, f\"{os.environ['RANK']} {origin()} {os.sched_getaffinity(0)}\\n\".encode())\n"
    with tempfile.TemporaryDirectory() as name:
        for node in (0, 1):
            facts = {f"node/node{node}/cpulist": node, f"node/node{node}/distance": ("10 20", "20 10")[node]}
            gpu = {"vendor": "0x10de", "class": "0x030200", "numa_node": 1 - node, "local_cpulist": 1 - node}
            facts |= {f"pci/0000:0{node + 1}:00.0/{key}": value for key, value in gpu.items()}
            for file, text in facts.items():
                path = pathlib.Path(name, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{text}\n")
        within += ["sh", "-c", f"mount --bind {name}/node /sys/devices/system/node && mount --bind {name}/pci "
                   "/sys/bus/pci/devices && mount -t tmpfs none /proc/driver && exec \"$@\"", "sh"]
        none = dict.fromkeys(("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"), "")
        none["CUDA_VISIBLE_DEVICES"] = "0,1"
        for variables, origin, line in (({}, "forked", ""), ({"OMP_PLACES": "cores"}, "started", "OMP_PLACES")):
            with Run({"train.py": script}, "--nproc-per-node", "2", "--numa-binding", "node", "--preload", "json",
                     "train.py", within=within, environment=none | variables) as run:
                lines, error = run.end()
            check(lines == [f"0 {origin} {{1}}", f"1 {origin} {{0}}"], lines, error)
            check(error.count("--preload has no effect") == len(variables) and line in error, error)


def environments():
    """The Python of PATH, here that of an environment with a module and a .pth file, and a sitecustomize.

    In a folder of PYTHONPATH, because Debian's Python has one in its standard library, before the environment's."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", name], check=True)
        packages = next(pathlib.Path(name).glob("lib/python3*/site-packages"))
        (packages / "installed.py").write_text("VALUE = 'installed'\n")
        (packages / "own.pth").write_text("import os; os.environ['BY_PTH'] = '1'\n")
        site = pathlib.Path(name) / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text("import os\nos.environ['BY_SITE'] = '1'\n")
        script = ORIGIN + "import installed, sys\nprint(origin(), installed.VALUE, sys.prefix, sys.executable, " \
                          "os.environ['BY_PTH'], os.environ['BY_SITE'])\n"
        with Run({"train.py": script}, "--preload", "installed", "train.py",
                 environment={"PYTHON_EXEC": "", "PATH": f"{name}/bin:{os.environ['PATH']}",
                              "PYTHONPATH": str(site)}) as run:
            lines, error = run.end()
        executable = lines[0].split()[3]
        check(lines == [f"forked installed {name} {executable} 1 1"] and executable.startswith(f"{name}/bin/python"),
              lines, error)


def output():
    """Prefixes, filters, JSON, logs and a health check are those of any worker."""
    script = SHOW + "import sys, time\nprint('e', file=sys.stderr)\nopen('up' + os.environ['RANK'], 'w')\n" \
                    "while not os.path.exists('checked'): time.sleep(.01)\n"
    health = "kill -0 $TORCHBRIDGE_WORKER_PID && [ $RANK = 1 ] && touch checked; true"
    with Run({"train.py": script}, "--nproc-per-node", "2", "--tee", "3", "--local-ranks-filter", "1", "--preload",
             "json", "--health-check", health, "--health-check-interval", "1", "train.py") as run:
        check(run.end() == (["[default1]:1 forked"], "[default1]:e\n"))
        logs = sorted(path.read_text() for path in run.folder.glob("torchbridge_*/*/attempt_0/*/stdout.log"))
        check(logs == ["0 forked\n", "1 forked\n"], logs)


def nodes():
    """Two agents and a spare, each with an interpreter; where one is lost, the spare takes its place at once."""
    port = free_port()
    options = ["--nnodes", "2:3", "--active", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
               "--max-restarts", "3", "--preload", "module"]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        script = folder / "train.py"
        script.write_text(WAITS.replace('"pid', f'"{folder}/pid').replace('"go"', f'"{folder}/go"'))

        def workers():  # none while a file is not there or not written
            with contextlib.suppress(OSError, ValueError):
                return [int((folder / f"pid{rank}").read_text()) for rank in range(2)]

        def listens():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True

        paths = {"PYTHONPATH": name}
        (folder / "module.py").write_text(f"import os\nopen(f'{name}/imported{{os.getpid()}}', 'w')\n")
        runs = [stack.enter_context(Run({}, *options, str(script), environment=paths))]
        eventually(listens, "the first agent coordinates")
        runs += [stack.enter_context(Run({}, *options, str(script), environment=paths)) for _ in range(2)]
        first = eventually(workers, "two workers")
        children = {}

        def each_has_an_interpreter():
            children.update({run: children_of(run.agent()) for run in runs})
            return sorted(map(len, children.values())) == [1, 2, 2]

        eventually(each_has_an_interpreter, "one interpreter in each agent")
        spare = next(run for run in runs if len(children[run]) == 1)
        eventually((folder / f"imported{children[spare][0]}").exists, "the spare has imported the module")
        lost = next(run for run in runs[1:] if set(children[run]) & set(first))
        os.kill(lost.process.pid, signal.SIGKILL)
        eventually(lambda: (now := workers()) and not set(now) & set(first), "two other workers")
        (folder / "go").touch()
        for run in set(runs) - {lost}:
            lines, error = run.end()
            check(lines and all(line.endswith("forked") for line in lines) and "--preload" not in error, lines, error)


def terminal():
    """pdb, with what is typed."""
    script = "import json, sys\nassert sys.stdin.isatty()\nvalue = 41\nbreakpoint()\nprint('after', value)\n"
    seen = []
    for options in ([], ["--preload", "json"]):
        primary, secondary = pty.openpty()
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), secondary)
        with Run({"train.py": script}, *options, "train.py", **streams) as run:
            os.close(secondary)
            text, typed = b"", [b"p value + 1\n", b"value = 7\n", b"w\n", b"n\n", b"n\n"]
            while True:
                if not select.select([primary], [], [], LIMIT)[0]:
                    raise Failure(f"the debugger says nothing more after {text!r}")
                try:
                    part = os.read(primary, 4096)
                except OSError:
                    break
                if not part:
                    break
                text += part
                if text.endswith(b"(Pdb) "):
                    os.write(primary, typed.pop(0) if typed else b"c\n")
            os.close(primary)
            run.process.wait(LIMIT)
            seen.append((run.process.returncode, text.decode().replace(str(run.folder), "FOLDER")))
    check(seen[0] == seen[1] and "after 7" in seen[0][1], *seen)


CASES = [threads, threads_of_the_site, processes, shared_memory, rank_at_import, second_module_is_named,
         threads_that_end_at_a_fork, not_to_be_imported, working_directory_and_arguments, begin_of_the_path,
         folder_that_comes_later, gpu, no_python, wrappers, start_method, changes, changes_of_zips,
         change_while_others_are_imported, change_that_is_wrong, change_at_each_import, modules_may,
         killed_interpreter, killed_before_its_first_answer, stopped_interpreter, interpreter_that_stops_in_a_fork,
         signal_while_it_imports, stop_of_a_run, kills, random_kills, restarts, random_numbers, environment_at_import,
         local_ranks, environments, numa_binding, output, nodes, terminal]


def main():
    run_cases(CASES, sys.argv[3:])


if __name__ == "__main__":
    main()
