"""Pages whose prose is written by hand and whose tables are made: each table stands between two comments with its name."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MadeTables:
    """The tables of one page."""

    page: Path
    tables: Mapping[str, Callable[[], str]]
    """By their names."""

    def outdated(self) -> bool:
        """Whether they are not what they are made of."""
        return self.page.read_text(encoding="utf-8") != self.up_to_date()

    def write(self) -> None:
        """Write them anew."""
        self.page.write_text(self.up_to_date(), encoding="utf-8")

    def up_to_date(self) -> str:
        """Return the page as it should be."""
        text = self.page.read_text(encoding="utf-8")
        for name, table in self.tables.items():
            begin, end = f"<!-- {name}, by `make manifests` -->\n", f"<!-- end of {name} -->\n"
            before, _, rest = text.partition(begin)
            _, _, after = rest.partition(end)
            text = f"{before}{begin}{table()}{end}{after}"
        return text


def default(value: object, longest: int, instead: str) -> str:
    """Return a default as a cell of a table; `instead` where it has more characters than `longest`.

    >>> default(["a"], 5, "see there"), default(["abc"], 5, "see there")
    ('`["a"]`', 'see there')
    """
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if len(text) <= longest else instead
