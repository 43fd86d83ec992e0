"""The rows of a run, by what the report asks for."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.placement.report.sections import Column
from benchmarks.placement.rows import ResultRow


class ScenarioValues:
    """Rows of one scenario."""

    def __init__(self, rows: Iterable[ResultRow]) -> None:
        self._values: dict[tuple[str, str, str, float | None], dict[int, float]] = {}
        self.workloads: list[str] = []
        self._policies: dict[str, list[str]] = {}
        for row in rows:
            key = row.workload, row.policy, row.metric, row.x
            self._values.setdefault(key, {})[row.seed] = row.value
            if row.workload not in self._policies:
                self.workloads.append(row.workload)
            policies = self._policies.setdefault(row.workload, [])
            if row.policy not in policies:
                policies.append(row.policy)

    def policies(self, workload: str) -> list[str]:
        """Return the policies that ran on the workload, in the order in which they did."""
        return self._policies[workload]

    def of(self, workload: str, policy: str, column: Column) -> dict[int, float]:
        """Return seed → value; empty where it could not be measured."""
        return self._values.get((workload, policy, column.metric, column.x), {})

    def along(self, workload: str, policy: str, metric: str) -> list[tuple[float, float]]:
        """Return (x, mean over the seeds), rising."""
        found = [
            (x, sum(by_seed.values()) / len(by_seed))
            for (at, by, name, x), by_seed in self._values.items()
            if (at, by, name) == (workload, policy, metric) and x is not None
        ]
        return sorted(found)
