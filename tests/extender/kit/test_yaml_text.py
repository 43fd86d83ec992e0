"""YAML that we write says what it was made of, with and without libyaml."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kit import yaml_text
from extender.kit.yaml_text import read_yaml, write_yaml

DOCUMENTS = st.dictionaries(st.text(max_size=9), st.lists(st.text() | st.integers() | st.booleans() | st.none()))


@pytest.mark.slow
@pytest.mark.parametrize("dumper", [yaml.SafeDumper, yaml_text._DUMPER])
@settings(max_examples=50)
@given(document=DOCUMENTS)
def test_what_is_written_is_read_again(dumper: type[yaml.SafeDumper], document: dict[str, object]) -> None:
    """In ASCII, so that no text of a stranger acts on a terminal, and with keys in their order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_text, "_DUMPER", dumper)
        text = write_yaml(document)
    assert text.isascii()
    assert [*read_yaml(text).items()] == [*document.items()]
