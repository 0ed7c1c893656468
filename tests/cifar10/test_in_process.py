"""main() in a process of the user, such as a notebook's kernel: what it leaves as it was."""

import pathlib
import subprocess
import sys
import textwrap

import pytest

from cifar10.host import process
from testbeds.processes import ROOT


def test_main_can_be_called_again_and_leaves_the_process_as_it_was(
    tutorial_data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    code = """
        import contextlib, io, signal, sys, threading, warnings
        from cifar10.main import main

        def state():
            handlers = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
            return handlers, signal.set_wakeup_fd(-1), list(warnings.filters), threading.excepthook

        words = ["--model", "mlp", "--train-batch-size", "10", "--num-towers", "1"]
        words += ["--data-dir", sys.argv[1], "--output-dir", sys.argv[2]]
        import tensorflow
        before = state()
        with contextlib.redirect_stderr(io.StringIO()):  # It has no file descriptor.
            for steps in ("1", "2"):
                assert main([*words, "--train-steps", steps]) == 0
        assert state() == before, (state(), before)
        codes = []
        thread = threading.Thread(target=lambda: codes.append(main(words)), name="cell")
        thread.start()
        thread.join()
        codes.append(main([*words, "--num-inter-threads", "3"]))
        assert codes == [2, 2], codes
    """
    folders = [str(tutorial_data), str(tmp_path / "output")]
    words = [sys.executable, "-c", textwrap.dedent(code), *folders]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    in_thread, used_before = found.stderr.splitlines()[-2:]
    assert in_thread.startswith("error: training must run in the main thread, ")
    assert used_before.startswith("error: this process has used TensorFlow before, not with 3 ")


def test_the_script_ends_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", sys)
    with pytest.raises(SystemExit) as ended:
        process.leave(3)
    assert ended.value.code == 3
