"""Which of a host's addresses the internet may reach."""

from pathlib import Path

import pytest

from launch.agent import addresses

# As the kernel writes it: a tree for each table, in which an address may show twice.
_FIB_TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.0
           /24 link UNICAST
        |-- 10.0.0.7
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
Local:
     |-- {address}
        /32 host LOCAL
        /32 link BROADCAST
     |-- 127.0.0.0
        /8 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 9.9.9.9
        /32 link UNICAST
"""


def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ipv4: str, ipv6: str) -> list[str]:
    for name, text in (("_IPV4", ipv4), ("_IPV6", ipv6)):
        (tmp_path / name).write_text(text, encoding="ascii")
        monkeypatch.setattr(addresses, name, str(tmp_path / name))
    return addresses.public()


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.4.4", ["8.8.4.4"]),
        ("172.15.0.1", ["172.15.0.1"]),
        ("10.1.2.3", []),
        ("172.16.0.1", []),
        ("192.168.1.1", []),
        ("169.254.1.1", []),
        ("100.64.0.1", []),
        ("100.127.255.254", []),
    ],
)
def test_an_ipv4_address_is_public_outside_the_private_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, public: list[str]
) -> None:
    text = _FIB_TRIE.replace("{address}", address)
    assert look(tmp_path, monkeypatch, text, "") == public


@pytest.mark.parametrize(
    ("digits", "public"),
    [
        ("26064700000000000000000000000001", ["2606:4700::1"]),
        ("fe800000000000000000000000000001", []),
        ("fd000000000000000000000000000001", []),
        ("00000000000000000000000000000001", []),
    ],
)
def test_an_ipv6_address_is_public_unless_local_or_unique_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: str, public: list[str]
) -> None:
    assert look(tmp_path, monkeypatch, "", f"{digits} 02 40 00 80     eth0\n") == public


def test_a_kernel_that_does_not_tell_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_IPV4", "/nowhere")
    monkeypatch.setattr(addresses, "_IPV6", "/nowhere")
    assert addresses.public() == []


def test_this_machines_own_loopback_is_read_and_is_not_public() -> None:
    assert "127.0.0.1" in addresses._ipv4()
    assert "127.0.0.1" not in addresses.public()
