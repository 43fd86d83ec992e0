"""The vocabulary of faults is one: a name stands for one thing, wherever it is used as a key."""

from __future__ import annotations

from itertools import chain

from tests.world.faults import Fault
from tests.world.http_faults import FATES, RequestFault, StreamFault


def test_no_two_faults_have_the_same_words() -> None:
    """They are texts: in a table of rates, two with the same words would silently be one."""
    words = [str(fault) for fault in chain(Fault, RequestFault, StreamFault)]
    assert len(words) == len(set(words))


def test_every_fault_of_a_request_has_a_fate() -> None:
    """Whoever brings it about asks there what the word means."""
    assert set(FATES) == set(RequestFault)
