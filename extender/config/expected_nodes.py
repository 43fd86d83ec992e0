"""What nodes would be like that do not exist yet."""

from __future__ import annotations

from pydantic import Field, model_validator

from extender.config.defaults import NODE_GROUP_LABEL
from extender.kit.settings import Section, Table
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


class NodeGroupsSettings(Section):
    """Topology of nodes that do not exist yet, for `what-if`, the value of free GPUs, and autoscaling."""

    label: str = NODE_GROUP_LABEL
    """Nodes with the same value of this label have the same topology."""
    expected: Table[str, ExpectedNode] = Field(default_factory=dict)
    """By value of the label: `machine`, from `gputopo-bench list`, or `topology`. Default: what most nodes of the group
    publish."""

    @property
    def topologies(self) -> dict[str, NodeTopology]:
        """The declared ones."""
        return {name: declared.node for name, declared in self.expected.items()}
