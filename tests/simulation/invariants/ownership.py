"""The invariants of every change: who owns which GPU, what the ledgers say of it, and who wrote what.

What really runs is known here from the kubelets, whatever the API says. A pod is alive from its Binding until its containers have
stopped for good, or until it is gone and none of them runs; only pods with a placement record count.

What strangers spoil is not held against us: a ledger that somebody else has touched, before we write it again and know the node's
GPUs; a claim on a GPU that somebody else has given to a second pod, as a ledger has room for one; a Binding that was under way
when a stranger took its claim out of a ledger that can still be read. A claim about a former node goes with
its pod: should that very machine be back, and still run it, then its agent says so.

A second pod of that kind may have no placement record. A pod of ours may do without its claim on such a GPU while all of this
holds: a stranger took the claim out of the ledger, the rebuilt ledger names the second pod, and that pod's containers run on
the GPU. A second pod with a record counts as running there until its kubelet reports that its containers have stopped.
Then the record of our pod keeps the GPU from others, and a claim is the only thing that names the other pod.

- INV1 no GPU in two live pods, unless all have shares of it, of one class, and of no more than its memory; nor its silicon, by
  the GPU and a MIG slice of it, or by slices of two cuts
- INV2 each live pod has exactly its claims, and its containers run on exactly its GPUs
- INV4 right count or amount, GPUs of the node as it is, healthy when claimed, no more of them shared than may be
- INV6 no write outside the keys that are ours
- R2, R3 no claim leaves while containers run, or while its Binding may be under way
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from benchmarks.simulated.double.resources import NODES, PODS, Object
from benchmarks.simulated.double.store import StoreChange
from benchmarks.simulated.pod_life import has_ended
from tests.simulation.invariants.together import Placed, why_not_together
from tests.simulation.invariants.writes import foreign_writes
from tests.simulation.trace import Trace
from tests.simulation.wording import annotations_of, read_ledger, short
from tests.simulation.world.hardware import gpu_of, overlap, overlapping
from tests.simulation.world.scheduler import devices_of, share_of, sharing_class_of
from tests.simulation.world.server import Server
from tests.world.records import record_text
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import Claim, Ledger, decode_observed, decode_placement
from topology.annotations.status_codec import decode_status


class Rule(StrEnum):
    """Why a claim left its ledger, as the truth was at that moment."""

    ELSEWHERE = "its pod is bound elsewhere"
    STOPPED = "its pod's containers have stopped"
    ENDED_UNBOUND = "its pod ended unbound"
    NEVER_BOUND = "its pod is gone and was never bound"
    GONE_STOPPED = "its pod is gone and had stopped"
    REPORTED = "its pod is gone, and the agent has looked since"
    REINCARNATED = "it is about a former node of that name"
    FENCED = "its pod was fenced"
    RENEWED = "its pod chose others"


class Repair(StrEnum):
    """What a write of ours makes good."""

    REBUILT = "a ledger that was lost or spoilt is written anew"
    RESTORED = "a pod of ours gets its claims back"
    ADOPTED = "a pod that was bound around us gets claims"


class Ownership:
    """Listens to the server and to the kubelets."""

    def __init__(self, server: Server, trace: Trace, clock: Callable[[], float], shared_gpus: int) -> None:
        self.placed: dict[str, Placed] = {}
        """Every pod that ever was bound, by UID."""
        self.free_since: dict[str, float] = {}
        """GPU → when its last owner ended."""
        self.spoiled: set[str] = set()
        """Nodes where strangers have ever bound a pod, changed a ledger, cut GPUs anew, or taken the node away."""
        self._server = server
        self._trace = trace
        self._clock = clock
        self.shared_gpus = shared_gpus
        """Of a node, at most."""
        self._owners: dict[str, dict[str, None]] = {}
        self._running: dict[str, frozenset[str]] = {}
        self._over: set[str] = set()
        self._lost: set[tuple[str, str]] = set()
        """Node and UID of claims that a stranger took away, perhaps while the Binding was under way."""
        self._bereft: set[str] = set()
        """Pods whose claims went with the Node object or by a stranger's hand, or to a pod that was bound to their GPUs around
        us, and nobody has written them again: once such a pod is gone, too, nothing is left to write a claim from."""
        self._last: dict[str, Object] = {}
        self._touched: set[str] = set()
        self._once_written: set[str] = set()
        self._claimed_since: dict[tuple[str, str, str], float] = {}
        self._made: set[tuple[str, Claim]] = set()
        """Node and claim: what was ever claimed; a rebuilt ledger has it again, whatever has become of the GPU."""
        server.ears.append(self._hear)

    def owners(self, gpu: str) -> tuple[str, ...]:
        """Return the live pods with this GPU."""
        return tuple(self._owners.get(gpu, ()))

    def on_silicon(self, gpu: str) -> tuple[str, ...]:
        """Return the live pods with this GPU, or with any other device of its silicon."""
        return tuple(
            dict.fromkeys(uid for device, uids in self._owners.items() if overlap(device, gpu) for uid in uids)
        )

    def silicon_free_since(self, gpu: str) -> float:
        """Return when the last owner of its silicon ended."""
        return max((since for device, since in self.free_since.items() if overlap(device, gpu)), default=0.0)

    def started(self, uid: str, gpus: frozenset[str], beside: tuple[str, ...]) -> None:
        """Take note that containers run on these GPUs, together with those of other pods."""
        self._running[uid] = gpus
        self._over.discard(uid)  # the machine may have been replaced under it
        if not self._is_ours(uid):
            return
        ours = [self.placed[other] for other in beside if self._is_ours(other)]
        for gpu in sorted(gpus):
            there = [other for other in ours if overlapping(gpu, other.gpus)]
            if wrong := why_not_together([self.placed[uid], *there]):
                self._trace.violation("INV1", f"containers of {uid} run on {short(gpu)}, which is {wrong}")
        if gpus != self.placed[uid].gpus:
            self._trace.violation(
                "INV2", f"containers of {uid} run on {_list(gpus)}, not on {_list(self.placed[uid].gpus)}"
            )

    def stopped(self, uid: str) -> None:
        """Take note that none of the pod's containers runs or will ever run again."""
        self._running.pop(uid, None)
        self._end(uid)

    def is_in_doubt(self, name: str) -> bool:
        """Whether a live pod has a slice that its node publishes no more, and no claim tells of which GPU that was."""
        node = self._server.find(NODES, name)
        ledger, topology = read_ledger(node), annotations_of(node).get(keys.TOPOLOGY)
        told = {claim.gpu for claim in ledger.claims if claim.parent} if ledger else set()
        told |= {*decode_topology(topology).devices} if topology else set()
        owned = {gpu for gpu, uids in self._owners.items() for uid in uids if self.placed[uid].node == name}
        return any(gpu.startswith("MIG-") and gpu not in told for gpu in owned)

    def idle_claims(self) -> Iterator[tuple[str, Claim, float]]:
        """Yield the claims without a live pod on their node, and since when they are there.

        That somebody else was bound to its GPU by force keeps a claim from being judged, and harms nobody. Pods of ours may have
        shares beside it.
        """
        for node in self._server.nodes():
            name, ledger = node["metadata"]["name"], read_ledger(node)
            for claim in ledger.claims if ledger else ():
                placed = self.placed.get(claim.uid)
                is_used = placed is not None and placed.node == name and claim.uid not in self._over
                beside = [owner for owner in self.owners(claim.gpu) if not claim.memory_gib or not self._is_ours(owner)]
                if not is_used and not beside:
                    yield name, claim, self._claimed_since.get((name, claim.gpu, claim.uid), 0.0)

    def _is_ours(self, uid: str) -> bool:
        return uid in self.placed and self.placed[uid].ours

    def _hear(self, writer: str, change: StoreChange) -> None:
        for path in foreign_writes(writer, change):
            self._trace.violation("INV6", f"{writer} wrote {path} of {change.resource.kind} {change.key[1]}")
        ours = writer.startswith("extender")
        if change.resource is PODS:
            self._hear_pod(change, ours=ours)
        elif change.resource is NODES:
            self._hear_node(change, ours=ours)

    def _hear_pod(self, change: StoreChange, *, ours: bool) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            uid = before["metadata"]["uid"]
            self._last[uid] = before
            if uid not in self._running:
                self._end(uid)
        elif after["spec"].get("nodeName") and not (before and before["spec"].get("nodeName")):
            self._bind(after, ours=ours)
            self._check_claims(after["spec"]["nodeName"])

    def _bind(self, pod: Object, *, ours: bool) -> None:
        uid, node, text = pod["metadata"]["uid"], pod["spec"]["nodeName"], record_text(pod)
        containers = dict(decode_placement(text).containers) if text else None
        if ours and (node, uid) in self._lost:
            self._trace.count("a Binding arrived after its claim was taken away by a stranger")
            ours = False
        placed = self.placed[uid] = Placed(node, containers, ours, share_of(pod), sharing_class_of(pod))
        if not ours:
            self.spoiled.add(node)
        if node in self._touched:
            self._bereft.add(uid)
        for gpu in sorted(placed.gpus):
            owners = self.on_silicon(gpu)
            others = [self.placed[other] for other in owners if ours and self._is_knowable(uid, other, gpu)]
            if wrong := why_not_together([placed, *others]):
                self._trace.violation("INV1", f"{short(gpu)} is {wrong}: {uid} gets it, and {' '.join(owners)} has it")
            self._owners.setdefault(gpu, {})[uid] = None
        if ours:
            self._check_amount(uid, pod)

    def _check_amount(self, uid: str, pod: Object) -> None:
        placed = self.placed[uid]
        text, wanted = annotations_of(pod)[keys.PLACEMENT], devices_of(pod) or 1
        amounts = decode_placement(text).memory_gib
        if len(placed.gpus) != wanted or sum(amounts.values()) != placed.share_gib:
            self._trace.violation(
                "INV4", f"{uid} asks for {wanted} GPUs, {placed.share_gib} GiB, and gets {len(placed.gpus)}, {amounts}"
            )
        if not placed.share_gib:
            return
        live = [other for other in self.placed if other not in self._over and other != uid]
        shares = {other: self.placed[other] for other in live if self._shares_on(placed.node, other)}
        ours = [share for other, share in shares.items() if self._is_ours(other)]
        shared = placed.gpus.union(*(share.gpus for share in ours))
        for share in ours:
            if share.gpus & placed.gpus:
                self._trace.count(f"share: beside another of class {placed.sharing_class or 'none'}")
        # A pod that was bound around us may share one GPU more than may be shared; who joins it there shares no further one.
        joins = any(placed.gpus & {*share.gpus, *self._running.get(other, ())} for other, share in shares.items())
        if len(shared) > self.shared_gpus and not joins:
            self._trace.violation("INV4", f"{placed.node} shares {len(shared)} GPUs, and may share {self.shared_gpus}")

    def _shares_on(self, node: str, uid: str) -> bool:
        return bool(self.placed[uid].share_gib) and self.placed[uid].node == node

    def _is_knowable(self, uid: str, other: str, gpu: str) -> bool:
        """Whether the API says of a pod that it has the GPU: one that was bound around us may be gone before anybody sees it.

        Of one that was bound around us to a share, beside another share, only the ledger tells before it is too late.
        """
        placed = self.placed[other]
        if not placed.ours and placed.share_gib and self.placed[uid].share_gib:
            claimed, before = (self._claimed_since.get((placed.node, gpu, each)) for each in (uid, other))
            return claimed is not None and before is not None and before < claimed
        observed = annotations_of(self._server.find(NODES, placed.node)).get(keys.OBSERVED)
        is_reported = observed is not None and overlapping(gpu, decode_observed(observed).gpus)
        return placed.ours or other not in self._last or is_reported

    def _end(self, uid: str) -> None:
        self._over.add(uid)
        if uid in self.placed:
            for gpu in self.placed[uid].gpus:
                self._owners[gpu].pop(uid, None)
                self.free_since[gpu] = self._clock()

    def _hear_node(self, change: StoreChange, *, ours: bool) -> None:
        before, after, node = change.before, change.after, change.key[1]
        if before is None or after is None:
            if after is None:
                self.spoiled.add(node)
            self._touch(node, after)
            return
        topology = annotations_of(before).get(keys.TOPOLOGY)
        if topology is not None and topology != annotations_of(after).get(keys.TOPOLOGY):
            self.spoiled.add(node)
        if annotations_of(before).get(keys.LEDGER) == annotations_of(after).get(keys.LEDGER):
            return
        if not ours:
            self.spoiled.add(node)
            self._touch(node, after)
            return
        if keys.TOPOLOGY in annotations_of(after):
            self._touched.discard(node)
        was, now = read_ledger(before) or Ledger(0), read_ledger(after) or Ledger(0)
        for gpu, uid in _pairs(now) - _pairs(was):
            self._claimed_since[node, gpu, uid] = self._clock()
            self._lost.discard((node, uid))
            self._bereft.discard(uid)
        for repair in self._repairs(before, was, now):
            self._trace.count(f"repair: {repair}")
        self._check_new_claims(after, [claim for claim in now.claims if (node, claim) not in self._made])
        self._made.update((node, claim) for claim in now.claims)
        self._bereft.update(uid for gpu, uid in _pairs(was) - _pairs(now) if self._is_usurped(uid, gpu))
        for rule in self._rules(node, after, was, now):
            self._trace.count(f"release: {rule}")
        self._check_claims(node)

    def _repairs(self, before: Object, was: Ledger, now: Ledger) -> Iterator[Repair]:
        if read_ledger(before) is None and before["metadata"]["name"] in self._once_written:
            yield Repair.REBUILT
        self._once_written.add(before["metadata"]["name"])
        for uid in sorted({uid for _, uid in _pairs(now)} - {uid for _, uid in _pairs(was)}):
            if uid in self.placed:
                yield Repair.RESTORED if self.placed[uid].ours else Repair.ADOPTED

    def _touch(self, node: str, after: Object | None) -> None:
        """Take note that a stranger has changed the ledger, or that it went with its node.

        One that can be read may be believed by an extender that starts afterwards; one that cannot, or is gone, is not.
        """
        self._touched.add(node)
        if read_ledger(after) is not None:
            self._lost.update((node, uid) for at, _, uid in self._claimed_since if at == node)
        self._bereft.update(uid for uid, placed in self.placed.items() if placed.node == node)

    def _check_new_claims(self, node: Object, claims: list[Claim]) -> None:
        """INV4; a claim that is made for a pod that is there already only tells what is."""
        claims = [claim for claim in claims if claim.uid not in self.placed]
        if not claims:
            return
        texts = annotations_of(node)
        known = {*decode_topology(texts.get(keys.TOPOLOGY, "")).devices}
        sick = decode_status(texts.get(keys.STATUS, "")).unhealthy
        for claim in claims:
            if claim.gpu not in known or gpu_of(claim.gpu) in sick:
                what = "is not of this node" if claim.gpu not in known else "is sick"
                self._trace.violation("INV4", f"{short(claim.gpu)} {what} and is claimed for {claim.uid}")

    def _rules(self, name: str, node: Object, was: Ledger, now: Ledger) -> Iterator[Rule]:
        """Say why each claim left, once per pod; R2 and R3 are checked on the way."""
        left = {claim.uid: claim for claim in was.claims if (claim.gpu, claim.uid) not in _pairs(now)}
        for uid, claim in left.items():
            if any(kept.uid == uid for kept in now.claims):
                yield Rule.RENEWED
                continue
            rule = self._rule(name, node, was, claim)
            if rule is not Rule.REINCARNATED and self._still_needs(uid, name, now):
                self._trace.violation("R2", f"the claim of {uid} left while its containers run")
            yield rule

    def _is_usurped(self, uid: str, gpu: str) -> bool:
        """Whether a stranger's pod was bound to the pod's GPU."""
        return uid in self.owners(gpu) and not all(map(self._is_ours, self.owners(gpu)))

    def _still_needs(self, uid: str, node: str, ledger: Ledger) -> bool:
        """Whether containers of ours run on GPUs that the ledger does not say another live pod has been given, too."""
        if uid not in self._running or not self._is_ours(uid) or self.placed[uid].node != node:
            return False
        placed = self.placed[uid]
        taken = {
            claim.gpu
            for claim in ledger.claims
            if claim.uid in self.owners(claim.gpu) and not placed.goes_with(claim.memory_gib or 0, claim.sharing_class)
        }
        return not placed.gpus <= taken

    def _rule(self, name: str, node: Object, was: Ledger, claim: Claim) -> Rule:
        pod = self._server.pod(claim.uid)
        placed = self.placed.get(claim.uid)
        if placed is not None and placed.node != name:
            return Rule.ELSEWHERE
        if pod is not None and placed is None:
            if has_ended(pod):
                return Rule.ENDED_UNBOUND
            if pod["metadata"]["resourceVersion"] == claim.resource_version:
                self._trace.violation("R3", f"the claim of {claim.uid} left while its Binding may be under way")
            return Rule.FENCED
        if pod is not None:
            return Rule.STOPPED
        if placed is None:
            return Rule.NEVER_BOUND
        if was.node_uid != node["metadata"]["uid"]:
            return Rule.REINCARNATED
        return Rule.GONE_STOPPED if _has_stopped(self._last[claim.uid]) else Rule.REPORTED

    def _check_claims(self, node: str) -> None:
        """INV2 for all live pods of one node."""
        if node in self._touched:
            return
        found = read_ledger(self._server.find(NODES, node))
        for uid, placed in self.placed.items():
            if placed.node != node or not placed.ours or uid in self._over or uid in self._bereft & self._last.keys():
                continue
            own = [claim for claim in found.claims if claim.uid == uid] if found else []
            claimed, amounts = {claim.gpu for claim in own}, {claim.memory_gib or 0 for claim in own}
            contested = {gpu for gpu in placed.gpus if self._is_contested(gpu)}
            if uid in self._bereft and found:
                contested |= {claim.gpu for claim in found.claims if self._is_forced_beside(claim, placed)}
            if not placed.gpus - contested <= claimed <= placed.gpus or not amounts <= {placed.share_gib}:
                self._trace.violation(
                    "INV2",
                    f"{uid} has {_list(placed.gpus)} of {node}, and claims {_list(claimed)}, {sorted(amounts)} GiB",
                )

    def _is_contested(self, gpu: str) -> bool:
        """Whether pods have the GPU that cannot stand in one ledger together."""
        first, *others = [self.placed[uid] for uid in self.owners(gpu)]
        return not all(first.goes_with(other.share_gib, other.sharing_class) for other in others)

    def _is_forced_beside(self, claim: Claim, placed: Placed) -> bool:
        """Whether a pod that was bound around us really has the claimed GPU, which a ledger cannot give to another pod, too."""
        is_forced = claim.uid in self.placed and not self._is_ours(claim.uid)
        goes_with = placed.goes_with(claim.memory_gib or 0, claim.sharing_class)
        return is_forced and self._may_run_on(claim.uid, claim.gpu) and not goes_with

    def _may_run_on(self, uid: str, gpu: str) -> bool:
        """Whether the pod's containers run on the GPU, or its record names it and no report says that they have stopped."""
        pod = self._server.pod(uid)
        is_recorded = pod is not None and not _has_stopped(pod) and gpu in self.placed[uid].gpus
        return is_recorded or gpu in self._running.get(uid, ())


def _pairs(ledger: Ledger) -> set[tuple[str, str]]:
    return {(claim.gpu, claim.uid) for claim in ledger.claims}


def _list(gpus: frozenset[str] | set[str]) -> str:
    return " ".join(short(gpu) for gpu in sorted(gpus)) or "nothing"


def _has_stopped(pod: Object) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    return bool(statuses) and all("terminated" in one["state"] for one in statuses)
