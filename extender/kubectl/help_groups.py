"""Help that lists commands under headings, in plain text."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class GroupedCommands(TyperGroup):
    """A command line whose commands name their headings as `rich_help_panel`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each heading with its commands, in the order in which they were registered."""
        headings = dict[str, list[tuple[str, Any]]]()
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                heading = getattr(command, "rich_help_panel", None) or "Commands"
                headings.setdefault(heading, []).append((name, command))
        widest = max((len(name) for commands in headings.values() for name, _ in commands), default=0)
        for heading, commands in headings.items():
            with formatter.section(heading):
                limit = formatter.width - widest
                formatter.write_dl(
                    [(name.ljust(widest), command.get_short_help_str(limit)) for name, command in commands]
                )
