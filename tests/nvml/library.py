"""Build the fake `libnvidia-ml.so.1` and let NVML's real Python binding load it.

Two ways in: `environment` starts another interpreter with it, as a driver's library would be found; `loaded` puts it under
the `pynvml` of this interpreter, and can be used again and again with other machines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import CDLL
from hashlib import sha256
from pathlib import Path

import pynvml

HERE = Path(__file__).parent
MACHINES = HERE / "machines"
DESCRIPTION = "GPUTOPO_FAKE_NVML"
SONAME = "libnvidia-ml.so.1"


def machine(name: str) -> Path:
    """Return the description file of that name."""
    return MACHINES / f"{name}.nvml"


def has_compiler() -> bool:
    """Whether the library can be built here."""
    return shutil.which("gcc") is not None


class FakeNvml:
    """The library, built into `folder`, once for each set of symbols that a driver may lack."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[tuple[str, ...], CDLL] = {}

    def path(self, missing: Sequence[str] = ()) -> Path:
        """Return the folder that holds a `libnvidia-ml.so.1` without the symbols `missing`, building it if needed."""
        folder = self._folder / (sha256("\n".join(missing).encode()).hexdigest()[:12] if missing else "whole")
        if not (folder / SONAME).exists():
            folder.mkdir(parents=True, exist_ok=True)
            _compile(folder / SONAME, missing)
        return folder

    def environment(self, description: Path) -> dict[str, str]:
        """Return the variables under which a new interpreter finds the library and plays the machine."""
        return {"LD_LIBRARY_PATH": str(self.path(missing_in(description))), DESCRIPTION: str(description)}

    @contextmanager
    def loaded(self, description: Path) -> Iterator[None]:
        """Put the library under this interpreter's `pynvml`; NVML reads the description when it is initialised."""
        missing = missing_in(description)
        if missing not in self._built:
            self._built[missing] = CDLL(str(self.path(missing) / SONAME))
        before = os.environ.get(DESCRIPTION), pynvml.nvmlLib, pynvml._nvmlGetFunctionPointer_cache
        os.environ[DESCRIPTION] = str(description)
        pynvml.nvmlLib, pynvml._nvmlGetFunctionPointer_cache = self._built[missing], {}
        try:
            yield
        finally:
            os.environ.pop(DESCRIPTION)
            if before[0] is not None:
                os.environ[DESCRIPTION] = before[0]
            _, pynvml.nvmlLib, pynvml._nvmlGetFunctionPointer_cache = before


def missing_in(description: Path) -> tuple[str, ...]:
    """Return the symbols that the described driver lacks."""
    return tuple(re.findall(r"^missing (\w+)", description.read_text(), re.MULTILINE))


def _compile(target: Path, missing: Sequence[str]) -> None:
    script = target.with_name("symbols.map")
    local = f"local: {'; '.join(missing)};" if missing else ""
    script.write_text(f"{{ global: nvml*; {local} }};\n")
    names = ("nvml.c", "nvlink.c", "activity.c", "errors.c", "events.c", "mig.c", "limits.c", "machine.c", "script.c")
    sources = [str(HERE / name) for name in names]
    options = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    linking = [f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={script}"]
    subprocess.run(["gcc", *options, *sources, *linking, "-o", str(target), "-lm"], check=True)
