"""Repeated all-reduce of tensors of 32-bit floats by Gloo; rank 0 prints the bytes and seconds of each.

Usage: reduce.py RANK RANKS ADDRESS PORT BYTES CALLS [BYTES CALLS ...]

The peer of the figure `leo-fig12`. ADDRESS and PORT are rank 0's, where all meet. Gloo takes the interface
that GLOO_SOCKET_IFNAME names.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

rank, ranks = int(sys.argv[1]), int(sys.argv[2])
sizes = [int(arg) for arg in sys.argv[5:]]
# One thread and one processor per rank, as in the other programs.
torch.set_num_threads(1)
cpus = sorted(os.sched_getaffinity(0))
if len(cpus) >= ranks:
    os.sched_setaffinity(0, {cpus[rank]})
# Timeout for failed ranks.
dist.init_process_group(
    "gloo",
    init_method=f"tcp://{sys.argv[3]}:{sys.argv[4]}",
    rank=rank,
    world_size=ranks,
    timeout=timedelta(seconds=120),
)


def values(of, count, call):
    return ((torch.arange(count) * 7 + of * 131 + call) % 2003).float() * 0.37


for size, calls in zip(sizes[::2], sizes[1::2]):
    count = size // 4
    # The first call connects and touches the memory, and is not measured.
    for call in range(calls + 1):
        sums = values(rank, count, call)
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(sums)
        took = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        if not torch.allclose(sums, sum(values(of, count, call) for of in range(ranks)), rtol=1e-5):
            sys.exit("wrong sums")
        if rank == 0 and call > 0:
            print(f"{size} {took.item():.9f}", flush=True)
