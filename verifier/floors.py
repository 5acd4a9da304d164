#!/usr/bin/env python3
"""Makes rows of data/floors.csv from runs of the agent on known-good GPUs.

    verifier run --level standard --repeat 50 --json > machine.jsonl
    floors.py [--page] [--merge data/floors.csv] machine.jsonl...

Each file holds the runs of one machine; without a file they are read from standard input. Of each GPU and figure
the lower median over its runs counts, and of each kind the slowest GPU. Exit status: 0, 1 where no floor follows
from the runs (the reason is printed), 2 where the arguments make no sense.
"""

import argparse
import csv
import json
import os
import sys
import tempfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "floors.csv")
# What a good GPU must show of its own figure, in thousandths. Bandwidths scatter by less than products, which
# depend on power and heat; the host link depends on the host. The limit of the proof leaves twice the time, that of
# the chain four thirds, which is too little for a chip that does two chains.
SHARES = {
    "hbm_copy": 930, "hbm_read": 930, "hbm_triad": 930, "host_link": 850, "gpu_link": 920,
    "allreduce_nccl_default": 930, "allreduce_nccl_ring": 930, "allreduce_own_ring": 930,
    "gemm_16bit": 920, "gemm_fp8": 920, "memory_proof": 500, "exact_chain": 750,
}
# What real orders have: products of so many rows, and blocks of a slow fill of so many bytes.
PRODUCT_ROWS, SLOW_BLOCK = 8192, 16 << 10
# The least share of memory that is filled, in percent.
FILLED_PERCENT = 90
# Only like is compared with like: the payload whose rate the rules compare with a floor, in bytes.
LEAST_PAYLOAD = 1 << 30
# Warnings about the machine that make its figures too low.
SLOWED_BY = ("power.limit", "pcie.link")
FIGURES = (
    "copy_mb_per_s", "read_mb_per_s", "triad_mb_per_s", "from_host_mb_per_s", "to_host_mb_per_s", "gemm_16bit_gflops",
    "gemm_fp8_gflops", "memory_proof_us", "memory_proof_bytes", "exact_chain_us",
)


class NoFloor(Exception):
    """Why no floor follows from the runs."""


