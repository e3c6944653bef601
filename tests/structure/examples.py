#!/usr/bin/env python3
"""The changes of docs/develop/example_*.md apply to the tree and compile; what needs no libtorch passes its test.

    tests/structure/examples.py [ROOT [BUILD]]

Checked, with the line of the page for what is wrong:
- `git apply` takes each diff, one after the other, in a folder with the files that they change;
- the compiler accepts the sources that the diffs add, with the flags that BUILD has for their neighbours;
- of a change that needs no libtorch, all sources that it touches are compiled and linked with the library, and its test
  cases run.
Without BUILD, and for parts of the tree that it does not build, only the first is checked.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

PAGES = [f"docs/develop/example_{name}.md" for name in ("launcher", "optimizer", "checkpoint")]
RECORDINGS = "tests/data/environments"
# What the unit tests of bridge/core link, besides their own sources.
SUPPORT = ["tests/support/recorded_environment.cpp", "tests/support/paths.cpp"]
LIBRARIES = ["lib/libtorchbridge_core.a", "lib/libtorchbridge_base.a"]


class Diff:
    def __init__(self, text, where):
        self.text, self.where = text, where
        self.paths = re.findall(r"^\+\+\+ b/(\S+)", self.text, re.MULTILINE)
        self.added = re.findall(r"^--- /dev/null\n\+\+\+ b/(\S+)", self.text, re.MULTILINE)


def change_of(root, page):
    """The diffs of a page."""
    text = (root / page).read_text()
    return [Diff(match[1], f"{page}:{text.count(chr(10), 0, match.start()) + 1}")
            for match in re.finditer(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def apply(changes, root, folder):
    """The errors of diffs that do not apply. `folder` gets the files as they are with all changes."""
    errors = []
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    environment.pop("GIT_DIR", None)
    for diff in (diff for change in changes for diff in change):
        for path in diff.paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if path not in diff.added and not (folder / path).exists() and (root / path).exists():
                shutil.copy(root / path, folder / path)
            elif path in diff.added and (root / path).exists():
                errors.append(f"{diff.where}: the tree has {path}, which this diff adds")
        command = ["git", "apply", "--whitespace=error", "-"]
        run = subprocess.run(command, input=diff.text, capture_output=True, text=True, cwd=folder, env=environment)
        if run.returncode != 0:
            reason = run.stderr.strip().replace("\n", "; ")
            errors.append(f"{diff.where}: the diff of {', '.join(diff.paths)} does not apply: {reason}")
    return errors


def sources_of(file):
    """Of a unity build, whose file includes several sources: those."""
    return re.findall(r'^#include "(.*)"$', file.read_text(), re.MULTILINE) if file.parent.name == "Unity" else [file]


class Compiler:
    """Compiles sources of `folder` as `build` compiles those of `root`."""

    def __init__(self, root, build, folder):
        self.root, self.build, self.folder = root, build, folder
        self.commands = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            for source in sources_of(pathlib.Path(entry["file"])):
                self.commands[os.path.relpath(source, root)] = shlex.split(entry["command"])

    def flags(self, path):
        """None where the build has no source beside it. Of several the one with most flags: it has libtorch, too."""
        if path in self.commands:
            return self.commands[path]
        beside = [flags for other, flags in self.commands.items() if os.path.dirname(other) == os.path.dirname(path)]
        return max(beside, key=len, default=None)

    def needs_libtorch(self, path):
        return any("USE_DISTRIBUTED" in flag or "torch/include" in flag for flag in self.flags(path))

    def errors_of(self, paths):
        """Of a unit that includes them, as in a unity build: libtorch's precompiled headers take seconds to load."""
        unit = self.folder / "examples.cpp"
        unit.write_text("".join(f'#include "{path}"\n' for path in paths))
        # Checked with the build's optimization: another one would not fit the precompiled headers.
        return self.run(unit, max(map(self.flags, paths), key=len), ["-fsyntax-only"])

    def compile(self, path):
        """(object, errors)"""
        target = self.folder / path.replace("/", "_").replace(".cpp", ".o")
        source = self.folder / path if (self.folder / path).exists() else self.root / path
        return target, self.run(source, self.flags(path), ["-O0", "-o", target, "-c"])

    def run(self, source, flags, last):
        flags = [*flags]
        for option in ("-o", "-c"):
            at = flags.index(option)
            del flags[at:at + 2]
        flags = [flag.replace(str(self.root), str(self.folder)) if flag.startswith("-D") else flag for flag in flags]
        command = [flags[0], "-iquote", self.folder, "-I", self.folder / "include", *flags[1:], *last, source]
        run = subprocess.run(command, capture_output=True, text=True, cwd=self.build)
        return run.stderr if run.returncode != 0 else ""

    def link(self, paths, objects, program):
        flags = [flag for flag in self.flags(paths[0]) if flag.startswith("-f") and "lto" not in flag]
        libraries = [self.build / library for library in LIBRARIES]
        # In a unity build an object of the library has several sources, among them one that a change touches; the
        # linker takes the first definition. With -flto the program would crash.
        flags += ["-Wl,--allow-multiple-definition", "-fno-lto"]
        command = [self.flags(paths[0])[0], *flags, *objects, *libraries, "-lgtest_main", "-lgtest", "-lpthread"]
        return subprocess.run([*command, "-o", program], capture_output=True, text=True)


