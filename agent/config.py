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


class DiscoverySettings(Section):
    """Discovery of the node."""

    interval: Duration = 30.0
    """Interval between two readings of NVML and the host."""
    sys_root: Path = Path("/sys")
    """`/sys` of the host."""
    cpuinfo: Path = Path("/proc/cpuinfo")
    """`/proc/cpuinfo` of the host."""
    xids: bool = True
    """Listen to critical errors (XID). This keeps NVML open, so the driver cannot be unloaded meanwhile."""
    xid_recovery: Duration = 300.0
    """Quarantine after the first critical error of a day that needs no reset. Doubled for each further one."""
    ignored_processes: Names = ("nvidia-cuda-mps-server",)
    """Programs that may use a GPU without a container, such as MPS servers."""


class PublishSettings(Section):
    """Annotations of the node."""

    refresh_interval: Duration = 300.0
    """Interval of writes without a change, ± 10 %. Keep `agents.silence` at two and a half times this."""
    condition: bool = False
    """Write the node's condition `gputopo.dev/GPUsHealthy`. Needs the right to patch `nodes/status`."""


class AgentKubernetesSettings(Section):
    """Connection to the API server."""

    kubeconfig: Path | None = None
    """Default: the pod's service account."""
    context: str | None = None
    """Context of the kubeconfig. Default: its current one."""
    request_timeout: Duration = 10.0
    """Deadline of a request."""


class TopologyManagerSettings(Section):
    """Topology Manager of the kubelet."""

    policy: Literal["auto", "none", "best-effort", "restricted", "single-numa-node"] = "auto"
    """`auto`: from `configFile`, or `none` if unreadable. With `none`, the kubelet does not learn NUMA nodes of GPUs."""
    scope: Literal["container", "pod"] = "container"
    """Scope of a policy that is given here."""


class KubeletSettings(Section):
    """Paths of the kubelet on the host."""

    device_plugins: Path = Path("/var/lib/kubelet/device-plugins")
    """Folder with `kubelet.sock` and the device plugins' sockets."""
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """Socket of the PodResources API."""
    config_file: Path = Path("/var/lib/kubelet/config.yaml")
    """Configuration of the kubelet, for its Topology Manager."""
    topology_manager: TopologyManagerSettings = TopologyManagerSettings()
    interval: Duration = 1.0
    """Interval for reading which GPUs containers hold."""


class EnforceSettings(Section):
    """The agent's device plugin, in mode `enforce`."""

    state: Path = Path("/var/lib/gputopo")
    """Folder for the journal, the lock and, in both modes, the health of GPUs."""
    deadline: Duration = 0.4
    """Deadline of an answer to the kubelet, which blocks meanwhile."""
    process_wait: ProcessWait = 10.0
    """Time for which a container's start waits for processes on its GPUs. 0s: no check."""
    env: bool = True
    """Set `NVIDIA_VISIBLE_DEVICES`, for the NVIDIA container runtime."""
    nccl_ib_hca: bool = False
    """Set `NCCL_IB_HCA` to the RDMA devices under the GPUs' PCIe switches. Only for containers that see the host's RDMA
    devices."""
    cdi: Literal["auto", "always", "never"] = "auto"
    """Give CDI names to the container runtime. `auto`: if its specs have them for all GPUs."""
    mig_strategy: MigStrategy = MigStrategy.MIXED
    """Serve MIG slices by profile (`mixed`), instead of GPUs (`single`), or not (`none`)."""
    cdi_folder: Path = Path("/var/run/cdi")
    """Folder of the CDI specs."""
    cdi_kind: str = Field(default="nvidia.com/gpu", pattern=r"^[a-z0-9.-]+/[a-z0-9_.-]+$")
    """Prefix of CDI names."""
    device_specs: Literal["auto", "always", "never"] = "auto"
    """Pass device nodes, as `PASS_DEVICE_SPECS` of NVIDIA's plugin. `auto`: without CDI. Prevents that containers lose GPUs
    when systemd reloads."""
    dev_folder: Path = Path("/dev")
    """`/dev` of the host."""
    gdrcopy: bool = False
    """Pass the GDRCopy device, as `GDRCOPY_ENABLED` of NVIDIA's plugin."""
    gds: bool = False
    """Pass GPUDirect Storage devices, as `GDS_ENABLED`."""
    mofed: bool = False
    """Pass Mellanox OFED devices, as `MOFED_ENABLED`."""
    imex_channels: Annotated[Items[Annotated[int, Field(ge=0, le=0)]], Field(max_length=1)] = ()
    """Pass IMEX channels, as `IMEX_CHANNEL_IDS`. Only 0 is possible."""