def lower_median(figures):
    return sorted(figures)[(len(figures) - 1) // 2]


def refuse_constant(word):
    raise ValueError(word)


def read(name, file):
    """The runs of one machine."""
    runs = []
    for number, line in enumerate(file.buffer.read().splitlines(), 1):
        try:
            run = json.loads(line, parse_constant=refuse_constant)
            for gpu in run["measured"]["gpus"]:
                for figure in (gpu[figure] for figure in FIGURES):
                    if figure is not None and not (type(figure) is int and figure > 0):
                        raise ValueError(figure)
            if type(run["simulated"]) is not bool:
                raise ValueError(run["simulated"])
            runs.append(run)
        except (ValueError, KeyError, TypeError):
            raise NoFloor(f"{name}, line {number}: no run that `verifier run --repeat` printed")
    return runs


def check(name, runs, least):
    """Refuses runs that are no reference."""
    if len(runs) < least:
        raise NoFloor(f"{name}: {len(runs)} runs; floors need {least}")
    if [(run["run"], run["of"]) for run in runs] != [(at, len(runs)) for at in range(1, len(runs) + 1)]:
        raise NoFloor(f"{name}: a run is missing, or there are several series; give one whole series in each file")
    for run in runs:
        which, measured = f"{name}, run {run['run']}", run["measured"]
        if run["simulated"]:
            raise NoFloor(f"{which}: the device is simulated")
        if not measured["kernels"]:
            raise NoFloor(f"{which}: it names no kernels")
        if run["verdict"] not in ("pass", "pass_with_warnings"):
            codes = [f["code"] for f in run["findings"] if f["outcome"] in ("failed", "not_run")]
            raise NoFloor(f"{which}: the verdict is {run['verdict']} ({', '.join(codes)})")
        slowed = [f["code"] for f in run["findings"] if f["code"] in SLOWED_BY and f["outcome"] == "warned"]
        if slowed:
            raise NoFloor(f"{which}: {', '.join(slowed)} warned, so its figures are too low")
        if not measured["gpus"] or any(gpu["kind"] is None for gpu in measured["gpus"]):
            raise NoFloor(f"{which}: a GPU is of no kind that the catalogue knows")
        if measured["exact_chain_product"] != [PRODUCT_ROWS, PRODUCT_ROWS]:
            raise NoFloor(f"{which}: its products are not those of a real order")
        for gpu in measured["gpus"]:
            if (gpu["memory_proof_bytes"] or 0) * 100 < (gpu["memory_mib"] << 20) * FILLED_PERCENT:
                raise NoFloor(f"{which}: less of the memory was filled than a real order wants")
    kinds = {tuple(gpu["kind"] for gpu in run["measured"]["gpus"]) for run in runs}
    if len(kinds) > 1:
        raise NoFloor(f"{name}: the runs are of different GPUs")


def same(what, values):
    """The one value that all runs have."""
    values = sorted({str(value) for value in values})
    if len(values) != 1:
        raise NoFloor(f"the runs are of different {what}: {', '.join(values)}")
    return values[0]


def of_gpu(gpu, measured):
    """The figures of one GPU in one run, in the units of the table."""
    figures = {
        "hbm_copy": gpu["copy_mb_per_s"], "hbm_read": gpu["read_mb_per_s"], "hbm_triad": gpu["triad_mb_per_s"],
        "host_link": min(gpu["from_host_mb_per_s"] or 0, gpu["to_host_mb_per_s"] or 0),
        "gemm_16bit": gpu["gemm_16bit_gflops"], "gemm_fp8": gpu["gemm_fp8_gflops"],
    }
    if gpu["memory_proof_us"] and measured["memory_proof_block_bytes"] == SLOW_BLOCK:
        figures["memory_proof"] = gpu["memory_proof_bytes"] // gpu["memory_proof_us"]
    if gpu["exact_chain_us"] and measured["exact_chain_products"]:
        operations = 2 * PRODUCT_ROWS**3 * measured["exact_chain_products"]
        figures["exact_chain"] = operations // 1000 // gpu["exact_chain_us"]
    return {metric: figure for metric, figure in figures.items() if figure}


def of_links(measured):
    """The figures between the GPUs in one run: the slowest pair, and sums of as much as the rules compare."""
    if not measured["links_have_floors"] or len({gpu["kind"] for gpu in measured["gpus"]}) > 1:
        return {}
    figures = {}
    if measured["pairs"]:
        figures["gpu_link"] = min(pair["mb_per_s"] for pair in measured["pairs"])
    for run in measured["collectives"]:
        is_sum = run.get("operation", "all_reduce") == "all_reduce"
        if is_sum and run["payload_bytes"] >= LEAST_PAYLOAD and run["wrong_elements"] == 0:
            figures["allreduce_" + run["algorithm"]] = run["bus_mb_per_s"]
    return figures


def medians(runs):
    """The lower median of each figure that every run has."""
    metrics = set.intersection(*(set(figures) for figures in runs))
    return {metric: lower_median([figures[metric] for figures in runs]) for metric in metrics}


def slowest(machines):
    """The least figure of each kind and metric over all GPUs."""
    least = {}
    for runs in machines:
        kinds = [gpu["kind"] for gpu in runs[0]["measured"]["gpus"]]
        shown = [
            (kind, [of_gpu(run["measured"]["gpus"][at], run["measured"]) for run in runs])
            for at, kind in enumerate(kinds)
        ]
        shown.append((kinds[0], [of_links(run["measured"]) for run in runs]))
        for kind, figures in shown:
            for metric, figure in medians(figures).items():
                least[kind, metric] = min(figure, least.get((kind, metric), figure))
    return least


def merged(table, rows):
    """The table with these rows in place of those of the same GPU, metric and kernels."""
    keys = {tuple(row.split(",")[1:4]) for row in rows}
    kept = [line for line in table.splitlines() if tuple(line.split(",")[1:4]) not in keys]
    return "\n".join(kept + rows) + "\n"


def page(least, machines, facts):
    """The figures for people to read."""
    gpus = sum(len(runs[0]["measured"]["gpus"]) for runs in machines)
    runs = min(len(runs) for runs in machines)
    lines = [
        f"# {', '.join(sorted({kind for kind, _ in least}))}, {facts['day']}", "",
        f"Measured by `verifier run --repeat` {facts['agent']} on {facts['day']} with driver {facts['driver']}: "
        f"{gpus} GPUs, at least {runs} runs each, all passed.", "",
        f"Kernels `{facts['kernels']}`, agent built from commit `{facts['commit']}`.", "",
        "| GPU | figure | median of the slowest | unit | floor |", "|---|---|---|---|---|",
    ]
    for (kind, metric), figure in sorted(least.items()):
        unit = "GFLOPS" if metric.startswith("gemm") else "Gop/s" if metric == "exact_chain" else "MB/s"
        lines.append(f"| {kind} | {metric} | {figure} | {unit} | {figure * SHARES[metric] // 1000} |")
    return "\n".join(lines) + "\n"


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="runs of one machine each; else standard input")
    parser.add_argument("--least", type=int, default=50, help="the fewest runs of a machine (50)")
    parser.add_argument("--version", type=positive, help="of the rows; else the newest in data/floors.csv")
    parser.add_argument("--merge", metavar="FILE", help="put the rows into this table instead of printing them")
    parser.add_argument("--page", action="store_true", help="print a page in Markdown")
    args = parser.parse_args()
    try:
        named = [(name, open(name, encoding="utf-8")) for name in args.files] or [("standard input", sys.stdin)]
        machines = [(name, read(name, file)) for name, file in named]
        version = args.version or max(int(row["version"]) for row in csv.DictReader(open(TABLE, encoding="utf-8")))
    except OSError as error:
        parser.error(str(error))
    for name, runs in machines:
        check(name, runs, max(args.least, 1))
    machines = [runs for _, runs in machines]
    every = [run for runs in machines for run in runs]
    if len({run["id"] for run in every}) != len(every):
        raise NoFloor("a run is given twice")
    facts = {
        "kernels": same("kernels", (run["measured"]["kernels"] for run in every)),
        "driver": same("drivers", (run["measured"]["driver"] for run in every)),
        "agent": same("agents", (run["agent"]["version"] for run in every)),
        "file": same("files of the agent", (run["agent"]["sha256"] for run in every)),
        "level": same("levels", (run["level"] for run in every)),
        "commit": same("commits", (run["measured"]["commit"] or "unknown" for run in every)),
        "day": max(run["measured_at"] for run in every)[:10],
    }
    least = slowest(machines)
    if not least:
        raise NoFloor("the runs have no figure in common")
    if not all(c.isalnum() or c in ".-" for c in facts["driver"]):
        raise NoFloor(f"the driver's version is {facts['driver']!r}")
    rows = [
        f"{version},{kind},{metric},{facts['kernels']},{figure},{SHARES[metric]},expected,calibrated,"
        f"verifier run --repeat on {facts['day']} with driver {facts['driver']}"
        for (kind, metric), figure in sorted(least.items())
    ]
    if args.merge:
        try:
            with open(args.merge, encoding="utf-8") as table:
                text = merged(table.read(), rows)
            # Whole or not at all: the agent does not start with half a table.
            beside = os.path.dirname(os.path.abspath(args.merge))
            with tempfile.NamedTemporaryFile("w", dir=beside, encoding="utf-8", delete=False) as table:
                table.write(text)
            os.chmod(table.name, os.stat(args.merge).st_mode & 0o777)
            os.replace(table.name, args.merge)
        except OSError as error:
            parser.error(str(error))
    elif not args.page:
        print("\n".join(rows))
    if args.page:
        print(page(least, machines, facts), end="")


if __name__ == "__main__":
    try:
        main()
    except NoFloor as why:
        print(f"no floor follows: {why}", file=sys.stderr)
        sys.exit(1)
