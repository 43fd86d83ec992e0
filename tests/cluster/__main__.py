"""`python -m tests.cluster`: the playground."""

import sys

from tests.cluster.binaries import find_or_build
from tests.cluster.go_build import BinariesUnavailable
from tests.cluster.playground import stay

try:
    stay(find_or_build())
except (BinariesUnavailable, FileNotFoundError) as error:
    sys.exit(str(error))
