"""Stand-ins: pods that stand for others, and are never placed; which pod each one stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from extender.cluster.objects.kinds import Pod
from topology.annotations import keys

_DIGITS: Final = 3
"""Of a number of GPUs; users write the annotation, too."""
NEVER_PLACED: Final = "pod is a placeholder, which asks for a node and is never placed"


@dataclass(frozen=True, slots=True)
class StandsFor:
    """The pod that waits."""

    namespace: str
    name: str
    uid: str
    gpus: int = 0
    """That the stand-in requests by a ResourceClaim; 0: its containers request them."""

    @classmethod
    def read(cls, pod: Pod) -> Self | None:
        """Return the pod that a stand-in names; `None` for any other pod. What cannot be read names none."""
        text = (pod.metadata.annotations or {}).get(keys.PLACEHOLDER_FOR)
        if text is None:
            return None
        namespace, name, uid, gpus, *_ = (*text.split("/"), "", "", "", "")
        is_count = gpus.isascii() and gpus.isdigit() and len(gpus) <= _DIGITS
        return cls(namespace, name, uid, int(gpus) if is_count else 0)

    def __str__(self) -> str:
        """Write it as `read` reads it.

        >>> str(StandsFor("ml", "train-0", "0f3a"))
        'ml/train-0/0f3a'
        >>> str(StandsFor("ml", "train-0", "0f3a", 8))
        'ml/train-0/0f3a/8'
        """
        return "/".join([self.namespace, self.name, self.uid, *([str(self.gpus)] if self.gpus else [])])


def is_stand_in(pod: Pod) -> bool:
    """Whether the pod stands for another one."""
    return keys.PLACEHOLDER_FOR in (pod.metadata.annotations or ())
