"""The front page shows who moves for whom, to those who may see it, and how much of the limits is used."""

from __future__ import annotations

from html import unescape

from extender.features.moves.front import COLUMNS
from extender.inspect.front_tables import FrontRow, FrontTable
from extender.inspect.sight import Sight
from extender.web import pages
from tests.extender.features.moves.test_moves import fragmented, until_begun

FIGURES = {"nodes": 2.0, "gpus": 16.0, "gpus_free": 4.0, "pods": 3.0, "pods_waiting": 1.0}


async def test_a_plan_is_shown_until_it_ends_and_the_moves_of_the_last_hour_longer() -> None:
    """With cost and gain, and which pods have been evicted."""
    site = fragmented()
    assert site.moves.front_table() is None
    await until_begun(site)
    table = site.moves.front_table()
    assert table and table.columns == COLUMNS
    moves = "default/moves-0-1 to n1 (not evicted yet)"
    cells = ("n0", moves, "2 GPU-minutes", "40 GPU-minutes", "0 of 1000")
    assert table.rows == (FrontRow(pod="default/waits", cells=cells),)
    await site.tick()
    table = site.moves.front_table()
    assert table and table.rows[0].cells[1] == "default/moves-0-1 to n1 (evicted)"
    assert (table.rows[0].cells[-1], table.line) == ("1 of 1000", "1 of 1000 moves in the last hour")
    await site.settle()
    table = site.moves.front_table()
    assert table and (table.rows, table.line) == ((), "1 of 1000 moves in the last hour")
    site.pass_time(3600.0)
    site.replica.seconds = site.seconds
    assert site.moves.front_table() is None


def test_a_reader_sees_rows_about_pods_that_the_reader_may_see_and_no_other_names() -> None:
    """The sentence below the table is about the cluster."""
    rows = (
        FrontRow(pod="ml/waits", cells=("n0", "ml/a to n1; ops/b to n2")),
        FrontRow(pod="ops/waits", cells=("n0", "ml/c to n1")),
    )
    table = FrontTable(title="Moves", columns=("For", "Node", "Pods"), rows=rows, line="2 of 60 moves")
    shown = table.seen_by(Sight(frozenset({"ml"})))
    page = unescape("".join(pages.overview(FIGURES, [], [], [], [], tables=[shown])))
    assert "ml/a to n1; another pod to n2" in page
    assert "2 of 60 moves" in page
    assert "ops/" not in page
    assert "ml/c" not in page
