"""The agent's settings: one versioned document, section by section. `extender.kit.configuration` puts it together.

The node's name is also `NODE_NAME`, as the downward API usually gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from extender.kit import configuration
from extender.kit.configuration import Document
from extender.kit.settings import Duration, Items, Names, Seconds, Section
from topology.node.status import MigStrategy

MAX_PROCESS_WAIT: Final = 20.0
"""The kubelet gives up on a container's start after 30 s of waiting for us."""
ProcessWait = Annotated[Seconds, Field(le=MAX_PROCESS_WAIT)]


def _switch(value: object) -> object:
    return ("on" if value else "off") if isinstance(value, bool) else value


Switch = Annotated[Literal["off", "on"], BeforeValidator(_switch)]
"""YAML reads the bare words as truth values."""


class Discovery(Section):
    """How the node is discovered."""

    interval: Duration = 30.0
    """Between two readings of NVML and the host."""
    sys_root: Path = Path("/sys")
    """The host's `/sys`."""
    cpuinfo: Path = Path("/proc/cpuinfo")
    """The host's `/proc/cpuinfo`."""
    xids: bool = True
    """Whether critical errors of the driver are listened to, which keeps NVML open: its driver cannot be unloaded meanwhile."""
    xid_recovery: Duration = 300.0
    """How long the first critical error of a day closes a GPU where no reset is needed; each further one twice as long."""
    ignored_processes: Names = ("nvidia-cuda-mps-server",)
    """Programs that may compute on a GPU which no container holds: what serves others, and stays when they have gone."""


class Publish(Section):
    """How the node's annotations are kept fresh."""

    refresh_interval: Duration = 300.0
    """Without a change, one write per interval, ± 10 %; readers call a node stale after two and a half."""
    condition: bool = False
    """Whether the node's condition `gputopo.dev/GPUsHealthy` is kept, which takes the right to patch `nodes/status`."""


class Kubernetes(Section):
    """How to reach the API server."""

    kubeconfig: Path | None = None
    """Not set: the pod's service account."""
    context: str | None = None
    """Of the kubeconfig; not set: its current one."""
    request_timeout: Duration = 10.0
    """Time for one request."""


class TopologyManager(Section):
    """How the kubelet aligns what containers get."""

    policy: Literal["auto", "none", "best-effort", "restricted", "single-numa-node"] = "auto"
    """`auto`: as `configFile` says, and `none` where it cannot be read. With `none` GPUs have no say: in mode `enforce` the
    kubelet does not learn of their NUMA nodes then, and admits any of them."""
    scope: Literal["container", "pod"] = "container"
    """Of a policy that is given here."""


class Kubelet(Section):
    """Where this node's kubelet is met; all of these are folders and files of the host."""

    device_plugins: Path = Path("/var/lib/kubelet/device-plugins")
    """The folder with `kubelet.sock`; a device plugin's own socket stands beside it."""
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """The socket that tells which devices containers hold."""
    config_file: Path = Path("/var/lib/kubelet/config.yaml")
    """The kubelet's configuration, where it is there: policy and scope of its topology manager are read from it."""
    topology_manager: TopologyManager = TopologyManager()
    interval: Duration = 1.0
    """Between two looks at what containers hold."""


class Enforce(Section):
    """How the agent's own device plugin hands out GPUs; only in mode `enforce`."""

    state: Path = Path("/var/lib/gputopo")
    """Folder for the journal, the lock that keeps a second agent of this node out, and, in both modes, the GPUs' health."""
    deadline: Duration = 0.4
    """Time for one answer to the kubelet, which does nothing else meanwhile."""
    process_wait: ProcessWait = 10.0
    """How long a container waits, each time that it is to start, for processes on its GPUs to end; 0s: NVML is not asked."""
    env: bool = True
    """Whether `NVIDIA_VISIBLE_DEVICES` names the GPUs, for NVIDIA's container runtime."""
    nccl_ib_hca: bool = False
    """Whether `NCCL_IB_HCA` names the RDMA devices under the PCIe switches of a container's GPUs, where each of them has one.
    Only for containers that see the host's RDMA devices by their own names."""
    cdi: Literal["auto", "always", "never"] = "auto"
    """Whether the container runtime gets CDI names; `auto`: when its specs have them for all GPUs."""
    mig_strategy: MigStrategy = MigStrategy.MIXED
    """Whether MIG slices are served by profile (`mixed`), in the place of GPUs (`single`), or not at all (`none`)."""
    cdi_folder: Path = Path("/var/run/cdi")
    """Where the CDI specs of the container runtime are."""
    cdi_kind: str = Field(default="nvidia.com/gpu", pattern=r"^[a-z0-9.-]+/[a-z0-9_.-]+$")
    """How CDI names of GPUs begin."""
    device_specs: Literal["auto", "always", "never"] = "auto"
    """Whether the kubelet has the runtime add the driver's device nodes, as with `PASS_DEVICE_SPECS` of NVIDIA's plugin; `auto`:
    where no CDI names are given. Without them or CDI, a container can lose its GPUs when systemd reloads."""
    dev_folder: Path = Path("/dev")
    """The host's `/dev`, to see which device nodes are there."""
    gdrcopy: bool = False
    """Whether containers with GPUs get GDRCopy's device, as with `GDRCOPY_ENABLED` of NVIDIA's plugin."""
    gds: bool = False
    """Whether they get GPUDirect Storage's devices, as with `GDS_ENABLED`."""
    mofed: bool = False
    """Whether they get the devices of Mellanox' OFED, as with `MOFED_ENABLED`."""
    imex_channels: Annotated[Items[Annotated[int, Field(ge=0, le=0)]], Field(max_length=1)] = ()
    """IMEX channels that they get, where the node has them, as with `IMEX_CHANNEL_IDS`; only 0, as there."""


