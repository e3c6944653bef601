#!/usr/bin/env python3
"""The page that users copy, trainer_template/main.cpp, stays small.

    tests/structure/page.py [ROOT]

Checked, each with a line for what is wrong:
- train() has at most LINES lines, and at most NAMES names are alive at any of them, with its parameters;
- of ours, at most HEADERS headers are behind its include, at most DEPTH one behind the other;
- a change of it on a page of docs/use has at most CHANGED lines.
"""

import pathlib
import re
import sys

PAGE = "trainer_template/main.cpp"
LINES, NAMES, HEADERS, DEPTH, CHANGED = 45, 14, 30, 11, 40


def train_of(text):
    """The lines of train(), without its first and last."""
    return re.search(r"^ExitCode train\((.*?)\) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL).groups()


def most_alive(parameters, body):
    """A name is alive from its declaration to the end of its block."""
    name = re.compile(r"(?:^|[(;] *)(?:const )?[\w:]+(?:<[\w:]+>)?[&*]? (\w+)(?= ?[;=(:{])")
    scopes = [[one.split()[-1].lstrip("&*") for one in parameters.split(",")]]
    most = scopes[0]
    for line in body.splitlines():
        code = line.partition("//")[0].strip()
        if code.startswith("}"):
            scopes.pop()
        if code.endswith("{"):
            scopes.append([])
        if not code.startswith("return"):
            scopes[-1] += name.findall(code)
        most = max(most, [one for scope in scopes for one in scope], key=len)
    return most


def headers_behind(root, path):
    """{header: the longest way to it}. That there is no circle is checked by includes.py."""
    found = {}
    for public, private in re.findall(r'^#include (?:<(torchbridge/[^>]+)>|"(\w+/[^"]+)")', (root / path).read_text(),
                                      re.MULTILINE):
        header = f"include/{public}" if public else private
        ways = {header: 1, **{other: 1 + depth for other, depth in headers_behind(root, header).items()}}
        found = {one: max(found.get(one, 0), ways.get(one, 0)) for one in {*found, *ways}}
    return found


def long_changes(root):
    """Changes of the page in docs/use, by file and line."""
    count = 0
    for path in sorted((root / "docs/use").glob("*.md")):
        text = path.read_text()
        for match in re.finditer(r"^```diff.*?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if "+++ main.cpp" not in match[1]:
                continue
            count += 1
            added = len(re.findall(r"^\+(?!\+\+ )", match[1], re.MULTILINE))
            if added > CHANGED:
                yield (f"{path.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}: {added} changed lines, "
                       f"at most {CHANGED} are wanted")
    if count == 0:
        yield f"docs/use: no page has a change of {PAGE}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent)
    parameters, body = train_of((root / PAGE).read_text())
    lines, names = 2 + len(body.splitlines()), most_alive(parameters, body)
    headers = headers_behind(root, PAGE)
    depth = max(headers.values(), default=0)
    wrong = [*long_changes(root)]
    for what, found, most in (("lines of train()", lines, LINES),
                              (f"names alive: {', '.join(names)}", len(names), NAMES),
                              ("headers of ours", len(headers), HEADERS),
                              ("headers one behind the other", depth, DEPTH)):
        if not 0 < found <= most:
            wrong.append(f"{PAGE}: {found} {what}: at most {most} are wanted")
    summary = f"{lines} lines, {len(names)} names, {len(headers)} headers, {depth} one behind the other"
    print("\n".join(wrong) if wrong else summary)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
