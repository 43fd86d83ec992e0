"""Stand-ins: pods that stand for others, and are never placed; which pod each one stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from extender.cluster.objects.kinds import Pod
from topology.annotations import keys

NEVER_PLACED: Final = "pod is a placeholder, which asks for a node and is never placed"


@dataclass(frozen=True, slots=True)
class StandsFor:
    """The pod that waits."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def read(cls, pod: Pod) -> Self | None:
        """Return the pod that a stand-in names; `None` for any other pod. What cannot be read names none."""
        text = (pod.metadata.annotations or {}).get(keys.PLACEHOLDER_FOR)
        if text is None:
            return None
        namespace, name, uid, *_ = (*text.split("/"), "", "", "")
        return cls(namespace, name, uid)

    def __str__(self) -> str:
        """Write it as `read` reads it.

        >>> str(StandsFor("ml", "train-0", "0f3a"))
        'ml/train-0/0f3a'
        """
        return f"{self.namespace}/{self.name}/{self.uid}"


def is_stand_in(pod: Pod) -> bool:
    """Whether the pod stands for another one."""
    return keys.PLACEHOLDER_FOR in (pod.metadata.annotations or ())
