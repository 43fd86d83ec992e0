"""Reflectors of one extender: all with the same limits, at the same API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from extender.cluster.objects.kinds import ObjectMeta
from extender.config.api_server import WatchSettings
from extender.kubernetes.documents import Object
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Reflector, Timing
from extender.kubernetes.sink import Sink


@dataclass(frozen=True, slots=True)
class Watching:
    """Makes them."""

    api: KubeApi
    limits: WatchSettings
    random: Random | None = None
    """Spreads the delays of several replicas."""
    told: Callable[[str, str], None] = lambda resource, fate: None
    """Hears of each heavy object of a resource, and of each that was passed over."""
    _made: list[Reflector[Any]] = field(default_factory=list)

    def reflector(
        self,
        path: str,
        kind: type[Object],
        sink: Sink[Object],
        *,
        field_selector: str = "",
        keep: Callable[[Object], Object | None] = lambda item: item,
        knows: Callable[[ObjectMeta], bool] = lambda metadata: False,
        max_backoff_seconds: float | None = None,
    ) -> Reflector[Object]:
        """Return what keeps `sink` in step with all objects under a path, whose last word is the reflector's name."""
        limits, name = self.limits, path.rpartition("/")[2]
        source = self.api.resource(
            path,
            field_selector=field_selector,
            page_size=limits.page_size,
            stream_seconds=limits.stream,
            max_page_bytes=limits.max_page,
        )
        timing = Timing(
            silence_seconds=limits.silence,
            backoff_seconds=limits.backoff,
            max_backoff_seconds=max_backoff_seconds or limits.max_backoff,
            max_line_bytes=limits.max_line,
        )
        told = partial(self.told, name)
        made = Reflector(
            name,
            source,
            kind,
            sink,
            keep=keep,
            knows=knows,
            timing=timing,
            random=self.random,
            told=told,
            peers=self._made,
        )
        self._made.append(made)
        return made
