"""Whether a run goes on: with its launcher, or as a job that needs none."""

from launch.backends.registry import backend_named
from launch.errors import HostError
from launch.record.run_folder import RunFolder

LOOK_SECS = 0.2  # between two looks at a run on this machine
ASK_SECS = 5.0  # for schedulers, which others use, too


def without_launcher(folder: RunFolder) -> str:
    """Returns the state of a job that goes on without its launcher; empty if it does not."""
    if folder.end() is not None:
        return ""
    record = folder.record()
    backend = backend_named(record["backend"])
    return backend.going_on(record) if backend.is_lasting else ""


def left_in_its_cluster(folder: RunFolder) -> str:
    """Returns the state of a job that goes on without its launcher, and what ends it; or nothing.

    Unlike `without_launcher`, this finds jobs, too, that can be neither followed nor stopped then.
    """
    if folder.end() is not None:
        return ""
    record = folder.record()
    backend = backend_named(record["backend"])
    state = backend.going_on(record)
    verb = "stop" if backend.is_lasting else "clean"
    return state and (
        f"continues without its launcher: {state}; to end it: {verb} --run {folder.run_id}"
    )


def without_end(folder: RunFolder) -> tuple[str, str]:
    """Says what has become of a run whose launcher has ended without an end of the run.

    Returns:
      The state of a job that goes on in its cluster, or "", and what to say of the run.
    """
    ended = f"its launcher has ended; to end the remaining processes: clean --run {folder.run_id}"
    try:
        lasting = left_in_its_cluster(folder)
    except HostError as error:
        return "", f"{ended}; whether its job goes on is not known: {error}"
    return lasting, lasting or ended


def elsewhere(folder: RunFolder) -> str:
    """Returns where to ask for a run that another machine may still launch; empty if none does."""
    machine = folder.other_machine()
    if machine is None:
        return ""
    return (
        f"its launcher runs, or ran, on {machine}: ask there; if it is gone, to end the remaining "
        f"processes: clean --run {folder.run_id}"
    )
