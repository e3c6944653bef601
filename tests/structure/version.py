#!/usr/bin/env python3
"""The version has one place, project() in CMakeLists.txt; what must repeat it in a name or a recipe has the same one.
So have the numbers of the protocols.

    tests/structure/version.py [ROOT]

Checked: each version of torchbridge in packaging/ and in names of files on the pages, the newest release of
CHANGELOG.md, and the rows of protocols in docs/develop/releases.md, each of which names the file that has the number.
"""

import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
version = re.search(r"project\(torchbridge VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())[1]
NUMBER = r"(\d+\.\d+\.\d+)"
NAMED = re.compile(rf"torchbridge(?:-dev|-plugin-slurm[\d.]+)?[-_/]v?{NUMBER}")
RECIPE = re.compile(rf"""(?:version(?:_of_torchbridge)? ?=? ?\(?['"]?|Version: |torchbridge )v?{NUMBER}""")

listed = subprocess.run(["git", "-C", root, "ls-files", "packaging", "*.md"], capture_output=True, text=True)
if listed.returncode != 0:
    print(f"SKIPPED: {listed.stderr.strip()}")
    sys.exit(77)
wrong = []
found = 0
for path in listed.stdout.split():
    if path == "CHANGELOG.md":
        continue
    lines = [path, *(root / path).read_text().splitlines()]
    for number, line in enumerate(lines):
        for pattern in (NAMED, RECIPE) if path.startswith("packaging/") else (NAMED,):
            for each in pattern.findall(line):
                found += 1
                if each != version:
                    wrong.append(f"{path}:{number}: {each}, but CMakeLists.txt has {version}")
newest = re.search(rf"^## {NUMBER} - \d{{4}}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
if not newest or newest[1] != version:
    wrong.append(f"CHANGELOG.md: the newest release is {newest and newest[1]}, expected '## {version} - YYYY-MM-DD'")
page = "docs/develop/releases.md"
protocols = re.findall(r"\| `(\w+)`, (\d+) \(`([\w/.]+)`\)", (root / page).read_text())
for name, number, path in protocols:
    of_code = re.search(rf"\b{name} ?=? (\d+)", (root / path).read_text())
    if not of_code or of_code[1] != number:
        wrong.append(f"{page}: {name} is {number}, but {path} has {of_code and of_code[1]}")
if len(protocols) != 2:
    wrong.append(f"{page}: {len(protocols)} protocols in its table, expected 2")
print("\n".join(wrong) or f"{found} times {version}, and {len(protocols)} protocols")
sys.exit(1 if wrong or found == 0 else 0)
