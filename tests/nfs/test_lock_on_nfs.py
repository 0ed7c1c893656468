"""The lock of an output folder holds on NFS, between clients with a cache each."""

import re
from pathlib import Path

import pytest

from testbeds import nfs_machine
from tests.shell import ROOT

pytestmark = [pytest.mark.nfs, pytest.mark.timeout(1200)]


def test_processes_of_two_clients_never_hold_the_lock_together(tmp_path: Path) -> None:
    reason = nfs_machine.why_not()
    if reason:
        pytest.skip(reason)
    printed = nfs_machine.run(tmp_path, ROOT, ["-m", "tests.nfs.compete"])
    facts = dict(line.split(": ", 1) for line in printed.splitlines() if ": " in line)
    assert facts["first"] == "holds"
    assert re.match(r"refused: process \d+ on .+, which started 20", facts["second"])
    assert facts["after a kill"] == "holds"
    assert facts["exit codes"] == "[0, 0, 0, 0]"
    assert facts["number"] == "20"
    assert facts["left"] == "['number']"
