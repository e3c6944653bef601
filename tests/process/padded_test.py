#!/usr/bin/env python3
"""A task whose batches weigh as much as their targets that are not padding trains as Python does with one big batch,
for each number of ranks, batch size and accumulation.

    padded_test.py TORCHBRIDGE PADDED_TRAINER
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

TOKENS, WIDTH, LINES, GLOBAL_BATCH, STEPS, RATE = 16, 8, 61, 12, 10, 0.5
LAYOUTS = [(1, 12, 1), (2, 6, 1), (3, 2, 2), (1, 4, 3), (4, 1, 3)]  # ranks, batch of each, accumulation


def padded(lines):
    longest = max(map(len, lines))
    inputs = [line + [0] * (longest - len(line)) for line in lines]
    targets = [line[1:] + [-100] * (longest - len(line) + 1) for line in lines]
    return torch.tensor(inputs), torch.tensor(targets)


class NextToken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Parameter(torch.randn(TOKENS, WIDTH))
        self.scores = torch.nn.Linear(WIDTH, TOKENS)

    def forward(self, inputs):
        return self.scores(F.embedding(inputs, self.tokens).tanh())


def cross_entropy(outputs, targets, smoothing=0.1):
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), label_smoothing=smoothing)


class PaddedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        torch.manual_seed(1)
        self.model = NextToken()
        save_file(self.model.state_dict(), self.folder / "begin.safetensors")
        numbers = random.Random(1)
        # Every fifth line is one token: it has no target.
        self.lines = [[numbers.randrange(TOKENS) for _ in range(1 if i % 5 == 0 else numbers.randrange(2, 40))]
                      for i in range(LINES)]

    def train(self, ranks, batch, accumulation, *more):
        """The ended process, its lines of metrics, and the samples of each step."""
        (self.folder / "data").write_text("".join(" ".join(map(str, line)) + "\n" for line in self.lines))
        curve, samples = self.folder / "curve", self.folder / "samples"
        curve.unlink(missing_ok=True)
        samples.unlink(missing_ok=True)
        ended = subprocess.run(
            [sys.argv[1], "run", "--nproc-per-node", str(ranks), sys.argv[2], "--data", self.folder / "data",
             "--init-from", self.folder / "begin.safetensors", "--batch-size", str(batch), "--grad-accumulation",
             str(accumulation), "--max-steps", str(STEPS), "--lr", str(RATE), "--momentum", "0", "--metrics", curve,
             "--sample-log", samples, *more], text=True, capture_output=True, timeout=100)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        steps = {}
        for line in map(json.loads, samples.read_text().splitlines()):  # one a micro-batch
            if "samples" in line:
                steps.setdefault(line["step"], []).extend(index for rank in line["samples"] for index in rank)
        return [json.loads(line) for line in curve.read_text().splitlines()], list(steps.values())

    def of_big_batches(self, steps):
        """What Python's training with these samples gives: each step's loss and its parts, and the evaluation."""
        self.model.load_state_dict(load_file(self.folder / "begin.safetensors"))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        losses = []
        for samples in steps:
            inputs, targets = padded([self.lines[index] for index in samples])
            outputs = self.model(inputs)
            loss = cross_entropy(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append([loss.item(), cross_entropy(outputs, targets, 0).item() * 0.9])
        inputs, targets = padded(self.lines)
        with torch.no_grad():
            outputs = self.model(inputs)
        counted = targets != -100
        return losses, cross_entropy(outputs, targets).item(), (
            outputs.argmax(-1)[counted] == targets[counted]).double().mean().item()

    def test_is_one_big_batch(self):
        for ranks, batch, accumulation in LAYOUTS:
            with self.subTest(ranks=ranks, batch=batch, accumulation=accumulation):
                lines, steps = self.train(ranks, batch, accumulation)
                self.assertEqual({len(step) for step in steps[:5]}, {GLOBAL_BATCH})
                losses, eval_loss, accuracy = self.of_big_batches(steps)
                self.assertEqual(len(lines), STEPS)
                for line, (loss, part) in zip(lines, losses):
                    self.assertAlmostEqual(line["loss"], loss, delta=1e-5)
                    self.assertAlmostEqual(line["target_loss"], part, delta=1e-5)
                    self.assertAlmostEqual(line["target_loss"] + line["smooth_loss"], line["loss"], delta=1e-5)
                self.assertAlmostEqual(lines[-1]["eval_loss"], eval_loss, delta=1e-5)
                self.assertAlmostEqual(lines[-1]["eval_accuracy"], accuracy, delta=1e-12)

    def test_a_rank_without_a_target_has_no_part(self):
        self.lines = [[1, 2, 3], [4]] * 12  # of two ranks in order, the second has no target at all
        lines, steps = self.train(2, 3, 1, "--order", "sequential")
        losses, eval_loss, _ = self.of_big_batches(steps)
        for line, (loss, _) in zip(lines, losses):
            self.assertAlmostEqual(line["loss"], loss, delta=1e-5)
        self.assertAlmostEqual(lines[-1]["eval_loss"], eval_loss, delta=1e-5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
