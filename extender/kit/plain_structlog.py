"""structlog without rich, which it imports wherever that is installed: for colours that we never write.

That is 4 MiB of each process, and a part of each start. It has to be imported before anything else imports structlog. Otherwise
all is the same, and nothing is saved.
"""

from __future__ import annotations

import sys

if "rich" in sys.modules:
    import structlog
else:
    sys.modules["rich"] = None  # type: ignore[assignment]  # Python's way to say that a module cannot be imported
    try:
        import structlog
    finally:
        del sys.modules["rich"]

__all__ = ["structlog"]
