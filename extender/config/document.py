"""The configuration of the core. Each feature adds a section of its own."""

from __future__ import annotations

import hashlib
from typing import Literal, TypeVar

from pydantic import model_validator

from extender.config.api_server import KubernetesSettings, WatchSettings
from extender.config.expected_nodes import NodeGroupsSettings
from extender.config.limits import LimitsSettings
from extender.config.listening import HealthSettings, ListenSettings, TlsSettings
from extender.config.log import LogSettings
from extender.config.node_health import NodeHealthSettings
from extender.config.pod_groups import GroupsSettings
from extender.config.safety import AgentsSettings, PoliciesSettings, ReconcileSettings
from extender.config.scheduling import SchedulingSettings
from extender.kit.configuration import Document
from extender.kit.settings import Section

_Settings = TypeVar("_Settings", bound=Section)


class ExtenderConfiguration(Document):
    """The sections that the core reads."""

    kind: Literal["ExtenderConfiguration"] = "ExtenderConfiguration"
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    health: HealthSettings = HealthSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    watch: WatchSettings = WatchSettings()
    reconcile: ReconcileSettings = ReconcileSettings()
    agents: AgentsSettings = AgentsSettings()
    node_groups: NodeGroupsSettings = NodeGroupsSettings()
    node_health: NodeHealthSettings = NodeHealthSettings()
    groups: GroupsSettings = GroupsSettings()
    policies: PoliciesSettings = PoliciesSettings()
    limits: LimitsSettings = LimitsSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _is_guarded(self) -> ExtenderConfiguration:
        if self.tls.cert_file is None and not self.listen.is_private:
            raise ValueError(
                "listen.host is not a loopback address, which takes tls.certFile, keyFile and clientCaFile"
            )
        return self

    def section(self, kind: type[_Settings]) -> _Settings:
        """Return the section of a feature; raises `LookupError` where this kind of document has none."""
        for _, section in self:
            if isinstance(section, kind):
                return section
        raise LookupError(f"the configuration has no section {kind.__name__}: it was made without that feature")

    @property
    def digest(self) -> str:
        """Name this configuration in a metric and a log line."""
        return hashlib.sha256(self.to_yaml().encode()).hexdigest()[:12]
