"""How many pods groups have, as the objects that make them say; nothing is known of those that nobody has read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from extender.cluster.objects.group_sizes import GroupMaker
from extender.cluster.objects.group_words import GroupKey
from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.objects.versions import NOTHING_MORE, Listing


class GroupSizes:
    """All sizes that are known; of the objects no more is kept."""

    def __init__(self, changed: Callable[[GroupKey], None]) -> None:
        """Call `changed` for each group whose size is another one now."""
        self.by_group: dict[GroupKey, int] = {}
        self._changed = changed

    def put(self, key: GroupKey, size: int | None) -> None:
        """Take note of a size; `None`: it is not known any more."""
        if self.by_group.get(key) == size:
            return
        if size is None:
            del self.by_group[key]
        else:
            self.by_group[key] = size
        self._changed(key)


class SizesOfKind:
    """Hears of the objects of one kind."""

    def __init__(self, sizes: GroupSizes) -> None:
        self._sizes = sizes
        self._groups: dict[tuple[str, str], frozenset[GroupKey]] = {}
        """Namespace and name of an object → its groups."""

    def replaced(self, objects: Sequence[GroupMaker], listing: Listing = NOTHING_MORE) -> None:
        """Take these for all that can be read."""
        for gone in self._groups.keys() - map(_name, objects):
            self._put(gone, {})
        for item in objects:
            self.changed(item)

    def changed(self, item: GroupMaker) -> None:
        """Take this for the newest version of an object."""
        namespace = item.metadata.namespace
        self._put(
            _name(item),
            {(namespace, group.source, group.name, group.run): group.size for group in item.groups() if group.size},
        )

    def deleted(self, item: GroupMaker) -> None:
        """Take note that an object is gone."""
        self._put(_name(item), {})

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Forget what an earlier version said."""
        self.deleted(GroupMaker(metadata))

    def _put(self, name: tuple[str, str], sizes: Mapping[GroupKey, int]) -> None:
        for key in self._groups.pop(name, frozenset()) | sizes.keys():
            self._sizes.put(key, sizes.get(key))
        if sizes:
            self._groups[name] = frozenset(sizes)


def _name(item: GroupMaker) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name
