#!/usr/bin/env python3
"""The messages on the pages of errors are those of the sources.

    tests/structure/messages.py [ROOT]

- Each message in the first column of a table "message": its fixed parts, those between the placeholders that
  docs/use/errors.md declares, are in string literals of a source.
- Each statement of C++ that makes an error has a part of its text on a page, or its file is in FAMILIES.
Not seen: a page that joins parts of two messages; an error whose text is in a constant or made by a function.
"""

import ast
import pathlib
import re
import subprocess
import sys

FIRST_PAGE, PAGES = "docs/use/errors.md", "docs/*/errors*.md"
SOURCES = ("backends/", "bridge/", "cmake/", "include/", "packaging/", "python/", "scripts/", "spank_plugin/",
           "trainer_template/")
# Files whose messages share one entry: the text of that entry; None: no user sees them.
FAMILIES = {
    "backends/mpi/mpi_backend.cpp": "shapes or counts of the call are wrong",
    "bridge/base/hostlist.cpp": "list 'VALUE': REASON",
    "bridge/binding/visible_gpus.cpp": "CUDA_VISIBLE_DEVICES='VALUE': REASON",
    "bridge/core/launchers/mpirun_daemons.cpp": None,  # the ranks then ask PMIx
    "bridge/core/launchers/pals.cpp": "PALS_APINFO: REASON",
    "bridge/core/launchers/slurm.cpp": "list 'VALUE': REASON",
    "bridge/launch/pmi_exchange.cpp": "PMI: REASON",
    "trainer_template/runtime/backends/device_backends.cpp": "backend 'VALUE': REASON; expected a name",
    "trainer_template/runtime/backends/shared_region.cpp": None,  # the ranks then use gloo's connections
    "trainer_template/runtime/formats/safetensors_header.cpp": "has an invalid header: REASON",
    "trainer_template/runtime/training/compiled_model.cpp": "compiled model 'FILE': REASON",
}
# Texts that a user cannot cause, or that are not printed.
INTERNAL = ("no port to listen on", "cannot read the port of a socket", "is not in optimizer_kinds()")
FUNCTIONS = """
    EarlyExit TimeoutError TrainError ValidationError add_line add_note bad_list cannot_open contradiction
    end_run fail file_error invalid_argument out_of_range print print_line print_message print_task_line runtime_error
    slurm_error stop_round wrong
""".split()
MAKERS = rf"\b(?:EndRun|Error|Rejected|StopWorkers)\{{|\b(?:{'|'.join(FUNCTIONS)}|TORCH_CHECK\w*)\("
CPP = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\((?P<raw>.*?)\)\1"|"(?P<text>(?:[^"\\\n]|\\.)*)"|'(?:[^'\\\n]|\\.)+'""",
                 re.DOTALL)
HOLE, EDGE = "\0", "\1"  # a value in a text; where a text begins or ends


def unescaped(text):
    return re.sub(r'\\(["\'\\])', r"\1", text)


def literals(source):
    """(begin, end, text) of each string literal of C++; adjacent ones are one."""
    found = []
    source = re.sub(r"(?m)^ *#include.*$", lambda match: " " * len(match[0]), source)
    for match in CPP.finditer(source):
        text = match["raw"] if match["raw"] is not None else match["text"]
        if text is None:
            continue
        text = unescaped(text)
        if found and not source[found[-1][1]:match.start()].strip():
            begin, _, before = found.pop()
            found.append((begin, match.end(), before + text))
        else:
            found.append((match.start(), match.end(), text))
    return found


