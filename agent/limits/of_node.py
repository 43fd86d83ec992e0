"""What holds shares on this node, put together from its settings."""

from __future__ import annotations

from collections.abc import Callable

from agent.config import AgentConfiguration
from agent.gpus.memory_limits import ReadLimits, SetLimits
from agent.limits.cgroups import PodCgroups, pod_of
from agent.limits.foreign import ForeignMemory, PromisedMemory
from agent.limits.level import LimitsLevel
from agent.limits.limiter import Backends, Limiter
from agent.limits.mps import MpsDaemons
from agent.limits.share import shares_of
from agent.limits.usage import DriverUsage
from topology.annotations.records import Ledger


def shares_gpus(settings: AgentConfiguration) -> bool:
    """Whether this node's GPUs may be shared by memory."""
    return settings.mode == "enforce" and settings.sharing.gpus != "none"


def limiter(
    settings: AgentConfiguration,
    set_limits: SetLimits,
    read_limits: ReadLimits,
    clock: Callable[[], float],
    tell: Callable[[LimitsLevel], None],
) -> Limiter:
    """Return who holds containers to their shares; `clock` is monotonic, in seconds."""
    sharing = settings.sharing
    daemons = MpsDaemons(sharing.mps_folder, settings.resource) if sharing.mps == "on" else None
    backends = Backends(set_limits, read_limits, _cgroups(settings), daemons)
    return Limiter(backends, required=sharing.limits == "required", clock=clock, tell=tell)


def foreign_memory(
    settings: AgentConfiguration, read_limits: ReadLimits, ledger: Callable[[], Ledger | None]
) -> ForeignMemory:
    """Return who tells what no share of the ledger explains."""

    def held() -> PromisedMemory:
        promised = ledger()
        if promised is None:  # nobody was ever promised anything here
            return PromisedMemory()
        whole = frozenset(claim.gpu for claim in promised.claims if claim.memory_gib is None)
        return PromisedMemory(shares_of(promised), whole)

    return ForeignMemory(held, DriverUsage(read_limits, _cgroups(settings)), pod_of)


def _cgroups(settings: AgentConfiguration) -> PodCgroups:
    return PodCgroups(config_file=settings.kubelet.config_file)
