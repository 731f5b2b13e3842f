#!/usr/bin/env python3
"""What `fsdplan list` names and what options do with it. usage: options_test.py FSDPLAN"""
import json, pathlib, re, shutil, subprocess, sys, tempfile, unittest

FSDPLAN = sys.argv.pop(1)
TESTS = pathlib.Path(__file__).parent.parent
MODEL = str(TESTS / "cases/10-fsdp2-small-first-dimension/tree.json")


def fsdplan(*words):
    return subprocess.run([FSDPLAN, *words], capture_output=True, text=True, timeout=60)


def answer(*words):
    run = fsdplan(*words)
    if run.returncode not in (0, 1):
        raise AssertionError(f"{words}: {run.returncode} {run.stderr}")
    return run.stdout


def entries(topic):
    """First words of the indented lines."""
    return [line.split()[0] for line in answer("list", topic).splitlines() if line[:2] == "  " and line[2] != " "]


class Test(unittest.TestCase):
    def refused(self, words, *parts):
        run = fsdplan(*words)
        self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
        self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
        for part in parts:
            self.assertIn(part, run.stderr)


class List(Test):
    TOPICS = ["policies", "runtimes", "optimizers", "files", "types", "recordings"]

    def test_all_is_every_topic_in_turn_and_a_line_of_versions(self):
        text = answer("list")
        self.assertEqual(text, "\n".join([answer("list", topic) for topic in self.TOPICS]
                                         + ["versions of PyTorch (--torch)\n  " + " ".join(entries("versions")) + "\n"]))

    def test_versions_say_where_they_differ(self):
        lines = answer("list", "versions").splitlines()
        self.assertEqual(entries("versions"), ["2.13", "2.15"])
        old, new = (next(line for line in lines if line.startswith("  " + v)) for v in entries("versions"))
        self.assertIn("reduces in param_dtype", old)
        self.assertIn("reduces in the original dtype", new)
        self.assertIn("2.15 unless another is given", lines[0])
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_unknown_topics_are_answered_with_near_names(self):
        self.refused(["list", "version"], 'list: unknown topic "version"', 'did you mean "versions"?')
        self.refused(["list", "NONSENSE"], 'list: unknown topic "NONSENSE"; expected one of policies, runtimes')
        self.refused(["list", ""], 'unknown topic ""')
        self.refused(["list", "files", "types"], "types")


