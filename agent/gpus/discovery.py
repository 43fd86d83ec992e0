"""From NVML's facts and the host to what the node says of itself: `NodeTopology` and `NodeGpuStatus`.

What NVML cannot tell now but told before stands: only an answer replaces a fact. So a GPU that is lost stays in the topology
as it was, and the status alone says that it is not healthy. A GPU that was never identified cannot stand in the topology,
which is by UUID; the status lists it as `index-N`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import combinations

from agent.gpus.facts import (
    Answer,
    FabricState,
    Gap,
    GpuFacts,
    GpuProcess,
    Known,
    Missing,
    NvmlFacts,
    PairFacts,
    value_of,
)
from agent.gpus.faults import gpu_status, unidentified_status
from agent.gpus.host import Host, path_between
from agent.gpus.nvlinks import Joint, wiring
from topology.node.links import PciePath
from topology.node.model import MAX_NICS, Gpu, Link, Nic, NodeTopology, NvlinkDomain
from topology.node.slices import Slice
from topology.node.status import LinkFault, NodeGpuStatus


@dataclass(frozen=True, slots=True)
class NodeDiscovery:
    """What NVML and the host said of the node at one moment."""

    topology: NodeTopology
    status: NodeGpuStatus
    """Its generation is 0; whoever writes it counts."""
    computing: Mapping[str, int] = field(default_factory=dict)
    """UUID → processes that compute on the GPU or the slice, where there are any and NVML tells."""
    minors: Mapping[str, int] = field(default_factory=dict)
    """UUID → number of the GPU's device node, `/dev/nvidia0`, where NVML tells."""
    unshared: tuple[str, ...] = ()
    """Why GPUs of the node must not be shared, once each."""


MAY_NOT_ASK = Missing(Gap.FAILED, "NO_PERMISSION")
NOTHING = NodeDiscovery(NodeTopology(()), NodeGpuStatus(0))
"""What is known before the first one."""


def discover(
    facts: NvmlFacts, host: Host, before: NodeDiscovery = NOTHING, ignored: Collection[str] = ()
) -> NodeDiscovery:
    """Return what the node is now; `before` is what this one will replace, `ignored` are programs that may compute."""
    findings = _Findings(facts, host, before)
    return NodeDiscovery(findings.topology(), findings.status(), findings.computing(ignored), findings.minors())


