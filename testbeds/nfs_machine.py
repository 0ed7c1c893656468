"""A virtual machine whose kernel serves an NFS folder and mounts it twice.

The kernels of containers often have no NFS. QEMU emulates a machine with Debian's kernel, which
needs no permission but is slow: booting takes half a minute. The machine sees this one's files,
read-only, so a program of this repository runs in it as it is. Each mount has its own cache, like
the mount of another machine.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from testbeds.errors import TestbedError

MOUNTS = ("/run/a", "/run/b")  # by NFS 4.2 and NFS 3
_COMMANDS = (
    "qemu-system-x86_64",
    "busybox",
    "cpio",
    "depmod",
    "modprobe",
    "exportfs",
    "mount.nfs",
    "rpcbind",
)
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "nfsd", "nfsv3", "nfsv4")
_BOOT_SECS = 600.0
_BEGIN = "the program begins"
_END = "the program ended with "

_INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
while read -r module; do insmod "$module"; done < /modules
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=1048576 files /files
mount -t proc proc /files/proc
mount -t sysfs sys /files/sys
mount -t devtmpfs dev /files/dev
mount -t tmpfs run /files/run
mount -t tmpfs state /files/var/lib/nfs
mount -t nfsd nfsd /files/proc/fs/nfsd
mkdir -p /files/run/rpcbind /files/run/export /files/run/a /files/run/b
mkdir -p /files/var/lib/nfs/v4recovery
touch /files/var/lib/nfs/etab /files/var/lib/nfs/rmtab
chroot /files /bin/sh {script}
poweroff -f
"""

_SERVE = """\
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up || ifconfig lo up
rpcbind
exportfs -o rw,no_root_squash,fsid=0,insecure,no_subtree_check '*:/run/export'
rpc.nfsd 8
rpc.mountd
mount -t nfs -o vers=4.2,nosharecache 127.0.0.1:/ /run/a
mount -t nfs -o vers=3,nosharecache,nolock 127.0.0.1:/run/export /run/b
cd {root}
echo "{begin}"
{command}
echo "{end}$?"
"""


def why_not() -> Optional[str]:
    """Returns why this computer cannot emulate the machine; None if it can."""
    missing = [name for name in _COMMANDS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"no {', '.join(missing)}; see testbeds/install_packages.sh nfs"
    return None


def run(folder: Path, root: Path, program: Sequence[str]) -> str:
    """Boots the machine, runs a Python program in it, and returns what the program printed.

    Args:
      folder: an empty folder for kernel and log.
      root: the program's working directory.
      program: arguments for Python; `MOUNTS` are the mounted folders.

    Raises:
      TestbedError: the machine did not start, or the program failed; with the console's last lines.
    """
    reason = why_not()
    if reason:
        raise TestbedError(reason)
    script = folder / "serve.sh"
    command = shlex.join([sys.executable, *program])
    script.write_text(
        _SERVE.format(root=shlex.quote(str(root)), command=command, begin=_BEGIN, end=_END)
    )
    kernel = _kernel(folder / "kernel")
    _pack(folder, kernel, script)
    words = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "1500", "-smp", "2"]
    words += ["-kernel", str(next(kernel.glob("boot/vmlinuz-*")))]
    words += ["-initrd", str(folder / "initrd.gz"), "-append", "console=ttyS0 quiet panic=-1"]
    words += ["-virtfs", "local,path=/,mount_tag=files,security_model=none,readonly=on"]
    words += ["-nographic", "-no-reboot", "-nic", "none"]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_BOOT_SECS, check=False
        )
    except subprocess.TimeoutExpired as error:
        shown = (error.stdout or b"").decode(errors="replace")
        raise TestbedError(f"no end in {_BOOT_SECS:g} s: {shown[-2000:]}") from None
    lines = done.stdout.decode(errors="replace").replace("\r", "")
    printed, found, code = lines.rpartition(_END)
    if not found or code.split()[0] != "0":
        raise TestbedError(f"the program failed in the machine: {lines[-2000:]}")
    return printed.rpartition(f"{_BEGIN}\n")[2]


def _kernel(folder: Path) -> Path:
    """Unpacks Debian's kernel, without installing it; returns the folder."""
    folder.mkdir()
    words = ["apt-cache", "depends", "--important", "linux-image-amd64"]
    depends = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    package = next(word for word in depends.split() if word.startswith("linux-image-6"))
    subprocess.run(["apt-get", "-qq", "download", package], cwd=folder, check=True)
    subprocess.run(["dpkg-deb", "-x", next(folder.glob("*.deb")), folder], check=True)
    return folder


def _pack(folder: Path, kernel: Path, script: Path) -> None:
    """Writes initrd.gz, the first files of the machine: busybox and the modules of the kernel."""
    version = next(kernel.glob("lib/modules/*")).name
    tree = folder / "initrd"
    for name in ("bin", "proc", "files"):
        (tree / name).mkdir(parents=True)
    environment = {**os.environ, "PATH": _path()}
    subprocess.run(["depmod", "-b", kernel, version], check=True, env=environment)
    words = ["modprobe", "-d", str(kernel), "-S", version, "--show-depends", "--all", *_MODULES]
    shown = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    paths = [Path(line.split()[1]) for line in shown.stdout.splitlines() if "insmod" in line]
    paths = list(dict.fromkeys(paths))
    for path in paths:
        shutil.copy(path, tree / path.name)
    (tree / "modules").write_text("".join(f"/{path.name}\n" for path in paths))
    shutil.copy(str(shutil.which("busybox")), tree / "bin" / "busybox")
    (tree / "init").write_text(_INIT.format(script=shlex.quote(str(script))))
    (tree / "init").chmod(0o755)
    words = ["sh", "-c", "find . | cpio --quiet -o -H newc | gzip -1 > ../initrd.gz"]
    subprocess.run(words, cwd=tree, check=True)


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"
