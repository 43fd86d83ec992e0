"""The proxy that the environment names, as Go's `httpproxy` and so kubectl reads it."""

from __future__ import annotations

import pytest

from extender.kubernetes.proxies import proxy_of

API = "https://api.example.com:6443"
PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        (API, {"HTTPS_PROXY": PROXY}, ("HTTPS_PROXY", PROXY)),
        (API, {"https_proxy": PROXY}, ("https_proxy", PROXY)),
        (API, {"HTTPS_PROXY": PROXY, "https_proxy": "http://another"}, ("HTTPS_PROXY", PROXY)),
        (API, {"HTTPS_PROXY": "", "https_proxy": PROXY}, ("https_proxy", PROXY)),
        (API, {"HTTPS_PROXY": "proxy:3128"}, ("HTTPS_PROXY", PROXY)),
        (API, {"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, None),
        ("http://api.example.com", {"HTTP_PROXY": PROXY}, ("HTTP_PROXY", PROXY)),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://127.8.0.1:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, None),
    ],
)
def test_the_scheme_of_the_server_chooses_the_variable(
    url: str, environment: dict[str, str], proxy: tuple[str, str] | None
) -> None:
    """A server on this machine has none."""
    assert proxy_of(url, environment) == proxy


@pytest.mark.parametrize(
    ("url", "exceptions", "is_excepted"),
    [
        (API, "*", True),
        (API, "", False),
        (API, "example.com", True),
        (API, ".example.com", True),
        (API, "*.example.com", True),
        (API, "a, EXAMPLE.com", True),
        (API, "ample.com", False),
        (API, "api.example.com:6443", True),
        (API, "api.example.com:443", False),
        ("https://api.example.com", "api.example.com:443", True),
        ("https://example.com", "example.com", True),
        ("https://example.com", ".example.com", False),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3:6443", "11.0.0.0/8", False),
        ("https://[fd00::7]:6443", "fd00::/8", True),
        ("https://[fd00::7]:6443", "fd00:0::7", True),
        ("https://[fd00::7]:6443", "[fd00::7]:6443", True),
        ("https://[fd00::7]:6443", "[fd00::7]:443", False),
        (API, "10.0.0.0/8,not/a/range", False),
    ],
)
@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
def test_no_proxy_names_hosts_domains_and_ranges(url: str, exceptions: str, is_excepted: bool, variable: str) -> None:
    """With a port, if they like."""
    assert (proxy_of(url, {"HTTPS_PROXY": PROXY, variable: exceptions}) is None) == is_excepted
