#!/usr/bin/env python3
"""What `fsdplan checkpoint` and `plan --save-type` answer at the command line. usage: checkpoint_test.py FSDPLAN"""
import json, pathlib, subprocess, sys, tempfile, unittest

FSDPLAN = sys.argv.pop(1)
TESTS = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(TESTS / "support"))
from schema_check import faults

SCHEMA = json.loads((TESTS.parent / "reports" / "result.schema.json").read_text())
FITS = ("llama3-8b", "--gpus", "8", "--activation-checkpointing", "blocks")


def fsdplan(*words, status=0):
    run = subprocess.run([FSDPLAN, *words], capture_output=True, text=True, timeout=120)
    if run.returncode != status:
        raise AssertionError(f"{words}: {run.returncode} {run.stdout} {run.stderr}")
    return run


class Checkpoint(unittest.TestCase):
    def answer(self, *words, status=0):
        result = json.loads(fsdplan("checkpoint", *words, "--json", status=status).stdout)
        self.assertEqual(list(faults(result, SCHEMA, SCHEMA)), [])
        return result

    def test_full_on_every_rank_runs_out_where_training_fits(self):
        result = self.answer(*FITS, "--save-type", "full", status=1)
        self.assertIn("fits while training, runs out while saving with full", result["save_verdict"])
        self.assertIn("choose dcp", result["save_verdict"])
        formats = {f["type"]: f for f in result["formats"]}
        self.assertFalse(formats["full"]["fits"])
        self.assertEqual(formats["dcp"]["device_peak_bytes"], 0)
        # Parameters and two moments in float32, and 873 scalars and their like.
        self.assertEqual(formats["full"]["written_bytes"], 8030261248 * 12 + 291 * 4)

    def test_says_how_to_save(self):
        code = self.answer(*FITS)["code"]
        compile(code, "code", "exec")
        self.assertIn("dcp.save(", code)
        for kind in ("full", "full,offload,rank0", "sharded", "local", "safetensors"):
            compile(fsdplan_code(kind), kind, "exec")

    def test_dcp_loads_into_any_number_of_ranks(self):
        result = self.answer(*FITS, "--load-into", "fsdp2,world=48")
        self.assertEqual((result["outcome"], result["error"], result["remedy"]), ("ok", None, ""))

    def test_pickled_pieces_do_not(self):
        result = self.answer(*FITS, "--save-type", "sharded", "--load-into", "fsdp2,world=6", status=1)
        self.assertEqual(result["outcome"], "error")
        self.assertEqual(result["error"]["type"], "RuntimeError")
        self.assertEqual(result["error"]["ranks"], list(range(6)))
        self.assertIn("8 ranks", result["remedy"])

    def test_the_older_route_into_a_hybrid_model_is_silently_wrong(self):
        result = self.answer(*FITS, "--runtime", "fsdp1", "--load-into",
                             "fsdp1,strategy=HYBRID_SHARD,mesh=2x4,route=fsdp1_sharded_dcp", status=1)
        self.assertEqual((result["outcome"], result["model_tensors_wrong"], result["optimizer_tensors_wrong"]),
                         ("silent", 0, 2 * 291))

    def test_two_shapes_say_what_each_side_is(self):
        result = self.answer(*FITS, "--mismatch", "257152x2048:131661824")
        self.assertEqual(result["mismatch"]["current"], "flat local shard")
        self.assertEqual(result["mismatch"]["ranks"], 4)

    def test_reads_how_accelerate_saves(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "fsdp.yaml"
            file.write_text("distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"
                            "  fsdp_version: 1\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                            "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
                            "  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_activation_checkpointing: true\n")
            run = subprocess.run([FSDPLAN, "checkpoint", "llama3-8b", "--gpus", "8", "--accelerate-config", str(file), "--json"],
                                 capture_output=True, text=True, timeout=60)
            result = json.loads(run.stdout)
            save = [a for a in result["assumptions"] if a["name"] == "save type"][0]
            self.assertEqual((save["value"], save["from"]), ("full,offload,rank0", "fsdp_state_dict_type"))

    def test_bad_words_are_one_line(self):
        for words, fault in [
            (("--save-type", "fulll"), "--save-type: unknown type \"fulll\"; did you mean \"full\""),
            (("--load-into", "fsdp2,wrld=4"), "--load-into: unknown key \"wrld\"; did you mean \"world\"?"),
            (("--load-into", "fsdp2,world=0"), "--load-into: world: expected a number of ranks"),
            (("--load-into", "fsdp2,mesh=2x4,world=9"), "--load-into: mesh and world name different numbers"),
            (("--load-into", "fsdp2,route=dsd_dpc"), "unknown route \"dsd_dpc\"; did you mean \"dsd_dcp\""),
            (("--load-into", "fsdp2,dtype=bf61"), "--load-into: unknown dtype"),
            (("--mismatch", "3x4"), "--mismatch: expected two shapes"),
            (("--mismatch", "3x-4:5"), "--mismatch: expected sizes joined by x"),
            (("--write-bandwidth", "2"), "--write-bandwidth:"),
            (("--runtime", "zero3"), "--runtime: checkpoints of zero3 are DeepSpeed's own"),
        ]:
            text = fsdplan("checkpoint", *FITS, *words, status=2).stderr
            self.assertIn(fault, text)
            self.assertEqual(text.count("\n"), 1, text)


def fsdplan_code(kind):
    runtime = () if kind in ("safetensors",) else ("--runtime", "fsdp1")
    run = subprocess.run([FSDPLAN, "checkpoint", *FITS, *runtime, "--save-type", kind, "--json"], capture_output=True, text=True)
    return json.loads(run.stdout)["code"]


class Plan(unittest.TestCase):
    SMALL = ("gpt2", "--gpus", "2", "--batch", "1", "--seq", "128")

    def test_says_how_to_save(self):
        text = fsdplan("plan", *self.SMALL).stdout
        self.assertIn("Saving a checkpoint: fits while training", text)
        result = json.loads(fsdplan("plan", *self.SMALL, "--json").stdout)
        self.assertEqual(list(faults(result, SCHEMA, SCHEMA)), [])
        self.assertEqual(result["checkpoint"]["recommended_format"], "dcp")

    def test_refuses_what_does_not_fit_while_it_saves_so(self):
        words = ("llama3-8b", "--gpus", "8", "--activation-checkpointing", "blocks", "--check")
        self.assertIsNotNone(json.loads(fsdplan("plan", *words, "--save-type", "dcp", "--json").stdout)["recommended"])
        result = json.loads(fsdplan("plan", *words, "--save-type", "full", "--json", status=1).stdout)
        self.assertIsNone(result["recommended"])
        self.assertIn("runs out while saving with full", result["verdict"]["text"])


if __name__ == "__main__":
    unittest.main()
