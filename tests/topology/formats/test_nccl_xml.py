"""NCCL's topology XML: distances follow the tree, links follow both ends, hostile documents go nowhere."""

from __future__ import annotations

import pytest

from topology.errors import SourceError
from topology.formats.nccl_xml import parse_nccl_xml
from topology.formats.xml_tree import MAX_CHARACTERS
from topology.node.links import PciePath
from topology.node.model import NodeTopology


def gpu(dev: int, bus: str, inside: str = "", speed: str = "16.0 GT/s PCIe") -> str:
    attributes = f'busid="{bus}" class="0x030200" link_speed="{speed}" link_width="16"'
    return f'<pci {attributes}><gpu dev="{dev}" sm="80" rank="{dev}" gdr="1">{inside}</gpu></pci>'


def switch(bus: str, *inside: str) -> str:
    return f'<pci busid="{bus}" class="0x060400">{"".join(inside)}</pci>'


def cpu(numa: int, *inside: str, host: str = "0x1") -> str:
    attributes = 'affinity="00000000,000fffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"'
    return f'<cpu host_hash="{host}" numaid="{numa}" {attributes}>{"".join(inside)}</cpu>'


def nvlink(target: str, count: int = 2, kind: str = "0x068000") -> str:
    return f'<nvlink target="{target}" count="{count}" tclass="{kind}"/>'


def system(*inside: str) -> NodeTopology:
    return parse_nccl_xml(f'<system version="1">{"".join(inside)}</system>')


A, B, C, D = "0000:07:00.0", "0000:0b:00.0", "0000:48:00.0", "0000:4c:00.0"


def test_distances_follow_the_tree() -> None:
    """One switch, several switches, one NUMA node, two NUMA nodes."""
    inner = switch("0000:02:00.0", gpu(0, A), gpu(1, B))
    node = system(cpu(0, switch("0000:01:00.0", inner, gpu(2, C))), cpu(1, gpu(3, D)))
    assert [row[3] for row in node.matrix] == ["SYS", "SYS", "SYS", "X"]
    assert [link.path for link in node.links[:2]] == [PciePath.PIX, PciePath.PXB]
    assert system(cpu(0, gpu(0, A), gpu(1, B))).links[0].path is PciePath.PHB


def test_switches_joined_by_a_pcilink_are_several_switches() -> None:
    """Traffic crosses both without touching the CPU."""
    joined = switch("0000:01:00.0", gpu(0, A), '<pcilink target="0000:02:00.0"/>')
    node = system(cpu(0, joined, switch("0000:02:00.0", gpu(1, B))))
    assert node.links[0].path is PciePath.PXB


def test_what_a_gpu_says_of_itself() -> None:
    """Address as NVML spells it, capability, PCIe link, NUMA node and CPUs."""
    found = system(cpu(3, gpu(5, A))).gpus[0]
    assert (found.index, found.uuid, found.pci) == (5, "GPU-5", "00000000:07:00.0")
    assert (found.compute_capability, found.pcie_generation, found.pcie_width) == ((8, 0), 4, 16)
    assert (found.numa_node, found.cpu_affinity) == (3, "0-19")


@pytest.mark.parametrize(
    ("speed", "generation"),
    [("2.5 GT/s", 1), ("8 GT/s", 3), ("16 GT/s", 4), ("32.0 GT/s PCIe", 5), ("64.0 GT/s PCIe", 6), ("", None)],
)
def test_link_speed_tells_the_pcie_generation(speed: str, generation: int | None) -> None:
    """The kernel's wording changed over time."""
    assert system(cpu(0, gpu(0, A, speed=speed))).gpus[0].pcie_generation == generation


def test_numa_node_minus_one_is_unknown() -> None:
    """Virtual machines say so."""
    assert system(cpu(-1, gpu(0, A))).gpus[0].numa_node is None


@pytest.mark.parametrize(
    ("attributes", "vendor"),
    [
        ('arch="x86_64" vendor="GenuineIntel"', "intel"),
        ('arch="x86_64" vendor="AuthenticAMD"', "amd"),
        ('arch="arm64"', "arm"),
        ('arch="ppc64"', "power9"),
        ('arch="x86_64" vendor="somebody"', None),
    ],
)
def test_cpu_vendor(attributes: str, vendor: str | None) -> None:
    """It decides how fast the way between sockets is."""
    assert system(f'<cpu numaid="0" {attributes}>{gpu(0, A)}</cpu>').cpu_vendor == vendor


