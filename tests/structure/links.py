#!/usr/bin/env python3
"""What programs and libraries take from others. links.py TRAINER LIBTORCH_CPU FOLDER...

None below the folders is linked with libpmix, which is opened where ranks need it. Of gloo, which
gloo_declarations declares by hand, the trainer calls only what this libtorch exports, and has
nothing that its classes' layout decides.
"""

import pathlib
import re
import subprocess
import sys

from run_paths import is_elf

OF_GLOO = re.compile(r"\bgloo::|GlooStore")
OF_LAYOUT = re.compile(r"(vtable|VTT|typeinfo|construction vtable)\b.* for |c10d::|gloo::")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbols(*options):
    """{(kind, name)}: U is undefined."""
    lines = output("nm", "--demangle", *options)
    return set(re.findall(r"^[0-9a-f ]{16} (\w) (.*)$", lines, re.MULTILINE))


def main():
    trainer, libtorch, *folders = sys.argv[1:]
    files = [file for folder in folders for file in pathlib.Path(folder).rglob("*")
             if file.is_file() and not file.is_symlink() and is_elf(file)]
    wrong = [f"{file} is linked with libpmix" for file in files
             if "[libpmix." in output("readelf", "-d", file)]
    exported = {name for _, name in symbols("--dynamic", "--defined-only", libtorch)}
    of_gloo = [(kind, name) for kind, name in symbols(trainer) if OF_GLOO.search(name)]
    for kind, name in of_gloo:
        if kind == "U" and name not in exported:
            wrong.append(f"{trainer}: libtorch does not export {name}")
        elif kind != "U" and OF_LAYOUT.match(name):
            wrong.append(f"{trainer}: its layout of gloo's classes decides {name}")
    if not any(kind == "U" for kind, _ in of_gloo):
        wrong.append(f"{trainer} calls nothing of gloo: is it stripped?")
    print("\n".join(wrong) or f"{len(files)} files")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
