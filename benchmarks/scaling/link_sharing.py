"""Measures how evenly TCP connections share a link: when equal transfers that begin together end.

    python -m benchmarks link-sharing --links 20Mbit 100Mbit --transfers 4 8 16

One simulated machine sends as many bytes to each of the others at the same time. A row has medians
over the rounds: when the first, half and all of the transfers have ended, as parts of the time that
the link needs for all bytes. The model of `scale` has a constant for half of them. Needs root.
"""

import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.scaling.step_model import FRAMING
from launch.cluster.host_list import ROOT
from testbeds.limited_links import Machine, Machines
from testbeds.namespaces import enter

_MODULE = "benchmarks.scaling.link_sharing"
_PORT = 2222
_PAUSE_SECS = 0.3  # between two rounds
_WARM_UP_ROUNDS = 2  # while TCP learns the link's speed


def main(argv: Sequence[str]) -> int:
    """Measures each link with each number of transfers, and prints a table."""
    parser = arguments.new_parser("link-sharing", __doc__)
    whole = arguments.at_least_one
    parser.add_argument(
        "--links",
        nargs="+",
        type=arguments.bytes_per_sec,
        default=[2.5e6, 12.5e6],
        help="(default 20Mbit 100Mbit)",
    )
    parser.add_argument("--transfers", nargs="+", type=whole, default=[4, 8, 16])
    parser.add_argument("--bytes", type=whole, default=300_000, help="of each (default 300000)")
    parser.add_argument("--rounds", type=whole, default=6, help="(default 6)")
    options = parser.parse_args(argv)
    table = Table("link", "transfers", title="ends, as parts of the time that the link needs")
    for name in ("first", "half", "lowest, highest half", "all"):
        table.add_column(name, justify="right")
    for speed, count in itertools.product(options.links, options.transfers):
        needed = count * options.bytes * FRAMING / speed
        rounds = measure(count, speed, options.bytes, options.rounds)
        first, half, last = (
            [one / needed for one in kind]
            for kind in zip(*((ends[0], statistics.median(ends), ends[-1]) for ends in rounds))
        )
        middle = [f"{statistics.median(one):.2f}" for one in (first, half, last)]
        spread = f"{min(half):.2f}, {max(half):.2f}"
        table.add_row(f"{speed * 8e-6:,.0f} Mbit/s", str(count), *middle[:2], spread, middle[2])
    Console().print(table)
    return 0


def measure(count: int, bytes_per_sec: float, size: int, rounds: int) -> list[list[float]]:
    """Sends `size` bytes to each of `count` machines at once, in several rounds.

    Returns:
      For each round, the seconds from its begin to the end of each transfer, sorted.
    """
    total = rounds + _WARM_UP_ROUNDS
    core = str(min(os.sched_getaffinity(0)))
    made = Machines([Machine(0, core)] * (count + 1), bytes_per_sec)
    with made as machines, contextlib.ExitStack() as started:
        programs = []
        for index in range(count + 1):
            role = ["send", str(count)] if index == 0 else ["take", machines.address(0)]
            words = [*enter(machines.name(index)), sys.executable, "-m", _MODULE, *role]
            program = subprocess.Popen(
                [*words, str(size), str(total)], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            started.enter_context(program)
            started.callback(program.kill)
            programs.append(program)
        outputs = [program.communicate()[0] for program in programs]
    begins, *ends = [[float(word) for word in output.split()] for output in outputs]
    return [
        sorted(one[index] - begins[index] for one in ends)
        for index in range(_WARM_UP_ROUNDS, total)
    ]


def send(count: int, size: int, rounds: int) -> None:
    """Sends `size` bytes at once to each of `count` machines that ask; prints when it begins."""
    with socket.create_server(("", _PORT), backlog=count) as server:
        links = [server.accept()[0] for _ in range(count)]
    data = bytes(size)
    for _ in range(rounds):
        for link in links:
            link.recv(1)
        threads = [threading.Thread(target=link.sendall, args=(data,)) for link in links]
        print(time.monotonic(), flush=True)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def take(address: str, size: int, rounds: int) -> None:
    """Asks for `size` bytes, several times, and prints when it has all of them."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            link = socket.create_connection((address, _PORT))
            break
        time.sleep(0.01)
    with link:
        for _ in range(rounds):
            link.sendall(b"?")
            left = size
            while left:
                left -= len(link.recv(left))
            print(time.monotonic(), flush=True)
            time.sleep(_PAUSE_SECS)


if __name__ == "__main__":
    role, other, *numbers = sys.argv[1:]
    if role == "send":
        send(int(other), *map(int, numbers))
    else:
        take(other, *map(int, numbers))
