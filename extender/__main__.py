"""`gputopo-extender`, as it starts: all that it imports stays, so nobody looks through that for garbage meanwhile."""

from __future__ import annotations

import gc

from extender.kit import collector


def main() -> None:
    """Run the command line."""
    collector.put_off()
    gc.callbacks.append(collector.FreezeAfterLong())
    from extender.web.command import app

    app()


if __name__ == "__main__":
    main()
