#!/usr/bin/env python3
"""Three models that have no stored recording: recorded with this PyTorch, then replayed by `fsdplan verify`.

A gated MLP with a side branch, a small llama with a loss of its own, and a convolution net, under both runtimes, with mixed
precision, accumulation, checkpointing and hybrid sharding. One is trained by a loop of the user's own. Needs torch and
transformers of requirements.txt.

usage: record_and_verify.py --fsdplan PROGRAM [--keep FOLDER]
"""
import argparse
import contextlib
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "recorder"), str(HERE.parents[1] / "tools" / "python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

MIXED = ["--param-dtype", "bf16", "--reduce-dtype", "f32"]
MLP = ["--import", "user_models:gated_mlp", "--wrap", "blocks.*"]
LLAMA = ["--import", "user_models:small_llama", "--wrap", "model.layers.*"]
CNN = ["--import", "user_models:pyramid", "--wrap", "stages.*"]
COMMANDS = {
    "mlp_fsdp1": [*MLP, "--engine", "fsdp1", "--world", "4"],
    "mlp_fsdp1_accumulate": [*MLP, "--engine", "fsdp1", *MIXED, "--accumulate", "3", "--no-sync"],
    "mlp_fsdp2": [*MLP, "--engine", "fsdp2", "--world", "4"],
    "mlp_fsdp2_hybrid": [*MLP, "--engine", "fsdp2", "--mesh", "2x4", *MIXED, "--clip"],
    "llama_fsdp1": [*LLAMA, "--engine", "fsdp1", *MIXED, "--activation-checkpointing", "inside"],
    "llama_fsdp1_hybrid": [*LLAMA, "--engine", "fsdp1", "--strategy", "HYBRID_SHARD", "--mesh", "2x4"],
    "llama_fsdp2": [*LLAMA, "--engine", "fsdp2", *MIXED, "--accumulate", "2", "--no-sync"],
    "llama_fsdp2_keep": [*LLAMA, "--engine", "fsdp2", "--reshard-after-forward", "false", "--optimizer", "sgd"],
    "cnn_fsdp1": [*CNN, "--engine", "fsdp1", "--strategy", "SHARD_GRAD_OP"],
    "cnn_fsdp2": [*CNN, "--engine", "fsdp2", *MIXED, "--world", "6"],
}


def command(folder, name, options):
    import fsdplan.cli

    if status := fsdplan.cli.main(["record", *options, "--name", name, "-o", folder]):
        sys.exit(status)


def own_loop(folder, name):
    """A user who calls FSDP and trains without a word to the recorder about either."""
    import fsdplan
    import torch
    import user_models
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    torch.manual_seed(0)
    model, args, kwargs = user_models.gated_mlp()
    plain = fsdplan.describe(model, args, kwargs, name="gated_mlp")
    with fsdplan.fake_process_group(8):
        root = FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({user_models.Gate}), device_id=torch.device("cpu"),
            use_orig_params=True, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
        optimizer = torch.optim.Adam(root.parameters(), lr=1e-3)
        with fsdplan.record(folder, name=name, model=root, optimizer=optimizer, plain=plain, inputs=args):
            for _ in range(3):
                optimizer.zero_grad()
                with root.no_sync():
                    fsdplan.default_loss(root(*args, **kwargs)).backward()
                fsdplan.default_loss(root(*args, **kwargs)).backward()
                root.clip_grad_norm_(1.0)
                optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--fsdplan", required=True)
    parser.add_argument("--keep", help="folder for the recordings instead of a temporary one")
    options = parser.parse_args()

    import fsdplan.cli  # noqa: F401 - before the processes start, so that each need not load it again
    import transformers
    getattr(transformers, "LlamaForCausalLM")

    with contextlib.ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory())
        work = [(command, (folder, name, line)) for name, line in COMMANDS.items()]
        work.append((own_loop, (folder, "mlp_own_loop")))
        for function, arguments in work:  # one process each: a process group leaves traces
            process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
            process.start()
            process.join()
            if process.exitcode:
                sys.exit(f"recording {arguments[1]} failed")
        sys.stdout.flush()
        return subprocess.run([options.fsdplan, "verify", folder], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