class _Findings:
    """What comes of the facts; GPUs are named by NVML's index throughout."""

    def __init__(self, facts: NvmlFacts, host: Host, before: NodeDiscovery) -> None:
        self._facts = facts
        self._host = host
        self._gpus, self._nameless = _identified(facts)
        self._old_gpus = {gpu.uuid: gpu for gpu in before.topology.gpus}
        self._old_links = {
            (before.topology.gpus[i].uuid, before.topology.gpus[j].uuid): link
            for (i, j), link in before.topology.pairs.items()
        }
        self._old_slices = _by_gpu(before.topology)
        self._old_minors = before.minors
        self._old_statuses = {gpu.uuid: gpu for gpu in before.status.gpus}
        self._remembered = self._still_counted()
        addresses = {index: value_of(gpu.pci) for index, gpu in self._gpus.items()}
        self._pci = {index: host.pci(address) if address else None for index, address in addresses.items()}
        self._wiring = wiring(self._gpus, facts.pairs, self._pci_class)

    def topology(self) -> NodeTopology:
        gpus = [self._gpu(index) for index in self._gpus] + list(self._remembered.values())
        gpus.sort(key=lambda gpu: gpu.index)
        vendor, model = self._host.cpu()
        return NodeTopology(
            gpus=tuple(gpus),
            links=tuple(link for a, b in combinations(gpus, 2) if not (link := self._link(a, b)).is_unknown),
            nics=self._nics(),
            domain=self._domain(),
            driver_version=value_of(self._facts.driver_version),
            cuda_version=value_of(self._facts.cuda_version),
            cpu_vendor=vendor,
            cpu_model=model,
            slices=tuple(part for gpu in gpus for part in self._slices(gpu)),
        )

    def status(self) -> NodeGpuStatus:
        all_dead = {index for index in self._gpus if self._all_links_dead(index)}
        statuses = [
            gpu_status(
                uuid,
                gpu,
                all_links_dead=index in all_dead,
                widest_twin=self._widest_twin(gpu),
                before=self._old_statuses.get(uuid),
            )
            for index, gpu in self._gpus.items()
            if (uuid := value_of(gpu.uuid))
        ]
        for index, cause in self._nameless.items():
            remembered = self._remembered.get(index)
            statuses.append(unidentified_status(remembered.uuid if remembered else f"index-{index}", cause))
        faults = [
            LinkFault(value_of(self._gpus[dead.gpu].uuid) or "", dead.link, "inactive")
            for dead in self._wiring.dead
            if dead.gpu not in all_dead
        ]
        return NodeGpuStatus(0, tuple(statuses), tuple(faults))

    def computing(self, ignored: Collection[str]) -> dict[str, int]:
        running = (
            (gpu, process)
            for gpu in self._gpus.values()
            for process in value_of(gpu.processes) or ()
            if not process.is_one_of(ignored)
        )
        return dict(Counter(_computes_on(gpu, process) for gpu, process in running))

    def minors(self) -> dict[str, int]:
        """Return the GPUs' numbers, those of before where NVML does not tell now."""
        now = {value_of(gpu.uuid) or "": value_of(gpu.minor) for gpu in self._gpus.values()}
        here = [*now, *(gpu.uuid for gpu in self._remembered.values())]
        old = {uuid: self._old_minors[uuid] for uuid in here if uuid in self._old_minors}
        return old | {uuid: minor for uuid, minor in now.items() if minor is not None}

    def _still_counted(self) -> dict[int, Gpu]:
        """Return the GPUs of before that NVML still counts, but cannot name now."""
        named = {value_of(gpu.uuid) for gpu in self._gpus.values()}
        nameless = {gpu.index: gpu for gpu in self._old_gpus.values() if gpu.uuid not in named}
        return {index: nameless[index] for index in self._nameless if index in nameless}

    def _pci_class(self, address: str) -> int | None:
        device = self._host.pci(address)
        return device.pci_class if device else None

    def _gpu(self, index: int) -> Gpu:
        gpu, pci = self._gpus[index], self._pci[index]
        memory, nodes, cpus = value_of(gpu.memory), value_of(gpu.numa_nodes), value_of(gpu.cpus)
        if not nodes and pci and pci.numa_node is not None:
            nodes = (pci.numa_node,)
        host_node, own_node = nodes[0] if nodes else None, value_of(gpu.memory_numa_node)
        now = Gpu(
            index=index,
            uuid=value_of(gpu.uuid) or "",
            model=value_of(gpu.model) or "unknown",
            memory_bytes=memory.total_bytes if memory else None,
            pci=value_of(gpu.pci),
            numa_node=host_node,
            numa_affinity=_ranges(nodes) if nodes and len(nodes) > 1 else None,
            cpu_affinity=_ranges(cpus) if cpus else (pci.cpus if pci else None),
            compute_capability=value_of(gpu.compute_capability),
            switch_links=self._wiring.switch_links[index],
            pcie_generation=value_of(gpu.pcie_generation),
            pcie_width=value_of(gpu.pcie_width),
            mig_enabled=bool(value_of(gpu.mig_enabled)),
            ecc_enabled=value_of(gpu.ecc_enabled),
            memory_numa_node=own_node if own_node != host_node else None,
        )
        old = self._old_gpus.get(now.uuid)
        return replace(now, **{name: getattr(old, name) for name in self._stale_fields(index)}) if old else now

    def _slices(self, gpu: Gpu) -> tuple[Slice, ...]:
        """Return the GPU's slices: those of before while NVML does not tell; none where we may not ask."""
        facts = self._gpus.get(gpu.index)
        if facts is None or (gpu.mig_enabled and _is_stale(facts.slices) and facts.slices != MAY_NOT_ASK):
            return tuple(replace(mig_slice, gpu=gpu.index) for mig_slice in self._old_slices.get(gpu.uuid, ()))
        return tuple(Slice(gpu.index, **asdict(mig_slice)) for mig_slice in value_of(facts.slices) or ())

    def _stale_fields(self, index: int) -> set[str]:
        """Name the fields of `Gpu` whose facts NVML could not tell just now."""
        gpu = self._gpus[index]
        stale = [fact.name for fact in fields(gpu) if _is_stale(getattr(gpu, fact.name))]
        peer_access = [pair.nvlink for indexes, pair in self._facts.pairs.items() if index in indexes]
        if peer_access and all(_is_stale(answer) for answer in peer_access):
            stale.append("nvlinks")
        return {name for fact in stale for name in _SHOWN_AS.get(fact, (fact,))}

    def _link(self, a: Gpu, b: Gpu) -> Link:
        pair = self._facts.pairs.get((a.index, b.index))
        old = self._old_links.get((a.uuid, b.uuid)) or self._old_links.get((b.uuid, a.uuid))
        if old and (pair is None or self._is_unsure(a.index, b.index, pair)):
            return replace(old, a=a.index, b=b.index)
        joint = self._wiring.joints.get((a.index, b.index), Joint())
        path = value_of(pair.path) if pair else None
        if path is None:
            path = self._path_by_kernel(a.index, b.index)
        return Link(a.index, b.index, joint.nvlinks, path, joint.p2p, joint.reason and str(joint.reason))

    def _path_by_kernel(self, a: int, b: int) -> PciePath | None:
        first, second = self._pci.get(a), self._pci.get(b)
        return path_between(first, second) if first and second else None

    def _is_unsure(self, a: int, b: int, pair: PairFacts) -> bool:
        own = [(gpu.nvlinks, gpu.fabric, gpu.mig_enabled) for index in (a, b) if (gpu := self._gpus.get(index))]
        answers: list[Answer[object]] = [pair.path, pair.read, pair.write, pair.nvlink, *sum(own, ())]
        return len(own) < 2 or any(_is_stale(answer) for answer in answers)

    def _all_links_dead(self, index: int) -> bool:
        links = value_of(self._gpus[index].nvlinks) or ()
        return any(dead.gpu == index for dead in self._wiring.dead) and not any(
            link.active == Known(True) for link in links
        )

    def _widest_twin(self, gpu: GpuFacts) -> int:
        twins = (twin for twin in self._gpus.values() if value_of(twin.model) == value_of(gpu.model))
        return max(value_of(twin.watched.pcie_width) or 0 for twin in twins)

    def _nics(self) -> tuple[Nic, ...]:
        """Name RDMA devices as nvidia-smi does: `NIC0`, and beside it the kernel's name."""
        devices = self._host.rdma_devices()[:MAX_NICS]
        gpus = [(index, pci) for index, pci in self._pci.items() if pci]
        return tuple(
            Nic(
                name=f"NIC{number}",
                device=nic.name,
                pci=nic.pci.address,
                numa_node=nic.pci.numa_node,
                paths=tuple((index, path) for index, pci in gpus if (path := path_between(nic.pci, pci)) is not None),
                nic_paths=tuple(
                    (f"NIC{place}", path)
                    for place, device in enumerate(devices)
                    if place != number and (path := path_between(nic.pci, device.pci)) is not None
                ),
            )
            for number, nic in enumerate(devices)
        )

    def _domain(self) -> NvlinkDomain | None:
        """Return the NVLink partition beyond the node, if all GPUs that have one are in the same."""
        domains = {
            NvlinkDomain(fabric.cluster_uuid, fabric.clique_id)
            for gpu in self._gpus.values()
            if (fabric := value_of(gpu.fabric))
            and fabric.state is FabricState.COMPLETED
            and fabric.status == "SUCCESS"
            and fabric.cluster_uuid
        }
        return domains.pop() if len(domains) == 1 else None


