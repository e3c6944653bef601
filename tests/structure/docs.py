#!/usr/bin/env python3
"""What the pages name exists, and no line of a page or a script is too long.

    tests/structure/docs.py [ROOT [FOLDER_OF_THE_BUILT_PROGRAMS]]

Checked, each with file and line for what is wrong:
- a relative link of a page leads to a file, its anchor to a heading there (by GitHub's rule);
- a path that begins with a folder of the root is in the tree, or a pattern of what is there; in sources, too, those of
  docs, scripts and tests; not in diffs, which tests/structure/examples.py applies;
- a command starts a program or script that exists, by a subcommand that exists or stands near the word "planned";
- an option of such a command, or alone in backticks, is in the program's --help, or a script reads it;
- lines of pages, scripts and CMake's files have at most 120 columns; tables, code of pages and lines that are one
  link have 140;
- a page of docs has at most 250 lines.
The change log names what was: only its links and lines are checked. Options are checked where all programs are built.
"""

import fnmatch
import itertools
import os
import pathlib
import re
import subprocess
import sys

COLUMNS, WIDE_COLUMNS, LINES = 120, 140, 250
PROGRAMS = ("torchbridge", "torchbridge-ckpt", "trainer")
STARTERS = {"eval", "mpiexec", "mpirun", "python", "python3", "salloc", "sbatch", "srun", "time", "timeout", "torchrun"}
# Options of other programs that stand alone in backticks, and paths of other projects.
FOREIGN = set("""
    --batch --cpu-bind --distribution --exclusive --export --gpu-bind --gpus-per-node --gpus-per-task --gres --het-group
    --kill-on-bad-exit --local-rank --mpi --no-kill --ntasks-per-gpu --open-mode --requeue --signal --strip --tres-bind
    data/*/prepare.py
""".split())
# How a script, or a program of the tests, reads an option.
READS = r'add_\w+\("(--[\w-]+)"|^ *(--[\w-]+)\) |[!=]= (--[\w-]+) \]\]|"(--[\w-]+)" in sys\.argv'


class Tree:
    """The files that git tracks."""

    def __init__(self, root):
        listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True)
        if listed.returncode != 0:
            print(f"SKIPPED: {listed.stderr.strip()}")
            sys.exit(77)
        files = sorted({path for path in listed.stdout.splitlines() if (root / path).is_file()})
        self.texts = {path: (root / path).read_text(errors="replace") for path in files}
        folders = {str(folder) for path in files for folder in pathlib.PurePath(path).parents}
        self.paths = folders.union(files)
        self.top = [folder for folder in folders if "/" not in folder and folder != "."]

    def is_script(self, path):
        return path.endswith((".py", ".sh")) or self.texts[path].startswith("#!")

    def has(self, path):
        """Also a header named without its ending, all of {a,b}, a pattern's first; of a placeholder its folder."""
        braces = re.search(r"\{([^{}]*,[^{}]*)\}", path)
        if braces:
            return all(self.has(path[:braces.start()] + one + path[braces.end():]) for one in braces[1].split(","))
        if path in self.paths or f"{path}.h" in self.paths or "*" in path and fnmatch.filter(self.paths, path):
            return True
        parts = path.split("/")
        known = [*itertools.takewhile(lambda part: not re.search(r"[A-Z]{3}|\.\.\.|[@$<{]", part), parts)]
        return len(known) < len(parts) and self.has("/".join(known))

    def wrong_paths(self, text, folders):
        built, in_word = r'(?<!in_build\(")', r"(?<![\w./~$@{}<>+*-])"
        named = rf"{built}{in_word}(?:{'|'.join(map(re.escape, folders))})/(?:\{{[^}}\s]*\}}|[\w./*@$<>-])*"
        for match in re.finditer(named, text):
            path = match[0].rstrip("./")
            if path not in FOREIGN and not self.has(path):
                yield match.start(), f"git has no {path}"


def blank(text):
    return re.sub(r"[^\n]", " ", text if isinstance(text, str) else text[0])


