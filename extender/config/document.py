"""The whole configuration of the extender. `extender.kit.configuration` puts it together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from extender.config.api_server import KubernetesSettings, WatchSettings
from extender.config.autoscaling import AutoscalingSettings
from extender.config.expected_nodes import NodeGroupsSettings
from extender.config.limits import LimitsSettings
from extender.config.listening import HealthSettings, ListenSettings, TlsSettings
from extender.config.log import LogSettings
from extender.config.measured_bandwidths import MeasuredSettings
from extender.config.node_health import NodeHealthSettings
from extender.config.pod_groups import GroupsSettings
from extender.config.safety import AgentsSettings, PoliciesSettings, ReconcileSettings
from extender.config.scheduling import SchedulingSettings
from extender.config.sick_gpus import SickGpusSettings
from extender.config.steering import SteeringSettings
from extender.kit import configuration
from extender.kit.configuration import Document


class ExtenderConfiguration(Document):
    """The whole document."""

    kind: Literal["ExtenderConfiguration"] = "ExtenderConfiguration"
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    health: HealthSettings = HealthSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    steering: SteeringSettings = SteeringSettings()
    watch: WatchSettings = WatchSettings()
    reconcile: ReconcileSettings = ReconcileSettings()
    agents: AgentsSettings = AgentsSettings()
    sick_gpus: SickGpusSettings = SickGpusSettings()
    node_groups: NodeGroupsSettings = NodeGroupsSettings()
    autoscaling: AutoscalingSettings = AutoscalingSettings()
    node_health: NodeHealthSettings = NodeHealthSettings()
    groups: GroupsSettings = GroupsSettings()
    policies: PoliciesSettings = PoliciesSettings()
    measured: MeasuredSettings = MeasuredSettings()
    limits: LimitsSettings = LimitsSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _is_guarded(self) -> ExtenderConfiguration:
        if self.tls.cert_file is None and not self.listen.is_private:
            raise ValueError(
                "listen.host is not a loopback address, which takes tls.certFile, keyFile and clientCaFile"
            )
        return self

    @property
    def digest(self) -> str:
        """Name this configuration in a metric and a log line."""
        return hashlib.sha256(self.to_yaml().encode()).hexdigest()[:12]


def load(file: Path | None, environment: Mapping[str, str], settings: Mapping[str, str]) -> ExtenderConfiguration:
    """Put the configuration together; `settings` are those of `--set`, by dotted path."""
    return configuration.load(ExtenderConfiguration, file, environment, settings)
