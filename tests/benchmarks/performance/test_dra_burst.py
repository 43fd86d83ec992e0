"""What `gputopo-bench scheduler --dra` prints of a burst of claims."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.performance.dra_burst import DraBurstRow, DraWay, as_text


def test_the_text_says_how_many_devices_were_given_twice() -> None:
    """A fast burst that gives a device to two pods is no good one."""
    row = DraBurstRow(0, DraWay.PLANNED, 20, 12, 1.0, 12.0, 0.5, 0.9, 3.0, 2.0, 1.0, devices_given_twice=7, load=0.4)
    (line, _) = as_text({"rows": [asdict(row)], "ratios": [], "kubernetes": "v1.36.2"}).splitlines()
    assert "devices given twice 7 " in line
