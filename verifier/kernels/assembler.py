"""The pinned assembler (ptxas), and what it says of a kernel."""

import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import nvidia.cuda_nvcc

PTXAS = pathlib.Path(list(nvidia.cuda_nvcc.__path__)[0]) / "bin" / "ptxas"
# The parts for which the PTX of a target is assembled: the driver of each may be asked for it.
PARTS = {"compute_90": ["sm_90", "sm_100", "sm_101", "sm_103", "sm_120", "sm_121"]}
# Where a cubin says which tool made it, and how that was called.
TOOL_NOTE = ".note.nv.tkinfo"


def parts_of(target):
    return PARTS.get(target, [target])


def refuse_serialized(what, log):
    """Ends all where the words of a compiler or an assembler say that products of warp groups wait for each
    other: they are right then and take several times as long, which no other check sees."""
    for line in log.splitlines():
        if re.search(r"wgmma.*serializ", line):
            sys.exit(f"{what}: {line.strip()}")


def said(log):
    """What an assembler says that a kernel takes: registers of a thread, and bytes that it spills."""
    used = re.findall(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if len(used) != 1 or len(spills) != 1:
        sys.exit(f"the assembler's report is missing\n{log}")
    return int(used[0]), max(int(spilled) for spilled in spills[0])


def assemble(ptx, part):
    """The cubin of a part, and what `said` makes of the assembler's words."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = pathlib.Path(folder) / "ptx", pathlib.Path(folder) / "cubin"
        # The driver takes PTX with a zero byte at its end, the assembler without.
        source.write_bytes(ptx.rstrip(b"\0"))
        command = [PTXAS, "--verbose", f"--gpu-name={part}", f"--output-file={cubin}", source]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{part}: {run.stderr}")
        refuse_serialized(part, run.stderr)
        return cubin.read_bytes(), said(run.stderr)


def sections(cubin):
    """The sections of a cubin, which is an ELF file of 64 bits, but for the tool that made it."""
    (headers_at,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names_in = struct.unpack_from("<3H", cubin, 58)
    headers = [struct.unpack_from("<2I4Q2I2Q", cubin, headers_at + at * size) for at in range(count)]
    names = cubin[headers[names_in][4] :]
    holds_nothing = 8
    found = []
    for name, kind, flags, _, offset, length, *_ in headers:
        name = names[name:].split(b"\0", 1)[0].decode()
        content = b"" if kind == holds_nothing else cubin[offset : offset + length]
        if name != TOOL_NOTE:
            found.append((name, kind, flags, length, content))
    return found
