"""`python -m tests.cluster`: the playground; with `NODES=real` in the environment on a few real nodes."""

import os
import sys

from tests.cluster import playground
from tests.cluster.binaries import find_or_build
from tests.cluster.go_build import BinariesUnavailable
from tests.image.kept import ImageUnavailable
from tests.installed.playground import INSTRUCTIONS, NodesUnavailable, real
from tests.manifests.helm import HelmUnavailable

try:
    binaries = find_or_build()
    if os.environ.get("NODES") == "real":
        playground.stay(real(binaries), "three real nodes with real containers", lambda _: INSTRUCTIONS)
    else:
        playground.stay(playground.simulated(binaries), "simulated nodes", playground.simulated_words)
except (BinariesUnavailable, HelmUnavailable, ImageUnavailable, NodesUnavailable, FileNotFoundError) as error:
    sys.exit(str(error))