def build(changes, compiler):
    """(errors, remarks)"""
    errors, remarks, jobs, with_libtorch = [], [], [], []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for change in changes:
            added = [path for diff in change for path in diff.added if path.endswith(".cpp")]
            if not all(compiler.flags(path) for path in added):
                remarks.append(f"not compiled, for the build has none of its folder: {added[0]}")
            elif any(map(compiler.needs_libtorch, added)):
                with_libtorch += added
            else:
                sources = [path for diff in change for path in diff.paths if path.endswith(".cpp")]
                paths = [*dict.fromkeys(sources), *SUPPORT]
                jobs.append((paths, [pool.submit(compiler.compile, path) for path in paths]))
        if with_libtorch and (error := compiler.errors_of(with_libtorch)):
            errors.append(f"{', '.join(with_libtorch)} do not compile:\n{error}")
    for number, (paths, futures) in enumerate(jobs):
        results = [future.result() for future in futures]
        wrong = [f"{path} does not compile:\n{error}" for path, (_, error) in zip(paths, results) if error]
        errors += wrong
        if wrong:
            continue
        if missing := [library for library in LIBRARIES if not (compiler.build / library).exists()]:
            remarks.append(f"not linked, for {missing[0]} is not built")
            continue
        program = compiler.folder / f"test_{number}"
        linked = compiler.link(paths, [target for target, _ in results], program)
        if linked.returncode != 0:
            errors.append(f"{paths[0]} and its test do not link:\n{linked.stderr}")
            continue
        run = subprocess.run([program, "--gtest_brief=1"], capture_output=True, text=True)
        if run.returncode != 0:
            errors.append(f"the test of {paths[0]} fails:\n{run.stdout}{run.stderr}")
            continue
        remarks.append(run.stdout.strip().splitlines()[-1].strip())
    return errors, remarks


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent).absolute()
    commands = pathlib.Path(sys.argv[2]).absolute() if len(sys.argv) > 2 else None
    changes = [change_of(root, page) for page in PAGES]
    remarks = []
    with tempfile.TemporaryDirectory(prefix="torchbridge-examples-") as name:
        folder = pathlib.Path(name).resolve()
        shutil.copytree(root / RECORDINGS, folder / RECORDINGS)
        errors = apply(changes, root, folder)
        if not errors and commands and (commands / "compile_commands.json").exists():
            errors, remarks = build(changes, Compiler(root, commands, folder))
    for error in errors:
        print(error)
    if not errors:
        print("; ".join([f"{sum(map(len, changes))} diffs of {len(changes)} changes apply", *remarks]))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
