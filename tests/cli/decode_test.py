#!/usr/bin/env python3
"""What `fsdplan decode` and `fsdplan diff` answer at the command line. usage: decode_test.py FSDPLAN"""
import json, pathlib, subprocess, sys, tempfile, unittest

FSDPLAN = sys.argv.pop(1)
TESTS = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(TESTS / "support"))
from schema_check import faults

SCHEMA = json.loads((TESTS.parent / "reports" / "result.schema.json").read_text())
LINE = ("[rank{rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum={number}, OpType={op}, NumelIn={n_in}, NumelOut={n_out}, Timeout(ms)=600000) ran for "
        "600061 milliseconds before timing out.\n")
LAYER = 218112000  # elements of one layer of Llama-3-8B


def fsdplan(*words, status=0, text=None):
    run = subprocess.run([FSDPLAN, *words], input=text, capture_output=True, text=True, timeout=120)
    if run.returncode != status:
        raise AssertionError(f"{words}: {run.returncode} {run.stdout} {run.stderr}")
    return run


def gather(rank=0, number=7, ranks=4, numel=LAYER):
    return LINE.format(rank=rank, number=number, op="_ALLGATHER_BASE", n_in=numel // ranks, n_out=numel)


class Decode(unittest.TestCase):
    def decode(self, *words, status=0, text=None):
        result = json.loads(fsdplan("decode", "llama3-8b", "--json", *words, status=status, text=text).stdout)
        self.assertEqual(list(faults(result, SCHEMA, SCHEMA)), [])
        return result

    def test_two_numbers_are_enough(self):
        result = self.decode("--numel-in", str(LAYER // 4), "--numel-out", str(LAYER))
        self.assertEqual(result["world_size"], 4)
        self.assertEqual([(m["class"], m["count"]) for m in result["matches"]], [("LlamaDecoderLayer", 32)])
        self.assertIsNone(result["ranks_in_step"])

    def test_a_line_a_file_and_standard_input_say_the_same(self):
        by_line = self.decode("--line", gather())
        with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
            log.write("step 7\n" + gather())
            log.flush()
            self.assertEqual(self.decode("--file", log.name), by_line)
        self.assertEqual(self.decode("--file", "-", text=gather()), by_line)

    def test_ranks_are_compared(self):
        together = self.decode("--line", gather(0), "--line", gather(1))
        self.assertIs(together["ranks_in_step"], True)
        behind = self.decode("--line", gather(0), "--line", gather(1, number=4))
        self.assertIs(behind["ranks_in_step"], False)
        self.assertIn("rank 1 is 3 behind", behind["in_step_reason"])
        self.assertIn("ranks 2, 3 are not in these lines", behind["notes"][0])

    def test_gpus_of_the_command_line_win(self):
        result = self.decode("--gpus", "8", "--numel-in", str(LAYER // 4), "--numel-out", str(LAYER), status=1)
        self.assertEqual(result["matches"], [])
        self.assertEqual((result["nearest"][0]["distance"], result["nearest"][0]["group_size"]), (0, 8))

    def test_a_given_policy_and_runtime_are_the_only_ones(self):
        words = ["--policy", "none", "--runtime", "fsdp1", "--numel-in", str(LAYER // 4), "--numel-out", str(LAYER)]
        self.assertEqual(self.decode(*words, status=1)["plans_tried"], 1)

    def test_what_matches_nothing_is_a_no(self):
        run = fsdplan("decode", "llama3-8b", "--numel-in", str(LAYER // 4 + 1), "--numel-out", str(LAYER + 4), status=1)
        self.assertIn("nearest, 4 elements fewer: all gather of 218,112,000 over 4 ranks, LlamaDecoderLayer model.layers.0",
                      " ".join(run.stdout.split()))

    def test_one_way_to_say_it(self):
        for words in ([], ["--numel-in", "4", "--line", gather()], ["--line", gather(), "--file", "x"]):
            self.assertIn("expected one of --numel-in with --numel-out, --line, or --file",
                          fsdplan("decode", "llama3-8b", *words, status=2).stderr)
        self.assertIn("--numel-out: is missing", fsdplan("decode", "llama3-8b", "--numel-in", "4", status=2).stderr)
        self.assertIn("has several values", fsdplan("decode", "llama3-8b", "--batch", "1,2", "--line", gather(), status=2).stderr)


class Diff(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, text):
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def simulated(self, name, *words):
        path = str(self.folder / name)
        fsdplan("simulate", "llama3.2-1b", "--gpus", "8", "--seq", "512", "-o", path, *words)
        return path

    def test_two_results(self):
        before = self.simulated("before.json")
        after = self.simulated("after.json", "--batch", "2")
        result = json.loads(fsdplan("diff", before, after, "--json", status=1).stdout)
        self.assertEqual(list(faults(result, SCHEMA, SCHEMA)), [])
        self.assertEqual([(r["key"], r["before"], r["after"]) for r in result["settings"]], [("job.batch", 1, 2)])
        rows = {r["key"]: r for r in result["results"]}
        self.assertEqual(list(rows)[:3], ["fits", "plan", "peak.process_bytes"])
        step = rows["step_ns"]
        self.assertGreater(step["difference"], 0)
        self.assertEqual(step["difference"], step["after"] - step["before"])
        self.assertAlmostEqual(step["percent"], 100 * step["difference"] / step["before"])
        self.assertEqual(fsdplan("diff", before, before).stdout, "the same\n")

    def test_results_of_all_commands_are_as_the_schema_says(self):
        files = {"decode": ["--numel-in", "4", "--numel-out", "16"], "simulate": [], "sweep": [], "plan": []}
        for command, words in files.items():
            path = self.folder / f"{command}.json"
            gpus = [] if command == "decode" else ["--gpus", "8", "--seq", "512"]
            subprocess.run([FSDPLAN, command, "llama3.2-1b", *gpus, *words, "-o", str(path)], capture_output=True, timeout=300)
            document = json.loads(path.read_text())
            self.assertEqual(list(faults(document, SCHEMA, SCHEMA)), [], command)
            del document["model"]
            self.assertNotEqual(list(faults(document, SCHEMA, SCHEMA)), [], command)
        before, after = (str(self.folder / f"{command}.json") for command in ("sweep", "plan"))
        rows = {r["key"]: r for r in json.loads(fsdplan("diff", before, after, "--json", status=1).stdout)["results"]}
        self.assertIn("step_ns", rows)
        self.assertTrue(any(key.startswith("units_by_class.") for key in rows), list(rows))

    def test_the_written_file_is_what_is_printed(self):
        before = self.file("a.json", '{"zero_optimization": {"stage": 2}}')
        after = self.file("b.json", '{"zero_optimization": {"stage": 3}}')
        out = self.folder / "d.json"
        self.assertEqual(fsdplan("diff", before, after, "--json", "-o", str(out), status=1).stdout, out.read_text())

    def test_two_settings_files(self):
        before = self.file("a.yaml", "mixed_precision: bf16\nfsdp_config:\n  fsdp_version: 1\n")
        after = self.file("b.yml", "mixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n")
        self.assertIn("fsdp_config.fsdp_version", fsdplan("diff", before, after, status=1).stdout)
        self.assertEqual(fsdplan("diff", before, before).stdout, "the same\n")

    def test_unlike_files_are_refused(self):
        settings = self.file("a.yaml", "mixed_precision: bf16\n")
        result = self.file("a.json", '{"format": "fsdplan.result", "version": 1, "command": "x"}')
        error = fsdplan("diff", settings, result, status=2).stderr
        self.assertIn("is a result of fsdplan, while", error)
        self.assertEqual(len(error.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
