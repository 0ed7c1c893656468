"""Finds this host's addresses that the internet may reach."""

import ipaddress

_IPV4 = "/proc/net/fib_trie"
_IPV6 = "/proc/net/if_inet6"


def public() -> list[str]:
    """Returns this host's global addresses, in order; empty also where the kernel does not tell.

    Global addresses are those outside all ranges for private networks, link-local and loopback
    addresses, and the shared ones of providers (RFC 6598). A host may still be reachable by an
    address that it does not know itself, through a router that translates addresses.
    """
    found = {ipaddress.ip_address(text) for text in (*_ipv4(), *_ipv6())}
    known = [one for one in found if one.is_global and not one.is_multicast]
    return [str(one) for one in sorted(known, key=lambda one: (one.version, one.packed))]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _ipv4() -> list[str]:
    """Returns the addresses that the routing table calls local: `/32 host LOCAL` below `|-- A`."""
    found, last = [], ""
    for line in _lines(_IPV4):
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"]:
            found.append(last)
    return found


def _ipv6() -> list[str]:
    """Returns the addresses of the interfaces, each the first column of its line, as hex digits."""
    return [str(ipaddress.IPv6Address(int(line.split()[0], 16))) for line in _lines(_IPV6)]
