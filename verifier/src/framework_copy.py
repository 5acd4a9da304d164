# Times copies within a GPU's memory by torch: bytes at once, samples, and the process that started it, with
# which it ends, however that ends. Prints one line of JSON.
import ctypes
import json
import os
import signal
import sys

# The number of this demand in the system's interface: a signal when the parent dies.
PR_SET_PDEATHSIG = 1

ROUNDS = 20


def measured(torch, count, samples):
    source = torch.empty(count, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    # The first one brings what it needs.
    target.copy_(source)
    torch.cuda.synchronize()
    rates = []
    for _ in range(samples):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(ROUNDS):
            target.copy_(source)
        end.record()
        end.synchronize()
        rates.append(int(2 * count * ROUNDS / begin.elapsed_time(end) / 1e3))
    return {"outcome": "measured", "framework": f"torch {torch.__version__}", "mb_per_s": rates}


def run():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have ended before that.
    if os.getppid() != int(sys.argv[3]):
        sys.exit(1)
    try:
        import torch
    except ImportError:
        return {"outcome": "not_installed"}
    try:
        return measured(torch, int(sys.argv[1]), int(sys.argv[2]))
    except Exception as error:
        return {"outcome": "failed", "why": str(error)[:128]}


print(json.dumps(run()))
