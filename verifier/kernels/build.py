"""Compiles the kernels for every pair of matrix.csv, by NVRTC, without a GPU or a CUDA toolkit.

    build.py            writes cubins/<kernel>.<target>.<cubin|ptx>.zst, all of them together in
                        images.zst, and the registers of matrix.csv anew
    build.py --check    compares all three with what the sources give, and writes nothing

Either way a pair that spills registers to memory is an error. Needs what requirements.txt pins;
`check.sh` brings it and runs the check.
"""

import csv
import ctypes
import pathlib
import re
import sys

import nvidia.cuda_nvrtc
import zstandard

HERE = pathlib.Path(__file__).parent
MATRIX = HERE / "matrix.csv"
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
        self.call("nvrtcDestroyProgram", ctypes.byref(program))
        return binary, log


def is_cubin(target):
    return target.startswith("sm_")


def path_of(kernel, target):
    return CUBINS / f"{kernel}.{target}.{'cubin' if is_cubin(target) else 'ptx'}.zst"


def together(images):
    """All images as the agent carries them: a list of names and lengths, then one after the other."""
    images = sorted(images)
    lines = "".join(f"{name} {len(binary)}\n" for name, binary in images)
    return lines.encode() + b"\n" + b"".join(binary for _, binary in images)


def registers(kernel, target, log):
    """Registers per thread as the assembler reports them; PTX has none. Spills are an error."""
    if not is_cubin(target):
        return ""
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    used = re.findall(r"Used (\d+) registers", log)
    if len(used) != 1 or not spills:
        sys.exit(f"{kernel} for {target}: the assembler's report is missing\n{log}")
    if any(int(spill) for spill in spills):
        sys.exit(f"{kernel} for {target}: spills registers\n{log}")
    return used[0]


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    with MATRIX.open() as file:
        pairs = [(row["kernel"], row["target"], row["registers"]) for row in csv.DictReader(file)]
    wrong = []
    kernels = {path.stem for path in HERE.glob("*.cu")}
    if kernels != {kernel for kernel, _, _ in pairs}:
        wrong.append("the kernels of matrix.csv are not the .cu files")
    there = {path.name for path in CUBINS.glob("*")}
    should = {path_of(kernel, target).name for kernel, target, _ in pairs}
    wrong += [f"{name} belongs to no pair of matrix.csv" for name in sorted(there - should)]
    compiler = Compiler()
    CUBINS.mkdir(exist_ok=True)
    rows, images = [], []
    for kernel, target, recorded in pairs:
        binary, log = compiler.compile(kernel, target)
        used = registers(kernel, target, log)
        rows.append((kernel, target, used))
        path = path_of(kernel, target)
        images.append((path.stem, binary))
        if not check:
            path.write_bytes(zstandard.ZstdCompressor(level=19).compress(binary))
        elif used != recorded:
            wrong.append(f"{kernel} for {target} uses {used} registers, {recorded} are recorded")
        elif not path.exists() or zstandard.decompress(path.read_bytes()) != binary:
            wrong.append(f"{path.name} is not what the sources give")
    if not check:
        IMAGES.write_bytes(zstandard.ZstdCompressor(level=19).compress(together(images)))
    elif not IMAGES.exists() or zstandard.decompress(IMAGES.read_bytes()) != together(images):
        wrong.append(f"{IMAGES.name} is not what the sources give")
    if not check:
        with MATRIX.open("w") as file:
            lines = (",".join(row) for row in [("kernel", "target", "registers"), *rows])
            file.writelines(f"{line}\n" for line in lines)
    if wrong:
        sys.exit("\n".join(wrong))
    packed = IMAGES.stat().st_size
    if packed > MOST_PACKED:
        sys.exit(f"all pairs together take {packed} bytes packed, more than {MOST_PACKED}")
    print(f"{len(pairs)} pairs of {len(kernels)} kernels, no spills, {packed} bytes packed")


main()
