"""`kill -9` for the kubelets and agents of a cluster, one of them every few seconds, each started again at once."""

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.cluster.component import Component


@contextmanager
def killing(victims: Sequence[Component], chance: random.Random, every_seconds: float) -> Iterator[list[str]]:
    """Kill at random for the length of a `with` block; the list tells who died, by name."""
    died: list[str] = []
    over = threading.Event()

    def kill_and_start() -> None:
        while not over.wait(every_seconds):
            victim = chance.choice(victims)
            victim.kill()
            died.append(victim.name)
            victim.start()

    with ThreadPoolExecutor(1) as threads:
        at_work = threads.submit(kill_and_start)
        try:
            yield died
        finally:
            over.set()
    at_work.result()
