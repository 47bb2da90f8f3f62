"""Repeated all-reduce of tensors of 32-bit integers by Gloo; rank 0 prints the seconds of each.

Usage: allreduce.py RANK RANKS ADDRESS PORT VALUES CALLS

The peer of the figure `testbed-allreduce`. ADDRESS and PORT are rank 0's, where all meet. Gloo takes the
interface that GLOO_SOCKET_IFNAME names.
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

rank, ranks, values, calls = (int(sys.argv[i]) for i in (1, 2, 5, 6))
# There are more ranks than processors, so one thread per rank.
torch.set_num_threads(1)
# Timeout for failed ranks.
dist.init_process_group(
    "gloo",
    init_method=f"tcp://{sys.argv[3]}:{sys.argv[4]}",
    rank=rank,
    world_size=ranks,
    timeout=timedelta(seconds=120),
)
part = torch.arange(values, dtype=torch.int32) % 1009
# The first call connects, and is not measured.
for call in range(calls + 1):
    sums = part.clone()
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(sums)
    took = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    if not torch.equal(sums, part * ranks):
        sys.exit("wrong sums")
    if rank == 0 and call > 0:
        print(f"{took.item():.9f}", flush=True)
