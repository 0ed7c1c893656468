"""Tries inputs on one parser for a given time, in a process whose memory is limited."""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import trial
from tests.fuzz.parser import Parser

_MOST_BYTES = 4 << 30  # of address space
_LATE_SECS = 300.0  # for imports on a busy machine, and for a last input that takes its time
_MOST_KINDS = 20


@dataclass
class Session:
    """What a session found.

    Attributes:
      tried: number of inputs.
      faults: kind of fault -> (input, description), the shortest input of each kind.
    """

    tried: int = 0
    faults: dict[str, tuple[bytes, str]] = field(default_factory=dict)

    def add(self, data: bytes, fault: str) -> None:
        """Adds a fault, whose kind is its last line without numbers."""
        last = fault.strip().splitlines()[-1][:80]
        kind = "".join(c for c in last if not c.isdigit())
        known = self.faults.get(kind)
        if (known is None and len(self.faults) < _MOST_KINDS) or (
            known and len(data) < len(known[0])
        ):
            self.faults[kind] = (data, fault)


def run_here(parser: Parser, secs: float, seed: int, folder: Path) -> None:
    """Tries inputs in this process; writes the last input and the result into `folder`."""
    if not parser.needs_tensorflow:  # TensorFlow reserves more than it uses.
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    rng, found = random.Random(f"{parser.name} {seed}"), Session()
    trial.fault_of(parser, parser.examples()[0], traced=False)
    end = time.monotonic() + secs
    while time.monotonic() < end:
        data = trial.make_input(parser, rng)
        (folder / "input").write_bytes(data)
        # Measuring the memory of each input would halve the number of inputs.
        fault = trial.fault_of(parser, data, traced=rng.randrange(8) == 0)
        found.tried += 1
        if fault is not None:
            found.add(data, fault)
    faults = [[data.hex(), fault] for data, fault in found.faults.values()]
    (folder / "result.json").write_text(json.dumps({"tried": found.tried, "faults": faults}))


def run_apart(parser: Parser, secs: float, seed: int) -> Session:
    """Tries inputs in another process; an input that ends or stops that process is a fault."""
    found = Session()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = ["--child", str(folder), "--parser", parser.name, "--seed", str(seed)]
        command = [sys.executable, "-m", "tests.fuzz", *words, "--minutes", str(secs / 60)]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=secs + _LATE_SECS, check=False
            )
            ended = f"its process ended with {done.returncode}: {done.stderr[-2000:]!r}"
        except subprocess.TimeoutExpired:
            ended = "it did not end"
        result = folder / "result.json"
        if result.exists():
            content = json.loads(result.read_text())
            found.tried = content["tried"]
            for data, fault in content["faults"]:
                found.add(bytes.fromhex(data), fault)
        else:
            last = folder / "input"
            found.add(last.read_bytes() if last.exists() else b"", ended)
    return found
