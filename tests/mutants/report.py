"""Reports killed and surviving mutants as a table, and each survivor as a change to the source."""

import collections
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tests.mutants.mutations import Mutant
from tests.mutants.runner import Result

Key = tuple[str, str, str, str]


def table(results: Sequence[Result], listed: Collection[Key]) -> str:
    """Returns a Markdown table with a row per module; `listed` are the keys of known survivors."""
    rows = collections.defaultdict(list)
    for result in results:
        rows[f"`{result.mutant.module}`"].append(result)
    rows["all"] = list(results)
    lines = [
        "| module | mutants | killed | of these hung | left, listed | left, new | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in rows.items():
        left = [one for one in found if one.status == "survived"]
        known = sum(one.mutant.key in listed for one in left)
        killed = len(found) - len(left)
        share = f"{100 * killed / len(found):.0f} %" if found else "-"
        hung = sum(one.status == "hung" for one in found)
        secs = sum(one.secs for one in found)
        lines.append(
            f"| {name} | {len(found)} | {killed} ({share}) | {hung} | {known} "
            f"| {len(left) - known} | {secs:.0f} |"
        )
    return "\n".join(lines)


def shown(mutant: Mutant) -> str:
    """Formats a mutant as `file:line function: old -> new`, and the source line below."""
    where = f"{mutant.module}:{mutant.line} {mutant.place}".strip()
    return f"{where}: {mutant.change}\n    {mutant.text}"


def write_json(path: Path, results: Sequence[Result], listed: Collection[Key]) -> None:
    """Writes every mutant and its result as JSON."""
    entries: list[dict[str, Any]] = []
    for one in results:
        mutant = one.mutant
        entries.append(
            {
                "module": mutant.module,
                "line": mutant.line,
                "place": mutant.place,
                "text": mutant.text,
                "change": mutant.change,
                "status": one.status,
                "listed": mutant.key in listed,
                "test": one.test,
                "reason": one.reason,
                "secs": round(one.secs, 2),
            }
        )
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def judge(
    results: Sequence[Result], all_keys: Collection[Key], listed: Collection[Key], least: float
) -> list[str]:
    """Returns the faults of the tests and of the list of survivors, a line each; empty if none.

    Args:
      results: results of the mutants that ran.
      all_keys: keys of all mutants of the chosen modules, with those that a sample left out.
      listed: keys of the mutants that may survive.
      least: least share of the mutants that must be killed, from 0 to 1.
    """
    faults = []
    killed = [one for one in results if one.status != "survived"]
    left = [one for one in results if one.status == "survived"]
    new = [one for one in left if one.mutant.key not in listed]
    if new:
        faults.append(
            f"{len(new)} mutants survive and are not in tests/mutants/survivors.py: write a test "
            "that notices, or list them with the reason"
        )
    if len(killed) < least * len(results):
        share = 100 * len(killed) / len(results)
        faults.append(f"{100 * least:.0f} % of the mutants must be killed, {share:.1f} % were")
    modules = {one.mutant.module for one in results}
    dead = {one.mutant.key for one in killed} - {one.mutant.key for one in left}
    for key in sorted(set(listed)):
        if key[0] in modules and key not in all_keys:
            faults.append(f"{key[0]}: survivors.py lists a mutant that is no longer: {key[1:]}")
        elif key in dead:
            faults.append(f"{key[0]}: survivors.py lists a mutant that was killed: {key[1:]}")
    return faults
