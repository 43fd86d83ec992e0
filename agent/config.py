"""The agent's configuration: one versioned YAML document, checked whole before anything starts.

A setting comes from the command line, else the environment, else the file, else its default. Unknown keys are refused with
their path. In the environment `discovery.interval` is `GPUTOPO_DISCOVERY_INTERVAL`; the node's name is also `NODE_NAME`,
as the downward API usually gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

from agent.errors import ConfigurationError
from extender.kit.yaml_text import read_yaml
from topology.node.status import MigStrategy

API_VERSION: Final = "config.gputopo.dev/v1alpha1"
KIND: Final = "AgentConfiguration"
_PREFIX = "GPUTOPO_"
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")


def _seconds(value: object) -> object:
    if isinstance(value, float):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None:
        raise ValueError("not a duration such as 500ms, 5s or 1m30s")
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def _duration(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _list(value: object) -> object:
    return tuple(filter(None, value.split(","))) if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(_seconds), Field(gt=0), PlainSerializer(_duration, return_type=str)]
"""Seconds; written `500ms`, `5s`, `1m30s`."""
MAX_PROCESS_WAIT: Final = 20.0
"""The kubelet gives up on a container's start after 30 s of waiting for us."""
ProcessWait = Annotated[
    float,
    BeforeValidator(_seconds),
    Field(ge=0, le=MAX_PROCESS_WAIT),
    PlainSerializer(_duration, return_type=str),
]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_list)]
"""In the environment separated by commas."""