class SettingsFiles(Test):
    def settings(self, **section):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path = pathlib.Path(folder) / "fsdp.yaml"
        lines = [f"  {key}: {value}" for key, value in section.items()]
        path.write_text("\n".join(["distributed_type: FSDP", "mixed_precision: bf16", "fsdp_config:", *lines]) + "\n")
        return str(path)

    def units(self, *words):
        return json.loads(answer("units", "llama3-8b", "--json", *words))["units"]

    def test_units_are_accelerates(self):
        file = self.settings(fsdp_version=2, fsdp_auto_wrap_policy="TRANSFORMER_BASED_WRAP")
        units = self.units("--accelerate-config", file)
        self.assertEqual([u["module"] for u in units[-3:]], ["model.embed_tokens", "model.norm", ""])

    def test_the_command_line_wins(self):
        file = self.settings(fsdp_version=2, fsdp_auto_wrap_policy="TRANSFORMER_BASED_WRAP")
        self.assertEqual(len(self.units("--accelerate-config", file, "--policy", "none")), 1)

    def test_what_surprises_is_said(self):
        file = self.settings(fsdp_version=1, fsdp_auto_wrap_policy="SIZE_BASED_WRAP", fsdp_min_num_params=0, fsdp_wrap=1)
        run = fsdplan("units", "llama3-8b", "--accelerate-config", file)
        self.assertIn("fsdp_min_num_params of 0 means no wrapping at all", run.stderr)
        self.assertIn("fsdp_wrap is no key of fsdp_config", run.stderr)

    def sample(self, name):
        return str(TESTS / "frontend/data" / name)

    def simulated(self, model, *words):
        return json.loads(answer("simulate", model, "--gpu", "h100-sxm", "--gpus", "8", "--json", *words))

    def assumed(self, result, name):
        return next((a["value"], a["from"]) for a in result["assumptions"] if a["name"] == name)

    TORCHTITAN = str(TESTS / "golden/frontends/torchtitan/llama3-debugmodel.tree.json")

    def test_deepspeeds_file_decides_runtime_and_work(self):
        file = self.sample("deepspeed.json")
        result = self.simulated("smollm2-135m", "--seq", "64", "--deepspeed-config", file)
        self.assertEqual(self.assumed(result, "runtime"), ("zero3", "settings file"))
        self.assertEqual(self.assumed(result, "micro-batch"), ("8", "settings file"))
        self.assertEqual(self.assumed(result, "zero_optimization.stage"), ("3", file))
        less = self.simulated("smollm2-135m", "--seq", "64", "--batch", "2", "--deepspeed-config", file)
        self.assertEqual(self.assumed(less, "micro-batch"), ("2", "--batch"))
        self.refused(["units", "smollm2-135m", "--deepspeed-config", file], "zero3, which has no units")

    def test_torchtitans_file_decides_mesh_and_sequence(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path = pathlib.Path(folder) / "train.toml"
        path.write_text("[training]\nseq_len = 128\n[parallelism]\ndata_parallel_replicate_degree = 2\n")
        result = self.simulated(self.TORCHTITAN, "--torchtitan-config", str(path))
        self.assertEqual(self.assumed(result, "sequence"), ("128", "settings file"))
        self.assertEqual(self.assumed(result, "parallelism.data_parallel_replicate_degree"), ("2", str(path)))
        self.assertLessEqual({2, 4}, {c["group_size"] for c in result["collectives"]})

    def test_a_plan_is_followed(self):
        words = ["--gpus", "4", "--plan", self.sample("plan.json")]
        units = json.loads(answer("units", self.TORCHTITAN, "--json", *words))["units"]
        self.assertEqual([u["module"] for u in units[:2] + units[-2:]], ["tok_embeddings", "layers.0", "norm", ""])
        self.refused(["units", "llama3-8b", *words], "is a plan for another model", "model.embed_tokens.weight")

    def test_a_plan_is_written_as_it_was_read(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        again = f"{folder}/again.deepspeed.json"
        words = ["smollm2-135m", "--gpu", "h100-sxm", "--gpus", "8", "--seq", "64", "--deepspeed-config"]
        answer("plan", *words, self.sample("deepspeed.json"), "--check", "-o", again)
        steps = [json.loads(answer("simulate", *words, file, "--json"))["step_ns"]
                 for file in (self.sample("deepspeed.json"), again)]
        self.assertEqual(*steps)

    def test_what_a_front_end_cannot_say_is_not_written(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        file = f"{folder}/fsdp.yaml"
        run = fsdplan("plan", "smollm2-135m", "--gpu", "h100-sxm", "--gpus", "8", "--seq", "64", "--deepspeed-config",
                      self.sample("deepspeed.json"), "--check", "-o", file)
        self.assertEqual(run.returncode, 2)
        self.assertIn("settings of accelerate: say FSDP only, and the plan's runtime is zero3", run.stderr)
        self.assertFalse(pathlib.Path(file).exists())

    def test_one_file_decides(self):
        self.refused(["units", "llama3-8b", "--trainer-config", self.sample("trainer.json"), "--accelerate-config",
                      self.sample("accelerate.yaml")], "one file decides")

    def test_refusals_and_bad_files_are_one_line(self):
        file = self.settings(fsdp_version=2, fsdp_auto_wrap_policy="TRANSFORMER_BASED_WRAP",
                             fsdp_transformer_layer_cls_to_wrap="llamadecoderlayer")
        self.refused(["units", "llama3-8b", "--accelerate-config", file], 'did you mean "LlamaDecoderLayer"')
        pathlib.Path(file).write_text("a: [b")
        self.refused(["units", "llama3-8b", "--accelerate-config", file], file + ":1", "is no YAML")
        pathlib.Path(file).write_text("distributed_type: MULTI_GPU\n")
        self.refused(["units", "llama3-8b", "--accelerate-config", file], "expected FSDP")


class Options(Test):
    def test_help_of_runtime_names_all_of_them(self):
        text = " ".join(answer("sweep", "--help").split())
        runtimes = entries("runtimes")
        self.assertLessEqual({"ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3"}, set(runtimes))
        self.assertIn("--runtime NAME " + ", ".join(runtimes[:-1]) + " or " + runtimes[-1] + ";", text)

    def test_help_of_torch_names_all_versions(self):
        self.assertIn(" or ".join(entries("versions")) + "; " + entries("versions")[-1],
                      " ".join(answer("sweep", "--help").split()))

    def test_help_of_optimizer_names_all_of_them(self):
        optimizers = entries("optimizers")
        self.assertLessEqual({"adafactor", "adamw", "muon", "sgd"}, set(optimizers))
        self.assertIn(", ".join(optimizers[:-1]) + " or " + optimizers[-1] + "; adamw:foreach",
                      " ".join(answer("sweep", "--help").split()))

    def test_what_no_optimizer_or_attention_is_called_is_refused(self):
        self.refused(["sweep", MODEL, "--optimizer", "shampoo"], '--optimizer: unknown optimizer "shampoo"', "muon")
        self.refused(["sweep", MODEL, "--optimizer", "adamv"], 'did you mean "adam')
        self.refused(["sweep", MODEL, "--attention", "flash_attention_3"], 'did you mean "flash_attention_2"?')

    def test_losses_and_attention_change_what_is_kept(self):
        def peak(*words):
            result = json.loads(answer("sweep", "llama3-8b", "--policy", "blocks", "--gpus", "8", "--seq", "4096", "--json", *words))
            return result["plans"][0]["peak"]["allocated_bytes"]

        plain = peak()
        chunked = peak("--loss", "chunked:8")
        self.assertLess(chunked, plain)
        self.assertLess(peak("--loss", "fused"), chunked)
        self.assertLess(peak("--loss", "cce"), chunked)
        self.assertLess(plain, peak("--attention", "eager"))

    def sweep(self, *words):
        return json.loads(answer("sweep", MODEL, "--policy", "none", "--gpus", "8", "--json", *words))

    def version_in(self, result):
        return [(a["value"], a["from"]) for a in result["assumptions"] if a["name"] == "PyTorch"]

    def reduced_bytes(self, result):
        """Of the plan and of the comparison of strategies, which is computed apart."""
        plan = result["plans"][0]
        same = next(s for s in plan["strategies"] if s["strategy"] == "FULL_SHARD")
        return [c["bytes"] for calls in (plan["collectives"], same["collectives"])
                for c in calls if c["op"] == "reduce_scatter"]

    def test_torch_decides_the_dtype_of_reductions(self):
        newest, old = self.sweep(), self.sweep("--torch", "2.13")
        self.assertEqual(self.version_in(newest), [("2.15", "default")])
        self.assertEqual(self.version_in(old), [("2.13", "--torch")])
        of_plan, of_strategy = self.reduced_bytes(old)
        self.assertEqual(of_plan, of_strategy)
        self.assertEqual(self.reduced_bytes(newest), [2 * of_plan, 2 * of_plan])  # float32 instead of bfloat16
        self.assertEqual(self.sweep("--torch", "2.15.1")["plans"], newest["plans"])

    def test_unknown_versions_are_refused(self):
        self.refused(["sweep", MODEL, "--torch", "2.14"], '--torch: unknown version "2.14"', "2.13", "2.15")


class Readme(Test):
    def test_names_every_command_and_runtime(self):
        commands = [line.split()[0] for line in answer("--help").split("\n\n")[2].splitlines()]
        self.assertIn("sweep", commands)
        text = (TESTS.parent / "README.md").read_text()
        self.assertEqual([name for name in commands if not re.search(rf"\| .*`{name}[ `]", text)], [])
        self.assertEqual([name for name in entries("runtimes") if f"`{name}`" not in text], [])


if __name__ == "__main__":
    unittest.main()