class Page:
    """A Markdown file in parts; what is taken out leaves blanks, so that offsets are those of the file."""

    FENCED = re.compile(r"^ *(```+) *([\w+]*)[^\n]*\n(.*?)^ *\1[^\n]*$", re.MULTILINE | re.DOTALL)
    INDENTED = re.compile(r"(\n\n|^#{1,6} [^\n]*\n)((?: {4}[^\n]*\n|\n(?= {4}))+)", re.MULTILINE)
    SPAN = re.compile(r"(?<!`)(`+)((?:(?!\n *\n).)+?)(?<!`)\1(?!`)", re.DOTALL)

    def __init__(self, path, text):
        self.path, self.text = path, text
        unfenced = self.FENCED.sub(blank, text)
        self.prose = self.INDENTED.sub(lambda match: match[1] + blank(match[2]), unfenced)
        self.plain = self.SPAN.sub(blank, self.prose)
        self.without_diffs = self.FENCED.sub(lambda match: blank(match) if match[2] == "diff" else match[0], text)
        shell = [block for block in self.FENCED.finditer(text) if block[2] in ("", "bash", "console", "sh")]
        self.blocks = [(block.start(3), block[3]) for block in shell]
        self.blocks += [(block.start(2), block[2]) for block in self.INDENTED.finditer(unfenced)]
        self.spans = [(span.start(2), span[2].replace("\n", " ")) for span in self.SPAN.finditer(self.prose)]
        self.declared = set(re.findall(r'"(--[\w-]+)"', text))  # by the code of a program that the page makes

    def wide_lines(self):
        """The numbers of the lines that cannot be wrapped: of a table, of code, or of one link."""
        for number, (line, prose) in enumerate(zip(self.text.split("\n"), self.prose.split("\n")), 1):
            if line.startswith("|") or not prose.strip() or re.match(r"\s*([-*] +)?\[[^]]*\](: +)?\S*$", line):
                yield number

    def anchors(self):
        found = re.findall(r'\b(?:id|name)="([^"]+)"', self.plain)
        for heading in re.findall(r"^#{1,6} +(.*?)[ #]*$", self.prose, re.MULTILINE):
            heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
            anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            again = (f"{anchor}-{count}" for count in itertools.count(1))
            found.append(next(one for one in itertools.chain([anchor], again) if one not in found))
        return found

    def wrong_links(self, pages, tree):
        link = r'\]\(([^)\s]+)[^)]*\)|^\[[^]]+\]: +(\S+)|\b(?:src|href)="([^"]+)"'
        for match in re.finditer(link, self.plain, re.MULTILINE):
            target, _, anchor = next(filter(None, match.groups())).partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(self.path), target)) if target else self.path
            if path not in tree.paths and not re.match(r"[a-z]+:", target):
                yield match.start(), f"the link leads to {path}, which git does not have"
            elif anchor and path in pages and anchor not in pages[path].anchors():
                yield match.start(), f"{path} has no heading for #{anchor}"

    def commands(self):
        """(offset, words) of each command in code or in backticks."""
        for start, text in self.blocks + self.spans:
            text = text.replace("\\\n", "  ")
            for part in re.finditer(r"(?:(?! && | \|\|? |; | +# |^# )[^\n])+", text, re.MULTILINE):
                yield start + part.start(), [word.strip("'\"$()") for word in part[0].removeprefix("$ ").split()]

    def is_planned(self, offset):
        line = self.text.count("\n", 0, offset)
        near = self.text.splitlines()[max(line - 2, 0):line + 3]
        return self.path == "docs/develop/plan.md" or "planned" in " ".join(near)


def options_in(text):
    return re.findall(r"(?<![\w-])--[a-z][\w-]*", text)


def program_of(word):
    """The program of ours that the word names; `script`; `trainer`, too, where scripts/new_trainer made it; or None."""
    word = word.removeprefix("./")
    if re.match(r"(scripts|tests)/|train\.sbatch$", word):
        return "script"
    if re.match(r"build/[\w@]+$", word):
        return "trainer"
    name = os.path.basename(word)
    return name if name in PROGRAMS or re.match(r"build[\w-]*/bin/\w", word) else None


