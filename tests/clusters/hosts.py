"""Hosts on one machine: namespaces with an address, a name, a disk and an environment of their own.

The driver's host has the object store and the master; nothing of it is reachable from outside. What
runs on a host ends with the `Network`, or with the process that made it, however that one ends: all
are in one process namespace, whose first process reads a pipe.

    10.79.0.1  driver     the program, the master
    10.78.0.1  objects    the object store, on the driver's host
    10.77.n.2  worker-x   whatever is started there
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

CODE = Path(__file__).resolve().parents[2]
DRIVER, OBJECTS = "10.79.0.1", "10.78.0.1"
DISK = "/mnt/disk"
"""A directory that each host has for itself."""

ENV, SPARK, SOURCE = "/mnt/env", "/mnt/spark", "/mnt/source"
"""Where hosts have an environment, Spark and our code, if they were given these."""

_NAMESPACES = ("--net", "--mount", "--uts")
_TOOLS = ("unshare", "nsenter", "ip", "mount", "hostname")


def lacking() -> str:
    """Say why this machine cannot have such hosts, "" if it can."""
    if missing := [name for name in _TOOLS if not shutil.which(name)]:
        return f"hosts of a cluster need {', '.join(missing)} (util-linux, iproute2)"
    script = "ip link set lo up && ip link add one type veth peer name two && mount -t tmpfs t /mnt"
    command = ["unshare", *_as_root(), *_NAMESPACES, "sh", "-c", script]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return ""
    return f"hosts of a cluster need root or user namespaces: {tried.stderr.strip()}"


def _as_root() -> list[str]:
    return [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


class Host:
    """A set of namespaces, which a process that waits holds open."""

    def __init__(self, name: str, keeper: subprocess.Popen[bytes], log: Path) -> None:
        self.name, self._keeper, self._log = name, keeper, log
        self.pid = _first_child(keeper)
        self._started: list[subprocess.Popen[bytes]] = []

    def command(self, words: Sequence[object]) -> list[str]:
        """Return what runs a command there."""
        user = ["--preserve-credentials"] if os.geteuid() else []
        return ["nsenter", f"--target={self.pid}", "--all", *user, "--", *map(str, words)]

    def sh(self, script: str) -> str:
        """Run a script there, and return what it printed.

        Raises:
            RuntimeError: It failed.
        """
        ran = subprocess.run(
            self.command(["sh", "-euc", script]), capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise RuntimeError(f"{self.name}: {script}\n{ran.stderr}")
        return ran.stdout

    def start(self, *words: object, **variables: str) -> None:
        """Start a command that goes on until it or the network ends."""
        with self._log.open("ab") as log:
            made = subprocess.Popen(
                self.command(words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=plain_environment(**variables),
            )
        self._started.append(made)

    def run(
        self, *words: object, timeout: float = 240, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(words),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            cwd="/",
            env=plain_environment(**variables),
        )

    @property
    def said(self) -> str:
        """What was said there."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def until_said(self, pattern: str, seconds: float = 60) -> None:
        """Wait until somebody there says what matches."""
        until = time.monotonic() + seconds
        while not re.search(pattern, self.said):
            if time.monotonic() > until:
                raise RuntimeError(f"{self.name} never said {pattern!r}:\n{self.said[-3000:]}")
            time.sleep(0.05)

    def processes(self, word: str) -> list[int]:
        """Return the processes of this host whose command holds a word."""
        here = os.readlink(f"/proc/{self.pid}/ns/uts")
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/ns/uts") == here:
                    words = Path(f"/proc/{entry}/cmdline").read_bytes()
                    found += [int(entry)] if word.encode() in words else []
            except OSError:
                continue  # it ended meanwhile
        return found

    def close(self) -> None:
        """End the process that holds the namespaces."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()

    def forget(self) -> None:
        """Wait for what was started here, after the process namespace ended."""
        for each in self._started:
            each.wait()


class Network(Host):
    """The driver's host, and further ones."""

    def __init__(self, environment: Path = Path(sys.prefix)) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="icevirt-hosts-", dir="/var/tmp"))
        self.hosts: dict[str, Host] = {}
        super().__init__("driver", _kept(["--pid", "--mount-proc"]), self.folder / "driver.log")
        import pyspark

        names = "".join(
            f"{address}\t{name}\n"
            for address, name in (
                ("127.0.0.1", "localhost"),
                (DRIVER, "driver"),
                (OBJECTS, "objects"),
            )
        )
        (self.folder / "hosts").write_text(names)
        self.sh(
            f"hostname driver; ip link set lo up; echo 1 > /proc/sys/net/ipv4/ip_forward;"
            f"ip addr add {DRIVER}/32 dev lo; ip addr add {OBJECTS}/32 dev lo;"
            f"mount --bind {self.folder}/hosts /etc/hosts;"
            f"mount -t tmpfs tmpfs /mnt; mkdir {DISK} {ENV} {SPARK} {SOURCE};"
            f"mount --bind {environment} {ENV}; mount --bind {CODE} {SOURCE};"
            f"mount --bind {Path(pyspark.__file__).parent} {SPARK}"
        )

    def add(self, name: str, *, disk: str = "512m") -> Host:
        """Add a host with an empty disk, on which nothing of the driver's can be read.

        Args:
            name: What it is called.
            disk: How much its disk holds.
        """
        number = len(self.hosts) + 1
        keeper = _kept([], inside=self)
        host = Host(name, keeper, self.folder / f"{name}.log")
        self.hosts[name] = host
        inner = _number_inside(host.pid)
        address = f"10.77.{number}"
        with (self.folder / "hosts").open("a") as names:
            names.write(f"{address}.2\t{name}\n")
        self.sh(
            f"ip link add to-{name} type veth peer name eth0 netns {inner};"
            f"ip addr add {address}.1/24 dev to-{name}; ip link set to-{name} up"
        )
        hidden = " ".join(
            f"mount -t tmpfs tmpfs {path};" for path in ("/tmp", "/var/tmp", "/dev/shm", CODE)
        )
        host.sh(
            f"hostname {name}; ip link set lo up; ip addr add {address}.2/24 dev eth0;"
            f"ip link set eth0 up; ip route add default via {address}.1;"
            f"{hidden} mount -t tmpfs -o size={disk} tmpfs {DISK}"
        )
        return host

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.close()
        self.close()  # with all that runs on any host
        for host in (self, *self.hosts.values()):
            host.forget()
        shutil.rmtree(self.folder, ignore_errors=True)


def plain_environment(**variables: str) -> dict[str, str]:
    """Return an environment with no more than a service would have."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, **variables}


def _kept(more: list[str], inside: Host | None = None) -> subprocess.Popen[bytes]:
    words = ["unshare", *_NAMESPACES, *more, "--fork", "--kill-child", "cat"]
    if inside is None:
        words[1:1] = _as_root()
    keeper = subprocess.Popen(
        inside.command(words) if inside else words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    _first_child(keeper)
    return keeper


def _first_child(keeper: subprocess.Popen[bytes]) -> int:
    """Return the process that waits at the end of a chain of `unshare` and `nsenter`."""
    until = time.monotonic() + 10
    pid = keeper.pid
    while Path(f"/proc/{pid}/comm").read_text().strip() != "cat":
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pid = int(children[0]) if children else pid
        if time.monotonic() > until:
            raise RuntimeError("the namespaces of a host did not come up")
        time.sleep(0.002)
    return pid


def _number_inside(pid: int) -> int:
    """Return the id of a process in its own process namespace."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("NSpid:")[2].split("\n")[0].split()[-1])
