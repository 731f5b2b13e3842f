#!/usr/bin/env python3
"""What `fsdplan calibrate` makes of logs, and what other commands make of that. usage: calibrate_test.py FSDPLAN"""
import json, pathlib, subprocess, sys, tempfile, unittest

FSDPLAN = sys.argv.pop(1)
HEAD = ("# Collective test starting: {program}\n"
        "#  Rank  0 Group  0 Pid   43 on    host-a device  0 [0x07] NVIDIA H100\n"
        "#  Rank  1 Group  0 Pid   43 on    host-a device  1 [0x0f] NVIDIA H100\n")
SIZES = [1 << power for power in range(10, 31)]


def fsdplan(*words, status=0):
    run = subprocess.run([FSDPLAN, *words], capture_output=True, text=True, timeout=120)
    if run.returncode != status:
        raise AssertionError(f"{words}: {run.returncode} {run.stdout} {run.stderr}")
    return run


def log(program, us):
    rows = [f"{size:12} {size // 4:12}  float  none  -1  {us(size):.2f}  {size / us(size) / 1e3:.2f}"
            f"  {size / us(size) / 2e3:.2f}  0  {us(size):.2f}  0 0 0" for size in SIZES]
    return HEAD.format(program=program) + "\n".join(rows) + "\n"


class Calibrate(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def test_a_log_becomes_a_calibration_that_prices_collectives(self):
        gathers = self.write("a.log", log("all_gather_perf", lambda size: 1000 + size / 1000))
        reduces = self.write("b.log", log("reduce_scatter_perf", lambda size: 2000 + size / 1000))
        file = str(self.folder / "mine.json")
        text = fsdplan("calibrate", "--import", gathers, "--import", reduces, "-o", file).stdout
        self.assertIn("reduce_scatter-2x1", text)
        calibration = json.loads(pathlib.Path(file).read_text())
        self.assertEqual([curve["collective"] for curve in calibration["curves"]], ["all_gather", "reduce_scatter"])
        self.assertLess(calibration["curves"][0]["error"]["mean"], 0.01)
        step = json.loads(fsdplan("simulate", "smollm2-135m", "--gpus", "2", "--calibration", file, "--json").stdout)
        for call in step["collectives"]:
            self.assertEqual(call["origin"], "measured")
            self.assertGreater(call["end_ns"] - call["start_ns"], 1_000_000)  # no GPU needs that long

    def test_every_bad_row_is_one_line(self):
        rows = "1024 256 float none -1 fast 1 1 0\n2048 512 float none -1\n4096 1 float none -1 9 0.1 0.05 3\n"
        path = self.write("bad.log", HEAD.format(program="all_gather_perf") + rows)
        lines = fsdplan("calibrate", "--import", path, status=2).stderr.splitlines()
        self.assertEqual([line.split(": ")[1].rsplit(":", 1)[1] for line in lines], ["4", "5", "6"])

    def test_something_has_to_be_measured_or_read(self):
        self.assertIn("either --backend or --import", fsdplan("calibrate", status=2).stderr)
        path = self.write("a.log", log("all_gather_perf", lambda size: size))
        self.assertIn("reduce_scatter", fsdplan("calibrate", "--import", path, "--collective", "reduce", status=2).stderr)
        self.assertIn("ends in .json", fsdplan("calibrate", "--import", path, "-o", "x.txt", status=2).stderr)

    def test_backends_that_are_not_here_say_so(self):
        self.assertIn("no CUDA backend", fsdplan("run", "smollm2-135m", "--backend", "nccl", status=3).stderr)
        self.assertIn("--backend", fsdplan("run", "smollm2-135m", "--backend", "gloo", status=2).stderr)


if __name__ == "__main__":
    unittest.main()