class SharingSettings(Section):
    """GPUs that pods may share by memory, in mode `enforce`."""

    gpus: Literal["all", "none"] | Annotated[int, Field(ge=1)] = "none"
    """`all`, `none`, or a maximum number of GPUs of the node."""
    models: Names = ()
    """Globs of models that may be shared, ignoring case. Default: all."""
    limits: Literal["required", "preferred"] = "required"
    """`required`: share GPUs only if limits are enforced. `preferred`: also without."""
    reserve_gib: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    """Memory of each GPU that shares cannot use. At least the driver's part, which is `auto`."""
    mps: Switch = "off"
    """`on`: containers with shares are clients of an MPS daemon, if one answers."""
    mps_folder: Path = Path("/run/gputopo/mps")
    """Folder of the host with the daemons' `<uuid>/pipe`, `<resource>/pipe` or `pipe`, and `shm`."""


class AgentHealthSettings(Section):
    """Listener for /livez, /readyz and /metrics."""

    host: str = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from other addresses
    """Address to listen on. `::` is all of IPv4 and IPv6."""
    port: int = Field(default=9410, ge=0, le=65535)
    """Port. 0 takes a free one and logs it."""


class DcgmSettings(Section):
    """Port to detect DCGM exporter by, in addition to pod names."""

    host: str = "127.0.0.1"
    """Address of the node."""
    port: int = Field(default=9400, ge=1, le=65535)
    """Port of DCGM exporter."""


class MetricsSettings(Section):
    """Metrics of each GPU in addition to its health."""

    gpus: Literal["auto", "always", "never"] = "auto"
    """Sample the use of GPUs. `auto`: if DCGM exporter does not."""
    interval: Duration = 15.0
    """Interval between two samples."""
    holders: bool = False
    """Name the containers that hold a GPU, with namespace and pod."""
    dcgm: DcgmSettings = DcgmSettings()


class AgentLogSettings(Section):
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged: `debug`, `info`, `warning` or `error`."""
    format: Literal["json", "text"] = "json"
    """`json`: one object a line. `text`: for people."""


class AgentConfiguration(Document):
    """The whole document."""

    kind: Literal["AgentConfiguration"] = "AgentConfiguration"
    node_name: str | None = Field(default=None, min_length=1, max_length=253)
    """Name of the node. Default: `$NODE_NAME`."""
    mode: Literal["observe", "enforce"] = "observe"
    """`observe`: another device plugin hands out GPUs, and the agent reports them. `enforce`: the agent is the device plugin."""
    resource: str = Field(default="nvidia.com/gpu", pattern=r"^[a-z0-9.-]{1,253}/[A-Za-z0-9_.-]{1,63}$")
    """Extended resource of whole GPUs."""
    discovery: DiscoverySettings = DiscoverySettings()
    publish: PublishSettings = PublishSettings()
    kubernetes: AgentKubernetesSettings = AgentKubernetesSettings()
    kubelet: KubeletSettings = KubeletSettings()
    enforce: EnforceSettings = EnforceSettings()
    sharing: SharingSettings = SharingSettings()
    health: AgentHealthSettings = AgentHealthSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: AgentLogSettings = AgentLogSettings()


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str | None]) -> AgentConfiguration:
    """Put the configuration together; `flags` are by dotted path, `None` where one was not given."""
    settings = {path: value for path, value in flags.items() if value is not None}
    return configuration.load(AgentConfiguration, file, environment, settings, {"NODE_NAME": "nodeName"})