def _count(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _numbers(value: object) -> object:
    return [_count(part) for part in value.split(",") if part] if isinstance(value, str) else value


def _switch(value: object) -> object:
    return ("on" if value else "off") if isinstance(value, bool) else value


Switch = Annotated[Literal["off", "on"], BeforeValidator(_switch)]
"""YAML reads the bare words as truth values."""


class _Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class Discovery(_Section):
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


class Publish(_Section):
    """How the node's annotations are kept fresh."""

    refresh_interval: Duration = 300.0
    """Without a change, one write per interval, ± 10 %; readers call a node stale after two and a half."""
    condition: bool = False
    """Whether the node's condition `gputopo.dev/GPUsHealthy` is kept, which takes the right to patch `nodes/status`."""


class Kubernetes(_Section):
    """How to reach the API server."""

    kubeconfig: Path | None = None
    """Not set: the pod's service account."""
    context: str | None = None
    """Of the kubeconfig; not set: its current one."""
    request_timeout: Duration = 10.0
    """Time for one request."""


class TopologyManager(_Section):
    """How the kubelet aligns what containers get."""

    policy: Literal["auto", "none", "best-effort", "restricted", "single-numa-node"] = "auto"
    """`auto`: as `configFile` says, and `none` where it cannot be read. With `none` GPUs have no say: in mode `enforce` the
    kubelet does not learn of their NUMA nodes then, and admits any of them."""
    scope: Literal["container", "pod"] = "container"
    """Of a policy that is given here."""


class Kubelet(_Section):
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


class Enforce(_Section):
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
    imex_channels: Annotated[tuple[Literal[0], ...], BeforeValidator(_numbers), Field(max_length=1)] = ()
    """IMEX channels that they get, where the node has them, as with `IMEX_CHANNEL_IDS`; only 0, as there."""


class Sharing(_Section):
    """Which GPUs pods may share by memory; only in mode `enforce`."""

    gpus: Annotated[Literal["all", "none"] | Annotated[int, Field(ge=1)], BeforeValidator(_count)] = "none"
    """`all`, `none`, or at most so many of the node's GPUs at one time."""
    models: Names = ()
    """Globs of the models that may be shared, in lower case or not; none: every model."""
    limits: Literal["required", "preferred"] = "required"
    """Whether GPUs are shared only where something holds a container to its share; `preferred`: also where nothing does."""
    reserve_gib: Annotated[Literal["auto"] | Annotated[int, Field(ge=0)], BeforeValidator(_count)] = "auto"
    """Of each GPU's memory, for no share; `auto`: what the driver keeps for itself, in whole GiB, and never less than that."""
    mps: Switch = "off"
    """Whether containers with shares are clients of an MPS daemon, where one answers."""
    mps_folder: Path = Path("/run/gputopo/mps")
    """The host's, with the daemons' sockets in `<uuid>/pipe`, `<resource>/pipe` or `pipe`, and their shared memory in `shm`."""


class Health(_Section):
    """Where /livez, /readyz and /metrics are served."""

    host: str = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from other addresses
    """On which address; `::` is all of IPv4 and IPv6."""
    port: int = Field(default=9410, ge=0, le=65535)
    """0 takes a free one and logs it."""


class Dcgm(_Section):
    """Where DCGM exporter is asked for, beside the names of the node's pods."""

    host: str = "127.0.0.1"
    """The node's own address."""
    port: int = Field(default=9400, ge=1, le=65535)
    """DCGM exporter's port."""


class Metrics(_Section):
    """What /metrics has of each GPU beside its health."""

    gpus: Literal["auto", "always", "never"] = "auto"
    """Whether what the GPUs do is sampled; `auto`: where DCGM exporter does not do it already."""
    interval: Duration = 15.0
    """Between two samples."""
    holders: bool = False
    """Whether the containers that hold a GPU are named, with their namespace and pod."""
    dcgm: Dcgm = Dcgm()


class Log(_Section):
    """One line per thing worth knowing."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines of a lower level are left out."""
    format: Literal["json", "text"] = "json"
    """`json`: one object a line; `text`: for people."""


class AgentConfiguration(_Section):
    """The whole document."""

    api_version: Literal["config.gputopo.dev/v1alpha1"] = API_VERSION
    kind: Literal["AgentConfiguration"] = KIND
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

    def to_yaml(self) -> str:
        """Write the document so that it can be read again."""
        return yaml.safe_dump(self.model_dump(mode="json", by_alias=True), sort_keys=False)


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str | None]) -> AgentConfiguration:
    """Put the configuration together.

    Args:
        file: The YAML document; `None` for defaults.
        environment: Usually `os.environ`; only names that stand for a setting are looked at.
        flags: Dotted path of a setting (`discovery.interval`) to value; `None` where the flag was not given.

    Raises:
        ConfigurationError: The file is missing or no YAML, or a key or value is wrong.

    """
    document = _read(file) if file else {}
    if "NODE_NAME" in environment:
        document["nodeName"] = environment["NODE_NAME"]
    for path in _paths(AgentConfiguration):
        if (name := _environment_name(path)) in environment:
            _put(document, path, environment[name], name)
    for dotted, value in flags.items():
        if value is not None:
            _put(document, tuple(dotted.split(".")), value, dotted)
    try:
        return AgentConfiguration.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError("\n".join(_problems(error, file))) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        document = read_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{file}: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{file}: not a mapping")
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != expected:
            raise ConfigurationError(f"{file}: {key}: must be {expected}, got {document.get(key)}")
    return document


def _paths(section: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in section.model_fields.items():
        path = (*above, field.alias or name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, _Section):
            yield from _paths(field.annotation, path)
        else:
            yield path


def _environment_name(path: tuple[str, ...]) -> str:
    return _PREFIX + "_".join(re.sub(r"(?=[A-Z])", "_", key).upper() for key in path)


def _put(document: dict[str, Any], path: tuple[str, ...], value: str, source: str) -> None:
    section = document
    for key in path[:-1]:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            raise ConfigurationError(f"{source}: {key} is not a section")
    # Numbers are told from text by the schema and not by their looks: a node may be called 007.
    section[path[-1]] = int(value) if path[-1] == "port" and value.isdecimal() else value


def _problems(error: ValidationError, file: Path | None) -> Iterator[str]:
    for problem in error.errors():
        path = ".".join(map(str, problem["loc"]))
        reason = "unknown key" if problem["type"] == "extra_forbidden" else problem["msg"]
        yield f"{file or 'configuration'}: {path}: {reason.removeprefix('Value error, ')}"
