#!/usr/bin/env python3
"""A script that is a fork of `torchbridge run --preload` behaves as one that `python -u` runs.

    preload_matrix_test.py TORCHBRIDGE [CASE...]

Each case runs twice, the second time with --preload, and both times give the same exit code, standard output and error,
report and error file. Where a script prints what it sees, that is what a program could find out about its process.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TORCHBRIDGE, PYTHON = os.path.abspath(sys.argv[1]), sys.executable
# A module that is in no list of built-in ones, and one of C; `multiprocessing` and `random` have state of the process.
MODULES = "decimal,json,multiprocessing,random,concurrent.futures"
PRELOADED = "import decimal, json, multiprocessing, random, concurrent.futures\n"

# All that is the same in a process of its own. Of modules: those that the program itself has not imported. ctypes,
# because some builds of libffi keep a descriptor open.
SEEN = PRELOADED + r"""
import asyncio, ctypes, faulthandler, gc, inspect, locale, os, resource, signal, sys, threading, warnings
def show(name, value): print(name, "=", value)
main = sys.modules["__main__"]
for name in sorted(vars(main)):
    if name.startswith("__"): show(name, type(vars(main)[name]) if name in ("__builtins__", "__loader__") else
                                   vars(main)[name])
for name in ("argv", "flags", "path", "prefix", "exec_prefix", "warnoptions", "_xoptions", "executable",
             "dont_write_bytecode", "pycache_prefix", "meta_path", "path_hooks", "byteorder"):
    show(name, re.sub(" at 0x[0-9a-f]+", "", str(getattr(sys, name))) if "re" in globals() else getattr(sys, name))
show("orig_argv", sys.orig_argv[1:])
for stream in (sys.stdin, sys.stdout, sys.stderr):
    show(stream.name, [stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.mode,
                       type(stream.buffer), stream.fileno(), stream.isatty()])
    assert stream is getattr(sys, f"__{stream.name.strip('<>')}__")
show("stack", [frame.filename for frame in inspect.stack()])
show("environ", sorted(item for item in os.environb.items() if item[0] not in
     (b"MASTER_PORT", b"TORCHELASTIC_ERROR_FILE", b"TORCHBRIDGE_LISTEN_FD")))
show("cwd", os.getcwd())
listener = os.environ.get("TORCHBRIDGE_LISTEN_FD", "none")
show("descriptors", sorted((number == listener and "listener" or number, os.path.islink(f"/proc/self/fd/{number}") and
     re_sub(os.readlink(f"/proc/self/fd/{number}"))) for number in os.listdir("/proc/self/fd")
     if os.path.exists(f"/proc/self/fd/{number}") or number == listener))
show("inheritable", os.get_inheritable(int(listener)))
show("status", [line.split() for line in open("/proc/self/status") if line.startswith(
     ("Sig", "Shd", "Threads", "Umask", "Cpus_allowed_list", "Mems_allowed_list", "NoNewPrivs", "Groups"))
     and not line.startswith("SigQ")])
show("name", open("/proc/self/comm").read())
show("leader", [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.getpriority(os.PRIO_PROCESS, 0)])
show("limits", [resource.getrlimit(number) for number in range(16)])
show("handlers", [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())])
show("threads", [threading.active_count(), threading.main_thread() is threading.current_thread(),
                 threading.main_thread().ident == threading.get_ident(), threading.get_native_id() == os.getpid(),
                 threading.current_thread().name])
show("gc", [gc.isenabled(), gc.get_threshold(), gc.get_debug()])
show("interpreter", [sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(),
                     faulthandler.is_enabled(), locale.getlocale(), sys.getfilesystemencoding()])
show("hooks", [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, hasattr(sys, "last_type")])
show("warnings", warnings.filters)
show("sitecustomize", sys.modules.get("sitecustomize"))
show("of this file", [name for name, module in sys.modules.items() if "sitecustomize.zip" in str(module) or
                      "/proc/self/fd" in str(getattr(module, "__file__", ""))])
