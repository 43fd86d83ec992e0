"""Which containers with devices by ResourceClaims a report names, where its text has no room for all of them."""

from __future__ import annotations

from dataclasses import replace

from agent.node.claim_users import as_many_as_fit
from topology.annotations.payload import MAX_BYTES
from topology.annotations.records import ClaimUser, Holder, Observed, encode_observed

LONG = "x" * 253


def flood(count: int, *devices: str) -> tuple[ClaimUser, ...]:
    """Return containers of one tenant with the longest names there are."""
    return tuple(ClaimUser("flood", LONG, f"c{number:03}", LONG, "n1", devices) for number in range(count))


def victim(minor: int) -> ClaimUser:
    return ClaimUser("ml", f"p{minor}", "main", "claim", "n1", (f"gpu-{minor}",))


def test_a_pod_with_many_containers_hides_no_device_of_others() -> None:
    """A single claim suffices for a flood, and a GPU that is used without its claim would be given away."""
    others = tuple(victim(minor) for minor in range(8))
    told = as_many_as_fit(Observed({}, claimed=(*flood(200, "gpu-9"), *others)))
    assert {*others} <= {*told}
    assert "gpu-9" in {device for user in told for device in user.devices}


def test_devices_with_long_names_of_claims_hide_no_others() -> None:
    """Each of them is the only container with its device."""
    many = tuple(replace(user, devices=(f"mig-{at}",)) for at, user in enumerate(flood(200)))
    assert victim(0) in as_many_as_fit(Observed({}, claimed=(*many, victim(0))))


def test_the_room_is_used_to_the_last_entry() -> None:
    """The text has room for what is told, and not for one entry more."""
    observed = Observed({"GPU-0": Holder("ml", "p", "main")}, claimed=flood(200, "gpu-9"))
    told = as_many_as_fit(observed)
    length = len(encode_observed(replace(observed, claimed=told)))
    entry = len(encode_observed(replace(observed, claimed=told))) - len(
        encode_observed(replace(observed, claimed=told[1:]))
    )
    assert told == observed.claimed[: len(told)]
    assert length <= MAX_BYTES < length + entry


def test_what_cannot_be_written_is_left_out_alone() -> None:
    strange = ClaimUser("ml", "p", "main", "Not A Name", "n1", ("gpu-0",))
    assert as_many_as_fit(Observed({}, claimed=(strange, victim(1)))) == (victim(1),)


def test_nobody_is_told_where_the_rest_is_too_long() -> None:
    held = {f"GPU-{number}": Holder(LONG[:63], LONG, LONG[:63]) for number in range(128)}
    assert as_many_as_fit(Observed(held, claimed=(victim(0),))) == ()
