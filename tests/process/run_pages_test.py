#!/usr/bin/env python3
"""scripts/run_page and scripts/metrics_prometheus with the files of runs: run_pages_test.py SOURCE TRAINER

Exit code: 0, 1, or 77 where plotly or tensorboard is missing.
"""

import importlib.util
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

source, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
for package in ("plotly", "tensorboard"):
    if importlib.util.find_spec(package) is None:
        print(f"SKIPPED: no {package}: run scripts/setup")
        sys.exit(77)


def script(name, *arguments, code=0):
    command = [sys.executable, source / "scripts" / name, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == code, (name, arguments, run.returncode, run.stderr)
    return run.stderr


def train(folder, *options):
    command = [trainer, "--checkpoint-dir", folder / "checkpoints", "--metrics", folder / "metrics.jsonl",
               "--tensorboard", folder / "tensorboard", "--checkpoint-every", "10", "--keep", "2", "--eval-every", "10",
               "--quiet", *options]
    subprocess.run(list(map(str, command)), check=True, timeout=120, stdout=subprocess.DEVNULL)


def traces(page):
    """The lines of the figure, as plotly's own JSON has them."""
    found = re.search(r'Plotly\.newPlot\(\s*"[^"]*",\s*(\[.*?\]),\s*(\{.*\}),\s*\{"responsive"', page, re.DOTALL)
    return json.loads(found[1]), json.loads(found[2])


def test_page(folder):
    train(folder / "a", "--max-steps", "20")
    train(folder / "a", "--max-steps", "40")
    train(folder / "b", "--max-steps", "30", "--lr", "0.2")
    script("run_page", folder / "a", folder / "b", "--output", folder / "page.html")
    page = (folder / "page.html").read_text()
    # plotly.js itself names addresses; what the page would load is named in tags.
    assert not re.search(r'<(script|link|img)[^>]*(src|href)=', page), "the page loads something"
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)][1:]
    assert [row[:2] for row in cells] == [["a", "40"], ["b", "30"]], cells
    assert [row[-3:-1] for row in cells] == [["1", "2"], ["0", "2"]], cells  # restarts, checkpoints
    lines, layout = traces(page)
    names = [line["name"] for line in lines]
    assert names.count("a") == 4 and names.count("b") == 4, names  # loss, accuracy, its loss, speed
    marks = {line["name"]: line["x"] for line in lines if line["mode"] == "markers"}
    assert marks == {"a: checkpoints": [30, 40], "b: checkpoints": [20, 30]}, marks
    assert {shape["x0"] for shape in layout["shapes"]} == {21}, layout["shapes"]

    # The line that the trainer is writing is no error; another one is.
    metrics = folder / "b/metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step":31,"lo')
    script("run_page", metrics, "--output", folder / "page.html")
    assert "line 31 is no step" not in (folder / "page.html").read_text()
    metrics.write_text(metrics.read_text() + "\n")
    assert f"'{metrics}' line 31 is no step" in script("run_page", metrics, code=1)
    assert "No such file" in script("run_page", folder / "c.jsonl", code=1)
    script("run_page", metrics, "--tensorboard", "x", "--tensorboard", "y", code=2)


def test_prometheus(folder):
    metrics, output = folder / "a.jsonl", folder / "a.prom"
    metrics.write_text('{"step":1,"loss":2.5,"eval_loss":3,"run":"x"}\n{"step":2,"loss":NaN}\n{"step":3,"lo')
    script("metrics_prometheus", metrics, output, "--run", 'a "b"')
    text = output.read_text()
    assert r'torchbridge_loss{run="a \"b\""} NaN' in text and "torchbridge_eval_loss{" in text, text
    assert " 2.0\n" in text and all(re.fullmatch(r'# TYPE \w+ gauge|\w+\{run=".*"\} \S+', line)
                                    for line in text.splitlines()), text
    script("metrics_prometheus", metrics, folder / "a.txt", code=2)
    assert "No such file" in script("metrics_prometheus", folder / "missing", output, code=1)

    # Each text that a reader finds is whole, and nothing else stays.
    metrics.unlink()
    command = [sys.executable, source / "scripts/metrics_prometheus", metrics, output, "--every", "0.001"]
    with subprocess.Popen(command) as writer:
        deadline = time.monotonic() + 60
        step = 0
        while time.monotonic() < deadline and step < 200:
            step += 1
            metrics.write_text(f'{{"step":{step},"loss":{step}}}\n')
            text = output.read_text()
            assert text.endswith("\n") and "metrics_written_seconds" in text, text
        while "torchbridge_step{run=\"a\"} 200.0" not in output.read_text() and time.monotonic() < deadline:
            pass
        writer.send_signal(signal.SIGTERM)
        assert writer.wait(60) == 0
    assert "torchbridge_step{run=\"a\"} 200.0" in output.read_text(), output.read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["a.jsonl", "a.prom"]


for test in (test_page, test_prometheus):
    with tempfile.TemporaryDirectory() as temporary:
        test(pathlib.Path(temporary))
