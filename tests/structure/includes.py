#!/usr/bin/env python3
"""The include graph of the sources is layered as docs/develop/architecture.md says.

    tests/structure/includes.py [ROOT]

A module is a header and the source of the same name. Checked, each with a line for what is wrong:
- an include in quotes names a file by its path from the root, or, in the folders that users copy, beside the file;
- no module includes itself by way of others;
- a folder includes only folders that its row of the table of docs/develop/architecture.md allows, and those that they
  may use; they are in rows above its own; a public header counts as one of the folder that the page gives it;
- a public header includes nothing of PRIVATE;
- the unit test of a source has its name, in the folder of that name below tests/unit;
- no two sources have one file name;
- a name of a type has one meaning: two files do not define it, except as PER_CLASS says;
- a folder holds at most MOST_FILES files, except those for which docs/develop/architecture.md gives the reason;
- of the LIBRARIES a folder includes headers of those that its row names, and its row names no other;
- the arrows of the picture in docs/develop/architecture.md are those of the table.
"""

import collections
import pathlib
import re
import sys

PAGE = "docs/develop/architecture.md"
FOLDERS = ("backends", "bridge", "include", "python", "spank_plugin", "tests", "trainer_template")
# What lies beside the file may be named alone.
COPIED = (*(f"trainer_template/{name}.cpp" for name in ("data", "main", "model")), "trainer_template/tasks/", "tests/")
PRIVATE = "trainer_template/runtime/"
FOREIGN = "gloo_declarations/"  # as gloo names its headers
# The libraries that the table may name, each with its headers; the C library's are everywhere.
LIBRARIES = {"nothing": None, "libc": None, "libtorch": r"(torch|ATen|c10)/", "PMIx": r"pmix\.h",
             "MPI": r"mpi(-ext)?\.h", "NCCL": r"nccl\.h", "Slurm": r"slurm/", "CLI11": r"CLI/",
             "Python": r"(pybind11/|Python\.h)"}
MANY = {"main.cpp", "tasks.h"}  # one a program
# What several classes may call a type nested in them. Outside of its class it is written with the class's name.
PER_CLASS = {"Kind", "State"}
MOST_FILES = 30


def sources(root):
    """{path: text}, in the order of the paths."""
    found = (str(path.relative_to(root)) for folder in FOLDERS for path in (root / folder).rglob("*.*"))
    return {path: (root / path).read_text() for path in sorted(found)
            if re.search(r"\.(h|cpp|c)$", path) and FOREIGN not in path}


def module(path):
    return re.sub(r"\.(h|cpp|c)$", "", path)


def includes_of(texts, wrong):
    """{path: [included path]}, of the tree alone."""
    found = {}
    for path, text in texts.items():
        found[path] = []
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r'\s*#include "([^"]+)"', line)
            public = re.match(r"\s*#include <(torchbridge/[^>]+)>", line)
            beside = str(pathlib.PurePath(path).parent / match[1]) if match else ""
            if public and f"include/{public[1]}" in texts:
                found[path].append(f"include/{public[1]}")
            elif public:
                wrong.append(f"{path}:{number}: there is no include/{public[1]}")
            elif match and match[1] in texts:
                found[path].append(match[1])
            elif match and path.startswith(COPIED) and beside in texts:
                found[path].append(beside)
            elif match and path.startswith("tests/") and f"tests/support/{match[1]}" in texts:
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


# The folders that a row of the table names, all folders that it may use, and the libraries that it names.
Row = collections.namedtuple("Row", "named allowed libraries")


def rows_of(page, wrong):
    """The table of PAGE: {folder: Row}, in its order.

    A name in the column "may use" is that of a folder beside this one, else of the only row of that name, else one of
    LIBRARIES.
    """
    rows = {}
    for folder, uses in re.findall(r"^\| `([a-z_/]+)` \| ([^|]+) \|", page, re.MULTILINE):
        row = Row(set(), set(), set())
        for name in uses.split(", "):
            beside = [other for other in rows if other == str(pathlib.PurePath(folder).parent / name)]
            found = beside or [other for other in rows if f"/{other}".endswith(f"/{name}")]
            if len(found) == 1:
                row.named.add(found[0])
                row.allowed.update({found[0]} | rows[found[0]].allowed)
            elif name in LIBRARIES:
                row.libraries.add(name)
            else:
                wrong.append(f"{PAGE}: {folder}: '{name}' is no library and no row above")
        rows[folder] = row
    return rows


