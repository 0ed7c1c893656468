"""`python -m tests.audit` looks up whether known vulnerabilities concern what the locks install.

pip-audit asks its service about each package. It leaves out, without an error, the packages that
the service does not know, so an index without advisories would look like a good result. Such a
package counts here as not audited. It audits the packages of the Python that runs it.

Exit codes: 0 if all is well, 1 for an advisory that nobody has accepted, 2 after an error, and 3 if
it is not known, for all packages or for some.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.shell import ROOT

LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-gpu.lock")
ACCEPTED = ROOT / ".ci" / "accepted-advisories.txt"
FOUND, FAILED, UNKNOWN = 1, 2, 3


class AuditError(Exception):
    """A mistake, or a failure of pip-audit; the message says what."""


class NoAnswerError(Exception):
    """Nothing is known about advisories; the message says why."""


@dataclass(frozen=True)
class Advisory:
    """A known vulnerability of an installed package.

    Attributes:
      package: name and version, as `requests 2.31.0`.
      ids: the advisory's id, then its other names.
      mended: the versions without it.
    """

    package: str
    ids: tuple[str, ...]
    mended: tuple[str, ...]

    def __str__(self) -> str:
        mend = f"mended in {', '.join(self.mended)}" if self.mended else "no version mends it"
        return f"{self.package}: {' = '.join(self.ids)}; {mend}"


def read_accepted(path: Path) -> dict[str, str]:
    """Returns advisory's id -> the reason why it is accepted, from a file.

    Raises:
      AuditError: a line has no reason.
    """
    accepted = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            if not reason.strip():
                raise AuditError(f"{path.name}:{number}: write `ID reason`, got {line!r}")
            accepted[name] = reason.strip()
    return accepted


def ask(arguments: Sequence[str]) -> "tuple[list[Advisory], list[str]]":
    """Runs pip-audit with further arguments; returns the advisories, and what it left out.

    Raises:
      NoAnswerError: the service does not answer, or this Python has no pip-audit.
      AuditError: pip-audit fails.
    """
    locks = [word for lock in LOCKS for word in ("--requirement", str(ROOT / lock))]
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", *locks]
    form = ["--format=json", "--progress-spinner=off", "--desc=off", "--aliases=on"]
    done = subprocess.run(
        [*command, *form, *arguments], capture_output=True, text=True, check=False
    )
    if "No module named pip_audit" in done.stderr:
        raise NoAnswerError("pip-audit is not installed; it needs Python 3.10 or newer")
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        if any(word in done.stderr.lower() for word in ("connect", "timed out", "service")):
            raise NoAnswerError(f"the service of advisories does not answer: {last}") from None
        raise AuditError(f"pip-audit: {last}") from None
    found = {
        Advisory(
            f"{one['name']} {one['version']}",
            (vulnerability["id"], *sorted(vulnerability["aliases"])),
            tuple(vulnerability["fix_versions"]),
        )
        for one in packages
        for vulnerability in one.get("vulns", ())
    }
    left_out = sorted({one["name"] for one in packages if "skip_reason" in one})
    return sorted(found, key=str), left_out


def main(arguments: Sequence[str]) -> int:
    """Prints what the audit finds; returns the exit code."""
    try:
        accepted = read_accepted(ACCEPTED)
        found, left_out = ask(arguments)
    except AuditError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except NoAnswerError as error:
        print(f"NOT AUDITED: {error}", file=sys.stderr)
        return UNKNOWN
    for advisory in found:
        reason = next((accepted[one] for one in advisory.ids if one in accepted), None)
        print(f"accepted: {advisory}: {reason}" if reason else f"FOUND: {advisory}")
    for name in accepted.keys() - {one for advisory in found for one in advisory.ids}:
        print(f"{ACCEPTED.name}: {name} concerns nothing that was audited; remove it")
    new = [one for one in found if not accepted.keys() & set(one.ids)]
    if new:
        print(
            f"error: {len(new)} advisories; take a mended version into requirements*.txt and run "
            f"`make lock`, or accept them with a reason in .ci/{ACCEPTED.name}",
            file=sys.stderr,
        )
        return FOUND
    if left_out:
        names = ", ".join(left_out[:3]) + ", ..." * (len(left_out) > 3)
        print(
            f"NOT AUDITED: the service of advisories does not know {len(left_out)} packages "
            f"({names}); try `make audit` where it answers",
            file=sys.stderr,
        )
        return UNKNOWN
    print("no advisory concerns what the locks install, apart from those accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
