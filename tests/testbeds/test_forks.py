"""Programs in forks, compared with programs in processes of their own."""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from testbeds.errors import TestbedError
from testbeds.forks import Fork, Forks
from testbeds.process_list import stop_process
from testbeds.processes import (
    ROOT,
    ClusterOfProcesses,
    Start,
    environment,
    start_process,
    tasks_started_by,
)

# Short sleeps: Python heeds a SIGINT that comes just before a sleep only after it.
SLEEP = "import time; print('here', flush=True)\nwhile True: time.sleep(0.05)"
TELL = """
import tensorflow.compat.v1 as tf
import gc, json, os, pathlib, resource, signal, sys

status = dict(line.split(":\\t", 1) for line in pathlib.Path("/proc/self/status").open())
limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
links = {one: os.readlink(one) for one in map("/proc/self/fd/{}".format, range(100))
         if os.path.exists(one)}
print(json.dumps({
    "name": __name__,
    "file": __file__,
    "main": vars(sys.modules["__main__"]) is globals(),
    "argv": sys.argv,
    "path": sys.path,
    "cwd": os.getcwd(),
    "environment": dict(os.environ),
    "descriptors": links,
    "masks": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt")],
    "handlers": [str(signal.getsignal(one)).split(" at ")[0] for one in signal.valid_signals()],
    "group and session": [os.getpgid(0), os.getsid(0)],
    "limits": [resource.getrlimit(getattr(resource, name)) for name in limits],
    "cores and niceness": [sorted(os.sched_getaffinity(0)), os.nice(0)],
    "umask": os.umask(0o022),
    "collector": [gc.isenabled(), gc.get_threshold()],
    "streams": [[one.encoding, one.errors, one.line_buffering, one.isatty(), one.fileno()]
                for one in (sys.stdin, sys.stdout, sys.stderr)],
}))
"""
RANDOM = """
import random
import numpy as np
import tensorflow.compat.v1 as tf

with tf.Graph().as_default(), tf.Session() as session:
    incarnations = [device.incarnation for device in session.list_devices()]
    print(random.random(), np.random.random(), session.run(tf.random.uniform([])), *incarnations)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    found = Forks()
    yield found
    found.close()


def start(by: Start, folder: pathlib.Path, code: str, *arguments: str):
    """Starts a program with this code in a folder, whose file `log` gets what it prints."""
    program = folder / "program.py"
    program.write_text(code)
    return by([str(program), *arguments], folder, environment(), folder / "log")


def wait_for_line(process: Fork, log: pathlib.Path) -> None:
    while not (log.exists() and log.read_text().endswith("\n")):
        assert process.poll() is None


def has_ended(pid: int) -> bool:
    """Waits for the end of a process of another parent, for a minute at most."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        ready, _, _ = select.select([descriptor], [], [], 60)
        os.close(descriptor)
        return bool(ready)
    return True


def test_a_program_in_a_fork_finds_what_it_finds_in_a_process_of_its_own(
    forks, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLOUR", "green")
    assert start(forks.start, tmp_path, "").wait(60) == 0  # The server has this environment.
    monkeypatch.delenv("COLOUR")
    monkeypatch.setenv("HANG", "hook")
    found = []
    for by in (start_process, forks.start):
        process = start(by, tmp_path, TELL, "--flag=a b", "ü")
        assert process.wait(60) == 0
        found.append(json.loads((tmp_path / "log").read_text().splitlines()[-1]))
        (tmp_path / "log").unlink()
    fresh, forked = found
    assert forked == fresh
    assert forked["argv"] == [str(tmp_path / "program.py"), "--flag=a b", "ü"]
    assert forked["environment"]["HANG"] == "hook"
    assert sorted(forked["descriptors"].values()) == ["/dev/null", *2 * [str(tmp_path / "log")]]


@pytest.mark.parametrize(
    ("code", "expected", "printed"),
    [
        ("print('end')", 0, "end\n"),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('why')", 1, "why\n"),
        ("import os; os._exit(143)", 143, ""),
        ("raise OSError('what happened')", 1, "OSError: what happened\n"),
        ("import atexit; atexit.register(print, 'at the end'); print('before')", 0, "at the end\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11, ""),
        ("import os; os.abort()", -6, ""),
    ],
)
def test_the_exit_code_is_that_of_a_process(forks, tmp_path, code, expected, printed):
    for by in (start_process, forks.start):
        process = start(by, tmp_path, code)
        assert process.wait(60) == expected
        assert (process.poll(), process.wait(), process.returncode) == (expected,) * 3
        assert (tmp_path / "log").read_text().endswith(printed)


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGTERM, -15), (signal.SIGINT, -2), (signal.SIGKILL, -9), (signal.SIGUSR1, -10)],
)
def test_a_signal_ends_a_fork_as_it_ends_a_process(forks, tmp_path, signum, code):
    for by in (start_process, forks.start):
        process = start(by, tmp_path, SLEEP)
        wait_for_line(process, tmp_path / "log")
        process.send_signal(signum)
        assert process.wait(60) == code
        process.send_signal(signum)  # Nobody gets it.
        assert ("KeyboardInterrupt" in (tmp_path / "log").read_text()) == (signum == signal.SIGINT)
        (tmp_path / "log").unlink()


def test_a_signal_in_the_first_moment_ends_a_fork(forks, tmp_path):
    for signum, code in ((signal.SIGTERM, -15), (signal.SIGINT, -2)):
        for _ in range(20):
            process = start(forks.start, tmp_path, SLEEP)
            process.send_signal(signum)
            assert process.wait(60) == code


