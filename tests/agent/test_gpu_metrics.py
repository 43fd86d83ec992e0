"""Each GPU has its series, by UUID, with what NVML says and in Prometheus' units."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from agent.gpus.critical_errors import CriticalError
from agent.gpus.discovery import NOTHING
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.host import Host
from agent.gpus.machine import GpuMachine
from agent.gpus.nvml.reader import read_nvml
from agent.health.policy import HealthPolicy
from agent.metrics import AgentMetrics
from tests.nvml.library import FakeNvml, machine

LINES = (
    "slowdown 64", "uncorrected_errors 3", "recovery_action 4", "remap_pending 1",
)  # fmt: skip
NOWHERE = Path("/nonexistent")


def series(health: GpuHealth) -> dict[str, dict[tuple[str, ...], float]]:
    """Return name → values of the labels, by label → value."""
    metrics = AgentMetrics("test")
    metrics.watch(health.readings)
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(label for _, label in sorted(sample.labels.items()))] = sample.value
    return found


def looked_at(fake_nvml: FakeNvml, folder: Path) -> tuple[GpuHealth, list[str]]:
    """Return the health of a machine that was looked at once, through the real binding, and its UUIDs."""
    described = folder / "machine.nvml"
    described.write_text(machine("hgx_h100").read_text() + "".join(f"gpu 2 {line}\n" for line in LINES))
    health = GpuHealth(lambda: 1e9, HealthPolicy())
    with fake_nvml.loaded(described):
        found = GpuMachine(read_nvml, Host(NOWHERE, NOWHERE), health).discover(NOTHING)
    return health, [gpu.uuid for gpu in found.topology.gpus]


def test_what_nvml_says_of_its_health_is_told(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """As numbers; yes is 1."""
    health, uuids = looked_at(fake_nvml, tmp_path)
    found, gpu = series(health), (uuids[2],)
    values = {
        name: found[f"gputopo_gpu_{name}"][gpu]
        for name in (
            "throttled", "uncorrected_errors_total", "recovery_action", "row_remap_pending", "row_remap_failed",
        )
    }  # fmt: skip
    assert values == {
        "throttled": 1,
        "uncorrected_errors_total": 3,
        "recovery_action": 4,
        "row_remap_pending": 1,
        "row_remap_failed": 0,
    }


def test_what_nvml_does_not_say_is_absent(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """Nought would be a value."""
    health, uuids = looked_at(fake_nvml, tmp_path)
    found = series(health)
    assert {*found["gputopo_gpu_recovery_action"]} == {(uuids[2],)}
    assert {uuid for *_, uuid in found["gputopo_gpu_info"]} == {*uuids}


def test_state_and_errors_are_told_of_each(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """One state is 1 at a time; errors count up."""
    health, uuids = looked_at(fake_nvml, tmp_path)
    for number in (74, 74, 31):
        health.happened(CriticalError(uuids[0], number))
    found = series(health)
    states = {uuid: state for (state, uuid), value in found["gputopo_gpu_health"].items() if value}
    assert (states[uuids[0]], states[uuids[1]], states[uuids[2]]) == ("quarantined", "healthy", "quarantined")
    assert len(states) == len(uuids)
    assert found["gputopo_gpu_xid_errors_total"] == {(uuids[0], "31"): 1, (uuids[0], "74"): 2}
    assert found["gputopo_gpu_xid_last_timestamp_seconds"] == {(uuids[0], "31"): 1e9, (uuids[0], "74"): 1e9}


def test_errors_are_told_by_kind_and_place(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """With what wears out: rows, spare rows, links, the margin of heat."""
    lines = (
        "gpu 1 dram_uncorrected 4", "gpu 1 nvlink_crc 70", "gpu 1 margin -2", "gpu 1 pcie_width_now 8", "gpu 1 pcie_replays 11",
        "gpu 1 slow_power_ns 2500000000", "gpu 1 banks_without_spares 2", "gpu 1 sram_exceeded 1", "gpu 1 remap_failure 1",
        "link 1 3-4 inactive", "health 1 3",
    )  # fmt: skip
    described = tmp_path / "machine.nvml"
    described.write_text("\n".join([machine("watched_h100").read_text(), *lines, ""]))
    health = GpuHealth(lambda: 1e9, HealthPolicy())
    with fake_nvml.loaded(described):
        found = GpuMachine(read_nvml, Host(NOWHERE, NOWHERE), health).discover(NOTHING)
    told, uuid = series(health), found.topology.gpus[1].uuid
    values = {
        (name.removeprefix("gputopo_gpu_"), *(label for label in labels if label != uuid)): value
        for name, values in told.items()
        for labels, value in values.items()
        if uuid in labels and name.startswith("gputopo_gpu_")
    }
    expected = {
        ("ecc_errors_total", "uncorrected", "dram"): 4,
        ("ecc_errors_total", "corrected", "sram"): 3,
        ("nvlink_errors_total", "crc"): 70,
        ("nvlinks", "up"): 16,
        ("nvlinks", "down"): 2,
        ("temperature_margin_celsius",): -2,
        ("pcie_link_width",): 8,
        ("pcie_replays_total",): 11,
        ("throttled_seconds_total", "power"): 2.5,
        ("memory_banks_without_spares",): 2,
        ("sram_threshold_exceeded",): 1,
        ("remapped_rows", "corrected"): 1,
        ("remapped_rows", "uncorrected"): 1,
        ("fabric_health",): 3,
        ("collected_timestamp_seconds",): 1e9,
    }
    assert {key: values.get(key) for key in expected} == expected


def test_the_last_error_is_told_by_its_number(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """The one that was told last, and not the one that is new or the largest; 0 where there was none."""
    now = [1e9]
    health = GpuHealth(lambda: now[0], HealthPolicy())
    with fake_nvml.loaded(machine("hgx_h100")):
        gpus = GpuMachine(read_nvml, Host(NOWHERE, NOWHERE), health).discover(NOTHING).topology.gpus
    for number in (31, 74, 31):
        now[0] += 1
        health.happened(CriticalError(gpus[0].uuid, number))
    last = series(health)["gputopo_gpu_last_xid"]
    assert (last[gpus[0].uuid,], last[gpus[1].uuid,]) == (31, 0)


def test_gpu_without_links_and_fabric_has_no_series_of_them(fake_nvml: FakeNvml) -> None:
    """Nor of errors that its driver does not count."""
    health = GpuHealth(lambda: 1e9, HealthPolicy())
    with fake_nvml.loaded(machine("pcie_l40s")):
        GpuMachine(read_nvml, Host(NOWHERE, NOWHERE), health).discover(NOTHING)
    told = series(health)
    assert "gputopo_gpu_info" in told
    assert not {
        f"gputopo_gpu_{name}" for name in ("nvlinks", "nvlink_errors_total", "fabric_health", "ecc_errors_total")
    } & {*told}


def test_before_the_first_look_there_is_no_series() -> None:
    """The families are described all the same."""
    assert not any(name.startswith("gputopo_gpu_") for name in series(GpuHealth(lambda: 0.0, HealthPolicy())))