def _identified(facts: NvmlFacts) -> tuple[dict[int, GpuFacts], dict[int, Missing]]:
    """Part the GPUs that NVML can name from those that it only counts."""
    gpus: dict[int, GpuFacts] = {}
    nameless: dict[int, Missing] = {}
    seen: set[str] = set()
    for index, gpu in enumerate(facts.gpus):
        if isinstance(gpu, Missing):
            nameless[index] = gpu
        elif isinstance(gpu.value.uuid, Missing):
            nameless[index] = gpu.value.uuid
        elif gpu.value.uuid.value in seen:
            nameless[index] = Missing(Gap.FAILED, "DUPLICATE_UUID")
        else:
            gpus[index] = gpu.value
            seen.add(gpu.value.uuid.value)
    return gpus, nameless


def _by_gpu(node: NodeTopology) -> dict[str, list[Slice]]:
    slices: dict[str, list[Slice]] = {}
    for mig_slice in node.slices:
        slices.setdefault(node.gpus[node.positions[mig_slice.gpu]].uuid, []).append(mig_slice)
    return slices


def _computes_on(gpu: GpuFacts, process: GpuProcess) -> str:
    """Return the UUID of the slice that a process is in, else of the GPU."""
    slices = value_of(gpu.slices) or ()
    uuids = (
        mig_slice.uuid
        for mig_slice in slices
        if (mig_slice.gpu_instance, mig_slice.compute_instance) == process.instance
    )
    return next(uuids, value_of(gpu.uuid) or "")


_SHOWN_AS = {
    "memory": ("memory_bytes",),
    "minor": (),
    "numa_nodes": ("numa_node", "numa_affinity"),
    "cpus": ("cpu_affinity",),
    "nvlinks": ("switch_links",),
    "fabric": ("switch_links",),
    "remapped_rows": (),
    "page_retirement_pending": (),
    "processes": (),
    "slices": (),
}
"""The fields of `Gpu` that a fact decides, where they do not have its name."""


def _is_stale(answer: Answer[object]) -> bool:
    return isinstance(answer, Missing) and answer.gap is not Gap.UNSUPPORTED


def _ranges(numbers: tuple[int, ...]) -> str:
    """Write ascending numbers as the kernel writes CPU lists.

    >>> _ranges((0, 1, 2, 5))
    '0-2,5'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