def arrows_of(page):
    """The arrows of the first picture of PAGE, as pairs of folders. A box outside a subgraph has the folder's path."""
    boxes, arrows, above = {}, set(), ""
    for line in re.search(r"```mermaid\n(.*?)```", page, re.DOTALL)[1].splitlines()[1:]:
        subgraph = re.match(r' *subgraph (\w+)(?:\["([^"]+)"\])?', line)
        if subgraph:
            above = f"{subgraph[2] or subgraph[1]}/"
        elif line.strip() == "end":
            above = ""
        else:
            for name, label in re.findall(r'(\w+)(?:\["([^"]+)"\])?', line):
                boxes.setdefault(name, [above + path for path in (label or name).split(", ")])
            if " --> " not in line:
                continue
            one, others = re.sub(r'\["[^"]+"\]', "", line).strip().split(" --> ", 1)
            arrows |= {(path, used) for path in boxes[one] for other in others.split(" & ") for used in boxes[other]}
    return arrows


def different_arrows(page, rows):
    table = {(folder, other) for folder, row in rows.items() for other in row.named}
    for one, other in sorted(table ^ arrows_of(page)):
        has, lacks = ("table", "picture") if (one, other) in table else ("picture", "table")
        yield f"{PAGE}: {one} uses {other} in the {has}, not in the {lacks}"


def misused_libraries(texts, rows):
    """Differences between the headers of libraries and the table. What uses a folder with libtorch has it too."""
    used = collections.defaultdict(set)
    for path, text in texts.items():
        for header in re.findall(r"^ *#include <([^>]+)>", text, re.MULTILINE):
            used[layer_of(path, rows)] |= {name for name, headers in LIBRARIES.items()
                                           if headers and re.match(headers, header)}
    for folder, row in rows.items():
        inherited = {"libtorch"} & {name for other in row.allowed for name in rows[other].libraries}
        for name in sorted(used[folder] - row.libraries - inherited):
            yield f"{PAGE}: {folder} includes headers of {name}, which its row does not name"
        for name in sorted(name for name in row.libraries - used[folder] if LIBRARIES[name]):
            yield f"{PAGE}: the row of {folder} names {name}, of which it includes no header"


def crowded_folders(root, page):
    """Folders with too many files, unless PAGE says "`FOLDER` and `FOLDER` have more than 30 files, because"."""
    reasons = re.findall(rf"((?:`[\w/]+`(?:\s|,|and)+)+)ha(?:s|ve) more than {MOST_FILES} files, because", page)
    excepted = re.findall(r"`([\w/]+)`", " ".join(reasons))
    for top in FOLDERS:
        for folder in [root / top, *(root / top).rglob("*/")]:
            files = [path for path in folder.glob("[!.]*") if path.is_file() and path.name != "CMakeLists.txt"]
            name, count = str(folder.relative_to(root)), len(files)
            if count > MOST_FILES and name not in excepted and "__pycache__" not in name:
                yield f"{name}: {count} files, more than {MOST_FILES}, and {PAGE} gives no reason"


def public_headers(page, rows, wrong):
    """{header: folder}, of the rows "| `NAME.h`, `NAME.h` | `FOLDER` |" of PAGE."""
    found = {}
    for names, folder in re.findall(r"^\| ((?:`\w+\.h`(?:, )?)+) \| `([a-z_/]+)` \|$", page, re.MULTILINE):
        if folder not in rows:
            wrong.append(f"{PAGE}: public headers of {folder}, which has no row")
        found.update({f"include/torchbridge/{name}": folder for name in re.findall(r"`(\w+\.h)`", names)})
    return found