def test_cpu_model_is_family_and_model() -> None:
    """As /proc/cpuinfo counts them."""
    assert system(cpu(0, gpu(0, A))).cpu_model == "6/85"


def test_links_to_switches_add_up() -> None:
    """Six switches with two links each are twelve; a target that cannot be read is a switch, too."""
    targets = ["0000:c4:00.0", "0000:c5:00.0", "fffffff:ffff:ff", ""]
    node = system(cpu(0, gpu(0, A, "".join(nvlink(target, 3) for target in targets)), gpu(1, B)))
    assert [found.switch_links for found in node.gpus] == [12, 0]


def test_direct_links_count_what_both_ends_say() -> None:
    """A pair is worth what its weaker end says, and nothing if only one end says it."""
    node = system(
        cpu(
            0,
            gpu(0, A, nvlink(B, 4, "0x030200") + nvlink(C, 1, "0x030200")),
            gpu(1, B, nvlink(A, 2, "0x030200")),
            gpu(2, C),
        )
    )
    assert [link.nvlinks for link in node.links] == [2, 0, 0]


def test_direct_links_need_no_class() -> None:
    """The address of a GPU is enough."""
    ends = (gpu(0, A, f'<nvlink target="{B.upper()}" count="4"/>'), gpu(1, B, f'<nvlink target="{A}" count="4"/>'))
    assert system(cpu(0, *ends)).label(0, 1) == "NV4"


def test_links_to_oneself_and_to_the_cpu_join_no_gpus() -> None:
    """One cloud's file has the first, POWER machines have the second."""
    node = system(cpu(0, gpu(0, A, nvlink(A, 12, "0x030200") + nvlink("0004:00:00.0", 3, "0x068001")), gpu(1, B)))
    assert node.gpus[0].switch_links == 0
    assert node.label(0, 1) == "PHB"


def test_bare_devices_of_display_class_are_gpus_by_bus_id() -> None:
    """Overlays have no gpu elements; NVML numbers by address."""
    bare = '<pci busid="{}" class="0x030200"/>'
    vga = '<pci busid="0000:01:00.0" class="0x030000" vendor="0x1a03"/>'
    node = system(cpu(1, bare.format("0003:00:00.0")), cpu(0, bare.format("0001:00:00.0"), vga))
    assert [(found.pci, found.numa_node) for found in node.gpus] == [("00000001:00:00.0", 0), ("00000003:00:00.0", 1)]


def test_nics_are_named_in_order_and_know_their_device() -> None:
    """With a net element and without one; as near to GPUs as the tree says."""
    named = '<pci busid="0000:0c:00.0" class="0x020700"><nic><net name="mlx5_4" dev="0"/></nic></pci>'
    bare = '<pci busid="0000:0d:00.0" class="0x020700"/>'
    node = system(cpu(2, switch("0000:01:00.0", gpu(0, A), named), bare, gpu(1, B)))
    assert [(nic.name, nic.device, nic.pci) for nic in node.nics] == [
        ("NIC0", "mlx5_4", "00000000:0C:00.0"),
        ("NIC1", None, "00000000:0D:00.0"),
    ]
    assert node.nics[0].paths == ((0, PciePath.PIX), (1, PciePath.PHB))
    assert node.nics[0].nic_paths == (("NIC1", PciePath.PHB),)


def test_nic_without_an_address_hangs_at_its_cpu() -> None:
    """Virtual network cards do."""
    node = system(cpu(0, gpu(0, A), '<nic><net name="eth0" dev="0"/></nic>'), cpu(1, gpu(1, B)))
    assert node.nics[0].paths == ((0, PciePath.PHB), (1, PciePath.SYS))


