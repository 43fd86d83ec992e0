"""The limit above which no figure is believed lies above all that was ever published, and not far."""

from pathlib import Path

import pytest

from benchmarks.accuracy.bandwidth import UNSEEN
