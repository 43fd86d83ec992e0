"""What GPUs do, read from an agent's metrics: what cannot be read tells nothing, and no text takes long or much memory."""

from __future__ import annotations

import pytest

from extender.inspect.samples import GpuSample, samples_of


def test_the_series_of_each_gpu_are_read_and_no_others() -> None:
    """Series with more labels, of other names, and comments are passed over."""
    text = b"""# HELP gputopo_gpu_power_watts Power draw.
gputopo_gpu_power_watts{uuid="GPU-1"} 301.6
gputopo_gpu_power_limit_watts{uuid="GPU-1"} 400.0
gputopo_gpu_utilization_ratio{uuid="GPU-1"} 0.93
gputopo_gpu_memory_used_bytes{uuid="GPU-2"} 2.147483648e+09
gputopo_gpu_memory_total_bytes{uuid="GPU-2"} 1.7179869184e+10
gputopo_gpu_health{uuid="GPU-2",state="healthy"} 1.0
gputopo_gpu_energy_joules_total{uuid="GPU-2"} 9.0
"""
    samples = samples_of(text, 8)
    assert samples["GPU-1"] == GpuSample(utilization_ratio=0.93, power_watts=301.6, power_limit_watts=400.0)
    first, second = samples["GPU-1"], samples["GPU-2"]
    assert (first.utilization, first.power, first.memory, first.temperature) == ("93 %", "302 of 400 W", "", "")
    assert second.memory == "2 of 16 GiB"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b'gputopo_gpu_power_watts{uuid="',
        b'gputopo_gpu_power_watts{uuid="a"}',
        b'gputopo_gpu_power_watts{uuid="a"} NaN',
        b'gputopo_gpu_power_watts{uuid="a"} watts',
        b'gputopo_gpu_power_watts{uuid="' + b"a" * 500 + b'"} 1',
        b'gputopo_gpu_power_watts{uuid="a",x="y"} 1',
    ],
)
def test_what_cannot_be_read_tells_nothing(text: bytes) -> None:
    """And nothing is raised."""
    assert samples_of(text, 8) == {}


def test_no_more_gpus_are_kept_than_a_node_has() -> None:
    """Whatever an agent sends."""
    text = b"\n".join(b'gputopo_gpu_power_watts{uuid="%d"} 1' % number for number in range(100))
    assert len(samples_of(text, 8)) == 8