def test_a_wait_has_a_time_limit_and_a_stopped_fork_has_not_ended(forks, tmp_path):
    process = start(forks.start, tmp_path, SLEEP)
    wait_for_line(process, tmp_path / "log")
    stop_process(process.pid)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    process.kill()
    assert process.wait(60) == -9
    assert not os.path.exists(f"/proc/{process.pid}")


def test_output_is_appended_and_both_streams_may_have_a_file_each(forks, tmp_path):
    (tmp_path / "log").write_text("before\n")
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    assert start(forks.start, tmp_path, code).wait(60) == 0
    assert (tmp_path / "log").read_text() == "before\nout\nerr\n"
    words = [str(tmp_path / "program.py")]
    two = (tmp_path / "out", tmp_path / "err")
    assert forks.start(words, tmp_path, environment(), *two).wait(60) == 0
    assert [path.read_text() for path in two] == ["out\n", "err\n"]


def test_forks_draw_different_random_numbers(forks, tmp_path):
    drawn = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert start(forks.start, tmp_path / name, RANDOM).wait(60) == 0
        drawn.append((tmp_path / name / "log").read_text().split())
    assert len(drawn[0]) == len(drawn[1]) == 4
    assert not set(drawn[0]) & set(drawn[1])


def test_a_fork_has_loaded_tensorflow_and_has_one_thread_as_has_the_server(forks, tmp_path):
    code = (
        "import os, sys, time\n"
        "for pid in (os.getpid(), os.getppid()): print(len(os.listdir(f'/proc/{pid}/task')))\n"
        "print('tensorflow' in sys.modules, 'cifar10.run.worker' in sys.modules)\n"
    )
    assert start(forks.start, tmp_path, code).wait(60) == 0
    assert (tmp_path / "log").read_text() == "1\n1\nTrue True\n"


def test_a_variable_that_loading_has_read_cannot_be_changed(forks, tmp_path):
    words = [str(tmp_path / "program.py")]
    (tmp_path / "program.py").write_text("")
    variables = {**environment(), "TF_CONFIG": "{}", "CIFAR10_JOB_TOKEN": "a"}
    assert forks.start(words, tmp_path, variables, tmp_path / "log").wait(60) == 0
    variables |= {"TF_CPP_MIN_LOG_LEVEL": "0", "GRPC_TRACE": "all"}
    with pytest.raises(TestbedError, match="cannot have another GRPC_TRACE, TF_CPP_MIN_LOG_LEVEL"):
        forks.start(words, tmp_path, variables, tmp_path / "log")


def server_of(process: Fork) -> int:
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("\nPPid:")[2].split()[0])


def test_ctrl_c_does_not_end_the_server(forks, tmp_path):
    process = start(forks.start, tmp_path, SLEEP)
    os.kill(server_of(process), signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -2
    assert start(forks.start, tmp_path, "print('more')").wait(60) == 0


def test_an_answer_that_a_test_did_not_wait_for_is_not_taken_for_the_next(forks, tmp_path):
    def interrupt(*_: object) -> None:
        raise InterruptedError

    process = start(forks.start, tmp_path, SLEEP)
    server = server_of(process)
    stop_process(server)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(InterruptedError):
            start(forks.start, tmp_path, "")
    finally:
        signal.signal(signal.SIGALRM, before)
        os.kill(server, signal.SIGCONT)
    process.kill()
    assert process.wait(60) == -9


def test_who_was_interrupted_may_ask_for_the_exit_code_again(forks, tmp_path):
    process = start(forks.start, tmp_path, "import sys; sys.exit(3)")
    assert process.wait(60) == forks.reap(process.pid) == 3


def test_no_fork_is_left_after_close_or_after_the_end_of_the_server_or_of_its_owner(tmp_path):
    code = (
        "import pathlib, sys, time\n"
        "from testbeds.forks import Forks\n"
        "from testbeds.processes import environment\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "forks = Forks()\n"
        "words = [str(folder / 'program.py')]\n"
        "one = forks.start(words, folder, environment(), folder / 'log')\n"
        "print(one.pid, flush=True)\n"
        "sys.stdin.readline()\n"
        "forks.close()\n"
        "print('closed', flush=True)\n"
        "time.sleep(1000)\n"
    )
    (tmp_path / "program.py").write_text(SLEEP)
    for end in ("close", "server", "owner"):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as owner:
            assert owner.stdin is not None
            assert owner.stdout is not None
            pid = int(owner.stdout.readline())
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            server = int(status.partition("\nPPid:")[2].split()[0])
            if end == "close":
                print("", file=owner.stdin, flush=True)
                assert owner.stdout.readline() == "closed\n"
            elif end == "server":
                os.kill(server, signal.SIGKILL)
            else:
                stop_process(pid)
                owner.kill()
            assert has_ended(pid)
            assert end == "server" or has_ended(server)
            owner.kill()


def test_tasks_are_forks_where_that_is_set_unless_the_cluster_is_to_have_processes(forks, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import os, sys; print('numpy' in sys.modules, os.environ['TF_CONFIG'])")
    with tasks_started_by(forks.start):
        forked = ClusterOfProcesses(tmp_path, ["--flag"], program=program)
        fresh = ClusterOfProcesses(tmp_path, ["--flag"], program=program, fresh=True)
    later = ClusterOfProcesses(tmp_path, ["--flag"], program=program)
    for tasks, label, loaded in (
        (forked, "ps/0", True),
        (fresh, "worker/0", False),
        (later, "master/0", False),
    ):
        tasks.start(label)
        assert tasks.exit_code(label) == 0
        found, _, config = tasks.output(label).partition(" ")
        assert found == str(loaded)
        assert json.loads(config)["task"] == {"type": label[:-2], "index": 0}
