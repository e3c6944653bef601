"""Draws the figures of docs/develop/benchmarks*.md: each from the table that follows it in its page.

    python scripts/site_figures.py docs/develop [FOLDER_FOR_SVG]        # scripts/site has the Python with matplotlib

A bar is a median; its line reaches from the least to the most.
"""

import pathlib
import re
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "torchbridge", "svg.fonttype": "none", "font.family": "sans-serif"})

import matplotlib.pyplot as plt  # noqa: E402

OURS, OTHERS = "#3f51b5", "#b0b8c4"


def table_after(page, name):
    """Headers and rows of cells of the first table after that figure in a page, None if the page lacks the figure."""
    _, figure, rest = page.partition(f"](figures/{name}.svg)\n")
    if not figure:
        return None
    lines = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)[0].splitlines()
    headers, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {"headers": headers, "rows": rows}


def numbers(cell):
    """(median, least, most) of "1.0 (0.9 to 1.2)", of "1.0" three times that; None of a text."""
    found = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", cell)]
    if not found or not re.match(r"-?\d", cell):
        return None
    return tuple(found[:3]) if len(found) >= 3 else (found[0],) * 3


def rows_of(table, labels, value, only=lambda label: True):
    """A bar for each row that has a number, named by its columns `labels`."""
    at = [table["headers"].index(name) for name in labels]
    column = table["headers"].index(value)
    bars = [(", ".join(row[i] + (" ranks" * (table["headers"][i] == "ranks")) for i in at), numbers(row[column]))
            for row in table["rows"]]
    return [(re.sub(r"`|, Python, tuned$|(?<=^1 rank)s", "", label), bar) for label, bar in bars if bar and only(label)]


def ways_of(table, title):
    """A bar for each column of the row of that title, which begins with it."""
    row, = (row for row in table["rows"] if row[0].startswith(title))
    return [(name, numbers(cell)) for name, cell in zip(table["headers"][1:], row[1:]) if numbers(cell)
            and "/" not in name]


# file: (bars of its table, axis, whether a label is one of ours). "of those" stands in an axis of ratios.
FIGURES = {
    "launch": (lambda table: rows_of(table, ["way"], "first all-reduce, s"),
               "8 ranks on 4 nodes: seconds from srun to the first all-reduce", lambda label: "--torch-env" in label),
    "start": (lambda table: rows_of(table, ["ranks", "program"], "first step, s"),
              "seconds from the start of the processes to the first step", lambda label: "C++" in label),
    "small": (lambda table: rows_of(table, ["ranks", "model", "way"], "of Python's over gloo",
                                    lambda label: re.search(r", (Python, gloo|C\+\+)$", label)),
              "steps per second, of those of Python over gloo", lambda label: "C++" in label),
    "speed": (lambda table: rows_of(table, ["ranks", "model", "program"], "the trainer is faster by",
                                    lambda label: label.endswith("Python, tuned")),
              "the trainer's steps per second, of those of the tuned Python script", lambda label: True),
    "preload": (lambda table: ways_of(table, "8 ranks to the first step"),
                "8 ranks: seconds from the start to the first step of DDP", lambda label: "preload" in label),
}


def draw(bars, axis, is_ours, path):
    figure, plot = plt.subplots(figsize=(8, 0.8 + 0.32 * len(bars)), layout="constrained")
    bars = bars[::-1]
    medians = [bar[1][0] for bar in bars]
    errors = [[bar[1][0] - bar[1][1] for bar in bars], [bar[1][2] - bar[1][0] for bar in bars]]
    plot.barh([bar[0] for bar in bars], medians, xerr=errors, height=0.7,
              color=[OURS if is_ours(bar[0]) else OTHERS for bar in bars], ecolor="#555555", error_kw={"linewidth": 1})
    for place, (_, (median, _, most)) in enumerate(bars):
        plot.annotate(f"{median:g}", (most, place), (4, 0), textcoords="offset points", va="center", fontsize=9)
    if "of those" in axis:
        plot.axvline(1, color="#555555", linewidth=1, linestyle=":")
    plot.set_xlabel(axis, fontsize=9)
    plot.tick_params(labelsize=9)
    plot.spines[["top", "right"]].set_visible(False)
    plot.margins(x=0.08)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def main():
    pages = pathlib.Path(sys.argv[1])
    target = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pages / "figures"
    target.mkdir(parents=True, exist_ok=True)
    texts = [page.read_text() for page in sorted(pages.glob("benchmarks*.md"))]
    for name, (bars, axis, is_ours) in FIGURES.items():
        table, = filter(None, (table_after(text, name) for text in texts))
        draw(bars(table), axis, is_ours, target / f"{name}.svg")


if __name__ == "__main__":
    main()
