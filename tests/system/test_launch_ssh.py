"""Hosts over real ssh, three machines: setup, check, and jobs that leave nothing behind."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launch.connect.preparing import code_files
from launch.record.run_folder import RunFolder
from testbeds import namespaces
from testbeds.nodes import Nodes
from testbeds.ports import free_ports
from testbeds.terminal import Terminal
from tests import shell
from tests.cifar10 import program
from tests.launch.launcher import ROOT, Launcher, interrupt, read_until, wait_for

pytestmark = pytest.mark.system

LIMITS = "limits: {stop_secs: 20}\n"
# For tests of what happens at the end of a limit.
SHORT = "limits: {stop_secs: 2, lease_secs: 3}\n"
END_SECS = 90.0  # for what ends within some seconds on an idle machine


@pytest.fixture
def launcher(nodes: Nodes, tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path, nodes.env)
    yield launcher
    for name in nodes.names:
        nodes.heal(name)
    launcher.end()


def cluster(launcher: Launcher, nodes: Nodes, text: str = LIMITS) -> tuple[str, ...]:
    """Writes a cluster file: master, worker, worker, and a ps on each; returns its flags."""
    path = launcher.workdir.parent / "lab.yaml"
    hosts = "".join(f"  - name: {n}\n    address: {nodes.address(n)}\n" for n in nodes.names)
    path.write_text(f"workdir: {launcher.workdir}\nhosts:\n{hosts}{text}")
    return ("--cluster", str(path))


def start(
    launcher: Launcher, nodes: Nodes, *arguments: str, restarts: int = 0, limits: str = LIMITS
) -> "subprocess.Popen[str]":
    """Starts an endless job and waits until its master and its last worker train."""
    words = ("--restarts", str(restarts), "--no-check", "--", "steps=100000", *arguments)
    process = launcher.start_up(cluster(launcher, nodes, limits), *words)
    launcher.wait_until_trains("worker/1")
    return process


def test_a_job_runs_to_its_end_with_paths_and_arguments_as_they_are(
    launcher: Launcher, nodes: Nodes
) -> None:
    odd = launcher.workdir.with_name("it's $(touch oops); here")
    launcher.workdir = launcher.workdir.rename(odd)
    arguments = ("steps=40", "print=a b;$(touch oops) 'c' \"d\"")
    output = launcher.up(cluster(launcher, nodes), "--no-check", "--", *arguments)
    assert output.splitlines()[-1] == "master/0 is done"
    assert "[worker/0 node2] a b;$(touch oops) 'c' \"d\"" in output
    assert not list(launcher.workdir.parent.rglob("oops"))
    assert "[master/0 node1] epoch 0.1/1  step 40/40" in output
    assert "[worker/1 node3] epoch 0.1/1  step 1/40" in output
    launcher.assert_nothing_left()
    # A node runs its sshd and nothing else.
    wait_for(lambda: not any(len(nodes.processes(n)) > 1 for n in nodes.names), "idle nodes", 5)


def test_a_secret_shows_in_no_process_list_or_log(launcher: Launcher, nodes: Nodes) -> None:
    file = cluster(launcher, nodes, LIMITS + "pass_environment: [API_TOKEN]\n")
    launcher.check_secret(file, "[worker/1 node3]", "--no-check")


@pytest.fixture
def ssh_config(nodes: Nodes) -> Iterator[Path]:
    """The user's configuration of ssh, which a test may change."""
    config = nodes.folder / "config"
    before = config.read_text()
    yield config
    config.write_text(before)


def _listens(port: int, enter: Sequence[str] = ()) -> bool:
    """Returns whether a program listens on a port here, or where the prefix `enter` leads to."""
    words = [*enter, "cat", "/proc/net/tcp"]
    table = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return f":{port:04X} 00000000:0000 0A" in table


