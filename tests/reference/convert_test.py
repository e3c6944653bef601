#!/usr/bin/env python3
"""What torchbridge.convert makes of files and checkpoints; tests/process/torch_file_test.cpp runs it."""
import collections
import contextlib
import errno
import io
import json
import os
import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torchbridge import checkpoint_folder, convert
from torchbridge.torch_file import ConversionError


class Settings(dict):
    def __init__(self, **values):
        super().__init__(values)
        self.path = "x"


class Names(list):
    pass


class ConvertTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def checkpoint(self, name, weights, groups=(), aliases=None, numbers=(), kept=None):
        """Written as the trainer writes one."""
        def saved(tensors, aliases=None):
            return lambda path: checkpoint_folder.save(path, tensors, aliases)
        files = {"model.safetensors": saved(weights, aliases), "optimizer-00000-of-00001.safetensors": saved({})}
        if kept:
            files["kept.safetensors"] = saved(kept)
        return checkpoint_folder.write(self.folder / name, files, {
            "format": "torchbridge-checkpoint", "version": 2, "step": 1, "epoch": 0, "epoch_samples_consumed": 0,
            "samples_seen": 0, "world_size": 1, "state": dict(numbers),
            "optimizer": {"kind": "adamw", "groups": [{"name": "all", "options": {}, "parameters": list(group)}
                                                      for group in groups]}})

    def convert(self, source, target, like=None, **given):
        return convert.convert(pathlib.Path(source), self.folder / target, like, given.items())

    def assert_rejected(self, message, *arguments):
        with self.assertRaises(ConversionError) as caught:
            self.convert(*arguments)
        self.assertIn(message, str(caught.exception))

    def edit_manifest(self, folder, edit):
        """Changes it as a person would who also knows the checksum."""
        manifest = json.loads((folder / "manifest.json").read_bytes())
        del manifest["xxh3_128"]
        edit(manifest)
        text = json.dumps(manifest, indent=2)[:-2].encode()
        (folder / "manifest.json").write_bytes(text + checkpoint_folder._end_of_manifest(text))

    def test_manifest_has_the_rules_of_the_trainer(self):
        outside = self.folder / "outside.safetensors"
        save_file({"x": torch.ones(2)}, outside)

        def first(**changes):
            return lambda manifest: manifest["files"][0].update(changes)
        cases = {
            "names a file outside of its folder: '../x'": first(name="../x"),
            f"names a file outside of its folder: '{outside}'": first(name=str(outside)),
            "names a file outside of its folder: '.x'": first(name=".x"),
            "names a file outside of its folder: ''": first(name=""),
            "names 'model.safetensors' twice": lambda manifest: manifest["files"].append(manifest["files"][0]),
            "has parts that are longer than 'model.safetensors'": first(parts=[[10**6, "x"]]),
            "has no checksum for every byte of 'model.safetensors'": first(parts=[[8, "x"]]),
            "has no checksum for every byte of 'model.safetensors' ": first(parts=[]),
            "is invalid: it has 1.5 where an integer": first(size=1.5),
            "is invalid: it has True where an integer": lambda manifest: manifest.update(step=True),
            f"is invalid: it has {1 << 63} where an integer": lambda manifest: manifest.update(samples_seen=1 << 63),
            "has a negative position or a world size below 1": lambda manifest: manifest.update(epoch=-1),
            "is not a checkpoint's manifest": lambda manifest: manifest.update(format="x"),
            "is invalid: KeyError: 'files'": lambda manifest: manifest.pop("files"),
            "manifest.json does not list model.safetensors": lambda manifest: manifest["files"].pop(0),
        }
        for number, (message, edit) in enumerate(cases.items()):
            with self.subTest(message):
                folder = self.checkpoint(str(number), {"x": torch.ones(2)})
                self.edit_manifest(folder, edit)
                self.assert_rejected(message.strip(), folder, "x.pt")

    def test_only_regular_files_are_opened(self):
        folder = self.checkpoint("a", {"x": torch.ones(2)})
        model = folder / "model.safetensors"
        model.rename(self.folder / "moved")
        model.symlink_to(self.folder / "moved")
        self.assert_rejected("model.safetensors is a link, which is not followed", folder, "x.pt")
        model.unlink()
        os.mkfifo(model)
        self.assert_rejected("model.safetensors is not a regular file", folder, "x.pt")

    def test_files_that_the_manifest_does_not_list_are_not_read(self):
        folder = self.checkpoint("a", {"x": torch.ones(2)})
        save_file({"x.exp_avg": torch.ones(2)}, folder / "optimizer-00001-of-00002.safetensors")
        self.assertEqual(convert.Like(folder).with_state, set())

    def test_target_has_its_name_when_it_is_complete(self):
        folder = self.checkpoint("a", {"x": torch.ones(2)})
        torch.save({"x": torch.ones(2)}, self.folder / "x.pt")
        targets = {"new.pt": folder, "new.safetensors": self.folder / "x.pt"}
        for target, source in targets.items():
            before = set(self.folder.iterdir())
            for function in ("fsync", "link"):
                with mock.patch("os." + function, side_effect=KeyboardInterrupt):
                    self.assertRaises(KeyboardInterrupt, self.convert, source, target)
                self.assertEqual(set(self.folder.iterdir()), before, function)
            with mock.patch("os.link", side_effect=PermissionError):  # a file system without links
                self.convert(source, target)
            self.assertEqual(set(self.folder.iterdir()), {*before, self.folder / target})

    def test_an_error_of_a_sync_is_one_unless_the_file_system_has_none(self):
        folder = self.checkpoint("a", {"x": torch.ones(2)})
        for code in (errno.EIO, errno.ENOSPC, errno.ESTALE, errno.ETIMEDOUT):
            with mock.patch("os.fsync", side_effect=OSError(code, "")):
                self.assertRaises(OSError, self.convert, folder, "x.pt")
        with mock.patch("os.fsync", side_effect=OSError(errno.EOPNOTSUPP, "")):
            self.convert(folder, "x.pt")

    def test_target_that_appears_meanwhile_is_not_replaced(self):
        target = self.folder / "x.pt"

        def save(path):
            path.write_text("ours")
            target.write_text("theirs")
        with self.assertRaisesRegex(ConversionError, "exists: give another name"):
            checkpoint_folder.write_file(target, save)
        self.assertEqual(list(self.folder.iterdir()), [target])
        self.assertEqual(target.read_text(), "theirs")

    def test_items_of_classes_that_are_not_known_do_not_hide_the_weights(self):
        lists = collections.defaultdict(list, {"x": [1], "y": [2]})
        cases = [Settings(a=1, b=Settings(c=2)), lists, Names("ab"), Names("a"), collections.deque("ab"),
                 {"settings": Settings(a=1), "lists": lists, "names": Names("ab")}]
        for number, beside in enumerate(cases):
            torch.save({"model": {"x": torch.ones(2)}, "beside": beside}, self.folder / "x.pt")
            written = self.convert(self.folder / "x.pt", f"{number}.safetensors")
            self.assertEqual(list(load_file(written)), ["x"])

    def names(self, state_dict, like=None):
        return list(convert.Weights({name: torch.rand(2) for name in state_dict}, like).shapes)

    def test_a_setting_that_is_no_number_is_left_out(self):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        saved = optimizer.state_dict()
        for folder, betas in (("none", None), ("array", np.array([0.9, 0.5]))):
            saved["param_groups"][0]["betas"] = betas
            torch.save({"model": model.state_dict(), "optimizer": saved}, self.folder / "x.pt")
            manifest = checkpoint_folder.read(self.convert(self.folder / "x.pt", folder))
            options = manifest["optimizer"]["groups"][0]["options"]
            self.assertEqual(options["lr"], 0.1)
            self.assertNotIn("beta1", options)

    def test_numbers_of_numpy_and_steps_of_each_kind_are_read(self):
        model = torch.nn.Linear(2, 1)
        for make in (lambda: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
                     lambda: torch.optim.AdamW(model.parameters(), 0.1)):
            optimizer = make()
            model(torch.ones(2)).sum().backward()
            optimizer.step()
            saved = optimizer.state_dict()
            group = saved["param_groups"][0]
            group["lr"] = np.interp(3, [0, 10], [0, 0.1])
            group["weight_decay"] = np.float32(0.25)
            if "betas" in group:
                group["betas"] = (np.float64(0.9), np.float16(0.5))
                for number, step in enumerate((np.int64(7), torch.tensor([7], dtype=torch.int64))):
                    saved["state"][number]["step"] = step
            path = self.folder / "x.pt"
            torch.save({"model": model.state_dict(), "optimizer": saved, "step": np.int64(7), "epoch": np.int32(2),
                        "best": np.array([1.5]), "iteration": 28}, path)
            folder = self.convert(path, "runs")
            manifest = checkpoint_folder.read(folder)
            self.assertEqual((manifest["step"], manifest["epoch"]), (7, 2))
            options = manifest["optimizer"]["groups"][0]["options"]
            self.assertEqual((options["lr"], options["weight_decay"]), (0.03, 0.25))
            state = load_file(folder / "optimizer-00000-of-00001.safetensors")
            if "betas" in group:
                self.assertEqual((options["beta1"], options["beta2"]), (0.9, 0.5))
                for name in ("weight.step", "bias.step"):
                    self.assertTrue(torch.equal(state[name], torch.tensor(7.0)), name)
            self.assertEqual(len(state), 6 if "betas" in group else 2)
            shutil.rmtree(self.folder / "runs")

    def test_what_is_no_number_is_named(self):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
        optimizer.param_groups[0]["lr"] = np.datetime64("2026-01-01")  # left out: the run that resumes has its own
        saved = {"param_groups": optimizer.state_dict()["param_groups"],
                 "state": {number: {"step": 1, "exp_avg": pathlib.Path("x")} for number in range(2)}}
        torch.save({"model": model.state_dict(), "optimizer": saved}, self.folder / "x.pt")
        self.assert_rejected("'weight.exp_avg' is neither a tensor nor a number", self.folder / "x.pt", "runs")
        torch.save({"model": model.state_dict(), "optimizer": saved, "step": np.datetime64("2026-01-01")},
                   self.folder / "y.pt")
        self.assert_rejected("'step', which is not a number", self.folder / "y.pt", "runs")

    def test_an_epoch_without_a_step_is_rejected_and_a_step_without_an_epoch_named(self):
        model = torch.nn.Linear(2, 1)
        path = self.folder / "x.pt"

        def position_of(given, **more):
            """Step and epoch, and what is printed. As pytorch/examples' imagenet writes it: SGD has no step."""
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), **more}, path)
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                folder = self.convert(path, f"runs{len(list(self.folder.iterdir()))}", **given)
            manifest = checkpoint_folder.read(folder)
            self.consumed = manifest["epoch_samples_consumed"]
            return manifest["step"], manifest["epoch"], printed.getvalue()
        with self.assertRaisesRegex(ConversionError, "'epoch' is 1 and the step is not known: .* give --step N"):
            position_of({}, epoch=1, arch="mlp", best_acc1=torch.tensor(80.0))
        with self.assertRaisesRegex(ConversionError, "'epoch_samples_consumed' is 8 and the step is not known"):
            position_of({}, epoch_samples_consumed=8, step=0)
        self.assertEqual(position_of({"step": 45}, epoch=1), (45, 1, ""))
        for name in ("step", "global_step", "iteration", "iter_num"):
            self.assertEqual(position_of({}, epoch=1, **{name: 45}), (45, 1, ""))
        self.assertEqual(position_of({}, epoch=1, step=45, iter_num=90), (45, 1, ""))
        step, epoch, printed = position_of({}, iter_num=45)
        self.assertEqual((step, epoch), (45, 0))
        self.assertIn("has no epoch: the data begin at epoch 0 after step 45", printed)
        self.assertEqual(position_of({"epoch": 1}, step=45, epoch_samples_consumed=8), (45, 1, ""))
        self.assertEqual(self.consumed, 0)
        with self.assertRaisesRegex(ConversionError, "has 'iteration' -1: expected a whole number"):
            position_of({}, iteration=-1)
        self.assertEqual(position_of({}), (0, 0, ""))
        self.assertIn("'scheduler' is left out: the run that resumes has its own schedule, at step 45",
                      position_of({}, epoch=1, step=45, scheduler={"last_epoch": 1})[2])
        with self.assertRaisesRegex(ConversionError, "--step and --epoch are for a .pt file that becomes a checkpoint"):
            self.convert(path, "x.safetensors", step=1)

    def test_prefixes_of_all_names_are_removed(self):
        cases = [
            (["module.a", "module.b"], ["a", "b"]),
            (["module._orig_mod.a", "module._orig_mod.module.b"], ["a", "module.b"]),
            (["module.a", "b"], ["module.a", "b"]),
            (["module.a", "a"], ["module.a", "a"]),
            (["module.a", "_orig_mod.b"], ["module.a", "_orig_mod.b"]),
            ([], []),
        ]
        for names, expected in cases:
            self.assertEqual(self.names(names), expected)

    def test_names_fit_the_checkpoint_of_like(self):
        cases = [
            (["module.a", "module.b"], ["module.a", "module.b"], ["module.a", "module.b"]),
            (["module.a", "module.b"], ["a", "b"], ["a", "b"]),
            (["model._orig_mod.a", "x"], ["a"], ["a", "x"]),
            (["module.a", "a"], ["module.a", "a"], ["module.a", "a"]),
            (["module.a", "a"], ["b"], ["module.a", "a"]),
        ]
        for number, (names, known, expected) in enumerate(cases):
            like = convert.Like(self.checkpoint(str(number), {name: torch.ones(2) for name in known}))
            self.assertEqual(self.names(names, like), expected)

    def test_names_of_the_optimizer_are_those_of_the_weights(self):
        cases = [  # state_dict, param_names, expected
            (["module.module.a", "module.a"], ["module.module.a", "module.a"], ["module.a", "a"]),
            (["module.a", "module.b"], ["a", "b"], ["a", "b"]),
            (["a", "b"], ["module.a", "module.b"], ["a", "b"]),
            (["module.a", "b"], ["b", "module.a"], ["b", "module.a"]),
        ]
        for names, of_optimizer, expected in cases:
            weights = convert.Weights({name: torch.rand(2) for name in names})
            self.assertEqual(weights.own_names(of_optimizer), expected)

    def test_parameters_without_names_have_the_order_of_the_weights(self):
        weights = {name: torch.rand(2, 2) for name in ("b", "a")}
        weights["b_again"] = weights["b"]
        groups = [{"params": [0], "lr": 0.1}, {"params": [1, 2], "lr": 0.2}]
        for first, aliases in (("b", {"b_again": "b"}), ("b_again", {"b": "b_again"}), ("b", {})):
            like = self.checkpoint(f"like {first} {aliases}", {name: torch.rand(2, 2) for name in ("c", "a", first)},
                                   [["c"], ["a", first]], aliases)
            for order in (("c", "b", "a", "b_again"), ("c", "b_again", "a", "b"), ("b_again", "a", "c", "b")):
                saved = {"model": {name: weights.get(name, torch.ones(2, 2)) for name in order}, "optimizer": {
                    "param_groups": groups, "state": {number: {"exp_avg": torch.full((2, 2), float(number))}
                                                      for number in range(3)}}}
                torch.save(saved, self.folder / "x.pt")
                out = self.convert(self.folder / "x.pt", f"{first} {aliases} {order}", like)
                state = load_file(out / "optimizer-00000-of-00001.safetensors")
                self.assertEqual({name: int(tensor[0, 0]) for name, tensor in state.items()},
                                 {"c.exp_avg": 0, first + ".exp_avg": 1, "a.exp_avg": 2})
        del saved["model"]["a"]
        torch.save(saved, self.folder / "x.pt")
        self.assert_rejected("x.pt has no weights of 'a', which the optimizer of --like has", self.folder / "x.pt", "x",
                             like)

    def test_loss_scale_comes_back(self):
        numbers = {"grad_scaler.scale": 1024.0, "grad_scaler.growth_tracker": 5.0}
        saved = torch.load(self.convert(self.checkpoint("a", {"x": torch.ones(2)}, numbers=numbers), "x.pt"))
        self.assertEqual(saved["scaler"], {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5,
                                           "growth_interval": 2000, "_growth_tracker": 5})
        scaler = torch.amp.GradScaler("cpu")
        scaler.load_state_dict(saved["scaler"])
        self.assertEqual(scaler.state_dict(), saved["scaler"])
        written = self.convert(self.folder / "x.pt", "b")
        self.assertEqual(checkpoint_folder.read(written)["state"].items() & numbers.items(), numbers.items())

    def test_kept_tensors_are_left_out_with_a_line(self):
        for name, kept in (("with", {"x": torch.ones(2)}), ("without", None)):
            folder = self.checkpoint(name, {"x": torch.ones(2)}, kept=kept)
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                saved = torch.load(self.convert(folder, name + ".pt"))
            self.assertNotIn("scaler", saved)
            self.assertEqual(errors.getvalue(), "" if not kept else f"torchbridge.convert: {folder}: the tensors in "
                             "kept.safetensors, which the program keeps, are left out\n")


if __name__ == "__main__":
    unittest.main()
