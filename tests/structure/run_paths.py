#!/usr/bin/env python3
"""No program or library below the given folders has a run path with an element that is empty or relative: the loader
takes these for the current folder, where another user may have put a library. run_paths.py FOLDER..."""

import pathlib
import re
import subprocess
import sys


def is_elf(file):
    with open(file, "rb") as opened:
        return opened.read(4) == b"\x7fELF"


def run_paths(file):
    answer = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    return [path for paths in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", answer) for path in paths.split(":")]


def main():
    files = [file for folder in sys.argv[1:] for file in sorted(pathlib.Path(folder).rglob("*"))
             if file.is_file() and not file.is_symlink() and is_elf(file)]
    wrong = [f"{file}: '{path}'" for file in files for path in run_paths(file) if not path.startswith(("/", "$ORIGIN"))]
    print("\n".join(wrong) or f"{len(files)} files")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
