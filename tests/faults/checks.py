"""What must hold after a cell: the job is complete, nothing is lost, and nothing is left."""

import json
import re
import socket
import time
from pathlib import Path

from tests.faults.faults import Ending
from tests.faults.runs import STEPS, Job

_MORE_STEPS = 3  # the chief and the worker may add steps after the last
_EVAL_IMAGES = 40
# The temporary names of checkpoints, of atomic writes, of exports and of data_prep.
_TEMPORARY = re.compile(r"tempstate|\.partial|\.part$|\.tmp$|-probe$|\.damaged|^temp-")


def complete(job: Job) -> list[str]:
    """Returns what is wrong with the metrics of a job that has ended with 0."""
    try:
        result = json.loads((job.output / "result.json").read_text())
    except (OSError, ValueError) as error:
        return [f"no valid result.json: {error}"]
    wrong = []
    step, images = result["figures"]["global_step"], result["figures"]["eval_examples"]
    if result["status"] != "completed":
        wrong.append(f"result.json says {result['status']}")
    if not STEPS <= step <= STEPS + _MORE_STEPS:
        wrong.append(f"result.json says step {step}, not {STEPS}")
    if images != _EVAL_IMAGES:
        wrong.append(f"evaluated on {images} images")
    if job.saved_step() != step:
        wrong.append(f"the last checkpoint is of step {job.saved_step()}")
    if not list(job.output.glob("export/*/saved_model.pb")):
        wrong.append("no export")
    if not (job.output / "report.html").exists():
        wrong.append("no report")
    return wrong


def ended_as_told(job: Job, ending: Ending, code: int) -> list[str]:
    """Returns what is wrong with the end of a job that its fault has ended."""
    wrong = []
    if code not in ending.codes:
        wrong.append(f"exit code {code}, not {' or '.join(map(str, ending.codes))}")
    if ending.line and not re.search(ending.line, job.printed()):
        wrong.append(f"no line {ending.line!r}")
    if "Traceback (most recent call last)" in job.printed():
        wrong.append("a traceback")
    return wrong


def steps_kept(job: Job, saved: int) -> list[str]:
    """Returns whether more was lost than the steps since the last checkpoint.

    Args:
      job: the job.
      saved: the step of the last checkpoint at the time of the fault.
    """
    starts = job.starts()
    if len(starts) > 1 and starts[-1] < saved:
        return [f"training began again at step {starts[-1]}, but {saved} had been saved"]
    return []


def processes_left(job: Job, secs: float) -> list[str]:
    """Returns which processes are left after `secs` at most."""
    deadline = time.monotonic() + secs
    while job.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    return [f"process {pid} is left: {line[:120]}" for pid, line in job.processes().items()]


def nothing_left(job: Job, secs: float) -> list[str]:
    """Returns which processes, ports, locks and temporary files are left after `secs` at most."""
    wrong = processes_left(job, secs)
    if job.nodes is None:
        ports = range(job.ports, job.ports + len(job.roles()))
        for port in ports:
            try:
                socket.create_server(("", port)).close()
            except OSError as error:
                wrong.append(f"port {port}: {error}")
    wrong += [f"{path} is left" for path in _leftovers(job.output)]
    return wrong


def _leftovers(output: Path) -> list[str]:
    names = [str(path.relative_to(output)) for path in output.rglob("*")]
    locks = [name for name in names if name.endswith(".lock")]
    return locks + [name for name in names if _TEMPORARY.search(Path(name).name)]