def test_nothing_of_the_user_is_forwarded_whatever_the_ssh_configuration_says(
    launcher: Launcher, nodes: Nodes, ssh_config: Path, tmp_path: Path
) -> None:
    here, there = free_ports(2)
    forwards = f"  LocalForward {here} localhost:22\n  RemoteForward {there} localhost:22\n"
    ssh_config.write_text(f"{ssh_config.read_text()}Host *\n  ForwardAgent yes\n{forwards}")
    in_node1 = namespaces.enter(nodes.namespace("node1"))
    launcher.env["SSH_AUTH_SOCK"] = str(tmp_path / "agent")
    agent = launcher.run(["ssh-agent", "-D", "-a", str(tmp_path / "agent")])
    wait_for((tmp_path / "agent").exists, "ssh-agent")
    # A plain ssh does forward all of it.
    plain = launcher.run(["ssh", "node1", "echo agent $SSH_AUTH_SOCK; exec sleep 60"])
    read_until(plain, "agent /tmp/ssh-")
    wait_for(lambda: _listens(here), "the forwarded port here", 10)
    wait_for(lambda: _listens(there, in_node1), "the forwarded port there", 10)
    plain.terminate()
    wait_for(lambda: not _listens(there, in_node1), "the end of that ssh", 10)
    words = ("--no-check", "--", "steps=100000", "env=SSH_AUTH_SOCK")
    process = launcher.start_up(cluster(launcher, nodes), *words)
    launcher.wait_for_log("master/0", "step 3/")
    assert not _listens(here)
    assert not _listens(there, in_node1)
    output = interrupt(process)
    assert agent.poll() is None
    assert "[master/0 node1] SSH_AUTH_SOCK=None" in output
    assert "[worker/1 node3] SSH_AUTH_SOCK=None" in output


def test_a_run_that_is_left_outlives_its_terminal_under_the_same_leases(
    launcher: Launcher, nodes: Nodes
) -> None:
    file = cluster(launcher, nodes, "limits: {stop_secs: 5, lease_secs: 6}\n")
    deaf = ("steps=100000", "child", "worker/0:deaf")
    words = launcher.up_words(file, "--no-check", "--", *deaf)
    command = [sys.executable, "-m", "launch", "up", *words]
    with Terminal(command, 100, env=nodes.env, cwd=ROOT) as terminal:
        launcher.wait_until_trains("worker/1")
        terminal.type("\x03")
        terminal.wait_for_new("[l]eave running, [s]top (saves first), [c]ontinue?")
        terminal.type("l\n")
        assert terminal.finish() == 130
    run_id = launcher.run_id()
    steps = launcher.log("worker/1").count("step ")
    # A step takes a twentieth of a second: the tasks run for longer than a lease.
    launcher.wait_for_log("worker/1", f"step {steps + 150:,}/")
    folder = RunFolder(launcher.state / run_id)
    os.kill(launcher.pid(), signal.SIGKILL)
    launcher.assert_nothing_left(END_SECS)
    assert "stopping" not in folder.output_log.read_text()
    assert launcher.has_saved("master/0")


def test_a_lost_agent_and_a_node_that_comes_back_go_on_and_ctrl_c_stops_every_host(
    launcher: Launcher, nodes: Nodes
) -> None:
    process = start(launcher, nodes, "child", restarts=5)
    (agent,) = set(launcher.agent_pids()) & set(nodes.processes("node3"))
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: launcher.log("worker/1").count("step 1/") == 2, "another worker/1's step")
    nodes.kill("node3")
    time.sleep(2)
    nodes.start_sshd("node3")
    wait_for(lambda: launcher.log("worker/1").count("step 1/") == 3, "a third worker/1's step")
    output = interrupt(process)
    assert process.returncode == 130
    assert "[master/0 node1] saved" in output
    launcher.assert_nothing_left(END_SECS)


