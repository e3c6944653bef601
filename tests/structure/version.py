#!/usr/bin/env python3
"""The version has one place, project() in CMakeLists.txt; what must repeat it in a name or a recipe has the same one.

    tests/structure/version.py [ROOT]

Checked: each version of torchbridge in packaging/ and in names of files on the pages, and the newest release of
CHANGELOG.md.
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
print("\n".join(wrong) or f"{found} times {version}")
sys.exit(1 if wrong or found == 0 else 0)