BOMB = '<!DOCTYPE s [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><system>&b;</system>'
OUTSIDE = '<!DOCTYPE s SYSTEM "file:///etc/passwd"><system/>'


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("", 1, 1, "no element"),
        ("<system", 1, 1, "unclosed token"),
        ("<system>\n <cpu>\n</system>", 3, 3, "mismatched tag"),
        ("<system>&nothing;</system>", 1, 9, "undefined entity"),
        (BOMB, 1, 13, "entities are not read"),
        (OUTSIDE, 1, 40, "entities are not read"),
        ("<a>" * 65, 1, 193, "more elements"),
        ("<a>" + "<b/>" * 10_000, 1, 39_996 + 4, "more elements"),
        ("x" * (MAX_CHARACTERS + 1), 0, 0, "longer than"),
        ("<system>\ud800</system>", 0, 0, "no encoding"),
        ("<!-- c -->\n<graphs/>", 2, 1, "an NCCL graph"),
        ("<html/>", 1, 1, "a html document"),
        ("<system/>", 1, 1, "no GPU"),
        ("<system>\n<cpu><pci busid='0000:00:16.0'/></cpu></system>", 2, 6, "no GPU"),
        ("<system><gpu dev='0'/></system>", 1, 9, "outside of a pci element"),
        ("<system><pci><gpu dev='0'/></pci></system>", 1, 9, "without busid"),
        ("<system><pci busid='7'><gpu dev='0'/></pci></system>", 1, 9, "no PCI address"),
        (f"<system><pci busid='{A}'><gpu/></pci></system>", 1, 9, "without dev"),
        (f"<system><pci busid='{A}'><gpu dev='-1'/></pci></system>", 1, 35, "not a number from 0 to 1023"),
        (f"<system><pci busid='{A}'><gpu dev='٣'/></pci></system>", 1, 35, "not a number"),
        (f"<system>{gpu(0, A)}{gpu(0, B)}</system>", 1, 146, "the same GPU twice"),
        (f"<system>{gpu(0, A)}{gpu(1, A)}</system>", 1, 146, "the same GPU twice"),
        (f"<system>{gpu(0, A, nvlink(C, 37))}</system>", 1, 134, "not a number from 0 to 36"),
        (f"<system>{gpu(0, A, nvlink(C, 36) * 2)}</system>", 1, 194, "more than 36 NVLinks"),
        (
            f"<system>{gpu(0, A, nvlink(B, 36) + nvlink(C))}{gpu(1, B, nvlink(A, 36))}</system>",
            1,
            194,
            "more than 36 NVLinks",
        ),
        (f"<system>{cpu(0, gpu(0, A))}{cpu(0, gpu(0, B), host='0x2')}</system>", 1, 275, "more than one host"),
    ],
)
def test_broken_and_hostile_documents_are_refused_with_their_place(
    text: str, line: int, column: int, reason: str
) -> None:
    """Nothing is expanded, nothing is fetched, and the error points at the element."""
    with pytest.raises(SourceError) as caught:
        parse_nccl_xml(text)
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(("kind", "count"), [("030200", 73), ("020700", 65)])
def test_no_node_has_that_many_devices(kind: str, count: int) -> None:
    """Seventy-two GPUs and sixty-four NICs are believed."""
    many = "".join(f'<pci busid="{n:04x}:00:00.0" class="0x{kind}"/>' for n in range(count))
    with pytest.raises(SourceError, match=f"more than {count - 1}"):
        system(cpu(0, gpu(0, "ffff:00:00.0") if kind == "020700" else "", many))


def spoiled(vendor: str, extra: str = "") -> str:
    pci = f'<pci busid="{A}" class="0x038000" vendor="{vendor}"><gpu dev="0" sm="90" {extra}/></pci>'
    return f'<system version="2">\n<cpu numaid="0">\n{pci}</cpu></system>'


@pytest.mark.parametrize(
    ("vendor", "extra", "maker"),
    [
        ("0x1002", "", "AMD"),
        ("0x1d94", 'gcn="21943"', "Hygon"),
        ("0x8086", "", "Intel"),
        ("0x1eed", "", "vendor 0x1eed"),
        ("0x10de", 'gcn="gfx942"', "another maker"),
    ],
)
def test_gpus_of_other_makers_are_refused(vendor: str, extra: str, maker: str) -> None:
    """RCCL writes the same elements, and none of NVIDIA's rates hold for its GPUs."""
    with pytest.raises(SourceError) as caught:
        parse_nccl_xml(spoiled(vendor, extra))
    assert (caught.value.line, caught.value.reason) == (3, f"a GPU of {maker}: only NVIDIA's are planned")


