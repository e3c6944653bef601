#!/usr/bin/env python3
"""How scripts/gpu starts jobs and judges them, over programs that are a few lines of shell.

    gpu_jobs_test.py SOURCE_DIR FAKE_DRIVER_DIR     by ctest
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE_DIR, FAKE_DRIVER = map(pathlib.Path, sys.argv[1:3])
sys.path.insert(0, str(SOURCE_DIR / "scripts/gpu"))
sys.dont_write_bytecode = True

import checks  # noqa: E402
import packing  # noqa: E402
import rank_checks  # noqa: E402
from jobs import Jobs, free_port  # noqa: E402
from rows import Failed  # noqa: E402

NOTE = "no pinned memory (REASON): copies between GPU and CPU use pageable memory, which is slower"
LATE = "rank 0: rank 1 on n1 did not take part in a collective in time"


class RecordedJobs(Jobs):
    """Runs nothing, and keeps what a row asks for."""
    def __init__(self, build):
        super().__init__({"lib": "/none", "python": sys.executable}, build, "cuda", 2, 60, None, share_gpu=True)
        self.seen = []

    def lose_last_rank(self, command, number, when, soon_s):
        self.seen.append((command[1], soon_s))
        raise Failed("not run")

    def train(self, task, options, world_size=1, device=None, more=None, data=None, folder=None):
        self.seen.append(more)
        return [{"step": 1, "loss": 1.0}]

    def train_in_python(self, task, options, world_size=1, more=None, data=None, folder=None):
        return self.train(task, options, world_size, more=more)


class GpuJobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)

    def program(self, name, lines=""):
        file = self.build / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{lines}\n")
        file.chmod(0o755)

    def jobs(self):
        return Jobs({"lib": "/none", "python": sys.executable}, self.build, "cuda", 2, 60, None, share_gpu=True)

    def judge_late(self, *lines):
        """The row of a rank that is late; rank 0 writes the lines and fails."""
        said = "\n".join(f"echo 'gpu_cases: {line}' >&2" for line in lines)
        self.program("bin/gpu_cases", f"[ $RANK = 0 ] || exec tail -f /dev/null\n{said}\nexit 1")
        rows = rank_checks.lost_rank_ends_the_job(self.jobs(), None)
        return next(row for row in rows if "does not come" in row.what).result()

    def test_one_report_of_a_lost_rank_is_right(self):
        self.assertEqual(self.judge_late(LATE)[1], True)
        self.assertEqual(self.judge_late(LATE, LATE)[1], False)

    def test_a_note_is_no_report_of_a_lost_rank(self):
        figure, verdict = self.judge_late(NOTE, LATE)
        self.assertTrue(verdict, figure)

    def test_a_note_is_no_report_of_a_device_error(self):
        self.program("bin/gpu_cases", f"echo 'gpu_cases: {NOTE}' >&2\n"
                     "echo 'gpu_cases: rank 0: CUDA error: device-side assert triggered' >&2\nexit 1")
        row, = checks.device_error_ends_the_job(self.jobs(), None)
        figure, verdict = row.result()
        self.assertTrue(verdict, figure)

    def test_a_time_from_the_start_of_programs_is_that_of_a_start(self):
        jobs = RecordedJobs(self.build)
        for row in rank_checks.lost_rank_ends_the_job(jobs, None):
            row.result()
        limits = {command: soon_s for command, soon_s in jobs.seen if command in ("abort", "late")}
        self.assertEqual(limits, {"abort": 120, "late": 120})

    def test_no_two_jobs_get_a_port_nor_does_a_connection_take_it(self):
        lowest, _ = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        ports = [free_port() for _ in range(1000)]
        self.assertEqual(len(set(ports)), len(ports))
        if int(lowest) >= 32768:  # Linux's own
            self.assertLess(max(ports), int(lowest))

    def test_ranks_that_share_a_gpu_use_sockets_of_loopback(self):
        self.program("bin/gpu_cases", "echo net $NCCL_NET\necho interface $NCCL_SOCKET_IFNAME\necho host $NCCL_HOSTID")
        jobs = self.jobs()
        self.assertEqual(jobs.cases("any", jobs.own_gpus(), 2),
                         {"net": ["Socket"], "interface": ["lo"], "host": ["rank-0"]})

    def test_both_programs_of_an_equality_leave_nvls_out(self):
        jobs = RecordedJobs(self.build)
        row = next(checks.equality_rows(jobs, 2, jobs.own_gpus()))
        self.assertTrue(row.result()[1])
        self.assertEqual([more.get("NCCL_ALGO") for more in jobs.seen], ["^NVLS", "^NVLS"])

    def test_each_program_that_is_missing_is_named(self):
        for device, names in (("cpu", packing.CPU_PROGRAMS), ("cuda", packing.PROGRAMS)):
            for missing in names:
                for name in packing.PROGRAMS:
                    self.program(name)
                (self.build / missing).unlink()
                ended = subprocess.run(
                    [SOURCE_DIR / "scripts/gpu_check", "--device", device, "--build", self.build, "--python", "/none"],
                    env=os.environ | {"LD_LIBRARY_PATH": str(FAKE_DRIVER)}, capture_output=True, text=True)
                with self.subTest(device=device, missing=missing):
                    self.assertIn(f"gpu_check: {self.build / missing} is missing: build it", ended.stderr)
                    self.assertEqual(ended.returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