def texts_of_python(source):
    texts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            texts.append("".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    return texts


def texts_of(path, source):
    if path.endswith((".cpp", ".h")):
        made = [f" {what}s" for what in re.findall(r'\bcounted\([^;]*?, "([\w ]+)"\)', source)]  # message_text.h
        made += [" s"] * ("seconds_text(" in source)
        return [text.replace("{}", HOLE) for _, _, text in literals(source)] + made
    if path.endswith(".py") or re.match(r"#!.*python", source):
        return texts_of_python(source)
    joined = re.sub(r'" *\\?\n *"', " " if source.startswith("#!") else "", source)  # arguments of bash, or of CMake
    return [re.sub(r"\$\([^()]*\)|\$\{[^}]*\}|\$\w+|\$\*|@\w+@", HOLE, unescaped(joined))]


def entries(text):
    """(line, message) of each message on a page."""
    in_table = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\| message ", line):
            in_table = True
        elif not line.startswith("|"):
            in_table = False
        elif in_table and not line.startswith("|---"):
            first = re.split(r"(?<!\\)\|", line)[1].replace("\\|", "|")
            for message in re.findall(r"`([^`]+)`", first):
                yield number, message


def parts(message, placeholders):
    """The fixed parts of a message that have a letter."""
    split = re.split(rf"\.\.\.|\b(?:{'|'.join(placeholders)})\b", message)
    return [part for part in split if re.search("[a-zA-Z]", part)]


class Texts:
    """The texts of all string literals, by file."""

    def __init__(self, by_file):
        self.files = [EDGE + EDGE.join(texts).replace(HOLE, EDGE) + EDGE for texts in by_file]

    def has(self, part):
        """Also what `"a" + "b"` makes in one file, and with a constant for a word in capitals."""
        if any(part in file for file in self.files) or any(is_sum(part, file) for file in self.files):
            return True
        pieces = [piece for piece in re.split(r"\b[A-Z][A-Z_0-9]+\b", part) if re.search("[a-zA-Z]", piece)]
        return pieces != [part] and all(map(self.has, pieces))


def is_sum(part, file, before=""):
    """Whether texts of the file make the part: the end of one, whole ones, the begin of one."""
    for end in range(2, len(part) - 1):
        if before + part[:end] + EDGE in file and (EDGE + part[end:] in file or is_sum(part[end:], file, EDGE)):
            return True
    return False


def statements(source):
    """(offset, literals) of each statement that makes an error."""
    found = literals(source)
    for maker in re.finditer(MAKERS, source):
        end = source.find(";", maker.end())
        inside = [(begin, text) for begin, _, text in found if maker.end() <= begin]
        while any(begin < end < begin + len(text) for begin, text in inside):  # a ';' in a literal
            end = source.find(";", end + 1)
        own = [part for begin, text in inside if begin < end for part in text.split("{}")]
        if own and not source[source.rfind("\n", 0, maker.start()):maker.start()].lstrip().startswith("//"):
            yield maker.start(), own


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent)
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True)
    if listed.returncode != 0:
        print(f"SKIPPED: {listed.stderr.strip()}")
        sys.exit(77)
    named = [path for path in listed.stdout.splitlines() if path.startswith(SOURCES) and (root / path).is_file()]
    sources = {path: (root / path).read_text(errors="replace") for path in named}
    for path in (path for path in named if path.endswith(("CMakeLists.txt", ".cmake"))):
        sources[path] = sources[path].replace("\\\n", "")  # which continues a string
    texts = Texts(texts_of(path, source) for path, source in sources.items())
    pages = {str(path.relative_to(root)): path.read_text() for path in sorted(root.glob(PAGES))}
    declared = re.search(r"Capitals\s+stand\s+for\s+what\s+varies:\s(.*?)\.\s", pages[FIRST_PAGE], re.DOTALL)[1]
    placeholders = sorted(re.findall(r"`(\w+)`", declared), key=len, reverse=True)
    wrong, known = [], set()
    for path, text in pages.items():
        for line, message in entries(text):
            fixed = parts(message, placeholders)
            known.update(part.strip() for part in fixed)
            wrong += [f"{path}:{line}: no source has '{part.strip()}'" for part in fixed if not texts.has(part)]
    count = sum(1 for text in pages.values() for _ in entries(text))
    long = [part for part in known if len(part) > 9]
    everything = "\n".join(pages.values())
    for path, source in sources.items():
        entry = FAMILIES.get(path, "")
        if entry and entry not in everything:
            wrong.append(f"{path}: no page has '{entry}'")
        for offset, own in statements(source) if path.endswith((".cpp", ".h")) and entry == "" else []:
            prose = [text.strip() for text in own if len(re.findall("[a-zA-Z]{2,}", text)) > 2]
            is_known = any(part in text for text in own for part in long) or any(text in everything for text in prose)
            if prose and not is_known and not any(text in prose[0] for text in INTERNAL):
                wrong.append(f"{path}:{source.count(chr(10), 0, offset) + 1}: no page has '{prose[0]}'")
    print("\n".join(wrong) or f"{count} messages")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
