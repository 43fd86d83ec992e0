"""The kinds of object that the double serves, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as JSON; never changed in place once a store has seen it."""

_METADATA_FIELDS = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One kind: where it is served and what can be selected by field."""

    root: str
    """`api/v1` or `apis/GROUP/VERSION`."""
    plural: str
    kind: str
    namespaced: bool = True
    fields: tuple[str, ...] = _METADATA_FIELDS
    empty: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What an object with nothing in it is sent as, beside its metadata: bookmarks are such objects."""

    @property
    def api_version(self) -> str:
        """What `apiVersion` says: `v1` or `GROUP/VERSION`."""
        return self.root.split("/", 1)[1]


PODS = ApiResource(
    "api/v1",
    "pods",
    "Pod",
    fields=(*_METADATA_FIELDS, "spec.nodeName", "spec.schedulerName", "status.phase"),
    empty={"spec": {"containers": None}, "status": {}},
)
NODES = ApiResource(
    "api/v1", "nodes", "Node", namespaced=False, fields=("metadata.name",), empty={"spec": {}, "status": {}}
)
NAMESPACES = ApiResource("api/v1", "namespaces", "Namespace", namespaced=False, fields=("metadata.name",))
EVENTS = ApiResource("api/v1", "events", "Event", fields=(*_METADATA_FIELDS, "involvedObject.name", "reason"))
LEASES = ApiResource("apis/coordination.k8s.io/v1", "leases", "Lease")
BUDGETS = ApiResource("apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
CONFIG_MAPS = ApiResource("api/v1", "configmaps", "ConfigMap")
JOBS = ApiResource("apis/batch/v1", "jobs", "Job")

POD_LOG = "simulation.gputopo.dev/log"
"""On a pod: what its containers have printed."""

RESOURCES = (PODS, NODES, NAMESPACES, EVENTS, LEASES, BUDGETS, CONFIG_MAPS, JOBS)
"""Of every cluster; a store may have more kinds."""
