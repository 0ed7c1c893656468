"""What the audit of dependencies makes of pip-audit's findings; CI asks the real one."""

from pathlib import Path

import pytest

from tests import audit


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip-audit finds one advisory."""
    advisory = audit.Advisory("jinja2 3.1.6", ("CVE-2026-1", "GHSA-aaaa"), ("3.2.0",))
    monkeypatch.setattr(audit, "ask", lambda _: ([advisory], []))


@pytest.fixture
def accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty list of accepted advisories."""
    path = tmp_path / ".ci" / "accepted-advisories.txt"
    path.parent.mkdir()
    path.write_text("# none\n", encoding="utf-8")
    monkeypatch.setattr(audit, "ACCEPTED", path)
    return path


def test_an_advisory_fails_the_audit_unless_it_is_accepted_with_a_reason(
    accepted: Path, found: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main([]) == 1
    shown = capsys.readouterr()
    assert shown.out == "FOUND: jinja2 3.1.6: CVE-2026-1 = GHSA-aaaa; mended in 3.2.0\n"
    assert shown.err.startswith("error: 1 advisories; take a mended version into requirements*.txt")
    accepted.write_text("GHSA-aaaa templates are ours alone\n", encoding="utf-8")
    assert audit.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "accepted: jinja2 3.1.6: CVE-2026-1 = GHSA-aaaa; mended in 3.2.0: templates are ours alone",
        "no advisory concerns what the locks install, apart from those accepted",
    ]


def test_an_acceptance_that_is_not_needed_any_more_is_told(
    accepted: Path, found: None, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted.write_text("GHSA-aaaa ours\nGHSA-old gone\n", encoding="utf-8")
    assert audit.main([]) == 0
    assert "GHSA-old concerns nothing that was audited; remove it\n" in capsys.readouterr().out


def test_packages_that_the_service_does_not_know_are_not_a_good_result(
    accepted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "ask", lambda _: ([], ["jinja2", "numpy"]))
    assert audit.main([]) == 3
    assert capsys.readouterr().err.startswith(
        "NOT AUDITED: the service of advisories does not know 2 packages (jinja2, numpy); try"
    )


def test_an_acceptance_without_a_reason_is_refused(
    accepted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted.write_text("# one\nGHSA-aaaa\n", encoding="utf-8")
    assert audit.main([]) == 2
    assert capsys.readouterr().err == (
        "error: accepted-advisories.txt:2: write `ID reason`, got 'GHSA-aaaa'\n"
    )


def test_every_accepted_advisory_has_a_reason() -> None:
    assert all(audit.read_accepted(audit.ACCEPTED).values())