class Sharing(Section):
    """Which GPUs pods may share by memory; only in mode `enforce`."""

    gpus: Literal["all", "none"] | Annotated[int, Field(ge=1)] = "none"
    """`all`, `none`, or at most so many of the node's GPUs at one time."""
    models: Names = ()
    """Globs of the models that may be shared, in lower case or not; none: every model."""
    limits: Literal["required", "preferred"] = "required"
    """Whether GPUs are shared only where something holds a container to its share; `preferred`: also where nothing does."""
    reserve_gib: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    """Of each GPU's memory, for no share; `auto`: what the driver keeps for itself, in whole GiB, and never less than that."""
    mps: Switch = "off"
    """Whether containers with shares are clients of an MPS daemon, where one answers."""
    mps_folder: Path = Path("/run/gputopo/mps")
    """The host's, with the daemons' sockets in `<uuid>/pipe`, `<resource>/pipe` or `pipe`, and their shared memory in `shm`."""


class Health(Section):
    """Where /livez, /readyz and /metrics are served."""

    host: str = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from other addresses
    """On which address; `::` is all of IPv4 and IPv6."""
    port: int = Field(default=9410, ge=0, le=65535)
    """0 takes a free one and logs it."""


class Dcgm(Section):
    """Where DCGM exporter is asked for, beside the names of the node's pods."""

    host: str = "127.0.0.1"
    """The node's own address."""
    port: int = Field(default=9400, ge=1, le=65535)
    """DCGM exporter's port."""


class Metrics(Section):
    """What /metrics has of each GPU beside its health."""

    gpus: Literal["auto", "always", "never"] = "auto"
    """Whether what the GPUs do is sampled; `auto`: where DCGM exporter does not do it already."""
    interval: Duration = 15.0
    """Between two samples."""
    holders: bool = False
    """Whether the containers that hold a GPU are named, with their namespace and pod."""
    dcgm: Dcgm = Dcgm()


class Log(Section):
    """One line per thing worth knowing."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines of a lower level are left out."""
    format: Literal["json", "text"] = "json"
    """`json`: one object a line; `text`: for people."""


class AgentConfiguration(Document):
    """The whole document."""

    kind: Literal["AgentConfiguration"] = "AgentConfiguration"
    node_name: str | None = Field(default=None, min_length=1, max_length=253)
    """Usually from `NODE_NAME`, by the downward API."""
    mode: Literal["observe", "enforce"] = "observe"
    """`observe`: another device plugin hands out the GPUs, and the agent tells what it did. `enforce`: the agent is it."""
    resource: str = Field(default="nvidia.com/gpu", pattern=r"^[a-z0-9.-]{1,253}/[A-Za-z0-9_.-]{1,63}$")
    """The extended resource that stands for whole GPUs."""
    discovery: Discovery = Discovery()
    publish: Publish = Publish()
    kubernetes: Kubernetes = Kubernetes()
    kubelet: Kubelet = Kubelet()
    enforce: Enforce = Enforce()
    sharing: Sharing = Sharing()
    health: Health = Health()
    metrics: Metrics = Metrics()
    log: Log = Log()


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str | None]) -> AgentConfiguration:
    """Put the configuration together; `flags` are by dotted path, `None` where one was not given."""
    settings = {path: value for path, value in flags.items() if value is not None}
    return configuration.load(AgentConfiguration, file, environment, settings, {"NODE_NAME": "nodeName"})
