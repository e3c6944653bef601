"""Hooks of mkdocs for scripts/site: the pages of docs/ as GitHub shows them, and the navigation of docs/index.md.

The first page of the site is README.md, docs/index.md the second one. Links to sources, which the site does not have,
become the text alone. Python-Markdown wants four spaces where GitHub takes two or three, and a blank line before
a list or table.
"""

import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parent.parent
FROM_ROOT = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
INDEX = "all_pages.md"
CSS = """.md-grid { max-width: 88rem }
.md-typeset table:not([class]) { font-size: 0.68rem }
.md-typeset table:not([class]) th { min-width: 0 }
.md-typeset table td code { overflow-wrap: anywhere }
.md-typeset table td:has(code) { min-width: 7.5rem }
.md-typeset table th code { white-space: nowrap }
.md-typeset pre > code { font-size: 0.6rem }
"""


def slug(text, separator):
    """GitHub's anchors."""
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", separator)


def site_path(path):
    """Where the site has a file of the repository; None where it has not."""
    if path == "README.md":
        return "index.md"
    if path == "docs/index.md":
        return INDEX
    if path in FROM_ROOT:
        return path
    return path.removeprefix("docs/") if path.startswith("docs/") and (ROOT / path).is_file() else None


def repository_path(page):
    if page == "index.md":
        return "README.md"
    if page == INDEX:
        return "docs/index.md"
    return page if page in FROM_ROOT else f"docs/{page}"


def outside_code(pattern, change, text):
    """re.sub outside of fences and of code spans."""
    code = r"^ *```.*?^ *```[^\n]*$|(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
    parts, position = [], 0
    for match in re.finditer(code, text, re.MULTILINE | re.DOTALL):
        parts += [re.sub(pattern, change, text[position:match.start()]), match[0]]
        position = match.end()
    return "".join([*parts, re.sub(pattern, change, text[position:])])


def with_links(text, page):
    folder = os.path.dirname(repository_path(page))

    def link(match):
        label, target, anchor = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", target) or not target:
            return match[0]
        here = site_path(os.path.normpath(os.path.join(folder, target)))
        return f"[{label}]({os.path.relpath(here, os.path.dirname(page) or '.')}{anchor})" if here else label

    # The label may be code: a link is taken as a whole.
    return re.sub(r"(?<!`)\[((?:`[^`\n]*`|[^][`])+)\]\(([^)#\s]*)(#[^)\s]*)?\)", link, text)


def with_indents(text):
    """Lists and tables as Python-Markdown reads them."""
    lines, items, level_before, fence = [], [], 0, False  # items: the column of the text of each open list item
    for line in text.split("\n"):
        stripped = line.lstrip(" ")
        indent = len(line) - len(stripped)
        if stripped and not fence:
            before = lines[-1] if lines else ""
            continues = before.strip() != "" and indent == 0 and not re.match(r"([-*]|\d+\.) |#|\|", stripped)
            while items and indent < items[-1] and not continues:
                items.pop()
            marker = re.match(r"([-*]|\d+\.) +", stripped)
            is_item = marker and indent - (items[-1] if items else 0) < 4
            is_table = stripped.startswith("|")
            level = len(items)
            begins_list = is_item and level == level_before and not re.match(r" *([-*]|\d+\.) ", before)
            if before.strip() and (begins_list or is_table and not before.lstrip().startswith("|")):
                lines.append("")
            if is_item:
                items.append(indent + len(marker[0]))
                lines.append("    " * level + marker[1].ljust(4) + stripped[len(marker[0]):])
                level_before = len(items)
                continue
            level_before = level
            if items and not continues:
                line = "    " * level + " " * (indent - items[-1]) + stripped
        if stripped.startswith("```"):
            fence = not fence
        elif fence and items and stripped:
            line = "    " * len(items) + " " * max(indent - items[-1], 0) + stripped
        lines.append(line)
    return "\n".join(lines)


def navigation():
    """{heading: pages} of the sections of docs/index.md; a page is listed where it comes first."""
    text = (ROOT / "docs/index.md").read_text()
    listed, sections = set(), []
    for section in text.split("\n## ")[1:]:
        heading, rows = section.split("\n", 1)
        pages = []
        for target in re.findall(r"^\| \[[^]]*\]\(([^)]+)\)", rows, re.MULTILINE):
            page = site_path(os.path.normpath(f"docs/{target}"))
            if page not in listed:
                listed.add(page)
                pages.append(page)
        sections.append({heading: pages})
    return [{"Start": ["index.md", INDEX, "glossary.md"]}, *sections, {"Changes": ["CHANGELOG.md"]}]


def on_config(config):
    config.nav = navigation()
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def on_files(files, config):
    if index := files.get_file_from_path("index.md"):
        files.remove(index)
    for page in ("index.md", INDEX, *FROM_ROOT):
        files.append(File.generated(config, page, content=(ROOT / repository_path(page)).read_text()))
    files.append(File.generated(config, "site.css", content=CSS))
    files.append(File.generated(config, "mermaid.min.js", abs_src_path=os.environ["TORCHBRIDGE_MERMAID"]))
    return files


def on_page_markdown(markdown, page, config, files):
    return with_indents(with_links(markdown, page.file.src_uri))
