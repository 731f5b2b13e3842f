"""What a piece of real PyTorch asks the allocator for, request by request, on a device without storage.

Shared by losses/record.py and optimizers/record.py: BUILD holds libphantom.so, a stand-in for the CUDA runtime.
"""
import argparse
import json
import os
import sys
import warnings


def on_phantom(description):
    """Starts the program anew with the stand-in of `--phantom BUILD` in place of the CUDA runtime."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--phantom", required=True, help="folder with libphantom.so")
    folder = os.path.abspath(parser.parse_args().phantom)
    library = os.path.join(folder, "libphantom.so")
    if os.environ.get("LD_PRELOAD") != library:
        os.environ.update(LD_PRELOAD=library, OMP_NUM_THREADS="1", LD_LIBRARY_PATH=folder, TORCH_DISABLE_NATIVE_JIT="1")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    warnings.filterwarnings("ignore")


def requests(torch, run):
    """"+bytes" for an allocation, "-i" for the release of the i-th one; "-" of an older one."""
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=1_000_000)
    run()
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    number, live, out = 0, {}, []
    for event in trace:
        if event["action"] == "alloc":
            live[event["addr"]] = number
            number += 1
            out.append(f"+{event['size']}")
        elif event["action"] == "free_completed":
            out.append(f"-{live.pop(event['addr'], '')}")
    return " ".join(out)


def in_child(function, *arguments):
    """function(*arguments) as JSON; each case starts with an empty allocator."""
    read, write = os.pipe()
    if os.fork() == 0:
        text = json.dumps(function(*arguments))
        with os.fdopen(write, "w") as out:
            out.write(text)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.wait()
    return text
