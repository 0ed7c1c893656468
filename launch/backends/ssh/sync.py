"""Copies the code to several hosts at a time, for `sync: true`."""

from collections.abc import Sequence

from cifar10_program.streams import complain
from launch.backends.ssh.transport import TRANSPORT
from launch.cluster.host_list import ROOT
from launch.cluster.model import Host
from launch.connect.preparing import code_files, code_step, prepare
from launch.errors import HostError, below_each_other
from launch.screen.plain import plain
from launch.supervise.run_loop import stop_signals


def sync_code(hosts: Sequence[Host]) -> None:
    """Makes the code in each host's working directory the same as in this checkout.

    What a host waits for is shown. Signals that ask for the end stop the copies, and raise
    SystemExit (128 + n).

    Raises:
      LaunchError: there is no checkout to copy.
      HostError: the copy failed; the message names each host where it failed.
    """
    with code_step(code_files(ROOT)) as step, stop_signals() as stops:
        failed = prepare(hosts, lambda host: [step], TRANSPORT, _say, stops)
    if stops:
        raise SystemExit(128 + stops[0])
    if failed:
        raise HostError(below_each_other(failed.values()))


def _say(name: str, words: str) -> None:
    if not words.endswith(" files copied"):
        complain(f"{name}: {plain(words)}")
