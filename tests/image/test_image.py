"""The image as `make image` makes it: what is in it, and that its programs run in it as the chart runs them."""

import os
import re
from collections.abc import Callable
from errno import EROFS
from importlib.metadata import Distribution, distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import free_port
from benchmarks.simulated.double.resources import NODES
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from tests.extender.polling import until
from tests.image import base
from tests.image.builder import Builder
from tests.image.container import Runc
from tests.kubelet.double import KubeletDouble
from tests.nvml.library import FakeNvml, has_compiler, machine

pytestmark = pytest.mark.waits

MEGABYTE = 1e6
KUBECONFIG = "/etc/gputopo/kubeconfig"
FIXED_LIBRARIES = "import time, fastapi, kubernetes, networkx, pydantic, uvicorn; print(time.process_time())"
"""The floor of a start, in seconds of CPU: it grows and shrinks with the machine as the start does."""


def archive_bytes(folder: Path) -> int:
    """Return the size of a folder as a layer: each file, folder and link is a block of 512 bytes, and a file's content more."""
    entries = (Path(at) / name for at, folders, files in os.walk(folder) for name in (*folders, *files))
    return sum(512 + (-(-path.lstat().st_size // 512) * 512 if _is_file(path) else 0) for path in entries)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def installed(files: Path) -> dict[str, Distribution]:
    """Return the distributions of the image by their normalised names."""
    (packages,) = (files / "opt/gputopo/lib").glob("python3.*/site-packages")
    return {_normal(found.name): found for found in distributions(path=[str(packages)])}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(name: str, among: dict[str, Distribution]) -> set[str]:
    """Return a distribution and all that it requires, over however many others."""
    found, todo = set[str](), {name}
    while todo:
        here = todo.pop()
        found.add(here)
        wanted = map(Requirement, among[here].requires or ())
        names = {_normal(one.name) for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})}
        todo |= names - found
    return found


def test_size(builder: Builder, files: Path, figure: Callable[[str], None]) -> None:
    """Beyond the base, as the layer that a node unpacks."""
    megabytes = (archive_bytes(files) - archive_bytes(builder.files(base.NAME))) / MEGABYTE
    (client,) = files.glob("opt/gputopo/lib/*/site-packages/kubernetes")
    share = archive_bytes(client) / MEGABYTE
    figure(f"image: {megabytes:.0f} MB beyond its base (goal 150), {share:.0f} of them the official client")
    assert 50 < megabytes <= 150


def test_distributions(files: Path, figure: Callable[[str], None]) -> None:
    """The official client requires more by itself than the goal allows in all; everything else is fewer.

    But for CEL, which reads the selectors of ResourceClaims: it brings three.
    """
    found = installed(files)
    assert found["gputopo"].version == version("gputopo")
    others = found.keys() - {"gputopo"}
    of_client = closure("kubernetes", found)
    figure(f"image: {len(others)} distributions (goal 25): the official client and what it requires {len(of_client)}")
    assert of_client <= others
    assert len(others - of_client - {"common-expression-language", "prompt-toolkit", "wcwidth"}) <= 25
    assert not others & {"pip", "setuptools", "wheel", "hatchling", "grpcio-tools"}


def test_powerless(container: Runc) -> None:
    """Nobody, without capabilities, who can write nowhere."""
    asked = (
        "import os, errno\n"
        "try: open('/opt/gputopo/x', 'w')\n"
        "except OSError as error: print(os.getuid(), os.getgid(), error.errno)\n"
        "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')][0])"
    )
    assert container.output("python", "-c", asked).split() == ["65532", "65532", str(EROFS), "0" * 16]


@pytest.mark.parametrize("program", ["gputopo-agent", "gputopo-extender"])
def test_programs_say_which_version_they_are(container: Runc, program: str) -> None:
    """In the image, as that user, on that file system."""
    assert container.output(program, "--version") == f"{version('gputopo')}\n"


@pytest.mark.parametrize("program", ["gputopo-bench", "kubectl-gputopo"])
def test_commands_for_people_answer(container: Runc, program: str) -> None:
    """The image has them, too."""
    assert container.output(program, "--help").lstrip().startswith("Usage: ")


@pytest.mark.parametrize(
    "program",
    [
        "agent.__main__, agent.serve",
        "extender.web.command, extender.web.server",
        "extender.kubectl.cli",
        "benchmarks.cli",
    ],
)
def test_no_start_compiles_anything(container: Runc, program: str) -> None:
    """All that a program imports has its bytecode: nobody can write it later on."""
    asked = (
        f"import os, sys, {program}\n"
        "cached = {name: getattr(module, '__cached__', None) or '' for name, module in sys.modules.items()}\n"
        "ours = [name for name, file in cached.items() if file.startswith(sys.prefix)]\n"
        "print(len(ours), [name for name in ours if not os.path.exists(cached[name])])"
    )
    count, lacking = container.output("python", "-c", asked).split(maxsplit=1)
    assert int(count) > 100
    assert lacking == "[]\n"


async def test_extender_is_soon_ready(container: Runc, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """Its listener answers, for at most three times the CPU that importing its libraries takes.

    Tests in other processes make both dearer, so the cheapest of three counts.
    """
    floor = min(float(container.output("python", "-c", FIXED_LIBRARIES)) for _ in range(3))
    async with ApiServer(ObjectStore()) as server:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        (tmp_path / "kubeconfig").chmod(0o644)

        async def start() -> float:
            port = free_port()
            settings = {"listen.port": port, "kubernetes.kubeconfig": KUBECONFIG}
            command = ["gputopo-extender", *(f"--set={name}={value}" for name, value in settings.items())]
            url = f"http://127.0.0.1:{port}/livez"
            async with container.serving(command, url, binds={tmp_path / "kubeconfig": KUBECONFIG}) as process:
                return process.cpu_seconds()

        seconds = min([await start() for _ in range(3)])
    ratio = seconds / floor
    figure(f"image: extender serves after {seconds:.2f} s of CPU (goal 2), {ratio:.2f} times its libraries' import")
    assert 1 < ratio <= 3


@pytest.mark.skipif(not has_compiler(), reason="no C compiler to build the fake NVML with")
async def test_agent_is_small(container: Runc, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """In mode observe, when it has found the GPUs and written its node: as root without capabilities, as in the chart."""
    store, port = ObjectStore(), free_port()
    store.create(NODES, "", {"metadata": {"name": "n1"}})
    driver = FakeNvml(tmp_path / "nvml").environment(machine("hgx_h100"))
    async with KubeletDouble(tmp_path) as kubelet, ApiServer(store) as server:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        env = {
            "GPUTOPO_KUBELET_POD_RESOURCES": str(kubelet.pod_resources / "kubelet.sock"),
            "GPUTOPO_HEALTH_HOST": "127.0.0.1",
            "GPUTOPO_HEALTH_PORT": str(port),
            **driver,
        }
        binds = {tmp_path: str(tmp_path), machine("hgx_h100"): str(machine("hgx_h100"))}
        command = ["gputopo-agent", "--node-name", "n1", "--kubeconfig", str(tmp_path / "kubeconfig")]
        url = f"http://127.0.0.1:{port}/readyz"
        async with container.serving(command, url, user="0:0", binds=binds, env=env) as process:
            await until(lambda: "wrote the node" in process.log.read_text())
            mebibytes = process.memory_bytes() >> 20
    figure(f"image: agent {mebibytes} MiB (goal 80)")
    assert 20 < mebibytes <= 80
