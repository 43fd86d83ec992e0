"""The cgroups of pods are found by the kubelet's names, whichever driver it uses and wherever it puts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.limits.cgroups import PodCgroups

UID = "6b0c3f0e-0000-4000-8000-000000000001"
ESCAPED = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("", f"kubepods/pod{UID}"),
        ("", f"kubepods/burstable/pod{UID}"),
        ("/", f"kubepods/besteffort/pod{UID}"),
        ("", f"kubepods.slice/kubepods-pod{ESCAPED}.slice"),
        ("", f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{ESCAPED}.slice"),
        ("/kubelet", f"kubelet/kubepods/besteffort/pod{UID}"),
        (
            "/kubelet",
            (
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
                f"kubelet-kubepods-besteffort-pod{ESCAPED}.slice"
            ),
        ),
        (
            "/my-node/inner",
            f"my_node.slice/my_node-inner.slice/my_node-inner-kubepods.slice/my_node-inner-kubepods-pod{ESCAPED}.slice",
        ),
    ],
)
def test_pods_are_found_under_both_drivers_in_each_class_of_service(tmp_path: Path, said: str, path: str) -> None:
    """By looking; where all of them begin the kubelet's configuration says."""
    config = tmp_path / "config.yaml"
    config.write_text(f"cgroupRoot: {said}\n" if said else "{}\n")
    root = tmp_path / "cgroup"
    (root / path).mkdir(parents=True)
    cgroups = PodCgroups(root, config)
    assert cgroups.of_pod(UID) == root / path
    assert [*cgroups.pods()] == [root / path]
    assert cgroups.of_pod(UID.replace("1", "2")) is None


def test_a_uid_that_is_a_path_is_no_pod(tmp_path: Path) -> None:
    """Whoever forges a ledger sets no limit on the node's own cgroups by it."""
    for folder in (f"kubepods/pod{UID}", f"kubepods.slice/kubepods-pod{ESCAPED}.slice", "system.slice"):
        (tmp_path / folder).mkdir(parents=True)
    cgroups = PodCgroups(tmp_path)
    assert [cgroups.of_pod(f"{UID}{rest}") for rest in ("/../../system.slice", ".slice/../../system", "/..")] == [
        None
    ] * 3


def test_what_is_no_pod_is_none(tmp_path: Path) -> None:
    """Folders of other kinds stand beside pods."""
    (tmp_path / "kubepods" / "burstable" / f"pod{UID}" / "0123abcd").mkdir(parents=True)
    (tmp_path / "kubepods" / "other").mkdir()
    cgroups = PodCgroups(tmp_path)
    assert [each.name for each in cgroups.pods()] == [f"pod{UID}"]
    assert [each.name for each in cgroups.of_containers(next(cgroups.pods()))] == ["0123abcd"]


def test_with_dmem_only_containers_that_have_its_files_can_take_a_limit(tmp_path: Path) -> None:
    """Where the pod has none the driver counts by itself, and takes one for each."""
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    assert {each.name for each in PodCgroups().of_containers(tmp_path)} == {"with", "without"}
    for folder in (tmp_path, tmp_path / "with"):
        (folder / "dmem.max").touch()
    assert [each.name for each in PodCgroups().of_containers(tmp_path)] == ["with"]


def test_node_without_a_kubelets_cgroups_has_none(tmp_path: Path) -> None:
    """As one whose kubelet makes none for pods, or whose cgroups the agent does not see."""
    cgroups = PodCgroups(tmp_path, tmp_path / "nowhere.yaml")
    assert (cgroups.all_pods(), [*cgroups.pods()], cgroups.of_pod(UID), cgroups.is_unified) == (None, [], None, False)


@pytest.mark.parametrize("text", ["cgroupRoot: [1]", "- no mapping", ":\n\t-", "cgroupRoot: ../../etc"])
def test_configuration_that_makes_no_sense_leads_nowhere_else(tmp_path: Path, text: str) -> None:
    """Never out of the cgroups."""
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "kubepods").mkdir()
    found = PodCgroups(tmp_path, tmp_path / "config.yaml").all_pods()
    assert found in (None, tmp_path / "kubepods")


def test_cgroup_v2_is_known_by_its_root(tmp_path: Path) -> None:
    """On v1 and hybrid hosts each controller has a folder there."""
    (tmp_path / "memory").mkdir()
    assert not PodCgroups(tmp_path).is_unified
    (tmp_path / "cgroup.controllers").touch()
    assert PodCgroups(tmp_path).is_unified
