"""The reference machines: named, sourced, different, and as large as their names say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topology.formats.catalog import MACHINES, machine
from topology.node.architectures import architecture_of

NVML_MACHINES = Path(__file__).parents[2] / "nvml" / "machines"

EVERY = pytest.mark.parametrize("name", MACHINES)


def test_there_are_enough_of_them() -> None:
    """All generations and all kinds of wiring, healthy and not."""
    assert len(MACHINES) >= 14


@EVERY
def test_names_are_stable_identifiers_with_a_source(name: str) -> None:
    """Kebab case; every machine says where its wiring is documented."""
    found = MACHINES[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert found.name == name
    assert found.description
    assert found.source


@EVERY
def test_no_gpu_has_more_links_than_its_generation(name: str) -> None:
    """Direct and switched links together."""
    node = machine(name)
    for position, gpu in enumerate(node.gpus):
        known = architecture_of(gpu.model)
        direct = sum(link.nvlinks for pair, link in node.pairs.items() if position in pair)
        assert known is not None
        assert direct + gpu.switch_links <= known.max_nvlinks


@EVERY
def test_a_machine_is_always_the_same_and_every_host_is_another(name: str) -> None:
    """UUIDs are made from names, so a simulated fleet has no GPU twice and no run differs."""
    assert machine(name) == machine(name)
    here, there = machine(name, "node-1"), machine(name, "node-2")
    assert {gpu.uuid for gpu in here.gpus}.isdisjoint(gpu.uuid for gpu in there.gpus)
    assert here.matrix == there.matrix


@EVERY
def test_addresses_are_all_different(name: str) -> None:
    """No two devices share a bus id."""
    node = machine(name)
    addresses = [gpu.pci for gpu in node.gpus] + [nic.pci for nic in node.nics]
    assert len(set(addresses)) == len(addresses)


def test_cube_meshes_use_all_links() -> None:
    """Six on every V100, four on every P100."""
    for name, links in (("dgx-1v", 6), ("dgx-1p", 4)):
        node = machine(name)
        assert {sum(link.nvlinks for pair, link in node.pairs.items() if at in pair) for at in range(8)} == {links}


def test_degraded_machines_differ_from_healthy_ones_in_one_place() -> None:
    """One link down, one GPU off the fabric; and they say why."""
    healthy, sick = machine("dgx-1v"), machine("dgx-1v-dead-link")
    assert [pair for pair in sick.pairs if sick.nvlinks(*pair) != healthy.nvlinks(*pair)] == [(0, 1)]
    assert sick.pairs[0, 1].reason == "link down"
    assert [gpu.switch_links for gpu in machine("hgx-b200-gpu2-off-fabric").gpus] == [18, 18, 0, 18, 18, 18, 18, 18]


@pytest.mark.parametrize(
    ("name", "script"), [("hgx-h100", "hgx_h100"), ("hgx-h200", "one_h200_vm"), ("gb200-tray", "gb200_tray")]
)
def test_memory_is_what_a_driver_says_and_not_the_size_on_the_box(name: str, script: str) -> None:
    """As on the machines that the fake driver imitates; the first two were read on real GPUs."""
    said = re.search(r"memory_mib (\d+)", (NVML_MACHINES / f"{script}.nvml").read_text())
    assert said is not None
    assert {gpu.memory_bytes for gpu in machine(name).gpus} == {int(said[1]) << 20}


def test_an_unknown_name_is_a_key_error() -> None:
    """Nothing is guessed."""
    with pytest.raises(KeyError):
        machine("dgx-9000")
