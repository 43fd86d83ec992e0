"""Refusals of the API that can be raised: the `Status` objects of Kubernetes with their code and reason."""

from __future__ import annotations

from typing import Any


class StatusError(Exception):
    """A request that the API refuses; `status` is the body of its answer."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details

    @property
    def status(self) -> dict[str, Any]:
        """The `Status` object."""
        details = {} if self.details is None else {"details": self.details}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            **details,
            "code": self.code,
        }


def success(plural: str, name: str, uid: str, *, code: int = 200) -> dict[str, Any]:
    """Return the `Status` that answers a call which has no object to show."""
    kept = {"details": {"name": name, "kind": plural, "uid": uid}} if code == 200 else {"code": code}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **kept}


def bad_request(message: str) -> StatusError:
    """Refuse what cannot be understood."""
    return StatusError(400, "BadRequest", message)


def not_found(plural: str, name: str) -> StatusError:
    """Refuse a call about an object that is not there."""
    return StatusError(404, "NotFound", f'{plural} "{name}" not found', {"name": name, "kind": plural})


def already_exists(plural: str, name: str) -> StatusError:
    """Refuse to create a name twice."""
    return StatusError(409, "AlreadyExists", f'{plural} "{name}" already exists', {"name": name, "kind": plural})


def conflict(plural: str, name: str, why: str) -> StatusError:
    """Refuse a change that was prepared on another state of the object."""
    message = f'Operation cannot be fulfilled on {plural} "{name}": {why}'
    return StatusError(409, "Conflict", message, {"name": name, "kind": plural})


def invalid(kind: str, name: str, why: str) -> StatusError:
    """Refuse an object that no rule allows."""
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {why}', {"name": name, "kind": kind})


def unprocessable_patch() -> StatusError:
    """Refuse a JSON patch that does not apply, a failed `test` among them."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def expired(message: str) -> StatusError:
    """Refuse to tell a past that was compacted away."""
    return StatusError(410, "Expired", message)


def unsupported_patch(content_type: str) -> StatusError:
    """Refuse a patch format."""
    return StatusError(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type}")
