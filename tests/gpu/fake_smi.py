"""An `nvidia-smi` that says of `hgx_h100_busy` what the real one would, written by hand and by no code of ours."""

from __future__ import annotations

from pathlib import Path

MACHINE = "hgx_h100_busy"
WORKS = "gpu 2 process 4711 python train.py"
"""One line more of the machine's description: so that somebody computes."""
FILES = {
    "-L": "list",
    "topo -m": "topo",
    "-q -x": "query",
    "--query-compute-apps=gpu_uuid,pid --format=csv,noheader": "processes",
    "--query-gpu=uuid,utilization.gpu,utilization.memory,memory.total,memory.used,memory.reserved,temperature.gpu,"
    "temperature.memory,power.draw,enforced.power.limit,clocks.sm,clocks.mem --format=csv,noheader,nounits": "figures",
}
"""Arguments → the file that is printed; any others are an error."""
_BUSES = ("19", "3B", "4C", "5D", "9B", "BB", "CB", "DB")
_CPUS = ("0-55,112-167", "56-111,168-223")


def write_fake_smi(folder: Path) -> None:
    """Write the program and its answers; a test may then change an answer."""
    names = [f"GPU{index}" for index in range(8)]
    header = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    rows = [
        "\t".join(
            [name, *(" X " if other == name else "NV18" for other in names), _CPUS[at // 4], f"{at // 4}\t", "N/A"]
        )
        for at, name in enumerate(names)
    ]
    answers = {
        "list": "\n".join(f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: {_uuid(index)})" for index in range(8)),
        "topo": "\n".join([f"\x1b[4m{header}\x1b[0m", *rows, "", "Legend:", "  X    = Self"]),
        "query": _HEAD + "".join(_gpu(index) for index in range(8)) + "</nvidia_smi_log>",
        "processes": f"{_uuid(2)}, 4711",
        "figures": "\n".join(
            f"{_uuid(index)}, 96, 54, 81559, 71001, 551, 62, 74, 651.30, 700.00, 1740, 2619" for index in range(8)
        ),
    }
    for name, text in answers.items():
        (folder / name).write_text(f"{text}\n")
    cases = "".join(f'"{arguments}") cat "$here/{name}" ;;\n' for arguments, name in FILES.items())
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nhere=$(dirname "$0")\ncase "$*" in\n{cases}*) echo "$*" >&2; exit 2 ;;\nesac\n')
    program.chmod(0o755)


def _uuid(index: int) -> str:
    return f"GPU-41000000-0000-4000-8000-00000000000{index}"


_HEAD = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
<driver_version>535.129.03</driver_version>
<cuda_version>12.2</cuda_version>
<attached_gpus>8</attached_gpus>
"""


def _gpu(index: int) -> str:
    return f"""<gpu id="00000000:{_BUSES[index]}:00.0">
<product_name>NVIDIA H100 80GB HBM3</product_name>
<mig_mode><current_mig>Disabled</current_mig></mig_mode>
<serial>1650923000000</serial>
<uuid>{_uuid(index)}</uuid>
<gpu_recovery_action>None</gpu_recovery_action>
<pci><pci_bus_id>00000000:{_BUSES[index]}:00.0</pci_bus_id><pci_gpu_link_info>
<pcie_gen><max_link_gen>5</max_link_gen></pcie_gen>
<link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width></link_widths>
</pci_gpu_link_info><replay_counter>7</replay_counter></pci>
<fb_memory_usage><total>81559 MiB</total></fb_memory_usage>
<ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
<ecc_errors><aggregate>
<sram_correctable>3</sram_correctable><sram_threshold_exceeded>No</sram_threshold_exceeded>
<dram_correctable>12</dram_correctable><dram_uncorrectable>0</dram_uncorrectable>
</aggregate></ecc_errors>
<retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
<remapped_rows>
<remapped_row_corr>1</remapped_row_corr><remapped_row_unc>0</remapped_row_unc>
<remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
<row_remapper_histogram>
<row_remapper_histogram_none>0 bank(s)</row_remapper_histogram_none>
</row_remapper_histogram>
</remapped_rows>
<fabric><state>Completed</state><status>Success</status>
<cliqueId>0</cliqueId><clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid></fabric>
</gpu>
"""