show("importers", [path for path in sys.path_importer_cache if "/proc/" in path])
show("parents", [multiprocessing.parent_process(), multiprocessing.current_process().name,
                 multiprocessing.current_process().pid == os.getpid()])
""".replace("import asyncio", "import re\nimport asyncio").replace(
    "def show", "def re_sub(text): return re.sub(r'[0-9]{2,}|[A-Za-z0-9_]{8}/attempt', '#', text)\ndef show")

PACKAGE = {"package/__init__.py": "print('package', __name__, __file__, __package__)\n",
           "package/__main__.py": "from . import other\n" + SEEN,
           "package/module.py": "from . import other\nimport package\n" + SEEN,
           "package/other.py": "print('other', __name__)\n"}

# name: (files, command line after the options, variables). `train.py` is the script where there is one.
CASES = {}


def case(name, files, *command, **variables):
    """`files` may be the text of train.py. Where one is own.py, that module is in the list too."""
    CASES[name] = ({"train.py": files} if isinstance(files, str) else files, command or ("train.py",), variables)


case("script", SEEN, "train.py", "--lr", "0.1", "a b", "", "new\nline", "${local_rank}", "x" * 100_000)
case("bytes", SEEN, "train.py", b"\xff\xfe", LATIN=b"\xe9\xff")
case("absolute path", SEEN, "{folder}/train.py")
case("other folder", {"deep/er/train.py": SEEN + "import beside\n", "deep/er/beside.py": "print(__file__)\n"},
     "deep/er/train.py")
case("link", {"deep/train.py": SEEN + "import beside\n", "deep/beside.py": "print(__file__)\n",
              "link.py": pathlib.Path("deep/train.py")}, "link.py", "1")
case("dots", {"deep/train.py": SEEN}, "deep/../deep/./train.py")
case("folder with __main__.py", {"app/__main__.py": SEEN + "import beside\n", "app/beside.py": "print(__file__)\n"},
     "app")
case("zip", {"app.zip": {"__main__.py": SEEN + "import beside\n", "beside.py": "print(__file__)\n"}}, "app.zip", "1")
case("no suffix", {"train": SEEN}, "train")
case("-m package", PACKAGE, "-m", "package", "1")
case("-m package.module", PACKAGE, "-m", "package.module", "--x", "y")
case("-m module", {"module.py": SEEN}, "-m", "module")
case("-m of PYTHONPATH", {"elsewhere/module.py": SEEN}, "-m", "module", PYTHONPATH="elsewhere:/nowhere")
case("-m that is not there", "", "-m", "no_such_module")
case("--run-path", SEEN, "--run-path", "train.py", "1")
case("no script", "", "missing.py")
case("syntax error", "print(1)\nfor\n")
case("null byte", "print(1)\n\0")
case("other encoding", "# -*- coding: latin-1 -*-\nprint(ascii('\udce9'))\n")
case("shadowing", {"train.py": SEEN + "import statistics\nprint(statistics.__file__)\n", "statistics.py": ""})

case("PYTHONSAFEPATH", SEEN, PYTHONSAFEPATH="1")
case("PYTHONPATH", {"train.py": SEEN + "import found\n", "lib/found.py": "print(__file__)"}, PYTHONPATH="lib:")
case("empty PYTHONPATH", SEEN, PYTHONPATH="")
case("PYTHONDEVMODE", SEEN, PYTHONDEVMODE="1")
case("PYTHONOPTIMIZE", SEEN + "assert False\nprint(__debug__)\n", PYTHONOPTIMIZE="1")
case("PYTHONWARNINGS", SEEN, PYTHONWARNINGS="error::DeprecationWarning,ignore")
case("PYTHONIOENCODING", SEEN + "print('\u00e9')\n", PYTHONIOENCODING="latin-1:replace")
case("PYTHONUTF8", SEEN, PYTHONUTF8="1", LC_ALL="C")
case("PYTHONHASHSEED", SEEN + "print(hash('a'))\n", PYTHONHASHSEED="7")
case("PYTHONNOUSERSITE", SEEN, PYTHONNOUSERSITE="1")
case("variables of a module", {"train.py": "import own\n" + SEEN, "own.py": """import os
os.environ["SET_BY_OWN"] = "1"
os.environ["OMP_NUM_THREADS"] = "3"
os.environb.setdefault(b"RANK", b"7")
del os.environ["GIVEN"]
"""}, OMP_NUM_THREADS="2", GIVEN="1")
USER = f"user/lib/python3.{sys.version_info[1]}/site-packages"
case("variables of Python and of a .pth file", {
    "train.py": SEEN + "import usercustomize\n", f"{USER}/set.pth": "import os; os.environ['SET_BY_PTH'] = '1'\n",
    f"{USER}/usercustomize.py": "import os\nos.environ['SET_BY_USER'] = '1'\n"},
    PYTHONUSERBASE="user", LANG="", LC_ALL="", LC_CTYPE="")
case("own sitecustomize", {"train.py": SEEN + "import sitecustomize\nprint(sitecustomize.__file__, sitecustomize.X)\n",
                           "lib/sitecustomize.py": "import sys\nX = len(sys.argv)\nsys.path.append('/appended')\n"},
     PYTHONPATH="lib")

END = PRELOADED + "import atexit, os, signal, sys, threading, time\natexit.register(print, 'at exit')\n"
case("ends", END + "print('end')")
case("exit 3", END + "sys.exit(3)")
case("exit with a text", END + "sys.exit('why')")
case("exit None", END + "sys.exit()")
case("exit 75", END + "sys.exit(75)")
case("exit 256", END + "sys.exit(256)")
case("_exit", END + "os._exit(7)")
case("exception", END + "def f():\n  raise ValueError('bad\\nthing')\nf()\n")
case("chain", END + "try:\n  1/0\nexcept Exception as e:\n  raise KeyError('x') from e\n")
case("group", END + "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])\n")  # from 3.11 on
case("note", END + "e = ValueError(1)\ntry: e.add_note('hint')\nexcept AttributeError: pass\nraise e\n")
case("recursion", END + "def f(): f()\nf()\n")
case("KeyboardInterrupt", END + "raise KeyboardInterrupt\n")
case("SIGINT", END + "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
case("SIGTERM", END + "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n")
case("SIGKILL", END + "os.kill(os.getpid(), signal.SIGKILL)\n")
case("abort", END + "os.abort()\n")
case("handler", END + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nos.kill(os.getpid(), 15)\n"
                      "time.sleep(60)\n")
case("faulthandler", END + "import faulthandler\nfaulthandler.enable()\nos.kill(os.getpid(), signal.SIGSEGV)\n")
case("PYTHONFAULTHANDLER", END + "os.kill(os.getpid(), signal.SIGSEGV)\n", PYTHONFAULTHANDLER="1")
case("dump", END + "import faulthandler\nfaulthandler.dump_traceback_later(.1, exit=True)\ntime.sleep(60)\n")
case("excepthook", END + "sys.excepthook = lambda *a: print('hook', a[0], a[2].tb_next, a[2].tb_frame.f_back)\n1/0\n")
case("exception in a thread", END + "threading.Thread(target=lambda: 1/0, name='t').start()\n")
case("thread that goes on", END + "threading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()\n")
case("warning", END + "import warnings\nwarnings.warn('w')\nwarnings.warn('w', stacklevel=2)\n")
case("unclosed", END + "open('/dev/null')\n", PYTHONWARNINGS="default")
case("no newline", "import sys\nsys.stdout.write('a')\nsys.stderr.write('b')\n")
case("closed stdout", "import sys\nsys.stdout.close()\n")
case("input", "import sys\nprint(repr(sys.stdin.read()))\n")
case("generator at exit", END + "def g():\n  try: yield\n  finally: print('closed')\nx = g()\nnext(x)\n")
case("__del__ at exit", END + "class A:\n  def __del__(self): print('del', sys.modules is None)\na = A()\n")

POOLS = PRELOADED + """
import os, subprocess, sys
def double(x):
    return 2 * x
