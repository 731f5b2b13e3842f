#!/usr/bin/env python3
"""What `fsdplan inspect` answers about checkpoints at the command line. usage: inspect_test.py FSDPLAN"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

FSDPLAN = sys.argv.pop(1)
FILES = pathlib.Path(__file__).parent.parent / "golden" / "state_dict" / "files"


def inspect(*words, status=0):
    run = subprocess.run([FSDPLAN, "inspect", *words], capture_output=True, text=True, timeout=120)
    if run.returncode != status:
        raise AssertionError(f"{words}: {run.returncode} {run.stdout} {run.stderr}")
    return run.stdout


class Inspect(unittest.TestCase):
    def test_json_lists_every_piece(self):
        found = json.loads(inspect(FILES / "dcp_fsdp2_w2", "--json"))
        self.assertEqual((found["format"], found["ranks"], found["complete"]), ("DCP", 2, True))
        self.assertEqual(found["optimizer_keys"], "by_name")
        embed = next(t for t in found["tensors"] if t["name"] == "model.embed.weight")
        self.assertEqual(embed["chunks"][1], {"offset": [19, 0], "shape": [18, 10], "file": "__1_0.distcp", "rank": 1,
                                              "position": 18670, "bytes": 2281})

    def test_text_lists_tensors_when_asked(self):
        text = inspect(FILES / "torch_fsdp2_dtensor_rank", "--tree")
        self.assertIn("torch.save of each rank, written by 2 ranks", text)
        self.assertIn("model.gain float32 [3] DTensor Shard(0) on mesh [2] in 2 pieces", text)
        self.assertNotIn("model.gain", inspect(FILES / "torch_fsdp2_dtensor_rank"))

    def test_an_incomplete_checkpoint_is_listed_and_answered_no(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "copy"
            shutil.copytree(FILES / "dcp_fsdp2_w2", copy)
            (copy / "__1_0.distcp").unlink()
            self.assertIn("fault: __1_0.distcp: is not there; it should hold", inspect(copy, status=1))
            self.assertFalse(json.loads(inspect(copy, "--json", status=1))["complete"])

    def test_safetensors_are_a_model_unless_the_checkpoint_is_asked_for(self):
        file = FILES / "safetensors_full" / "model.safetensors"
        self.assertEqual(json.loads(inspect(file, "--json"))["parameters"]["numel"], 1834)
        self.assertEqual(json.loads(inspect(file, "--json", "--checkpoint"))["model"]["numel"], 1834)

    def test_the_output_file_is_what_is_printed(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "out.json"
            printed = inspect(FILES / "hf_dcp_shards", "--json", "-o", output)
            self.assertEqual(output.read_text(), printed)


if __name__ == "__main__":
    unittest.main()
