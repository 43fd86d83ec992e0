"""What one reader may see: pods of some namespaces by name, and of all others only how much they hold.

Fails closed: a name is shown only where its namespace is listed, and a text of others loses each `namespace/name` that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeVar

from extender.inspect.inspection import Explanation, GpuInfo, NodeDetail, NodeInfo, Refusal
from extender.inspect.nvlinks import LinkFaultInfo
from extender.inspect.samples import GpuSample
from extender.inspect.shares import SharedGpuInfo
from extender.inspect.slices import SliceInfo

HIDDEN: Final = "another pod"
"""Stands for a pod that the reader may not see; no pod is called so."""
_NAMED: Final = re.compile(r"(?<![\w./-])([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)/[a-z0-9][-a-z0-9./]*")
"""`namespace/name`; the prefix of an annotation or resource has a dot, and a namespace has none."""
Node = TypeVar("Node", NodeInfo, NodeDetail)
Device = TypeVar("Device", GpuInfo, SliceInfo)


@dataclass(frozen=True, slots=True)
class Sight:
    """The namespaces whose pods a reader may see."""

    namespaces: frozenset[str] | None = None
    """`None`: all, also those to come."""
    unasked: int = 0
    """Namespaces of which nobody knows yet whether the reader may see their pods; they are hidden."""

    @property
    def key(self) -> str:
        """Tell readers apart who see different things."""
        return "" if self.namespaces is None else _key_of(self.unasked, self.namespaces)

    def sees(self, namespace: str) -> bool:
        """Whether the reader may see the pods of a namespace."""
        return self.namespaces is None or namespace in self.namespaces

    def sees_pod(self, pod: str) -> bool:
        """Whether the reader may see a pod, called `namespace/name`."""
        return self.sees(pod.partition("/")[0])

    def name(self, pod: str) -> str:
        """Return the name of a pod, or that it is another one."""
        return pod if self.sees_pod(pod) else HIDDEN

    def text(self, text: str) -> str:
        """Return a sentence without the names of pods that the reader may not see.

        >>> Sight(frozenset({"ml"})).text("shares NIC mlx5_2 with ml/train, ops/dns and nvidia.com/gpu")
        'shares NIC mlx5_2 with ml/train, another pod and nvidia.com/gpu'
        """
        return _NAMED.sub(lambda match: match[0] if self.sees(match[1]) else HIDDEN, text)

    def texts(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Return sentences without these names."""
        return tuple(map(self.text, texts))

    def node(self, node: Node) -> Node:
        """Return a node without the names of holders that the reader may not see; counts and states stay."""
        if self.namespaces is None:
            return node
        update: dict[str, object] = {
            "closed": node.closed and self.text(node.closed),
            "set_aside": node.set_aside and self.text(node.set_aside),
            "gpus": tuple(map(self._device, node.gpus)),
            "slices": tuple(map(self._device, node.slices)),
            "shared": tuple(map(self._shared, node.shared)),
        }
        if isinstance(node, NodeDetail):
            update |= self._detail(node)
        return node.model_copy(update=update)

    def samples(self, node: NodeInfo, samples: Mapping[str, GpuSample]) -> Mapping[str, GpuSample]:
        """Return the samples, by UUID, of GPUs that nobody has, or that a pod has alone which the reader may see.

        `node` is what `node` has returned for the reader.
        """
        if self.namespaces is None:
            return samples
        seen = {gpu.uuid for gpu in node.gpus if (gpu.state == "free" if gpu.pod is None else gpu.pod != HIDDEN)}
        return {uuid: sample for uuid, sample in samples.items() if uuid in seen}

    def explanation(self, explanation: Explanation) -> Explanation:
        """Return what there is to say of a pod that the reader may see, without the names of others."""
        if self.namespaces is None:
            return explanation
        new_nodes = explanation.new_nodes
        if new_nodes and new_nodes.placeholder:
            new_nodes = new_nodes.model_copy(update={"placeholder": self.name(new_nodes.placeholder)})
        return explanation.model_copy(
            update={"refusals": tuple(map(self._refusal, explanation.refusals)), "new_nodes": new_nodes}
        )

    def faults(self, faults: Iterable[LinkFaultInfo]) -> tuple[LinkFaultInfo, ...]:
        """Return faults of NVLinks without these names in their reasons."""
        return tuple(fault.model_copy(update={"reason": self.text(fault.reason)}) for fault in faults)

    def _detail(self, node: NodeDetail) -> dict[str, object]:
        plugin, sharing = node.device_plugin, node.sharing
        return {
            "device_plugin": plugin and plugin.model_copy(update={"reasons": self.texts(plugin.reasons)}),
            "sharing": sharing and sharing.model_copy(update={"reasons": self.texts(sharing.reasons)}),
            "link_faults": self.faults(node.link_faults),
            # What other agents write may name anything, in any form.
            "signs": tuple(sign.model_copy(update={"detail": ""}) for sign in node.signs),
            "unknown_holders": tuple(
                holder.model_copy(update={"pod": self.name(holder.pod)}) for holder in node.unknown_holders
            ),
            "unknown_devices": tuple(
                device if self.sees_pod(device.claim) else device.model_copy(update={"claim": "another one"})
                for device in node.unknown_devices
            ),
        }

    def _device(self, device: Device) -> Device:
        is_seen = device.pod is None or self.sees_pod(device.pod)
        update: dict[str, object] = {
            "pod": device.pod if is_seen else HIDDEN,
            "container": device.container if is_seen and device.pod else None,
            "reasons": self.texts(device.reasons),
        }
        if isinstance(device, GpuInfo):
            outlook = device.outlook
            update["shared_nics"] = self.texts(device.shared_nics)
            update["outlook"] = outlook and outlook.model_copy(
                update={"next": self.text(outlook.next), "remedy": self.text(outlook.remedy)}
            )
        return device.model_copy(update=update)

    def _shared(self, gpu: SharedGpuInfo) -> SharedGpuInfo:
        shares = tuple(
            share
            if self.sees_pod(share.pod)
            else share.model_copy(update={"pod": HIDDEN, "container": "", "sharing_class": None})
            for share in gpu.shares
        )
        return gpu.model_copy(update={"shares": shares})

    def _refusal(self, refusal: Refusal) -> Refusal:
        return refusal.model_copy(
            update={name: self.text(getattr(refusal, name)) for name in ("message", "figures", "remedy")}
        )


@lru_cache(maxsize=32)
def _key_of(unasked: int, namespaces: frozenset[str]) -> str:
    return blake2b(repr((unasked, sorted(namespaces))).encode(), digest_size=16).hexdigest()


EVERYTHING: Final = Sight()
"""What an operator sees."""
