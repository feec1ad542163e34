"""A node on a kernel of its own, with cgroups of version 2: `python -m benchmarks.sandbox_qemu --json`.

Makes a Debian system with debootstrap, boots its kernel in qemu without KVM, and there runs attacks of `cleaner-sandbox
check` at T3, with limits of time as much longer as the emulation is slower. `--tier T2` runs them where the kernel has
cgroups and the node doesn't use them. `--calls 20` instead serves a node in the machine (T4) and calls it from outside.
`--save FILE` also keeps the figures with commit and machine.

Needs root, a Debian with an apt mirror, and the packages qemu-system-x86, debootstrap and e2fsprogs. The system is made
once (3 minutes, 2 GB below `~/.cache/cleaner-sandbox/qemu`). The machine has no network but the forwarded port.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.record import save
from benchmarks.sandbox_nodes import cpu_seconds
from cleaner_sandbox import RunRequest, RunStatus
from cleaner_sandbox.check import ATTACKS, AttackClass
from cleaner_sandbox.client import SandboxClient

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "packages" / "cleaner-sandbox"
CACHE = Path.home() / ".cache" / "cleaner-sandbox" / "qemu"
RELEASE = "bookworm"
PYTHON = "3.11"
PACKAGES = ("linux-image-cloud-amd64", "kmod", "iproute2", f"python{PYTHON}", "libseccomp2")
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
INIT = """#!/bin/sh
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /run
mkdir /run/share
mount -o ro /dev/nvme1n1 /run/share
. /run/share/setup
echo b > /proc/sysrq-trigger
"""
SETUP = f"""
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts none /dev/pts
mount -t tmpfs none /tmp
mount -t tmpfs none /dev/shm
mount -t mqueue none /dev/mqueue
mount -t cgroup2 none /sys/fs/cgroup
echo "+cpu +memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/service
echo $$ > /sys/fs/cgroup/service/cgroup.procs
modprobe -a virtio_pci virtio_net
ip link set lo up
nic=$(ls /sys/class/net | grep -v lo)
ip link set "$nic" up
ip address add 10.0.2.15/24 dev "$nic"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/run/share/src PYTHONDONTWRITEBYTECODE=1 HOME=/root
python{PYTHON} /run/share/guest.py /run/share/job.json
"""
KERNEL = "console=ttyS0 quiet panic=-1 mitigations=off"
"""With the third option, the machine ends if its kernel stops."""
CALLS = {"print": "print(6 * 7)", "numpy": "import numpy; print(int(numpy.arange(1000).sum()))"}

RESOURCES = tuple(each.name for each in ATTACKS if each.kind is AttackClass.RESOURCES)
READY_SECONDS = 300.0


def system() -> Path:
    """The folder with the machine's disk and kernel; made if there is none like it."""
    recipe = repr((RELEASE, PACKAGES, INIT, dependencies()))
    made = CACHE / hashlib.sha256(recipe.encode()).hexdigest()[:12]
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=CACHE))
        with tempfile.TemporaryDirectory(dir=CACHE) as root:
            make_system(Path(root), folder)
        folder.rename(made)
    return made


def make_system(root: Path, folder: Path) -> None:
    """Install a Debian with what a node needs in `root`, and put it on a disk in `folder`."""
    run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", RELEASE, str(root), mirror())
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", f"--python-version={PYTHON}")
    run(*pip, f"--target={root / SITE}", *dependencies())
    init = root / "usr" / "sbin" / "sandbox-init"
    init.write_text(INIT)
    init.chmod(0o755)
    shutil.copy(next((root / "boot").glob("vmlinuz-*")), folder / "vmlinuz")
    disk(root, folder / "disk.img", "2G")


def mirror() -> str:
    """Where apt has this machine's packages from."""
    asked = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()[0]


