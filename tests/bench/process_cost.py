"""What a command costs as a process: the fastest of several runs, and its memory.

usage: process_cost.py <runs> <command> [argument...]
"""

import resource
import subprocess
import sys
import time

runs, command = int(sys.argv[1]), sys.argv[2:]
fastest = float("inf")
for _ in range(runs):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    fastest = min(fastest, time.perf_counter() - start)
# The largest child. A child begins as a copy of this small interpreter, which is the least that can be read here.
largest_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(f"{' '.join(command)}: {fastest * 1e3:.1f} ms, {largest_mib:.0f} MiB (fastest of {runs})")