def test_a_cut_link_ends_the_job_on_both_sides(launcher: Launcher, nodes: Nodes) -> None:
    process = start(launcher, nodes, "child", limits=SHORT)
    nodes.cut("node2")
    output, _ = process.communicate(timeout=END_SECS)
    assert process.returncode == 1
    assert "on node2 failed: no message from its agent for 3 s" in output
    # The link is still cut, so it is the agent's lease that ends the tasks there.
    launcher.assert_nothing_left(END_SECS)


def test_a_host_that_asks_for_more_than_a_key_does_not_hang(
    launcher: Launcher, nodes: Nodes
) -> None:
    (nodes.folder / "id").rename(nodes.folder / "hidden")
    try:
        output = launcher.up(cluster(launcher, nodes), "--no-check", "--", exit_code=1)
    finally:
        (nodes.folder / "hidden").rename(nodes.folder / "id")
    assert "error: node1: login refused; install your key: ssh-copy-id node1" in output


def test_an_unknown_host_key_is_refused(launcher: Launcher, nodes: Nodes) -> None:
    known = nodes.folder / "known_hosts"
    before = known.read_text()
    known.write_text("\n".join(before.splitlines()[:-1]) + "\n")
    try:
        output = launcher.verb_on(cluster(launcher, nodes), "check", exit_code=1)
    finally:
        known.write_text(before)
    assert "node3: its host key is not known; look at it once: ssh node3" in output


def test_check_names_what_is_wrong_and_up_refuses_it(launcher: Launcher, nodes: Nodes) -> None:
    """The stand-in has no records; a port is taken."""
    in_node2 = nodes.namespace("node2")
    code = 's = socket.create_server(("", 2222)); print(flush=True); time.sleep(60)'
    taken = launcher.run(
        [*namespaces.enter(in_node2), "python3", "-c", f"import socket, time; {code}"]
    )
    read_until(taken, "")
    output = launcher.verb_on(cluster(launcher, nodes), "check", exit_code=1)
    problems = [line for line in output.splitlines() if line.startswith("problem: ")]
    assert (
        "problem: node1: no records in data; copy them there: python -m launch setup, or name "
        "--data-dir" in problems
    )
    assert "node2: port 2222 is in use (ss -ltnp shows by what); end that, or" in output, output
    assert not any("cannot reach" in problem for problem in problems)
    output = launcher.up(cluster(launcher, nodes), "--", "steps=1", exit_code=1)
    assert output.startswith("error: node1: ")
    assert output.endswith("to start anyway: --no-check\n")
    assert not launcher.state.exists()


def test_check_finds_a_port_that_does_not_get_through(launcher: Launcher, nodes: Nodes) -> None:
    """The address of node3 is wrong: no machine has it, or this machine does."""
    file = Path(cluster(launcher, nodes)[1])
    text = file.read_text()
    for wrong, why in ((f"{nodes.network}.77", "no "), (nodes.gateway, "connection refused")):
        file.write_text(text.replace(f"address: {nodes.address('node3')}", f"address: {wrong}"))
        output = launcher.verb_on(("--cluster", str(file)), "check", exit_code=1)
        for host in ("node1", "node2"):
            assert f"problem: {host}: cannot reach {wrong} port 2222, 2223: {why}" in output


def test_many_hosts_behind_a_jump_host_that_takes_ten_logins_at_once_are_all_reached(
    launcher: Launcher, nodes: Nodes, ssh_config: Path
) -> None:
    names = [f"far{number}" for number in range(20)]
    jump, target = nodes.address("node1"), nodes.address("node2")
    far = f"Host far*\n  HostName {target}\n  HostKeyAlias {target}\n  ProxyJump {jump}\n"
    config = ssh_config.read_text().replace("Host node* ", "Host node* far* ", 1)
    ssh_config.write_text(f"{far}{config}")
    try:
        nodes.kill("node1")
        nodes.start_sshd("node1", MaxStartups="10:100:10")
        output = launcher.verb_on(("--hosts", ",".join(names)), "check", exit_code=1)
    finally:
        nodes.kill("node1")
        nodes.start_sshd("node1")
    assert "login" not in output
    for name in names:
        assert f"{name}: no records in data" in output


