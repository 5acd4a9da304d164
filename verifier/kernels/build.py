"""Compiles the kernels for every pair of matrix.csv, by NVRTC, without a GPU or a CUDA toolkit.

    build.py            writes cubins/<kernel>.<target>.<cubin|ptx>.zst, all of them together in
                        images.zst, and the figures of matrix.csv and left_out.csv anew
    build.py --check    compares all of these with what the sources give, and writes nothing

Either way the PTX of each pair is assembled by ptxas too, PTX that is carried as such for every
later part that ptxas knows. What must be so: no pair spills registers to memory by ptxas's own words,
none has products of warp groups that wait for each other (wgmma serialized), the compiler's cubin is what
ptxas makes of the PTX, and a pair of left_out.csv does spill.
Registers in matrix.csv, and spilled bytes in left_out.csv, are those of the part that takes most.

Needs what requirements.txt pins; `check.sh` brings it and runs the check.
"""

import csv
import ctypes
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

import nvidia.cuda_nvrtc
import zstandard

from assembler import assemble, parts_of, refuse_serialized, said, sections

HERE = pathlib.Path(__file__).parent
MATRIX = HERE / "matrix.csv"
LEFT_OUT = HERE / "left_out.csv"
CUBINS = HERE / "cubins"
IMAGES = HERE / "images.zst"
LIBRARIES = pathlib.Path(list(nvidia.cuda_nvrtc.__path__)[0]) / "lib"
# Verbose assembly tells registers and spills in the program's log.
OPTIONS = ["--std=c++17", "--ptxas-options=-v"]
# What the agent can carry of them, packed together. Units: bytes.
MOST_PACKED = 250_000


class Compiler:
    """The few calls of libnvrtc that are needed."""

    def __init__(self):
        self.nvrtc = ctypes.CDLL(str(LIBRARIES / "libnvrtc.so.12"))
        self.nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        self.headers = {path.name: path.read_bytes() for path in sorted(HERE.glob("*.cuh"))}

    def call(self, name, *arguments):
        status = getattr(self.nvrtc, name)(*arguments)
        if status != 0:
            reason = self.nvrtc.nvrtcGetErrorString(status).decode()
            raise RuntimeError(f"{name}: {reason}")

    def text(self, program, what):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def compile(self, kernel, target):
        """The binary (cubin or PTX) and the compiler's log."""
        count = len(self.headers)
        program = ctypes.c_void_p()
        self.call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            (HERE / f"{kernel}.cu").read_bytes(),
            f"{kernel}.cu".encode(),
            count,
            (ctypes.c_char_p * count)(*self.headers.values()),
            (ctypes.c_char_p * count)(*(name.encode() for name in self.headers)),
        )
        options = [f"--gpu-architecture={target}", *OPTIONS]
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        try:
            self.call("nvrtcCompileProgram", program, len(options), arguments)
        except RuntimeError as error:
            log = self.text(program, "ProgramLog").decode()
            sys.exit(f"{kernel} for {target}: {error}\n{log}")
        binary = self.text(program, "CUBIN" if is_cubin(target) else "PTX")
        log = self.text(program, "ProgramLog").decode()
        refuse_serialized(f"{kernel} for {target}", log)
        self.call("nvrtcDestroyProgram", ctypes.byref(program))
        return binary, log


def is_cubin(target):
    return target.startswith("sm_")


def virtual(target):
    """The target whose PTX is assembled for a part."""
    return target.replace("sm_", "compute_")


def path_of(kernel, target):
    return CUBINS / f"{kernel}.{target}.{'cubin' if is_cubin(target) else 'ptx'}.zst"


def together(images):
    """All images as the agent carries them: a list of names and lengths, then one after the other, those
    for the same part together, which have most in common."""
    images = sorted(images, key=lambda image: (image[0].partition(".")[2], image[0]))
    lines = "".join(f"{name} {len(binary)}\n" for name, binary in images)
    return lines.encode() + b"\n" + b"".join(binary for _, binary in images)


