"""Ends with 0 where this Python can load the plugin's compiled libraries; any Python 3 may be asked."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

LIBRARY = Path(__file__).resolve().parent / "lib" / "msgspec"

if not any((LIBRARY / ("_core" + suffix)).exists() for suffix in EXTENSION_SUFFIXES):
    sys.exit(1)
