"""What programs beside the extender say of a node: its device plugin, other health agents, and DRA."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from extender.cluster.node_view import NodeView
from extender.cluster.objects.health_signs import Sign
from extender.config.health_words import WordKind
from topology.node.status import Mode


class DevicePluginInfo(BaseModel):
    """How the node's GPUs get into containers, as its agent says; a value."""

    model_config = ConfigDict(frozen=True)

    mode: Mode
    ready: bool
    reasons: tuple[str, ...]
    """Why it is not ready, or what to watch though it is."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        return "; ".join([f"mode {self.mode}, {'ready' if self.ready else 'not ready'}", *self.reasons])


class SignInfo(BaseModel):
    """What another health agent says of the node's GPUs, all of them together; a value."""

    model_config = ConfigDict(frozen=True)

    kind: WordKind
    name: str
    value: str
    """Status of a condition, value of a label, value and effect of a taint."""
    agent: str
    """Who says so; empty for words that the configuration adds."""
    detail: str
    """Reason and message of a condition, as they stand on the node."""
    closes: bool
    """Whether the configuration lets it close the node."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        said = f"{self.kind} {self.name}={self.value}" + (f" ({self.agent})" if self.agent else "")
        return f"{said}: {self.detail}" if self.detail else said


class ClaimedDeviceInfo(BaseModel):
    """A device of the node that a ResourceClaim holds, and of which nobody tells which GPU it is; a value."""

    model_config = ConfigDict(frozen=True)

    claim: str
    """`namespace/name`."""
    device: str
    """As its driver calls it."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        return f"ResourceClaim {self.claim} holds {self.device}, and nobody tells which GPU that is"


class UnknownHolderInfo(BaseModel):
    """A pod that holds GPUs of the node, and nobody can name them; a value."""

    model_config = ConfigDict(frozen=True)

    pod: str
    """`namespace/name`."""
    gpus: int | None
    """How many; `None`: nobody knows, or shares of GPUs."""
    is_elsewhere: bool
    """Its record names GPUs, and none of them is the node's."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        count = "an unknown number of" if self.gpus is None else str(self.gpus)
        why = "; its placement record names no GPU of the node" if self.is_elsewhere else ""
        return f"{self.pod} holds {count} GPUs that nobody can name{why}"


def unknown_holders_of(view: NodeView) -> tuple[UnknownHolderInfo, ...]:
    """Return the pods that hold GPUs which neither record nor ledger nor agent names."""
    return tuple(
        UnknownHolderInfo(
            pod="/".join(held.pod.key),
            gpus=None if held.pod.shares else held.hidden,
            is_elsewhere=held.is_elsewhere,
        )
        for held in view.holdings
        if held.hidden != 0
    )


def device_plugin_of(view: NodeView) -> DevicePluginInfo | None:
    """Return what the node's agent says of its device plugin, `None` when it does not."""
    plugin = view.payloads.device_plugin
    return DevicePluginInfo(mode=plugin.mode, ready=plugin.ready, reasons=plugin.reasons) if plugin else None


def signs_of(view: NodeView) -> tuple[SignInfo, ...]:
    """Return what other health agents say, what closes the node first."""
    return tuple(map(_info, view.signs))


def unknown_devices_of(view: NodeView) -> tuple[ClaimedDeviceInfo, ...]:
    """Return the devices that close the node because they may be any of its GPUs."""
    return tuple(ClaimedDeviceInfo(claim=claim, device=device) for claim, device in view.dra.missing(view.devices))


def _info(sign: Sign) -> SignInfo:
    return SignInfo(
        kind=sign.kind,
        name=sign.name,
        value=sign.value,
        agent=sign.agent,
        detail=sign.detail,
        closes=sign.closes is not None,
    )