def assembled(pool, kernel, target, ptx):
    """Cubin, registers and spilled bytes for each part for which the PTX of a pair is assembled."""
    parts = parts_of(target)
    each = pool.map(lambda part: assemble(ptx, part), parts)
    return [(part, cubin, *words) for part, (cubin, words) in zip(parts, each)]


def build(compiler, pool, kernel, target):
    """The image of a pair and its registers. Spills are an error."""
    image, log = compiler.compile(kernel, target)
    ptx = image if not is_cubin(target) else compiler.compile(kernel, virtual(target))[0]
    most = 0
    for part, cubin, registers, spilled in assembled(pool, kernel, target, ptx):
        if spilled:
            sys.exit(f"{kernel} for {target}: spills {spilled} bytes on {part}")
        if is_cubin(target) and (sections(cubin), (registers, spilled)) != (sections(image), said(log)):
            sys.exit(f"{kernel} for {target}: the compiler's cubin is not what ptxas makes of its PTX")
        most = max(most, registers)
    return image, str(most)


def spills(compiler, pool, kernel, target):
    """The bytes that a pair that is left out spills."""
    ptx, _ = compiler.compile(kernel, virtual(target))
    return str(max(spilled for _, _, _, spilled in assembled(pool, kernel, target, ptx)))


def read(path):
    with path.open() as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def write(path, header, rows):
    with path.open("w") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    pairs, left_out = read(MATRIX), read(LEFT_OUT)
    wrong = []
    kernels = {path.stem for path in HERE.glob("*.cu")}
    if kernels != {kernel for kernel, _, _ in pairs}:
        wrong.append("the kernels of matrix.csv are not the .cu files")
    both = {pair[:2] for pair in pairs} & {pair[:2] for pair in left_out}
    wrong += [f"{kernel} for {target} is left out and is not" for kernel, target in sorted(both)]
    there = {path.name for path in CUBINS.glob("*")}
    should = {path_of(kernel, target).name for kernel, target, _ in pairs}
    wrong += [f"{name} belongs to no pair of matrix.csv" for name in sorted(there - should)]
    compiler, pool = Compiler(), ThreadPoolExecutor()
    CUBINS.mkdir(exist_ok=True)
    rows, images = [], []
    for kernel, target, recorded in pairs:
        binary, used = build(compiler, pool, kernel, target)
        rows.append((kernel, target, used))
        path = path_of(kernel, target)
        images.append((path.stem, binary))
        if not check:
            path.write_bytes(zstandard.ZstdCompressor(level=19).compress(binary))
        elif used != recorded:
            wrong.append(f"{kernel} for {target} uses {used} registers, {recorded} are recorded")
        elif not path.exists() or zstandard.decompress(path.read_bytes()) != binary:
            wrong.append(f"{path.name} is not what the sources give")
    rows_left_out = []
    for kernel, target, recorded, why in left_out:
        spilled = spills(compiler, pool, kernel, target)
        rows_left_out.append((kernel, target, spilled, why))
        if spilled == "0":
            wrong.append(f"{kernel} for {target} is left out and spills no more")
        elif check and spilled != recorded:
            wrong.append(f"{kernel} for {target} spills {spilled} bytes, {recorded} are recorded")
    if not check:
        IMAGES.write_bytes(zstandard.ZstdCompressor(level=22).compress(together(images)))
        write(MATRIX, ("kernel", "target", "registers"), rows)
        write(LEFT_OUT, ("kernel", "target", "spilled", "why"), rows_left_out)
    elif not IMAGES.exists() or zstandard.decompress(IMAGES.read_bytes()) != together(images):
        wrong.append(f"{IMAGES.name} is not what the sources give")
    if wrong:
        sys.exit("\n".join(wrong))
    packed = IMAGES.stat().st_size
    if packed > MOST_PACKED:
        sys.exit(f"all pairs together take {packed} bytes packed, more than {MOST_PACKED}")
    assemblies = sum(len(parts_of(target)) for _, target, _ in pairs)
    print(
        f"{len(pairs)} pairs of {len(kernels)} kernels in {assemblies} assemblies, no spills; "
        f"{len(left_out)} pairs left out, which spill; {packed} bytes packed"
    )


main()
