"""Every exception that `topology` raises; only what somebody catches has a class.

TopologyError
├── PayloadError        an annotation or body that cannot be trusted: path and reason
│   └── UnsupportedVersion
├── SourceError         a matrix or XML text that is really broken: line, column and reason
└── RequestError        a pod's annotations or resources that contradict themselves: key and reason
"""

from __future__ import annotations


class TopologyError(Exception):
    """Anything that this package refuses."""


class PayloadError(TopologyError):
    """A payload that cannot be decoded; `path` is a JSON path such as `$.gpus[3].uuid`."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{reason} @ {path}")
        self.path = path
        self.reason = reason


class UnsupportedVersion(PayloadError):
    """A payload of a version that this reader does not know; never rewrite it."""


class SourceError(TopologyError):
    """A topology text that is broken at `line` and `column` (both from 1; 0 = the whole text)."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(f"line {line}, column {column}: {reason}" if line else reason)
        self.line = line
        self.column = column
        self.reason = reason


class RequestError(TopologyError):
    """A pod that asks for something impossible to understand; `key` names the annotation or resource."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason
