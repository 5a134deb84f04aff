"""cache --only nvme: bytes per second to and from files, against fio.

Both move 4 MiB at a time with eight under way, with O_DIRECT, through io_uring; a write counts until
it is durable (a flush of ours, fio's end_fsync). Runs take turns, ours first in every second round,
and a ratio is the median of the ratios of neighbours. Every write begins on a new file whose blocks
are allocated and not yet written; for the tier that is a new store, whose files are allocated while
it is being filled.

`nvme_`: the tier, with each chunk's header, its record in the log until that is durable, and the check
of what was read. `nvme_io_`: the I/O layer below it alone.

Where the device is what limits both, the ratio says little about us. So the same runs once more on
an ext4 file system in memory (a loop device; needs root), and everywhere the processor's seconds
per GB: ours of all threads of the process, fio's of the one that its job runs on, each with what the
kernel does on its behalf while data moves.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile

import lib_report as report
from lib_procs import BenchError

PROGRAM = "bench/cache/nvme/nvme_bench"
TIER = "bench/cache/nvme/tier_bench"
TARGETS = [PROGRAM, TIER]
CHUNK = 4 << 20
DEPTH = 8
ROUNDS = 9
DISK_BYTES = 2 << 30
LOOP_BYTES = 1 << 30
GB = 1e9


def run(command):
    """Runs a command and returns its standard output."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise BenchError(f"{os.path.basename(command[0])}: {words[-1] if words else 'failed'}")
    return done.stdout


def figures(speed, cpu_seconds, size):
    """Returns the figures of a run as the table wants them."""
    return {"speed": speed, "cpu_per_gb": max(cpu_seconds, 1e-6) / (size / GB)}


class Ours:
    """A program of bench/cache/nvme."""

    def __init__(self, program, folder):
        if not os.path.exists(program):
            raise BenchError(f"{program} is not built")
        self.program = program
        self.folder = folder
        self.mode = ""

    def run(self, what, size):
        """One run's figures."""
        if what == "write":
            shutil.rmtree(os.path.join(self.folder, "tier"), ignore_errors=True)
        result = json.loads(run([self.program, "-d", self.folder, "-b", str(size), "-c", str(CHUNK),
                                "-q", str(DEPTH), "-w" if what == "write" else "-r"]))
        self.mode = result["mode"]
        return figures(result["bytes_per_second"], result["cpu_seconds"], size)


class Fio:
    """fio, with the same pattern."""

    def __init__(self, folder):
        if shutil.which("fio") is None:
            raise BenchError("fio is not installed: deploy/packages.sh peers")
        self.path = os.path.join(folder, "fio.dat")
        self.fixed = True

    def command(self, what, size):
        """Returns fio's command line."""
        return ["fio", "--name=pair", f"--filename={self.path}", f"--rw={what}", f"--bs={CHUNK}",
                f"--size={size}", f"--iodepth={DEPTH}", "--ioengine=io_uring", "--direct=1",
                f"--fixedbufs={int(self.fixed)}", "--scramble_buffers=0", "--end_fsync=1",
                "--output-format=json"]

    def run(self, what, size):
        """One run's figures."""
        if what == "write":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
        try:
            out = run(self.command(what, size))
        except BenchError:
            if not self.fixed:
                raise
            self.fixed = False  # its memory may not be locked here
            return self.run(what, size)
        job = json.loads(out[out.index("{"):])["jobs"][0]
        cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
        return figures(job[what]["io_bytes"] / (job[what]["runtime"] / 1000), cpu, size)


def measure(ours, fio, what, size, rounds):
    """Runs both in turns; returns the list of our results and the list of fio's."""
    subjects = [ours, fio]
    if what == "read":
        for subject in subjects:
            subject.run("write", size)
    results = {id(subject): [] for subject in subjects}
    for index in range(rounds):
        for subject in subjects if index % 2 == 0 else subjects[::-1]:
            os.sync()
            results[id(subject)].append(subject.run(what, size))
    return results[id(ours)], results[id(fio)]