def dependencies() -> list[str]:
    """What a node that serves HTTP and its libraries for science need."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras["http"], *extras["science"]]


def disk(folder: Path, image: Path, size: str) -> None:
    """Make a disk that holds a folder."""
    run("mke2fs", "-q", "-t", "ext4", "-d", str(folder), str(image), size)


def run(*command: str) -> None:
    """Run a command, with what it says on our stderr."""
    subprocess.run(command, check=True, stdout=sys.stderr)


@contextmanager
def machine(job: dict[str, object], folder: Path, port: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """Boot the machine with something to do; it ends when that is done, or with the `with` statement."""
    made, share = system(), folder / "share"
    shutil.copytree(PACKAGE / "src", share / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).with_name("qemu_guest.py"), share / "guest.py")
    (share / "setup").write_text(SETUP)
    (share / "job.json").write_text(json.dumps(job))
    disk(share, folder / "share.img", "32M")
    forward = f",hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:{port}" if port else ""
    command = ["nice", "-n", "15", "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "1536"]
    command += ["-icount", "shift=1", "-nodefaults"]  # its clock counts instructions: however busy this machine is
    command += ["-display", "none", "-no-reboot", "-kernel", str(made / "vmlinuz")]
    command += ["-append", f"root=/dev/nvme0n1 rw init=/usr/sbin/sandbox-init {KERNEL}"]
    # The kernel has the driver of these disks built in, so it boots without a file system of its own before.
    command += ["-drive", f"file={made / 'disk.img'},format=raw,if=none,id=system,snapshot=on"]
    command += ["-drive", f"file={folder / 'share.img'},format=raw,if=none,id=share,readonly=on"]
    command += ["-device", "nvme,drive=system,serial=system", "-device", "nvme,drive=share,serial=share"]
    command += ["-serial", "stdio", "-serial", f"file:{folder / 'found'}"]
    command += ["-nic", f"user,restrict=on,model=virtio-net-pci{forward}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def attack(patterns: Sequence[str], tier: str, slowness: float, seconds: float) -> dict[str, object]:
    """Run attacks in the machine; what came of them."""
    job: dict[str, object] = {"attacks": list(patterns), "tier": tier, "slowness": slowness}
    with tempfile.TemporaryDirectory() as folder, machine(job, Path(folder)) as process:
        process.wait(seconds)
        found: dict[str, object] = json.loads((Path(folder) / "found").read_text())
    return found


def serve(calls: int, seconds: float) -> dict[str, object]:
    """Serve a node in the machine and call it from here: how soon it answers, and what each kind of call costs."""
    token, port = secrets.token_hex(16), free_port()
    job: dict[str, object] = {"serve": ["--host", "0.0.0.0", "--port", str(port), "--slots", "2"], "token": token}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, machine(job, Path(folder), port) as process:
        return asyncio.run(asyncio.wait_for(call(process.pid, port, token, calls, began), seconds))


async def call(pid: int, port: int, token: str, calls: int, began: float) -> dict[str, object]:
    """Wait for the node, then make the calls one at a time."""
    figures: dict[str, object] = {}
    async with SandboxClient([f"http://127.0.0.1:{port}"], token=token, patience=READY_SECONDS) as client:
        await client.run(RunRequest(CALLS["print"]))  # waits for the node
        figures["seconds_until_first_answer"] = round(time.monotonic() - began, 1)
        for name, code in CALLS.items():
            times, used = [], cpu_seconds(pid)
            for _ in range(calls):
                sent = time.monotonic()
                outcome = await client.run(RunRequest(code))
                times.append(time.monotonic() - sent)
                assert outcome.result.status is RunStatus.OK, outcome
            cpu = (cpu_seconds(pid) - used) / calls
            figures[name] = {"p50_ms": round(1000 * median(times), 1), "cpu_ms": round(1000 * cpu, 1)}
    return figures


def main() -> None:
    """Attack or call a node in the machine, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", nargs="+", default=list(RESOURCES), metavar="PATTERN")
    parser.add_argument("--tier", choices=["T2", "T3"], default="T3")
    parser.add_argument("--slowness", type=float, default=8.0, help="times that limits of time are longer")
    parser.add_argument("--calls", type=int, default=0, help="call a node in the machine so often instead")
    parser.add_argument("--seconds", type=float, default=3600.0, help="the machine is ended then")
    parser.add_argument("--json", action="store_true", help="on one line")
    parser.add_argument("--save", type=Path, help="also write the figures to this file, with commit and machine")
    arguments = parser.parse_args()
    if arguments.calls:
        figures = serve(arguments.calls, arguments.seconds)
    else:
        figures = attack(arguments.attacks, arguments.tier, arguments.slowness, arguments.seconds)
    settings = {name: value for name, value in vars(arguments).items() if name not in ("json", "save")}
    if arguments.save:
        save(arguments.save, figures, settings)
    print(json.dumps(figures, indent=None if arguments.json else 2))


if __name__ == "__main__":
    main()
