#!/usr/bin/env python3
"""The subject of each commit since this rule came is "Problem: ..." of at most 60 characters.

    tests/structure/commits.py [ROOT]
"""

import subprocess
import sys

LAST_WITHOUT_RULE = "3c4572fc"
LONGEST = 60

root = sys.argv[1] if len(sys.argv) > 1 else "."
log = subprocess.run(["git", "-C", root, "log", "--no-merges", "--format=%h %s", f"{LAST_WITHOUT_RULE}..HEAD"],
                     capture_output=True, text=True)
if log.returncode != 0:  # an archive, or a clone without the older commits
    print(f"SKIPPED: {log.stderr.strip()}")
    sys.exit(77)
commits = [line.partition(" ")[::2] for line in log.stdout.splitlines()]
wrong = [f"{commit} has {len(subject)} characters and begins with '{subject[:9]}': {subject}"
         for commit, subject in commits if len(subject) > LONGEST or not subject.startswith("Problem: ")]
print("\n".join(wrong) or f"{len(commits)} commits")
sys.exit(1 if wrong else 0)
