"""A network for pods as plain as it can be: an address for each, which nodes and API server reach, and nothing more.

All nodes are in one network namespace, which a pair of virtual devices joins to this machine's. What pods have of it is made by
the reference plugins of CNI: `ptp` and `host-local`. There is no DNS, and of all Services only `kubernetes` is reached, since the
API server listens on its very address.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.cluster.component import Component
from tests.cluster.nodes.cni import Cni
from tests.cluster.polling import eventually

_STAY = "ip link set lo up; read pid rest < /proc/self/stat; echo $pid > {file}.new; mv {file}.new {file}; exec sleep infinity"


@cache
def why_no_network() -> str | None:
    """Return why no network can be made here, or `None`; tries it where nobody sees it."""
    if not shutil.which("ip"):
        return "a network for pods needs ip (iproute2)"
    attempt = ["unshare", "--net", "ip", "link", "add", "name", "a", "type", "veth", "peer", "name", "b"]
    tried = subprocess.run(attempt, capture_output=True, text=True, check=False)
    return f"no network for pods can be made here: {tried.stderr.strip()}" if tried.returncode else None


class Network(Component):
    """One such network, in addresses that are nobody's: RFC 2544 has them for tests."""

    def __init__(self, state: Path, plugins: Path) -> None:
        self._number = os.getpid() % 254
        self._plugins = plugins
        self._pid_file = state / "network.pid"
        stay = ["unshare", "--net", "--kill-child", "--fork", "sh", "-c", _STAY.format(file=self._pid_file)]
        super().__init__("network", stay, state, ready_url="")

    @property
    def services(self) -> str:
        """The range of the Services' addresses; the first is this machine's."""
        return f"198.18.{self._number}.0/24"

    @property
    def gateway(self) -> str:
        """The address of the machine that all runs on."""
        return f"198.18.{self._number}.1"

    @property
    def nodes(self) -> str:
        """The address of all nodes."""
        return f"198.18.{self._number}.2"

    @property
    def pid(self) -> int:
        """A process that is in it."""
        return int(self._pid_file.read_text())

    def start(self) -> None:
        """Make it, and return when this machine reaches it."""
        super().start()
        eventually(self._pid_file.exists, within_seconds=60)
        ours, pods = f"gputopo{self._number}", f"198.19.{self._number}.0/24"
        self._ip(f"link add name {ours} type veth peer name eth0 netns {self.pid}")
        self._ip(f"address add {self.gateway}/24 dev {ours}")
        self._ip(f"link set {ours} up")
        self._ip(f"address add {self.nodes}/24 dev eth0", inside=True)
        self._ip("link set eth0 up", inside=True)
        self._ip(f"route add default via {self.gateway}", inside=True)
        self._ip(f"route add {pods} via {self.nodes}")

    def cni(self, position: int) -> Cni:
        """Return the part of the node at this position: thirty pods."""
        subnet = f"198.19.{self._number}.{32 * position}/27"
        ipam = {"type": "host-local", "subnet": subnet, "routes": [{"dst": "0.0.0.0/0"}]}
        plugin: dict[str, Any] = {"type": "ptp", "ipam": ipam}
        return Cni((self._plugins,), {"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]})

    def _ip(self, words: str, *, inside: bool = False) -> None:
        enter = ["nsenter", f"--net=/proc/{self.pid}/ns/net"] if inside else []
        done = subprocess.run([*enter, "ip", *words.split()], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ip {words}: {done.stderr}"