def layer_of(path, rows):
    """The longest folder in the table that holds the path."""
    fitting = [folder for folder in rows if path.startswith(folder + "/")]
    return max(fitting, key=len) if fitting else None


def misplaced_tests(paths):
    """Unit tests without a source of their name, which may have several tests: NAME_test.cpp, NAME_WHAT_test.cpp."""
    modules = {module(path) for path in paths if not path.startswith("tests/")}
    for path in paths:
        match = re.fullmatch(r"tests/unit/(.*)_test\.cpp", path)
        if match and not any(match[1] == one or match[1].startswith(one + "_") for one in modules):
            yield f"{path}: there is no source of that name: expected {match[1]}.h or .cpp"


def types_in(text):
    """Pairs of each type that the text defines, also within others, and what it is there.

    Aliases with the same words are one type in all files, and `using Kind = Launcher::Kind` only shortens a name.
    """
    for match in re.finditer(r"^( *)(?:template ?<[^{;]*> )?(?:class|struct|union|enum|enum class) "
                             r"(?:alignas\([^)]*\) |\[\[\w+\]\] )?"
                             r"((?:\w+::)*)(\w+)(?: final)?\s*(?::[^:;{][^;{]*)?\{", text, re.MULTILINE):
        is_nested = match[1] or match[2]
        yield match[3], "of its class" if is_nested and match[3] in PER_CLASS else None
    for match in re.finditer(r"^ *using (\w+) =([^;]+);", text, re.MULTILINE):
        if not match[2].endswith(f"::{match[1]}"):
            yield match[1], " ".join(match[2].split())


def repeated_names(texts):
    """Names of types with two meanings, and names of files, below the folders of the product."""
    names, types = collections.defaultdict(list), collections.defaultdict(dict)
    for path, text in texts.items():
        if path.startswith("tests/"):
            continue
        if not path.startswith("include/"):
            names[pathlib.PurePath(path).name].append(path)
        for name, meaning in types_in(text):
            types[name].setdefault(meaning or path, path)
    for name, where in names.items():
        if len(where) > 1 and name not in MANY:
            yield f"{len(where)} files are called {name}: {', '.join(where)}"
    for name, where in types.items():
        if len(where) > 1:
            yield f"the type {name} has {len(where)} meanings: {', '.join(where.values())}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent)
    sys.setrecursionlimit(10000)
    texts, wrong = sources(root), []
    page = (root / PAGE).read_text()
    includes, rows = includes_of(texts, wrong), rows_of(page, wrong)
    public = public_headers(page, rows, wrong)
    wrong += misplaced_tests(texts)

    edges = collections.defaultdict(set)
    for path, others in includes.items():
        edges[module(path)] |= {module(other) for other in others} - {module(path)}
        own = layer_of(path, rows)
        if own is None and not path.startswith(("tests/", "include/")):
            wrong.append(f"{path}: {PAGE} has no row for its folder")
        if path.startswith("include/"):
            if path not in public:
                wrong.append(f"{path}: {PAGE} gives it no folder")
            wrong += [f"{path}: includes {other}, which is private" for other in others if other.startswith(PRIVATE)]
        for other in others if own else []:
            theirs = public.get(other) or layer_of(other, rows)
            if theirs and theirs != own and theirs not in rows[own].allowed:
                wrong.append(f"{path}: includes {other}, and {PAGE} does not allow {own} to use {theirs}")
            if other.startswith("tests/"):
                wrong.append(f"{path}: includes {other}, which is a test's")
    wrong += [f"a circle of includes: {', '.join(part)}" for part in circles(edges)]

    wrong += repeated_names(texts)
    wrong += misused_libraries(texts, rows)
    wrong += different_arrows(page, rows)
    wrong += crowded_folders(root, page)
    wrong += [f"{PAGE}: there is no {header}" for header in public if header not in texts]

    print("\n".join(wrong) if wrong else f"{len(texts)} sources in {len(rows)} folders: layered, without a circle")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