def test_devices_of_other_makers_are_refused_where_no_gpu_element_stands() -> None:
    """The sentence that there is none would be false."""
    bare = f'<pci busid="{A}" class="0x120000" vendor="0x1002"/>'
    with pytest.raises(SourceError, match="a GPU of AMD"):
        system(cpu(0, bare))


def test_a_vendor_of_nvidia_is_read_in_either_case() -> None:
    """Hexadecimal digits have no fixed case."""
    assert len(parse_nccl_xml(spoiled("0x10DE"))) == 1


def test_virtual_interfaces_that_each_cpu_repeats_are_one_nic_without_a_place() -> None:
    """A dump of several ranks has them under the CPU of each; which one they hang at, if any, it does not say."""
    virtual = '<nic><net name="eth0" dev="0"/><net name="cali1" dev="1"/></nic>'
    real = '<pci busid="0000:0c:00.0" class="0x020700"><nic><net name="mlx5_0" dev="2"/></nic></pci>'
    node = system(cpu(0, gpu(0, A), virtual, real), cpu(1, gpu(1, B), virtual))
    assert [nic.device for nic in node.nics] == ["eth0", "cali1", "mlx5_0"]
    assert [nic.paths for nic in node.nics] == [(), (), ((0, PciePath.PHB), (1, PciePath.SYS))]
    assert [nic.nic_paths for nic in node.nics] == [(), (), ()]


def test_more_than_64_interfaces_are_counted_once_each() -> None:
    """Twenty of them under each of five CPUs are twenty."""
    virtual = "".join(f'<net name="veth{n}" dev="{n}"/>' for n in range(20))
    node = system(*(cpu(n, gpu(n, f"0000:0{n}:00.0"), f"<nic>{virtual}</nic>") for n in range(5)))
    assert len(node.nics) == 20


def warnings(text: str, model: str | None = None) -> list[tuple[int, str]]:
    said: list[tuple[int, str]] = []
    parse_nccl_xml(text, model, lambda line, what: said.append((line, what)))
    return said


def test_a_file_that_leaves_nvlinks_to_the_driver_says_so() -> None:
    """Clouds ship such files for machines with NVLinks; a model without any needs no warning."""
    text = f'<system>\n<cpu numaid="0">\n<pci busid="{A}" class="0x030200"/>\n</cpu></system>'
    assert [(line, "says nothing of NVLinks" in what) for line, what in warnings(text)] == [(3, True)]
    assert len(warnings(text, "NVIDIA A100-SXM4-40GB")) == 1
    assert warnings(text, "NVIDIA L4") == []
    assert warnings(f"<system>{cpu(0, gpu(0, A))}</system>") == []


def test_a_link_to_oneself_is_left_out_with_a_warning() -> None:
    """One cloud's file has twelve of them on each GPU, where its bridges are."""
    text = f"<system>\n{cpu(0, gpu(0, A, nvlink(A, 12, '0x030200')))}</system>"
    assert warnings(text) == [(2, "an NVLink from a GPU to itself is left out")]


def test_what_stands_around_a_document_is_passed_over() -> None:
    """A prompt before it, a code fence behind it; places count from the first line of the text."""
    text = f"root@host:/# cat topo.xml\n<system>\n{cpu(0, gpu(0, A))}\n</system>\n```\nroot@host:/#"
    assert len(parse_nccl_xml(text)) == 1
    with pytest.raises(SourceError) as caught:
        parse_nccl_xml(text.replace('dev="0"', 'dev="nine"'))
    assert caught.value.line == 3


@pytest.mark.parametrize("end", ["", "\n```\n"])
def test_a_document_that_was_cut_says_so(end: str) -> None:
    """An element that nobody closes is no document without elements."""
    with pytest.raises(SourceError) as caught:
        parse_nccl_xml(f"$ cat x\n<system>\n<cpu>{gpu(0, A)}{end}")
    assert caught.value.reason == "the text ends inside the cpu element of line 3: it was cut"
    assert caught.value.line == 3 + end.count("\n")