class Known:
    """What our programs take: options by program, or by `PROGRAM SUBCOMMAND`, and those of all scripts."""

    def __init__(self, tree, folder):
        self.options, self.subcommands = {}, {}
        for program in PROGRAMS:
            if (folder / program).exists():
                self.ask(folder / program, program)
        tests = [text for path, text in tree.texts.items() if path.startswith(("python/", "scripts/", "tests/"))]
        read = itertools.chain(*re.findall(READS, "\n".join(tests), re.MULTILINE))
        self.all = {"--help"}.union(read, *self.options.values()) if set(PROGRAMS) <= set(self.options) else None
        self.targets = " ".join(text for path, text in tree.texts.items() if path.endswith("CMakeLists.txt"))

    def ask(self, binary, name, *subcommand):
        text = subprocess.run([binary, *subcommand, "--help"], capture_output=True, text=True, check=True).stdout
        self.options[" ".join([name, *subcommand])] = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", text, re.MULTILINE))
        if not subcommand:
            below = text.partition("\nSubcommands:\n")[2]
            self.subcommands[name] = re.findall(r"^  ([a-z]\S*)", below, re.MULTILINE)
            for one in self.subcommands[name]:
                self.ask(binary, name, one)

    def wrong_command(self, words, page, offset):
        """Of each program of ours in a command; one may start the other."""
        words = [*itertools.dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words)]
        if words and words[0] in STARTERS:
            words = [*itertools.dropwhile(lambda word: not program_of(word), words)]
        if not words or not (program := program_of(words[0])):
            return
        own = [*itertools.takewhile(lambda word: word != "--", words[1:])]
        if own and own[0] in ("launch", "run"):  # whose options end at the program, too
            own = [*itertools.takewhile(lambda word: not re.search(r"\.py$|^\./", word), own)]
        after = words[1 + len(own):]
        yield from self.wrong_command(after[1:] if after[:1] == ["--"] else after, page, offset)
        if program not in ("script", *PROGRAMS) and not re.search(rf"\b{re.escape(program)}\b", self.targets):
            yield offset, f"there is no program {program}"
        if program in self.subcommands and own and re.match(r"[a-z]+$", own[0]):
            if own[0] not in self.subcommands[program] and not page.is_planned(offset):
                yield offset, f"{program} has no subcommand {own[0]}"
            program += f" {own[0]}"
        taken = self.all if program == "script" else self.options.get(program)
        for option in options_in(" ".join(own)) if self.all and taken else []:
            if option not in taken | page.declared:
                yield offset, f"{words[0]} has no option {option}"

    def wrong_options(self, page):
        """Of those alone in backticks."""
        for offset, span in page.spans:
            for option in options_in(span) if self.all and span.startswith("--") else []:
                if option not in self.all | FOREIGN | page.declared:
                    yield offset, f"no program of ours has the option {option}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent)
    tree = Tree(root)
    known = Known(tree, pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else root / "build/bin"))
    pages = {path: Page(path, text) for path, text in tree.texts.items() if path.endswith(".md")}
    wrong = set()
    for path, text in tree.texts.items():
        found, page = [], pages.get(path)
        if page:
            found += page.wrong_links(pages, tree)
        if page and path != "CHANGELOG.md":
            found += [*tree.wrong_paths(page.without_diffs, tree.top), *known.wrong_options(page)]
            for offset, words in page.commands():
                found += known.wrong_command(words, page, offset)
        elif not page:
            found += tree.wrong_paths(text, ("docs", "scripts", "tests"))
        wrong |= {(path, text.count("\n", 0, offset) + 1, what) for offset, what in found}
        if page or tree.is_script(path) or path.endswith(("CMakeLists.txt", ".cmake")):
            wide = set(page.wide_lines()) if page else ()
            for line, one in enumerate(text.split("\n"), 1):
                most = WIDE_COLUMNS if line in wide else COLUMNS
                if len(one) > most:
                    wrong.add((path, line, f"{len(one)} columns, more than {most}"))
    lengths = [(path, page.text.count("\n")) for path, page in pages.items() if path.startswith("docs/")]
    wrong |= {(path, LINES, f"{lines} lines, more than {LINES}") for path, lines in lengths if lines > LINES}
    for path, line, what in sorted(wrong):
        print(f"{path}:{line}: {what}")
    if not wrong:
        print(f"{len(pages)} pages" + ("" if known.all else "; no options, for not all programs are built"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
