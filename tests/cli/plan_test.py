#!/usr/bin/env python3
"""What `fsdplan plan` and `fsdplan explain` answer at the command line. usage: plan_test.py FSDPLAN"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
from schema_check import faults  # noqa: E402

PROGRAM = sys.argv.pop(1)
SCHEMA = json.loads((pathlib.Path(__file__).parent.parent.parent / "reports/result.schema.json").read_text())
SMALL = ["llama3.2-1b", "--gpus", "8", "--seq", "512"]


def fsdplan(*words, status=0):
    run = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120)
    assert run.returncode == status, f"exit status {run.returncode}: {run.stderr}"
    return run


def answer(command, *words, status=0):
    result = json.loads(fsdplan(command, *words, "--json", status=status).stdout)
    found = list(faults(result, SCHEMA, SCHEMA))
    assert not found, found
    return result


class Plan(unittest.TestCase):
    def test_is_faster_than_one_unit_per_block_and_fits(self):
        result = answer("plan", *SMALL)
        self.assertLess(result["recommended"]["step_ns"], result["current"]["step_ns"])
        self.assertTrue(result["recommended"]["fits"])
        self.assertLessEqual(result["bound"]["step_ns"], result["recommended"]["step_ns"])
        self.assertAlmostEqual(
            result["bound"]["gap"], result["recommended"]["step_ns"] / result["bound"]["step_ns"] - 1, places=6)

    def test_gives_the_same_answer_again(self):
        self.assertEqual(fsdplan("plan", *SMALL, "--json").stdout, fsdplan("plan", *SMALL, "--json").stdout)

    def test_a_plan_read_back_is_the_same_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/plan.json"
            fsdplan("plan", *SMALL, "-o", file)
            planned = json.loads(pathlib.Path(file).read_text())["recommended"]
            again = answer("plan", *SMALL, "--plan", file, "--check")["recommended"]
            self.assertEqual(again["step_ns"], planned["step_ns"])
            self.assertEqual(again["peak"], planned["peak"])
            self.assertEqual(again["wrap_plan"]["units"], planned["wrap_plan"]["units"])

    def test_what_is_given_is_not_searched_for(self):
        plan = answer("plan", *SMALL, "--policy", "blocks", "--strategy", "FULL_SHARD", "--optimizer",
                      "adamw:for-loop", "--activation-checkpointing", "blocks")["recommended"]
        self.assertEqual(plan["units_by_class"], {"LlamaDecoderLayer": 16, "LlamaForCausalLM": 1})
        self.assertEqual(plan["wrap_plan"]["mesh"], {"replicate": 1, "shard": 8})
        self.assertEqual(plan["wrap_plan"]["optimizer"], "adamw:for-loop")
        self.assertEqual(len(plan["wrap_plan"]["activation_checkpointing"]["modules"]), 16)

    def test_a_global_batch_is_split(self):
        plan = answer("plan", *SMALL, "--global-batch", "256")["recommended"]["wrap_plan"]
        self.assertEqual(plan["batch"] * plan["accumulate"] * 8, 256)
        run = fsdplan("plan", *SMALL, "--global-batch", "12", status=2)
        self.assertEqual(run.stderr.count("\n"), 1)
        self.assertIn("--global-batch: 12 sequences do not divide among 8 GPUs", run.stderr)

    def test_least_memory_is_less_than_that_of_the_fastest(self):
        fastest = answer("plan", *SMALL)["recommended"]["peak"]["allocated_bytes"]
        result = answer("plan", *SMALL, "--minimize", "memory")
        self.assertLess(result["recommended"]["peak"]["allocated_bytes"], fastest)
        self.assertLessEqual(result["bound"]["allocated_bytes"], result["recommended"]["peak"]["allocated_bytes"])
        self.assertIn("expected time or memory", fsdplan("plan", *SMALL, "--minimize", "speed", status=2).stderr)

    def test_says_what_would_fit_when_nothing_does(self):
        result = answer("plan", *SMALL, "--batch", "64", "--memory", "30GiB", status=1)
        self.assertIsNone(result["recommended"])
        self.assertGreater(result["bound"]["floor_bytes"], result["bound"]["limit_bytes"])
        self.assertTrue(any("fits with" in change["effect"] for change in result["verdict"]["next"]))

    def test_an_interrupt_ends_with_the_best_so_far(self):
        run = subprocess.Popen([PROGRAM, "plan", "llama3.1-405b", "--gpus", "512", "--seq", "4096", "--json"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1.0)
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=120)
        self.assertIn(run.returncode, (0, 1))
        self.assertTrue(json.loads(out)["bound"]["stopped"])

    def test_the_page_shows_it(self):
        with tempfile.TemporaryDirectory() as folder:
            fsdplan("plan", *SMALL, "-o", f"{folder}/plan.html")
            self.assertIn("report-data", pathlib.Path(f"{folder}/plan.html").read_text())


class Explain(unittest.TestCase):
    def test_ranks_single_changes(self):
        result = answer("explain", "llama3-8b", "--gpus", "8", "--batch", "4", "--seq", "4096", status=1)
        self.assertTrue(result["peak_live"])
        fits = [change["fits"] for change in result["changes"]]
        self.assertEqual(fits, sorted(fits, key=lambda fit: {True: 0, None: 1, False: 2}[fit]))
        self.assertEqual(result["changes"][0]["settings"], "--activation-checkpointing blocks")
        self.assertGreater(result["changes"][0]["freed_bytes"], 0)
        self.assertLess(result["changes"][0]["speed"], 1.0)

    def test_explains_one_plan(self):
        self.assertIn("has several values", fsdplan("explain", *SMALL, "--batch", "1,2", status=2).stderr)


if __name__ == "__main__":
    unittest.main()
