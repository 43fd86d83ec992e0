"""Every exception that the agent raises; only what somebody catches has a class.

AgentError
├── NvmlUnavailable     no driver, no library, or a driver that was updated under the running system: NVML's code
├── KubeletUnavailable  the kubelet's sockets: not there, refused, or no answer in time
└── ApiError            the Kubernetes API refused or could not be reached: status and reason
"""

from __future__ import annotations


class AgentError(Exception):
    """Anything that stops the agent from doing its work."""


class NvmlUnavailable(AgentError):
    """NVML as a whole does not work; `code` is NVML's error without its prefix."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code
        self.reason = reason


class KubeletUnavailable(AgentError):
    """The kubelet could not be asked, or not in time."""


class ApiError(AgentError):
    """The Kubernetes API refused, or nobody answered (status 0)."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} ({status})" if status else reason)
        self.status = status
        self.reason = reason
