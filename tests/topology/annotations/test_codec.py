"""The agent's annotations: what is written is read back, stays small, and stays readable for others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.strategies.topologies import topologies
from topology.annotations.codec import decode_topology, digest, encode_topology
from topology.annotations.status_codec import decode_status, encode_status
from topology.errors import PayloadError
from topology.formats.catalog import MACHINES, machine
from topology.node.alignment import NumaCpus, Policy, Scope, TopologyManager
from topology.node.links import PciePath
from topology.node.model import Gpu, Link, Nic, NodeTopology
from topology.node.offers import OfferForm, ResourceOffer
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, LinkFault, Mode, NodeGpuStatus, Outlook

BUDGET_BYTES = 4096
EIGHT_GPU_MACHINES = [name for name in MACHINES if len(machine(name)) == 8]


def payload_of(node: NodeTopology) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(encode_topology(node))
    return document


def idle(node: NodeTopology) -> NodeGpuStatus:
    """Return the status of a healthy node that runs nothing."""
    return NodeGpuStatus(
        1_000_000, tuple(GpuStatus(gpu.uuid, memory_used_gib=0, mig_enabled=False) for gpu in node.gpus)
    )


def pair(*links: Link, **traits: Any) -> NodeTopology:
    return NodeTopology((Gpu(0, "GPU-a", "m", **traits), Gpu(1, "GPU-b", "m", **traits)), links)


@pytest.mark.slow
@given(topologies())
def test_any_valid_topology_survives(node: NodeTopology) -> None:
    """Text and value name each other: same value, same text, and back."""
    text = encode_topology(node)
    assert decode_topology(text) == node
    assert encode_topology(decode_topology(text)) == text


def test_equal_topologies_give_equal_texts() -> None:
    """The order of links and links that carry nothing do not count, so digests compare machines."""
    node = machine("dgx-1v")
    shuffled = replace(node, links=(*reversed(node.links),))
    assert encode_topology(shuffled) == encode_topology(node)
    bare = pair()
    assert encode_topology(replace(bare, links=(Link(0, 1),))) == encode_topology(bare)


def reported(node: NodeTopology) -> NodeTopology:
    """Return the node with all that an agent adds to the wiring."""
    gpus = tuple(replace(gpu, ecc_enabled=True) for gpu in node.gpus)
    links = tuple(replace(link, p2p=True) for link in node.links)
    return replace(node, gpus=gpus, links=links, driver_version="550.90.07", cuda_version="12.4")


@pytest.mark.parametrize("name", EIGHT_GPU_MACHINES)
def test_eight_gpus_and_their_status_fit_the_budget(name: str) -> None:
    """4 KiB for both annotations, and for healthy machines with all that an agent adds."""
    node = machine(name)
    node = node if any(link.reason for link in node.links) else reported(node)
    assert len(encode_topology(node)) + len(encode_status(idle(node))) <= BUDGET_BYTES


@pytest.mark.parametrize("name", ["dgx-1v", "dgx-a100", "hgx-b200-gpu2-off-fabric", "gb200-tray", "rtx-3090-2"])
def test_payloads_look_as_they_always_did(name: str, golden: Callable[[str, str], None]) -> None:
    """Others read them; a change of form shows up in review."""
    text = encode_topology(machine(name))
    golden(f"{name}.annotation.json", json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n")
    assert decode_topology(text) == machine(name)


def test_contract_keys_of_a_gpu_are_always_there() -> None:
    """Scripts of others index them, so an unknown value is null and not absent."""
    assert payload_of(pair())["gpus"][0] == {
        "uuid": "GPU-a",
        "index": 0,
        "model": "m",
        "memory_bytes": None,
        "pci": None,
        "numa_node": None,
    }


def test_no_blanks_and_version_first() -> None:
    """One value has one spelling."""
    text = encode_topology(pair())
    assert text.startswith('{"v":1,"gpus":[{"uuid":"GPU-a","index":0,')
    assert " " not in text


def test_what_all_gpus_share_is_said_once() -> None:
    """It is most of what there is to say."""
    payload = payload_of(pair(compute_capability=(9, 0), switch_links=18))
    assert payload["every_gpu"] == {"compute_capability": "9.0", "switch_links": 18}
    assert "switch_links" not in payload["gpus"][0]


def test_the_commonest_path_is_said_once() -> None:
    """Only pairs without NVLinks fold, and only when something is known of every pair."""
    payload = payload_of(machine("l4-8"))
    assert payload["other_pairs"] == {"path": "SYS"}
    assert payload["links"][0] == {"a": 0, "b": 1, "path": "PHB"}
    assert len(payload["links"]) == 12


def test_peer_access_is_said_once_where_it_is_the_same_everywhere() -> None:
    """As it is on nearly every node."""
    payload = payload_of(reported(machine("l4-8")))
    assert payload["every_pair"] == {"p2p": True}
    assert payload["links"][0] == {"a": 0, "b": 1, "path": "PHB"}


def test_pairs_with_nvlinks_are_always_listed() -> None:
    """A reader who only looks at `links` sees every direct NVLink."""
    payload = payload_of(machine("a100-sxm4-4"))
    assert [link["nvlinks"] for link in payload["links"]] == [4] * 6


def test_the_board_of_two_gpus_is_kept_apart_from_one_switch() -> None:
    """`INTERNAL` prints as PIX in a matrix, but not here."""
    node = pair(Link(0, 1, path=PciePath.INTERNAL))
    assert decode_topology(encode_topology(node)) == node


def test_nic_paths_known_to_one_side_are_known_to_both() -> None:
    """A path has no direction."""
    nics = (Nic("NIC0", nic_paths=(("NIC1", PciePath.PIX),)), Nic("NIC1"))
    decoded = decode_topology(encode_topology(replace(pair(), nics=nics)))
    assert decoded.nics[1].nic_paths == (("NIC0", PciePath.PIX),)


def test_unknown_keys_are_passed_over() -> None:
    """A newer writer may add to version 1."""
    payload = payload_of(pair()) | {"colour": "green"}
    payload["gpus"][0]["fans"] = 2
    assert decode_topology(json.dumps(payload)) == pair()


def test_a_payload_without_foldings_is_read() -> None:
    """The short form of the contract is enough."""
    text = '{"v":1,"gpus":[{"uuid":"GPU-a","index":0,"model":"m"},{"uuid":"GPU-b","index":1,"model":"m"}],"links":[]}'
    assert decode_topology(text) == pair()


def test_what_would_not_be_read_is_not_written() -> None:
    """A name with control characters, and a text beyond the cap."""
    with pytest.raises(PayloadError, match="control") as caught:
        encode_topology(NodeTopology((Gpu(0, "GPU-a", "bad\nname"),)))
    assert caught.value.path == "$.gpus[0].model"
    many = tuple(
        Gpu(index, f"GPU-{index:090}", "m" * 250, pci="p" * 96, cpu_affinity="1," * 126) for index in range(64)
    )
    with pytest.raises(PayloadError, match="larger than 32768 bytes"):
        encode_topology(NodeTopology(many))


def test_digest_follows_the_text() -> None:
    """32 hex digits, different for different texts."""
    one, other = digest(encode_topology(machine("dgx-1v"))), digest(encode_topology(machine("dgx-1p")))
    assert len(one) == len(other) == 32
    assert one != other


STATUS = NodeGpuStatus(
    generation=7,
    gpus=(
        GpuStatus(
            "GPU-a",
            healthy=False,
            reasons=("xid 79", "row remap pending"),
            mig_enabled=True,
            sick_since=1_780_000_000,
            outlook=Outlook("it opens when a reset is proven", remedy="reset it"),
        ),
        GpuStatus("GPU-b", memory_used_gib=3, outlook=Outlook("it opens by itself", until=1_780_000_300)),
        GpuStatus("GPU-c", reasons=("row remap pending",), doubtful=True),
    ),
    link_faults=(LinkFault("GPU-a", 3, "inactive"), LinkFault("GPU-b", 0, "crc errors", 1_780_000_000, 1_780_000_300)),
)


def test_status_survives() -> None:
    """Health with reasons, since when and what comes next, memory, MIG mode and link faults."""
    assert decode_status(encode_status(STATUS)) == STATUS


def test_status_is_the_same_text_in_any_order() -> None:
    """By UUID, faults by GPU and link: nothing is written when nothing changed."""
    turned = replace(STATUS, gpus=STATUS.gpus[::-1], link_faults=STATUS.link_faults[::-1])
    assert encode_status(turned) == encode_status(STATUS)


@pytest.mark.parametrize("mode", [None, False, True])
def test_status_says_once_what_all_gpus_share(mode: bool | None) -> None:
    """The MIG mode of a node is mostly one."""
    status = NodeGpuStatus(1, tuple(GpuStatus(f"GPU-{index}", mig_enabled=mode) for index in range(8)))
    assert encode_status(status).count("mig_enabled") == (mode is not None)
    assert decode_status(encode_status(status)) == status


def test_status_tells_how_each_gpu_is_offered() -> None:
    """Once where all are offered alike; not offered is not the same as not known."""
    whole, shared = (
        ResourceOffer("nvidia.com/gpu", OfferForm.WHOLE),
        ResourceOffer("nvidia.com/gpu.shared", OfferForm.SHARED, 4),
    )
    alike = NodeGpuStatus(1, tuple(GpuStatus(f"GPU-{index}", offers=(whole,)) for index in range(8)))
    assert encode_status(alike).count('"offers"') == 1
    unlike = NodeGpuStatus(
        1, tuple(GpuStatus(f"GPU-{index}", offers=o) for index, o in enumerate([(shared,), (), None]))
    )
    for status in (alike, unlike):
        assert decode_status(encode_status(status)) == status


def test_status_tells_who_hands_out_the_gpus() -> None:
    """The mode, whether a pod may be bound now, and why not."""
    plugin = DevicePluginStatus(Mode.ENFORCE, ready=False, session="4-2", reasons=("no kubelet socket",))
    text = encode_status(NodeGpuStatus(1, device_plugin=plugin))
    assert '"device_plugin":{"mode":"enforce","ready":false,"session":"4-2","reasons":["no kubelet socket"]}' in text
    assert decode_status(text).device_plugin == plugin


def test_status_tells_how_the_kubelet_aligns() -> None:
    """Policy, scope and CPUs by NUMA node; a word that Kubernetes does not know is refused."""
    manager = TopologyManager(Policy.RESTRICTED, Scope.POD, (NumaCpus(0, 48, 40), NumaCpus(10, 48, 48)))
    plugin = DevicePluginStatus(Mode.OBSERVE, True, topology_manager=manager, also_offered=frozenset({"GPU-a"}))
    text = encode_status(NodeGpuStatus(1, device_plugin=plugin))
    said = '{"policy":"restricted","scope":"pod","cpus":{"0":{"total":48,"free":40},"10":{"total":48,"free":48}}}'
    assert f'"topology_manager":{said},"also_offered":["GPU-a"]' in text
    assert decode_status(text).device_plugin == plugin
    for broken in (text.replace("restricted", "strict"), text.replace('"10"', '"x"'), text.replace("40", "-1")):
        with pytest.raises(PayloadError):
            decode_status(broken)


def test_status_tells_the_version_of_the_agent() -> None:
    """What older agents write says nothing of it, and is read; what they said is what is written now."""
    told = replace(STATUS, agent_version="0.2.0")
    assert decode_status(encode_status(told)) == told
    assert "agent_version" not in encode_status(STATUS)
    with pytest.raises(PayloadError):
        decode_status(encode_status(told).replace('"0.2.0"', "2"))


def test_status_names_the_gpus_to_leave_alone() -> None:
    """Only what is said to be unhealthy is."""
    assert STATUS.unhealthy == {"GPU-a"}


def test_status_names_the_gpus_to_take_last() -> None:
    """One that takes no pods is never one of them, whatever is said of it; of others nothing is said."""
    closed = GpuStatus("GPU-d", healthy=False, doubtful=True)
    assert replace(STATUS, gpus=(*STATUS.gpus, closed)).doubtful == {"GPU-c"}
    assert encode_status(STATUS).count("doubtful") == 1


def test_status_of_the_same_gpu_twice_is_refused() -> None:
    """Two answers are no answer."""
    with pytest.raises(PayloadError, match="the same UUID twice"):
        encode_status(replace(STATUS, gpus=(STATUS.gpus[0], STATUS.gpus[0])))


def test_status_tells_which_gpus_can_be_shared_and_how() -> None:
    """What all offer is said once; memory beyond shares only where there is any."""
    sharing = Sharing(2, Limits.MPS, ("cgroup: the driver is older than r615",))
    gpus = (GpuStatus("GPU-a", share_gib=78), GpuStatus("GPU-b", share_gib=78, beyond_shares_gib=4))
    status = NodeGpuStatus(1, gpus, device_plugin=DevicePluginStatus(Mode.ENFORCE, True, sharing=sharing))
    text = encode_status(status)
    assert '"every_gpu":{"share_gib":78}' in text
    assert text.count("beyond_shares_gib") == 1
    assert '"sharing":{"max_gpus":2,"limits":"mps","reasons":["cgroup: the driver is older than r615"]}' in text
    assert decode_status(text) == status
    mixed = replace(status, gpus=(gpus[0], replace(gpus[1], share_gib=None)))
    assert decode_status(encode_status(mixed)) == mixed


def test_status_of_an_agent_that_knows_of_no_shares_shares_nothing() -> None:
    """A text of version 0.1.0, and no word of shares in what is written without them."""
    text = '{"v":1,"generation":4,"gpus":{"GPU-a":{"healthy":true}},"device_plugin":{"mode":"enforce","ready":true}}'
    status = decode_status(text)
    assert status.gpus[0].share_gib is None
    assert status.device_plugin is not None and status.device_plugin.sharing is None
    assert encode_status(status) == text
