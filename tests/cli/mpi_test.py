#!/usr/bin/env python3
"""What `fsdplan run` and `fsdplan calibrate` do with ranks of MPI. usage: mpi_test.py FSDPLAN MPIRUN"""
import json, os, pathlib, signal, subprocess, sys, tempfile, time, unittest

MPIRUN = sys.argv.pop(2)
FSDPLAN = sys.argv.pop(1)
SOON_S = 60  # all ranks stop within seconds; the machine may be busy
MODEL = [str(pathlib.Path(__file__).parent / "data/pythia-14m"), "--seq", "16", "--scale", "0.0001"]
ONCE = [*MODEL, "--steps", "1"]
PLANS = {
    "fsdp2": ["--policy", "blocks"],
    "fsdp1": ["--runtime", "fsdp1", "--policy", "size:1M", "--strategy", "SHARD_GRAD_OP"],
    "ddp": ["--runtime", "ddp"],
}


def together(*apps):
    """Words of one mpirun with so many ranks of each command."""
    words = [MPIRUN]
    for ranks, command in apps:
        words += ([":"] if len(words) > 1 else []) + ["-np", str(ranks), FSDPLAN, *command]
    return words


def mpirun(*apps):
    return subprocess.run(together(*apps), capture_output=True, text=True, timeout=10 * SOON_S)


def children_of(pid):
    children = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
        if parent == pid:
            children.append(int(stat.parent.name))
    return sorted(children)


class Run(unittest.TestCase):
    def executed(self, ranks, *words, status=0):
        run = mpirun((ranks, ["run", *ONCE, *words, "--json"]))
        self.assertEqual(run.returncode, status, run.stderr)
        return json.loads(run.stdout)

    def check_plan(self, ranks, plan, *words):
        result = self.executed(ranks, *PLANS[plan], *words)
        errors = {error["key"]: error for error in result["errors"]}
        exact = ["requested_bytes", "sent_bytes"] + (["allocated_bytes"] if plan != "fsdp1" else [])
        for key in exact:
            self.assertGreater(errors[key]["measured"], 0, key)
            self.assertEqual(errors[key]["measured"], errors[key]["predicted"], key)
            self.assertEqual({rank[key] for rank in result["measured"]["ranks"]}, {errors[key]["predicted"]})
        self.assertEqual(len(result["measured"]["ranks"]), ranks)
        self.assertTrue(result["verdict"]["within"])
        self.assertFalse(errors["step_ns"]["judged"])  # nobody has measured these devices
        return result

    def test_plans_on_two_ranks(self):
        for plan in PLANS:
            with self.subTest(plan):
                self.check_plan(2, plan)

    def test_plans_on_four_ranks(self):
        for plan in PLANS:
            with self.subTest(plan):
                self.check_plan(4, plan)

    def test_replicas_of_shards_on_four_ranks(self):
        result = self.check_plan(4, "fsdp2", "--mesh", "2x2")
        self.assertIn("all_reduce", {error["key"].split("-")[0] for error in result["errors"]})

    def test_running_out_of_memory_is_a_result(self):
        result = self.executed(2, "--memory", "64MiB", status=1)
        self.assertGreater(result["measured"]["out_of_memory"]["requested_bytes"], 0)
        self.assertFalse(result["verdict"]["within"])

    def test_running_out_of_memory_on_one_rank_is_a_result(self):
        run = mpirun((1, ["run", *ONCE, "--json"]), (1, ["run", *ONCE, "--memory", "64MiB", "--json"]))
        self.assertEqual(run.returncode, 1, run.stderr)
        ranks = json.loads(run.stdout)["measured"]["ranks"]
        self.assertEqual([rank["out_of_memory"] for rank in ranks], [False, True])


class Failures(unittest.TestCase):
    def test_what_is_wrong_on_every_rank_is_said_once(self):
        run = mpirun((2, ["run", "no-such-model"]))
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stderr.count("no-such-model"), 1)
        run = mpirun((2, ["run", *ONCE, "--gpus", "8"]))
        self.assertEqual(run.returncode, 2)
        self.assertIn("--gpus: 8 are asked about, but 2 ranks run", run.stderr)

    def test_what_is_wrong_on_one_rank_stops_the_others(self):
        run = mpirun((1, ["run", *ONCE]), (1, ["run", "no-such-model"]))
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("no-such-model", run.stderr)
        self.assertEqual(run.stdout, "")

    def test_ranks_that_were_asked_for_different_steps_stop(self):
        run = mpirun((1, ["run", *ONCE]), (1, ["run", *ONCE, "--policy", "none"]))
        self.assertEqual(run.returncode, 2)
        self.assertIn("rank 1 was asked to execute another schedule than rank 0", run.stderr)

    def test_a_rank_that_dies_takes_the_others_along(self):
        words = together((2, ["run", *MODEL, "--steps", "1000"]))
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            deadline = time.monotonic() + SOON_S
            ranks = []
            while len(ranks) < 2 and time.monotonic() < deadline:
                ranks = children_of(run.pid)
            os.kill(ranks[1], signal.SIGKILL)
            self.assertNotEqual(run.wait(SOON_S), 0)
        while any(pathlib.Path(f"/proc/{rank}").exists() for rank in ranks):
            self.assertLess(time.monotonic(), deadline + SOON_S)


class Calibrate(unittest.TestCase):
    def test_measures_curves_that_other_commands_take(self):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/mine.json"
            run = mpirun((4, ["calibrate", "--backend", "mpi", "--budget", "3", "--most", "256KiB", "-o", file]))
            self.assertEqual(run.returncode, 0, run.stderr)
            calibration = json.loads(pathlib.Path(file).read_text())
            self.assertEqual({curve["id"] for curve in calibration["curves"]},
                             {"all_gather-4x1", "reduce_scatter-4x1", "all_reduce-4x1"})
            for curve in calibration["curves"]:
                self.assertEqual([point[0] for point in curve["points"]], [1024 << i for i in range(9)])
                self.assertTrue(all(len(sample) > 1 for sample in curve["samples"]))  # how many, the budget says
            run = mpirun((4, ["run", *ONCE, "--calibration", file, "--json"]))
            result = json.loads(run.stdout)
            self.assertEqual(result["cluster"]["gpus"], 4)
            step, = [error for error in result["errors"] if error["key"] == "step_ns"]
            self.assertTrue(step["judged"])

    def test_says_once_what_is_wrong(self):
        run = mpirun((2, ["calibrate", "--backend", "mpi", "--most", "2KiB"]))
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stderr.count("--most: expected 4KiB to 4GiB"), 1)


if __name__ == "__main__":
    unittest.main()