def test_setup_makes_bare_hosts_ready_and_the_second_time_nothing_is_done(
    launcher: Launcher, nodes: Nodes, tmp_path: Path
) -> None:
    launcher.cwd, launcher.env["PYTHONPATH"] = tmp_path / "here", str(ROOT)
    for name in ("cifar10_main.py", "cifar10/__init__.py", "data/train.tfrecords"):
        (launcher.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (launcher.cwd / name).write_text(f"# {name * 100_000}\n")
    wheel = write_small_lock(launcher.cwd / "small.lock")
    names = nodes.names[:2]
    file = tmp_path / "lab.yaml"
    hosts = [
        f"- {{name: {n}, address: {nodes.address(n)}, workdir: {tmp_path / n}}}" for n in names
    ]
    file.write_text("\n".join(["python: .venv/bin/python", "hosts:", *hosts]))
    setup = (("--cluster", str(file)), "setup", "--requirements", "small.lock")
    lines = launcher.verb_on(*setup).splitlines()
    for name in names:
        assert f"{name}: code: 3 files copied" in lines
        assert f"{name}: venv: .venv made" in lines
        assert any(line.startswith(f"{name}: kernels: left out: ") for line in lines)
        assert f"{name}: records: 1 files copied" in lines
    assert lines[-1] == "everything is in place"
    again = launcher.verb_on(*setup).splitlines()
    for name in names:
        for words in ("venv: .venv is there", "records: are there"):
            assert f"{name}: {words}" in again
    # A package with another hash than the lock's fails on the host where it is installed.
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    (tmp_path / "node2" / ".venv" / ".installed.lock").unlink()
    failed = launcher.verb_on(*setup, exit_code=1).splitlines()
    assert "problem: node2: venv: pip ended with exit code 1" in failed
    assert any("DO NOT MATCH THE HASHES" in line for line in failed)
    assert "node1: records: are there" in failed
    assert failed[-1] == "1 failed, 1 ready; the same command goes on where it was"


def write_small_lock(path: Path) -> Path:
    """Writes a lock with one package, which says that it is TensorFlow; returns its wheel."""
    wheel = shell.write_wheel(path.parent.parent, "tensorflow", "2.15.1")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    locked = f"tensorflow==2.15.1 --hash=sha256:{digest}"
    path.write_text(f"--no-index\n--find-links {wheel.parent}\n{locked}\n")
    return wheel


def test_training_can_be_imported_from_what_a_host_gets(tmp_path: Path) -> None:
    for name, path in code_files(ROOT).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / name)
    code = "import cifar10.main, cifar10.run.results, data_prep.cli"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={}, check=True)


def test_real_training_runs_to_its_end_on_hosts_that_were_checked(
    launcher: Launcher, nodes: Nodes, tmp_path: Path
) -> None:
    data = program.make_records(tmp_path / "data", 1000)
    hosts = ",".join(nodes.address(name) for name in nodes.names[:2])
    launcher.workdir = ROOT
    own = ("--program", str(program.write_own(tmp_path)), f"--set=environment.PYTHONPATH={ROOT}")
    words = ["--model=own", "--train-steps=30", "--train-batch-size=32"]
    folders = [f"--data-dir={data}", f"--output-dir={tmp_path / 'output'}"]
    cluster = ("--hosts", hosts, "--python", sys.executable, *own)
    output = launcher.up(cluster, "--", *words, *folders)
    result = json.loads((tmp_path / "output" / "result.json").read_text())
    assert result["model"] == "a model of one's own"
    assert f"[worker/0 {nodes.address('node2')}] " in output
    assert output.splitlines()[-1] == "master/0 is done"
    launcher.assert_nothing_left()