def show():
    print("in the child", __name__, sys.argv, os.getppid() == int(os.environ["P"]), sys.path)
if __name__ == "__main__":
    os.environ["P"] = str(os.getpid())
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(method, pool.map(double, range(4)))
        if method != "forkserver":
            process = context.Process(target=show)
            process.start(); process.join(); print(process.exitcode)
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            print(list(pool.map(double, range(3))))
    from multiprocessing import shared_memory
    block = shared_memory.SharedMemory(create=True, size=10); block.close(); block.unlink()
    print(subprocess.run([sys.executable, "-c", "import sys; print(sys.argv, sys.path)"], capture_output=True).stdout)
    child = os.fork()
    if child == 0: print("forked"); os._exit(4)
    print(os.waitpid(child, 0)[1])
"""
case("multiprocessing", POOLS)
case("multiprocessing in a module", {"package/__init__.py": "", "package/pools.py": POOLS}, "-m", "package.pools")


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(text, pathlib.Path):
        path.symlink_to(text)
    elif isinstance(text, dict):
        import zipfile
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in text.items():
                archive.writestr(member, content)
    else:
        path.write_text(text, errors="surrogateescape")


def run(folder, files, command, variables, preload):
    """What is compared."""
    options = [word for word in command if word in ("-m", "--run-path")]
    program = [word if isinstance(word, bytes) else word.replace("{folder}", str(folder))
               for word in command if word not in options]
    logs, summary = folder.parent / f"logs{preload}", folder.parent / "summary.json"
    line = [TORCHBRIDGE, "run", "--rdzv-id", "one", "--log-dir", logs, "-r", "3", "--json-summary", summary,
            *(["--preload", MODULES + ",own" * ("own.py" in files)] if preload else []), *options, *program]
    environment = os.environb | {name.encode(): os.fsencode(value) for name, value in variables.items()}
    environment[b"PYTHON_EXEC"] = PYTHON.encode()
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, timeout=100, input=b"line\nrest")
    attempt, = logs.glob("*/attempt_0/0")
    report = json.loads(summary.read_text())
    failures = [{key: value for key, value in failure.items() if key not in ("pid", "time", "error_file", "stderr")}
                for failure in report["attempts"][0]["failures"]]
    said = {"exit code": done.returncode, "stdout": (attempt / "stdout.log").read_bytes(),
            "stderr": (attempt / "stderr.log").read_bytes(), "failures": failures, "result": report["result"],
            "error file": (attempt / "error.json").exists(), "agent's stdout": done.stdout,
            "agent warns": [line for line in done.stderr.splitlines() if b"--preload" in line]}
    for stream in ("stdout", "stderr"):
        said[stream] = re.sub(rb"0x[0-9a-f]{6,}|[A-Za-z0-9_]{6}/attempt|(?<=/logs)(True|False)", b"#", said[stream])
    return said


def differences(name):
    files, command, variables = CASES[name]
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work, "folder")
        folder.mkdir()
        for file, text in files.items():
            write(folder, file, text)
        alone, forked = (run(folder, files, command, variables, preload) for preload in (False, True))
    if SEEN in files.get("train.py", "") and b"\nparents = " not in alone["stdout"]:
        yield f"the script has not shown all: {alone['stderr'][-1000:]}"
    for key, value in alone.items():
        if value == forked[key]:
            continue
        if not isinstance(value, bytes):
            yield f"{key}: {value} alone, {forked[key]} forked"
            continue
        lines = value.splitlines(), forked[key].splitlines()
        different = [(a, b) for a, b in zip(*lines) if a != b] or [(lines[0][-2:], lines[1][-2:])]
        yield f"{key}:\n    alone  {different[0][0]}\n    forked {different[0][1]}"


def main():
    wrong = 0
    for name in [name for name in CASES if not sys.argv[2:] or name in sys.argv[2:]]:
        for difference in differences(name):
            wrong += 1
            print(f"FAILED: {name}: {difference}", flush=True)
    print(f"{len(CASES)} ways to start a script, {wrong} differences")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
