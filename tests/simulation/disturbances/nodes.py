"""What happens to nodes: they go and come back, their GPUs fall ill, and somebody touches their ledgers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from benchmarks.simulated.double.patch import merge_patch
from benchmarks.simulated.double.resources import NODES, Object
from extender.cluster.caches.topology_changes import CHANGES
from tests.simulation.wording import annotations_of, read_ledger
from tests.simulation.world.hardware import PROFILES
from tests.simulation.world.process import Process
from tests.simulation.world.server import Server
from tests.simulation.world.site import Site
from tests.world.faults import AnyFault, Fault
from topology.annotations import keys
from topology.annotations.records import Ledger, decode_ledger, encode_ledger


class NodeDisturbances:
    """A ledger may be lost at any time; it is edited when nothing is under way there, and every extender knows its pods."""

    def __init__(self, server: Server, sites: Sequence[Site], replicas: Sequence[Process], random: Random) -> None:
        self._server = server
        self._sites = sites
        self._replicas = replicas
        self._random = random
        self.events: Mapping[AnyFault, Callable[[], str | None]] = {
            Fault.NODE_DELETED: self._delete_node,
            Fault.GPU_SICK: self._sicken,
            Fault.GPU_CUT: self._cut,
            Fault.LEDGER_WIPED: self._wipe_ledger,
            Fault.LEDGER_EDITED: self._edit_ledger,
            Fault.LEDGER_TRUNCATED: self._truncate_ledger,
        }

    def _delete_node(self) -> str | None:
        sites = [site for site in self._sites if site.is_registered]
        if not sites:
            return None
        site = self._random.choice(sites)
        site.delete_node()
        return site.name

    def _sicken(self) -> str:
        """Prefer a GPU that is claimed for a pod that is not bound yet."""
        bound = {pod["metadata"]["uid"] for pod in self._server.pods() if pod["spec"].get("nodeName")}
        promised = [
            (site, claim.gpu)
            for site in self._sites
            for claim in (read_ledger(self._server.find(NODES, site.name)) or Ledger(0)).claims
            if claim.uid not in bound and claim.gpu in site.hardware.gpus
        ]
        anywhere = [(site, gpu) for site in self._sites for gpu in site.hardware.gpus]
        site, gpu = self._random.choice(promised or anywhere)
        site.hardware.sick ^= {gpu}
        return f"{gpu} of {site.name}" if gpu in site.hardware.sick else f"{gpu} of {site.name} is healthy again"

    def _cut(self) -> str | None:
        """Prefer a GPU that somebody has; what it is cut into may be what it was."""
        sites = (site for site in self._sites if site.topologies < CHANGES)
        anywhere = [(site, gpu) for site in sites for gpu in site.hardware.gpus]
        if not anywhere:
            return None
        used = [(site, gpu) for site, gpu in anywhere if site.hardware.users_of(frozenset({gpu}))]
        site, gpu = self._random.choice(used if used and self._random.random() < 0.7 else anywhere)
        is_cut = site.hardware.profile_of(gpu)
        profile = self._random.choice([*PROFILES, *(("",) if is_cut else ())])
        site.cut(gpu, profile)
        return f"{gpu} of {site.name} is {profile or 'whole'}"

    def _wipe_ledger(self) -> str | None:
        return self._with_ledger(lambda _: None, self._has_ledger)

    def _truncate_ledger(self) -> str | None:
        return self._with_ledger(lambda text: text[: len(text) // 2], self._has_ledger)

    def _edit_ledger(self) -> str | None:
        """Take one claim out, as somebody would who wants to free a GPU."""

        def edit(text: str) -> str:
            ledger = decode_ledger(text)
            return encode_ledger(Ledger(ledger.generation, ledger.claims[1:], ledger.node_uid))

        return self._with_ledger(edit, self._is_known)

    def _has_ledger(self, node: Object) -> bool:
        return keys.LEDGER in annotations_of(node)

    def _is_known(self, node: Object) -> bool:
        """Whether every extender knows all pods of the node, and no bind is under way there.

        What has just been promised is written in the ledger and nowhere else, and a ledger that can be read is believed by an
        extender that starts afterwards.
        """
        ledger, name = read_ledger(node), node["metadata"]["name"]
        bound = {
            pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"]
            for pod in self._server.pods()
            if pod["spec"].get("nodeName") == name
        }
        return (
            ledger is not None
            and all(claim.uid in bound for claim in ledger.claims)
            and all(process.knows(name, bound) for process in self._replicas)
        )

    def _with_ledger(self, change: Callable[[str], str | None], fits: Callable[[Object], bool]) -> str | None:
        nodes = [node for node in self._server.nodes() if fits(node)]
        if not nodes:
            return None
        node = self._random.choice(nodes)
        text = change(annotations_of(node)[keys.LEDGER])
        patch = {"metadata": {"annotations": {keys.LEDGER: text}}}
        with self._server.writing("stranger") as store:
            store.modify(NODES, "", node["metadata"]["name"], lambda old: merge_patch(old, patch))
        return str(node["metadata"]["name"])
