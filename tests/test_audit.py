"""The audit of dependencies: the real pip-audit, and a stand-in for its service of advisories."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests import audit

pytest.importorskip("pip_audit", reason="pip-audit needs Python 3.10")

_ADVISORY = {
    "id": "GHSA-aaaa",
    "aliases": ["CVE-2026-1"],
    "summary": "made up",
    "affected": [
        {
            "package": {"name": "jinja2", "ecosystem": "PyPI"},
            "ranges": [
                {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.2.0"}]},
            ],
        }
    ],
}


class _Service(BaseHTTPRequestHandler):
    """Answers like OSV: Jinja2 has an advisory, all other packages have none."""

    def do_POST(self) -> None:  # noqa: N802
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = {"vulns": [_ADVISORY]} if query["package"]["name"].lower() == "jinja2" else {}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def service() -> Iterator[list[str]]:
    """The arguments that make pip-audit ask the stand-in."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield ["--vulnerability-service=osv", f"--osv-url=http://127.0.0.1:{server.server_port}/"]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty list of accepted advisories."""
    path = tmp_path / ".ci" / "accepted-advisories.txt"
    path.parent.mkdir()
    path.write_text("# none\n", encoding="utf-8")
    monkeypatch.setattr(audit, "ACCEPTED", path)
    return path


@pytest.mark.slow
def test_an_advisory_fails_the_audit_unless_it_is_accepted_with_a_reason(
    service: list[str], accepted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(service) == 1
    shown = capsys.readouterr()
    assert shown.out == "FOUND: jinja2 3.1.6: CVE-2026-1 = GHSA-aaaa; mended in 3.2.0\n"
    assert shown.err.startswith("error: 1 advisories; take a mended version into requirements*.txt")
    accepted.write_text("GHSA-aaaa templates are ours alone\n", encoding="utf-8")
    assert audit.main(service) == 0
    assert capsys.readouterr().out.splitlines() == [
        "accepted: jinja2 3.1.6: CVE-2026-1 = GHSA-aaaa; mended in 3.2.0: templates are ours alone",
        "no advisory concerns what the locks install, apart from those accepted",
    ]


@pytest.mark.slow
def test_an_acceptance_that_is_not_needed_any_more_is_told(
    service: list[str], accepted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted.write_text("GHSA-aaaa ours\nGHSA-old gone\n", encoding="utf-8")
    assert audit.main(service) == 0
    assert "GHSA-old concerns nothing that was audited; remove it\n" in capsys.readouterr().out


@pytest.mark.slow
def test_a_service_that_does_not_answer_is_not_a_good_result(
    accepted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = ["--vulnerability-service=osv", "--osv-url=http://127.0.0.1:9/"]
    assert audit.main(closed) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("NOT AUDITED: the service of advisories does not answer: ")


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
