"""The settings about nodes that do not exist yet: what they would be like, and how autoscalers are asked for them."""

from __future__ import annotations

from pydantic import Field, model_validator

from extender.cluster.candidates.node_groups import LABEL
from extender.kit.settings import Duration, Section, Table
from topology.annotations.codec import decode_topology
from topology.errors import PayloadError
from topology.formats.catalog import MACHINES, machine
from topology.node.model import NodeTopology


class ExpectedNode(Section):
    """An empty node of a group: a machine of the catalogue, or a topology as `gputopo-agent --once -o json` prints it."""

    machine: str | None = None
    topology: str | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> ExpectedNode:
        if (self.machine is None) == (self.topology is None):
            raise ValueError("say either machine or topology")
        _ = self.node
        return self

    @property
    def node(self) -> NodeTopology:
        """The topology; raises `ValueError` where there is none of that name, or none that can be read."""
        if self.machine is not None:
            if self.machine not in MACHINES:
                raise ValueError(f"no machine of the catalogue is called {self.machine}")
            return machine(self.machine)
        try:
            return decode_topology(self.topology or "")
        except PayloadError as error:
            raise ValueError(str(error)) from error


class NodeGroups(Section):
    """What nodes would be like that do not exist yet: for `what-if`, for the values of free GPUs, and for autoscaling."""

    label: str = LABEL
    """Nodes with the same value of this label are alike, as far as their wiring goes."""
    expected: Table[str, ExpectedNode] = Field(default_factory=dict)
    """By the label's value; of other groups it is what most of their nodes publish."""

    @property
    def topologies(self) -> dict[str, NodeTopology]:
        """The declared ones."""
        return {name: declared.node for name, declared in self.expected.items()}


class Autoscaling(Section):
    """Placeholders: they ask autoscalers for a node where a pod is refused for links although enough GPUs are free."""

    enabled: bool = False
    """Takes the right to create and delete Jobs in `namespace`."""
    namespace: str = "gputopo-placeholders"
    """The namespace that placeholders are made in; nothing else belongs there."""
    priority_class: str = "gputopo-placeholder"
    """Never preempts, and is not below what cluster-autoscaler takes seriously, -10."""
    image: str = "registry.k8s.io/pause:3.10"
    """Image of the placeholder's container, which never starts."""
    limit: int = Field(default=10, ge=1)
    """How many placeholders there are at once."""
    after: Duration = 30.0
    """A pod has to be refused for so long before it gets one."""
    life: Duration = Field(default=600.0, ge=1)
    """Time after which Kubernetes ends a placeholder, whoever is alive."""
    pause: Duration = 300.0
    """After a placeholder that brought nothing, before its pod gets another one; doubled each time, up to `longestPause`."""
    longest_pause: Duration = 3600.0
    """The longest pause; see `pause`."""
