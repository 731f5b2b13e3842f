"""Feeds odd and hostile inputs to `fsdplan inspect`, `decode` and `diff`.

usage: check.py FSDPLAN

Accepted: status 0 and the right totals. Rejected: status 2, nothing on stdout, no output file, and on stderr one
line a fault that names the file and the cause. Anything else (a signal, a hang, status 4) fails. A sanitizer build
of fsdplan checks memory at the same time.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import comparisons
import gen
import more
import onnx_files
import settings_files
import stored_checkpoints

HERE = pathlib.Path(__file__).parent
SLOWEST_S = 60  # of one run under a sanitizer on a busy machine

# What the message on a rejected file of expectations.json must say.
CAUSES = {
    "st_empty.safetensors": "8-byte length",
    "st_five_bytes.safetensors": "8-byte length",
    "st_header_len_over_file.safetensors": "5000 bytes",
    "st_overlap.safetensors": "overlap",
    "st_duplicate_key.safetensors": '"a" occurs twice',
    "st_unknown_dtype.safetensors": '/a/dtype: unknown dtype "F128"',
    "st_dims_overflow.safetensors": "2^53",
    "st_bom_header.safetensors": "byte order mark",
    "st_nan_offset.safetensors": "not valid JSON",
    "st_truncated_data.safetensors": "10 of 16 bytes of data",
    "index_missing_file": '"model-00002-of-00002.safetensors"',
    "index_name_not_in_file": "weight_map/b",
    "cfg_bom": "byte order mark",
    "cfg_unknown_type": '"frobnicator"',
    "cfg_heads_do_not_divide": "not a multiple of",
    "json_deep.json": "nested deeper",
    "tree_bad_child.json": "no module with id 7",
    "tree_cycle.json": "cycle",
    "tree_bad_tensor.json": "no tensor with id 3",
    "tree_negative_dim.json": "found -4",
    "tree_unknown_version.json": "understands version 1",
}
# What the notes on an accepted file must say.
NOTES = {
    "st_metadata_only.safetensors": "no tensors",
    "cfg_missing_vocab": "vocab_size = 32000",
}
ITEM_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1}


class Checker:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder
        self.failures = 0
        self.runs = 0

    def fail(self, name, message):
        self.failures += 1
        print(f"{name}: {message}")

    def run(self, name, words, command="inspect", answers_no=False):
        """Status, stdout and stderr; None after a failure that leaves nothing to check. `answers_no`: 1 is a status."""
        self.runs += 1
        folder = os.fsencode(self.folder)
        command = [self.program, command] + [
            w.replace(b"{}", folder) if isinstance(w, bytes) else w.replace("{}", self.folder) for w in words]
        try:
            done = subprocess.run(command, capture_output=True, timeout=SLOWEST_S)
        except subprocess.TimeoutExpired:
            self.fail(name, f"still running after {SLOWEST_S} s")
            return None
        text = done.stderr.decode("utf-8", "replace")
        if done.returncode not in ((0, 1, 2, 3) if answers_no else (0, 2, 3)):
            self.fail(name, f"status {done.returncode}: {text[-2000:]}")
            return None
        return done.returncode, done.stdout, text

    def accepted(self, name, result):
        """The JSON of an accepted model."""
        status, out, errors = result
        if status != 0:
            self.fail(name, f"rejected: {errors}")
            return None
        return json.loads(out)

    def rejected(self, name, result, cause, file, status=2):
        got, out, errors = result
        lines = [line for line in errors.splitlines() if not line.startswith("note: ")]
        if got != status:
            self.fail(name, f"status {got}, expected {status}: {errors}")
        elif out:
            self.fail(name, "prints a result all the same")
        elif not lines or len(lines) > 20 or not all(line.startswith("fsdplan: ") for line in lines):
            self.fail(name, f"expected a line for each fault, found {errors!r}")
        elif cause not in errors or (file and file not in errors):
            self.fail(name, f"expected {file!r} and {cause!r} in {errors!r}")

    def expectation(self, name, case):
        target = "{}/" + name
        for with_file in (False, True):
            output = os.path.join(self.folder, "output.json")
            words = [target, "--json"] + (["-o", output] if with_file else [])
            result = self.run(name, words)
            if result is None:
                continue
            if case["expect"] == "reject" or (case["expect"] == "either" and result[0] != 0):
                self.rejected(name, result, CAUSES[name], name)
                if os.path.exists(output):
                    self.fail(name, "left an output file")
            else:
                self.totals(name, case, result)
                if with_file and pathlib.Path(output).read_bytes() != result[1]:
                    self.fail(name, "the output file is not what was printed")
            pathlib.Path(output).unlink(missing_ok=True)
            if list(pathlib.Path(self.folder).glob("output.json*")):
                self.fail(name, "left a partial output file")

    def totals(self, name, case, result):
        found = self.accepted(name, result)
        if found is None:
            return
        reference = case.get("reference", {})
        want = {}
        if "tensors" in reference:
            numel = {t: product(shape) for t, (_, shape) in reference["tensors"].items()}
            want["numel"] = sum(numel.values())
            want["bytes"] = sum(numel[t] * ITEM_BYTES[d] for t, (d, _) in reference["tensors"].items())
        elif "params" in reference:
            want["numel"] = reference["params"]
            want["bytes"] = reference["params"] * {"float32": 4, "bfloat16": 2}[reference["built_dtype"][0]]
        elif name == "tree_shared_module.json":
            want["numel"] = 10
            if found["modules"] != 2:
                self.fail(name, f"{found['modules']} modules, expected 2")
        for key, value in want.items():
            if found["parameters"][key] != value:
                self.fail(name, f"{key} {found['parameters'][key]}, expected {value}")
        if name in NOTES and not any(NOTES[name] in note for note in found["notes"]):
            self.fail(name, f"expected a note with {NOTES[name]!r}, found {found['notes']}")

    def answered(self, case):
        """A case for a command that may also answer no: refused with its cause, or answered in JSON."""
        result = self.run(case.name, [*case.words, "--json"], case.command, answers_no=True)
        if result is None:
            return
        if case.cause is not None or (case.either and result[0] == 2):
            self.rejected(case.name, result, case.cause or "", "")
        elif result[0] not in (0, 1):
            self.fail(case.name, f"rejected: {result[2]}")
        else:
            json.loads(result[1])

    def further(self, case):
        text_only = "--tree" in case.words
        result = self.run(case.name, case.words + ([] if text_only else ["--json"]), case.command)
        if result is None:
            return
        if case.settings is not None:
            self.settings(case, result)
            return
        if case.command != "inspect":
            if result[0] == 0 or not result[1]:
                return
            self.fail(case.name, "prints a result all the same")
        last = os.fsdecode(case.words[0]).rsplit("/", 1)[-1] if case.words and case.names_file else ""
        if case.cause is not None:
            self.rejected(case.name, result, case.cause, last, case.status)
        elif case.numel is None and result[0] != 0:
            self.rejected(case.name, result, "", last)
        elif text_only:
            if result[0] != 0:
                self.fail(case.name, f"rejected: {result[2]}")
        else:
            found = self.accepted(case.name, result)
            if found is not None and case.numel is not None and found["parameters"]["numel"] != case.numel:
                self.fail(case.name, f"numel {found['parameters']['numel']}, expected {case.numel}")


    def settings(self, case, result):
        """Of a settings file: refused in one line that names it, or accepted."""
        if result[0] != 0:
            self.rejected(case.name, result, case.cause or "", case.settings)
            if len([line for line in result[2].splitlines() if not line.startswith("note: ")]) != 1:
                self.fail(case.name, f"expected one line, found {result[2]!r}")
        elif case.cause is not None:
            self.fail(case.name, f"accepted; expected {case.cause!r}")


def product(shape):
    out = 1
    for size in shape:
        out *= size
    return out


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        gen.OUT = folder
        gen.main()
        checker = Checker(program, folder)
        expectations = json.loads((HERE / "expectations.json").read_text())
        for name, case in expectations["cases"].items():
            checker.expectation(name, case)
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        has_onnx = "ONNX import: built" in version
        for case in [*more.make(folder), *settings_files.make(folder), *onnx_files.make(folder, has_onnx),
                     *stored_checkpoints.make(folder)]:
            checker.further(case)
        for case in comparisons.make(folder):
            checker.answered(case)
        print(f"{checker.runs} runs, {checker.failures} failures")
        return 1 if checker.failures or checker.runs < 400 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
