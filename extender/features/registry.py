"""All features. To leave one out, delete its line here and its folder.

Outside their folders only the kubectl plugin, `extender.web.server`, `extender.web.view_port` and the benchmarks name one.
Only the queue uses `extender.binding.planned_claims`.
"""

from __future__ import annotations

from typing import Final

from extender.core.feature import Feature
from extender.features.autoscaling.feature import Autoscaling
from extender.features.dra.feature import Dra
from extender.features.group_sizes.feature import GroupSizeWatch
from extender.features.measured.feature import MeasuredFile
from extender.features.moves.feature import Moves
from extender.features.quality.feature import Quality
from extender.features.queue.feature import Queue
from extender.features.sick_gpus.feature import SickGpus
from extender.features.steering.feature import Steering
from extender.features.view.feature import View
from extender.features.waking.feature import Waking
from extender.telemetry.core import CORE

FEATURES: Final[tuple[type[Feature], ...]] = (
    SickGpus,
    Autoscaling,
    Steering,
    Queue,
    Moves,
    Dra,
    Waking,
    MeasuredFile,
    Quality,
    GroupSizeWatch,
    View,
)
"""Observers are called in this order, and do not depend on it."""

DECLARATIONS: Final = (*CORE, *(declaration for feature in FEATURES for declaration in feature.declarations))
"""All series of an extender with all features."""
