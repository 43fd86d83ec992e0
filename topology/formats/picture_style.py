"""How a picture of a node looks, light and dark: in Okabe's and Ito's colours, which all kinds of sight can tell apart."""

from __future__ import annotations

from typing import Final

STYLE: Final = """\
text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#1f2328}
.card{fill:#fff;stroke:#d0d7de}.head{font-size:18px;font-weight:600}.note{font-size:12px;fill:#59636e}
.numa{fill:#f4f6f8;stroke:#d0d7de}.name{font-size:11px;font-weight:600;fill:#59636e}.cpus{font-size:10px;fill:#7b8590}
.bridge{fill:#fff;stroke:#9aa4af}.PXB{stroke-dasharray:5 3}.socket{stroke:#c3cad2;stroke-width:6}
.nic{fill:#f4f6f8;stroke:#9aa4af}.tiny{font-size:10px;fill:#59636e;text-anchor:middle}
.link{stroke:#009e73;fill:none;stroke-linecap:round}.ring{stroke:#d55e00}.off{stroke:#9aa4af;stroke-dasharray:2 5}
.pill{fill:#fff;stroke:#009e73}.count{font-size:10px;font-weight:600;fill:#006b4e;text-anchor:middle}
.ring-pill{fill:#fff;stroke:#d55e00}.ring-count{font-size:10px;font-weight:600;fill:#a34700;text-anchor:middle}
.switch{fill:#009e73}.on-switch{font-size:14px;font-weight:600;fill:#fff;text-anchor:middle;letter-spacing:.06em}
.gpu{stroke-width:2;fill:#d9eefa;stroke:#0072b2}.number{font-size:24px;font-weight:700;fill:#083d5c;text-anchor:middle}
.size{font-size:10px;fill:#2d5f7d;text-anchor:middle}
.used{fill:#e6e8eb;stroke:#a3abb4;stroke-dasharray:4 3}.used-number,.used-size{fill:#8b949e}
.chosen{fill:#e69f00;stroke:#b35900;stroke-width:4}.chosen-number,.chosen-size{fill:#2b1b00}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.card{fill:#0d1117;stroke:#30363d}.note,.name,.tiny{fill:#9da7b1}.cpus{fill:#7d8590}
.numa,.nic{fill:#161b22;stroke:#30363d}.bridge{fill:#0d1117;stroke:#545d68}.nic{stroke:#545d68}.socket{stroke:#30363d}
.link{stroke:#1fb58a}.ring{stroke:#f08a3c}.off{stroke:#545d68}.pill{fill:#0d1117;stroke:#1fb58a}.count{fill:#6fdcb8}
.ring-pill{fill:#0d1117;stroke:#f08a3c}.ring-count{fill:#f6b27f}
.switch{fill:#00795a}.on-switch{fill:#fff}.gpu{fill:#0c2d42;stroke:#56b4e9}.number{fill:#d9eefa}.size{fill:#9ccbe6}
.used{fill:#1c2128;stroke:#545d68}.used-number,.used-size{fill:#6e7681}
.chosen{fill:#e69f00;stroke:#ffd27a}.chosen-number,.chosen-size{fill:#2b1b00}}
"""

OF_MARKS: Final = """\
svg{color-scheme:light dark}
.holder{stroke:#24292f}.holder-number,.holder-size,.letter{fill:#16191d}.letter{font-size:12px;font-weight:700}
.h0{fill:#e69f00}.h1{fill:#5cc8f2}.h2{fill:#35c89f}.h3{fill:#f0e442}.h4{fill:#dc8fba}.h5{fill:#f58a4b}.h6{fill:#b9adf0}.h7{fill:#c3ccd5}
.unheld{fill:#fff;stroke:#0072b2}.used.sick{fill:#e6e8eb}.sick{stroke-dasharray:6 3}.around{stroke:#d55e00;stroke-width:5}
.cross{stroke:#b3261e;stroke-width:3;fill:none;opacity:.55}.bad{fill:#b3261e}.bad-mark{font-size:13px;font-weight:700;fill:#fff;text-anchor:middle}
.link.sick{stroke:#b3261e;stroke-dasharray:2 7}
.of-a-pod{visibility:hidden;pointer-events:none}.of-a-pod .link{stroke:#d55e00}.of-a-pod .around{stroke-width:9}
.link.unused{stroke:#b3261e}.reach{fill:none;pointer-events:all}
@media (prefers-color-scheme:dark){.unheld{fill:#0d1117;stroke:#56b4e9}.holder{stroke:#e6edf3}.used.sick{fill:#1c2128}
.cross,.link.sick,.link.unused{stroke:#ff7b72}
.around,.of-a-pod .link{stroke:#f08a3c}.holder-number,.holder-size,.letter{fill:#16191d}.bad-mark{fill:#fff}}
"""
"""Where GPUs have marks; what belongs to one holder is added by `on_pointing`."""


def on_pointing(letter: str) -> str:
    """Return what shows a holder's ring while the pointer is on one of its GPUs: no script runs in a picture."""
    return f"svg:has(.held-by-{letter}:hover) .ring-of-{letter}{{visibility:visible}}\n"