def report_pair(rows, metric, ours, fio, key, unit, **more):
    """Prints one figure as a JSON line and appends it to the table's rows."""
    low, high = report.spread_of(ours, key)
    peer_low, peer_high = report.spread_of(fio, key)
    ratios = sorted(a[key] / b[key] for a, b in zip(ours, fio) if b[key])
    report.emit("cache", metric, report.median_of(ours, key), unit, peer="fio",
                ratio=report.ratio_of(ours, fio, key), peer_value=report.median_of(fio, key),
                low=low, high=high, peer_low=peer_low, peer_high=peer_high,
                ratio_low=ratios[0], ratio_high=ratios[-1], pairs=len(ours), **more)
    scale = 1e9 if unit == "bytes/s" else 1.0
    rows.append([f"{metric} {more['device']}", report.median_of(ours, key) / scale,
                 f"{low / scale:.3g}-{high / scale:.3g}", report.median_of(fio, key) / scale,
                 f"{peer_low / scale:.3g}-{peer_high / scale:.3g}",
                 f"{report.ratio_of(ours, fio, key):.3f}", f"{ratios[0]:.2f}-{ratios[-1]:.2f}"])


def compare(rows, program, prefix, folder, size, rounds, device):
    """Measures writing and reading on one file system."""
    ours, fio = Ours(program, folder), Fio(folder)
    for what in ("write", "read"):
        mine, theirs = measure(ours, fio, what, size, rounds)
        report_pair(rows, f"{prefix}_{what}_bytes_per_second", mine, theirs, "speed", "bytes/s",
                    device=device, mode=ours.mode)
        report_pair(rows, f"{prefix}_{what}_cpu_seconds_per_gb", mine, theirs, "cpu_per_gb", "s/GB",
                    device=device, mode=ours.mode)


def loop_file_system(size):
    """A context whose value is a folder on ext4 in memory; None, with the reason printed, where there can be none."""
    stack = contextlib.ExitStack()
    try:
        work = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        image, mount = os.path.join(work, "image"), os.path.join(work, "mount")
        with open(image, "wb") as file:  # its memory is there before it is measured
            for _ in range(size // (1 << 20)):
                file.write(b"\0" * (1 << 20))
        os.mkdir(mount)
        run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", image])
        device = run(["losetup", "-f", "--show", "--direct-io=on", image]).strip()
        stack.callback(subprocess.run, ["losetup", "-d", device], check=False)
        run(["mount", device, mount])
        stack.callback(subprocess.run, ["umount", mount], check=False)
    except (BenchError, OSError) as error:
        report.say(f"no loop device: {error}; left out")
        stack.close()
        return None, contextlib.nullcontext()
    return mount, stack


def bench_nvme(options):
    """Measures the NVMe tier (if it is built) and its I/O layer alone, each on the disk and in memory."""
    folder = getattr(options, "folder", None) or os.environ.get("BENCH_FOLDER") or options.build
    rounds = max(options.rounds, ROUNDS)
    rows = []
    programs = [(TIER, "nvme"), (PROGRAM, "nvme_io")]
    built = [(os.path.join(options.build, path), prefix) for path, prefix in programs
             if os.path.exists(os.path.join(options.build, path))]
    if not built:
        raise BenchError(f"{PROGRAM} is not built")
    with tempfile.TemporaryDirectory(dir=folder) as work:
        for program, prefix in built:
            compare(rows, program, prefix, work, DISK_BYTES, rounds, "disk")
    mount, stack = loop_file_system(2 * LOOP_BYTES + (512 << 20))
    with stack:
        if mount is not None:
            for program, prefix in built:
                compare(rows, program, prefix, mount, LOOP_BYTES, rounds, "loop")
    report.table("4 MiB, eight under way, against fio (GB/s; s/GB)",
                 ["", "ours", "from-to", "fio", "from-to", "ratio", "from-to"], rows)
