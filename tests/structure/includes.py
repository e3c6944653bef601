#!/usr/bin/env python3
"""The include graph of the sources is layered as docs/develop/architecture.md says.

    tests/structure/includes.py [ROOT]

A module is a header and the source of the same name. Checked, each with a line for what is wrong:
- an include in quotes names a file by its path from the root, or, in the folders that users copy, beside the file;
- no module includes itself by way of others;
- a folder includes only folders that its row of the table of docs/develop/architecture.md allows, and those that they
  may use; they are in rows above its own;
- the unit test of a source has its name, in the folder of that name below tests/unit;
- no two sources have one file name, and no two headers define a type of one name.
"""

import collections
import pathlib
import re
import sys

FOLDERS = ("backends", "bridge", "include", "python", "spank_plugin", "tests", "trainer_template")
# What lies beside the file may be named alone.
COPIED = ("trainer_template/app/", "trainer_template/starter/", "tests/")
FOREIGN = "gloo_declarations/"  # as gloo names its headers
LIBRARIES = {"nothing", "libc", "libtorch", "PMIx", "MPI", "NCCL", "CLI11", "Python"}
MANY = {"main.cpp", "tasks.h"}  # one a program; the starter has the table of tasks that the trainer has


def sources(root):
    found = (str(path.relative_to(root)) for folder in FOLDERS for path in (root / folder).rglob("*.*"))
    return sorted(path for path in found if re.search(r"\.(h|cpp|c)$", path) and FOREIGN not in path)


def module(path):
    return re.sub(r"\.(h|cpp|c)$", "", path)


def includes_of(root, paths, wrong):
    """{path: [included path]}, of the tree alone."""
    known, found = set(paths), {}
    for path in paths:
        found[path] = []
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            match = re.match(r'\s*#include "([^"]+)"', line)
            public = re.match(r"\s*#include <(torchbridge/[^>]+)>", line)
            beside = str(pathlib.PurePath(path).parent / match[1]) if match else ""
            if public and f"include/{public[1]}" in known:
                found[path].append(f"include/{public[1]}")
            elif public:
                wrong.append(f"{path}:{number}: there is no include/{public[1]}")
            elif match and match[1] in known:
                found[path].append(match[1])
            elif match and path.startswith(COPIED) and beside in known:
                found[path].append(beside)
            elif match and path.startswith("tests/") and f"tests/support/{match[1]}" in known:
                found[path].append(f"tests/support/{match[1]}")
            elif match and not path.startswith("tests/"):
                wrong.append(f'{path}:{number}: "{match[1]}" is no path from the root')
    return found


def circles(edges):
    """Strongly connected components of more than one module (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(one):
        index[one] = low[one] = len(index)
        stack.append(one)
        for other in sorted(edges[one]):
            if other not in index:
                visit(other)
            if other in stack:
                low[one] = min(low[one], low[other])
        if low[one] == index[one]:
            part = stack[stack.index(one):]
            del stack[stack.index(one):]
            if len(part) > 1:
                found.append(sorted(part))

    for one in sorted(edges):
        if one not in index:
            visit(one)
    return found


def layers(root, wrong):
    """The table of docs/develop/architecture.md: {folder: all folders that it may use}, in the order of its rows.

    A name in the column "may use" is that of a folder beside this one, else of the only row of that name, else one of
    LIBRARIES.
    """
    page = (root / "docs/develop/architecture.md").read_text()
    allowed = {}
    for folder, uses in re.findall(r"^\| `([a-z_/]+)` \| ([^|]+) \|", page, re.MULTILINE):
        reached = set()
        for name in uses.split(", "):
            beside = [row for row in allowed if row == str(pathlib.PurePath(folder).parent / name)]
            named = beside or [row for row in allowed if f"/{row}".endswith(f"/{name}")]
            if len(named) == 1:
                reached |= {named[0]} | allowed[named[0]]
            elif name not in LIBRARIES:
                wrong.append(f"docs/develop/architecture.md: {folder}: '{name}' is no library and no row above")
        allowed[folder] = reached
    return allowed


def layer_of(path, allowed):
    """The longest folder in the table that holds the path."""
    fitting = [folder for folder in allowed if path.startswith(folder + "/")]
    return max(fitting, key=len) if fitting else None


def misplaced_tests(paths):
    """Unit tests without a source of their name, which may have several tests: NAME_test.cpp, NAME_WHAT_test.cpp."""
    modules = {module(path) for path in paths if not path.startswith("tests/")}
    for path in paths:
        match = re.fullmatch(r"tests/unit/(.*)_test\.cpp", path)
        if match and not any(match[1] == one or match[1].startswith(one + "_") for one in modules):
            yield f"{path}: there is no source of that name: expected {match[1]}.h or .cpp"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent)
    sys.setrecursionlimit(10000)
    paths, wrong = sources(root), []
    includes, allowed = includes_of(root, paths, wrong), layers(root, wrong)
    wrong += misplaced_tests(paths)

    edges = collections.defaultdict(set)
    for path, others in includes.items():
        edges[module(path)] |= {module(other) for other in others} - {module(path)}
        own = layer_of(path, allowed)
        if own is None and not path.startswith(("tests/", "include/")):
            wrong.append(f"{path}: docs/develop/architecture.md has no row for its folder")
        for other in others if own else []:
            theirs = layer_of(other, allowed)
            if theirs and theirs != own and theirs not in allowed[own]:
                wrong.append(f"{path}: includes {other}, and docs/develop/architecture.md does not allow {own} to use "
                             f"{theirs}")
            if other.startswith("tests/"):
                wrong.append(f"{path}: includes {other}, which is a test's")
    wrong += [f"a circle of includes: {', '.join(part)}" for part in circles(edges)]

    names, types = collections.defaultdict(list), collections.defaultdict(list)
    for path in paths:
        if path.startswith(("tests/", "include/")):
            continue
        names[pathlib.PurePath(path).name].append(path)
        if path.endswith(".h"):
            for match in re.finditer(r"^(?:class|struct|enum class) ([A-Z]\w*)[^;]*?\{", (root / path).read_text(),
                                     re.MULTILINE):
                types[match[1]].append(path)
    wrong += [f"{len(where)} files are called {name}: {', '.join(where)}"
              for name, where in names.items() if len(where) > 1 and name not in MANY]
    wrong += [f"{len(set(where))} headers define {name}: {', '.join(where)}"
              for name, where in types.items() if len(set(where)) > 1]

    print("\n".join(wrong) if wrong else f"{len(paths)} sources in {len(allowed)} folders: layered, without a circle")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
