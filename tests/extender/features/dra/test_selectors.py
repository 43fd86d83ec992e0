"""Bounds on expressions, which strangers write. What they answer is compared with Kubernetes in `test_reference.py`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.objects.devices import DRIVER, Device
from extender.features.dra import selectors as module
from extender.features.dra.cel_source import Reads, read_source
from extender.features.dra.selectors import SelectorFailed, Selectors, UnreadableSelector
from tests.dra import gpu
from tests.extender.features.dra.cases import EXPRESSIONS, GPU

DEVICE: Final = msgspec.convert(gpu(0, "GPU-0"), Device)
LIST: Final = f"[{','.join('1' * 200)}]"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("x" * 4097, "more than 4096 bytes"),
        ("1" + "+1" * 500 + " == 501", "more than 1000 names, literals and signs"),
        (f"{LIST}.all(x, {LIST}.all(y, true))", "too expensive"),
        (f"{GPU}.all(a, {GPU}.all(b, {GPU}.all(c, true)))", "too expensive"),
        (f"{LIST}.all(x, {' && '.join(['x == 1'] * 40)})", "too expensive"),
        (
            'cel.bind(a, "xxxxxxxx", cel.bind(b, a+a+a+a+a+a+a+a, cel.bind(c, b+b+b+b+b+b+b+b, c == "")))',
            "too expensive",
        ),
        ("cel.bind(a, 1)", "three arguments"),
        ("cel.bind(a, 1", "does not end"),
        ("[1].transformList(i, v, v) == []", "transformList is not supported"),
        ("device.?driver == device.driver", "unsupported syntax"),
        ("cel.bind(a, [1,1,1,1], cel.bind(b, [a,a,a,a], cel.bind(c, [b,b,b,b], c == [])))", "too expensive"),
        ('"' + "a" * 3000 + '".lowerAscii().lowerAscii().lowerAscii().lowerAscii() == ""', "too expensive"),
        ('"' + "é" * 1000 + '" == ""', "more than 1000"),
        ("[1,1].map(x, [device, device]).size() > 0", "only values of a device"),
        (f"[1,1].map(x, {GPU}).size() > 0", "only values of a device"),
        ("device == device", "only values of a device"),
        (f"cel.bind(a, {GPU}, cel.bind(b, a, [b] == []))", "only values of a device"),
        ("device.attributes.exists(d, [device.attributes[d]] == [])", "only values of a device"),
    ],
)
def test_what_is_too_long_too_expensive_or_not_known_is_refused_before_it_runs(expression: str, reason: str) -> None:
    """The reason says which."""
    with pytest.raises(UnreadableSelector, match=reason):
        Selectors().read(expression, "ml")


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(.{1,200}){20}",
            "(((a{9}){9}){9}){9}",
            "a" * 201,
            "a{99999}",
            "a{ 90 }",
            "(?x)a { 90 }",
            r"\\pL",
            r"[\\w]{9}",
        ),
        *(
            r"(?i)\\W",
            "(?i)[a-\U0010ffff]",
            "(?Ui)[a-\U0010ffff]",
            "(?i)[[^a]b]",
            r"(?i)[a-\\x{10ffff}]",
            "(?i)[[:^alpha:]]",
        ),
    ],
)
def test_a_pattern_that_is_expensive_to_compile_is_refused(pattern: str) -> None:
    """Counted repetitions multiply, and ranges of Unicode are folded one by one."""
    selectors = Selectors()
    with pytest.raises(UnreadableSelector, match="pattern"):
        selectors.matches(f'device.driver.matches("{pattern}")', DRIVER, DEVICE, "ml")
    with pytest.raises(SelectorFailed, match="pattern"):
        selectors.matches(f'device.driver.matches("" + "{pattern}")', DRIVER, DEVICE, "ml")


@pytest.mark.parametrize(
    "pattern", ["^NVIDIA (A100|H100)-SXM[0-9]-[0-9]+GB$", "(?i).*a100.*", r"(\\d+)\\.\\d{1,3}", "[]a^-]{3,}?", r"\\w+"]
)
def test_usual_patterns_are_supported(pattern: str) -> None:
    """Without regard to case, too."""
    assert not Selectors().matches(f'"x".matches("{pattern}") && device.driver == ""', DRIVER, DEVICE, "ml")


def test_an_evaluation_calls_so_many_functions_at_most() -> None:
    """Each takes ten microseconds."""
    with pytest.raises(SelectorFailed, match="more than 64 calls"):
        Selectors().matches(" && ".join(["isQuantity('1')"] * 65), DRIVER, DEVICE, "ml")


@pytest.mark.parametrize(
    "expression",
    [
        f"{LIST}.all(x, x == 1 && device.driver != string(x))",
        "&&".join(["true"] * 500),
        "1" + "+1" * 498 + " == 499",
        f"[{','.join('1' * 499)}] == []",
        "!" * 999 + "true",
        "(" * 499 + "true" + ")" * 499,
        "[" * 1000,
        "size(" * 500,
        "!" * 4000 + "true",
        f'"{"a" * 4000}".matches("(a*)*b")',
    ],
    ids=["loop", "and", "plus", "list", "not", "parentheses", "lists", "calls", "tokens", "pattern"],
)
def test_no_expression_takes_long(expression: str) -> None:
    """CPU time of the least of three attempts, compiling included. Without the bounds some of these would take minutes."""
    seconds = []
    for _ in range(3):
        before, selectors = time.thread_time(), Selectors()
        with suppress(SelectorFailed, UnreadableSelector):
            selectors.matches(expression, DRIVER, DEVICE, "ml")
        seconds.append(time.thread_time() - before)
    assert min(seconds) < 0.06


def test_answers_are_remembered_by_what_an_expression_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred GPUs of one product are evaluated once; those that differ are evaluated each."""
    evaluated = list[str]()
    evaluate = module._Program.evaluate

    def counted(program: Any, view: Any) -> Any:
        evaluated.append(program.source.text)
        return evaluate(program, view)

    monkeypatch.setattr(module._Program, "evaluate", counted)
    selectors = Selectors()
    for number in range(100):
        device = msgspec.convert(gpu(number % 20, f"GPU-{number}"), Device)
        assert selectors.matches(f'{GPU}.productName.startsWith("NVIDIA")', DRIVER, device, "ml")
        assert selectors.matches(f'{GPU}.uuid == "GPU-7"', DRIVER, device, "ml") == (number == 7)
    assert len(evaluated) == 101


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many expressions only cause others to be evaluated again."""
    monkeypatch.setattr(module, "PROGRAMS_KEPT", 4)
    monkeypatch.setattr(module, "ANSWERS_KEPT", 6)
    selectors = Selectors()
    for number in range(10):
        selectors.matches(f'device.driver != "{number}"', DRIVER, DEVICE, "ml")
    assert (len(selectors._programs), len(selectors._answers)) == (4, 6)


def test_a_namespace_with_many_expressions_has_only_its_own_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others use stays."""
    monkeypatch.setattr(module, "PROGRAMS_KEPT", 8)
    monkeypatch.setattr(module, "ANSWERS_KEPT", 8)
    selectors = Selectors()
    selectors.matches("device.driver != 'x'", DRIVER, DEVICE, "ml")
    before = [*selectors._programs], [*selectors._answers]
    for number in range(20):
        selectors.matches(f"device.driver != '{number}'", DRIVER, DEVICE, "greedy")
    assert {*before[0]} <= {*selectors._programs}
    assert {*before[1]} <= {*selectors._answers}


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        (f"{GPU}.index > 1 && device.driver == 'x'", {Reads("attributes", DRIVER, "index"), Reads("driver")}),
        (f"{GPU}['index'] > 1", {Reads("attributes", DRIVER, "index")}),
        ("device.capacity['a.b'].memory.sign() == 1", {Reads("capacity", "a.b", "memory")}),
        ('"device.attributes" == "x"', set()),
        (f"{GPU}.exists(k, true)", None),
        (f"{GPU}[device.driver] > 1", None),
        (f"cel.bind(a, {GPU}, a.b)", None),
        ("cel.bind(a, device, a.driver == 'x')", None),
        ('device.attributes["a\\"b"].c', None),
    ],
)
def test_what_an_expression_reads_is_known_from_its_text(expression: str, reads: set[Reads] | None) -> None:
    """Where it is not certain, the expression may read anything."""
    assert read_source(expression).reads == (None if reads is None else frozenset(reads))


FRAGMENTS: Final = st.sampled_from(
    [
        GPU,
        "device",
        ".index",
        ".driver",
        "[",
        "]",
        "(",
        ")",
        ",",
        "1",
        '"a"',
        "&&",
        "||",
        "==",
        "+",
        "!",
        ".map(x,",
        "cel.bind(a,",
    ]
)


@settings(max_examples=60)
@given(st.one_of(st.text(max_size=60), st.lists(FRAGMENTS, max_size=12).map("".join), st.sampled_from(EXPRESSIONS)))
def test_any_text_is_answered_or_refused(expression: str) -> None:
    """No text raises anything else, and asking twice gives the same answer."""
    selectors = Selectors()
    answers = list[object]()
    for _ in range(2):
        try:
            answers.append(selectors.matches(expression, DRIVER, DEVICE, "ml"))
        except (SelectorFailed, UnreadableSelector) as error:
            answers.append(str(error))
    assert answers[0] == answers[1]
