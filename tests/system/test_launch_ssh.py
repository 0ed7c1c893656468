"""Jobs over real ssh on three machines: cut links, killed nodes, and nothing left behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launch.backends.ssh import TRANSPORT as SSH
from launch.cluster.model import Host
from launch.connect.agent_client import Questions
from launch.record.run_folder import RunFolder
from testbeds import namespaces
from testbeds import nodes as machines
from testbeds.namespaces import ip
from testbeds.nodes import Nodes
from testbeds.ports import free_ports
from testbeds.terminal import Terminal
from tests.cifar10 import program
from tests.launch.launcher import (
    ROOT,
    Launcher,
    agent_pids,
    assert_nothing_left,
    interrupt,
    pid_of,
    processes_naming,
    processes_of,
    wait_for,
)

pytestmark = pytest.mark.system

LIMITS = "limits: {stop_secs: 20}\n"
# For tests of what happens at the end of a limit.
SHORT = "limits: {stop_secs: 2, lease_secs: 3}\n"
END_SECS = 90.0  # for what ends within some seconds on an idle machine


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    reason = machines.why_not()
    if reason:
        pytest.skip(reason)
    with Nodes(tmp_path_factory.mktemp("nodes") / "ssh") as running:
        yield running


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
    for task in ("master/0", "worker/1"):
        launcher.wait_for_log(task, "step 3/")
    return process


def assert_nodes_are_idle(nodes: Nodes) -> None:
    """Asserts that no node runs anything but its sshd."""
    for name in nodes.names:
        left = {pid: words for pid, words in nodes.processes(name).items() if "[lis" not in words}
        assert left == {}


def test_a_job_runs_to_its_end(launcher: Launcher, nodes: Nodes) -> None:
    output = launcher.up(cluster(launcher, nodes), "--no-check", "--", "steps=40")
    assert output.splitlines()[-1] == "master/0 is done"
    assert "[master/0 node1] epoch 0.1/1  step 40/40" in output
    assert "[worker/1 node3] epoch 0.1/1  step 1/40" in output
    assert_nothing_left(launcher.run_id())
    wait_for(lambda: not any(len(nodes.processes(n)) > 1 for n in nodes.names), "idle nodes", 5)
    assert_nodes_are_idle(nodes)


def test_paths_and_arguments_are_taken_as_they_are(launcher: Launcher, nodes: Nodes) -> None:
    odd = launcher.workdir.with_name("it's $(touch oops); here")
    launcher.workdir = launcher.workdir.rename(odd)
    arguments = ("steps=2", "print=a b;$(touch oops) 'c' \"d\"")
    output = launcher.up(cluster(launcher, nodes), "--no-check", "--", *arguments)
    assert "[worker/0 node2] a b;$(touch oops) 'c' \"d\"" in output
    assert not list(launcher.workdir.parent.rglob("oops"))


def test_a_secret_shows_in_no_process_list_or_log(launcher: Launcher, nodes: Nodes) -> None:
    secret = "hunter2-ssh"
    launcher.env["API_TOKEN"] = secret
    file = cluster(launcher, nodes, LIMITS + "pass_environment: [API_TOKEN]\n")
    arguments = ("--no-check", "--", "steps=100000", "env=API_TOKEN")
    process = launcher.start_up(file, *arguments)
    launcher.wait_for_log("worker/1", "step 3/")
    assert processes_naming(secret) == {}
    output = interrupt(process)
    assert "[worker/1 node3] API_TOKEN=***" in output
    assert secret not in output
    logs = list(launcher.state.rglob("*.log"))
    assert logs
    assert not any(secret in path.read_text() for path in logs)


@pytest.fixture
def lending(nodes: Nodes, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables of a user with an ssh agent, whose configuration forwards it and two ports."""
    config = nodes.folder / "config"
    before = config.read_text()
    local, remote = free_ports(2)
    forwards = f"  LocalForward {local} localhost:22\n  RemoteForward {remote} localhost:22\n"
    config.write_text(f"{before}Host *\n  ForwardAgent yes\n{forwards}")
    agent = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL
    )
    wait_for((tmp_path / "agent").exists, "ssh-agent")
    yield {"SSH_AUTH_SOCK": str(tmp_path / "agent"), "LOCAL": str(local), "REMOTE": str(remote)}
    agent.terminate()
    agent.wait()
    config.write_text(before)


def _listens(port: str, enter: Sequence[str] = ()) -> bool:
    """Returns whether a program listens on a port here, or where the prefix `enter` leads to."""
    words = [*enter, "cat", "/proc/net/tcp"]
    table = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return f":{int(port):04X} 00000000:0000 0A" in table


def test_nothing_of_the_user_is_forwarded_whatever_the_ssh_configuration_says(
    launcher: Launcher, nodes: Nodes, lending: dict[str, str]
) -> None:
    in_node1 = namespaces.enter(nodes.namespace("node1"))
    # A plain ssh does forward all of it.
    plain = subprocess.Popen(
        ["ssh", "node1", "echo agent $SSH_AUTH_SOCK; exec sleep 60"],
        env={**os.environ, **nodes.env, **lending},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert plain.stdout is not None
    assert plain.stdout.readline().startswith("agent /tmp/ssh-")
    wait_for(lambda: _listens(lending["LOCAL"]), "the forwarded port here", 10)
    wait_for(lambda: _listens(lending["REMOTE"], in_node1), "the forwarded port there", 10)
    plain.terminate()
    plain.communicate()
    wait_for(lambda: not _listens(lending["REMOTE"], in_node1), "the end of that ssh", 10)
    launcher.env.update(lending)
    words = ("--no-check", "--", "steps=100000", "env=SSH_AUTH_SOCK")
    process = launcher.start_up(cluster(launcher, nodes), *words)
    launcher.wait_for_log("master/0", "step 3/")
    assert not _listens(lending["LOCAL"])
    assert not _listens(lending["REMOTE"], in_node1)
    output = interrupt(process)
    assert "[master/0 node1] SSH_AUTH_SOCK=None" in output
    assert "[worker/1 node3] SSH_AUTH_SOCK=None" in output


def test_ctrl_c_stops_every_host(launcher: Launcher, nodes: Nodes) -> None:
    process = start(launcher, nodes, "child")
    output = interrupt(process)
    assert process.returncode == 130
    assert "[master/0 node1] saved" in output
    assert_nothing_left(launcher.run_id())


def test_a_killed_launcher_leaves_nothing_on_any_host(launcher: Launcher, nodes: Nodes) -> None:
    process = start(launcher, nodes, "child", "deaf", limits=SHORT)
    launcher.kill(process)
    assert_nothing_left(launcher.run_id(), END_SECS)


def test_a_run_that_is_left_outlives_its_terminal_under_the_same_leases(
    launcher: Launcher, nodes: Nodes
) -> None:
    file = cluster(launcher, nodes, "limits: {stop_secs: 5, lease_secs: 6}\n")
    words = launcher.up_words(file, "--no-check", "--", "steps=100000")
    command = [sys.executable, "-m", "launch", "up", *words]
    with Terminal(command, 100, env=nodes.env, cwd=ROOT) as terminal:
        launcher.wait_for_log("worker/1", "step 3/")
        terminal.type("\x03")
        terminal.wait_for_new("[l]eave running, [s]top (saves first), [c]ontinue?")
        terminal.type("l\n")
        assert terminal.finish() == 130
    run_id = launcher.run_id()
    steps = launcher.log("worker/1").count("step ")
    # A step takes a twentieth of a second: the tasks run for longer than a lease.
    launcher.wait_for_log("worker/1", f"step {steps + 150:,}/")
    folder = RunFolder(launcher.state / run_id)
    pid = folder.launcher_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert_nothing_left(run_id, END_SECS)
    assert "stopping" not in folder.output_log.read_text()
    assert launcher.has_saved("master/0")


def test_a_killed_ssh_leaves_nothing_and_is_named(launcher: Launcher, nodes: Nodes) -> None:
    process = start(launcher, nodes, "child", limits=SHORT)
    run_id = launcher.run_id()
    clients = _find(f"node2 exec python3 -I -S -c .* launch-agent {run_id}")
    assert clients
    for pid in clients:
        os.kill(pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=END_SECS)
    assert process.returncode == 1
    assert "worker/0 on node2 failed: lost" in output
    assert_nothing_left(run_id, END_SECS)


def test_a_lost_agent_is_started_again(launcher: Launcher, nodes: Nodes) -> None:
    process = start(launcher, nodes, restarts=2)
    run_id = launcher.run_id()
    (agent,) = set(agent_pids(run_id)) & set(nodes.processes("node3"))
    before = pid_of(run_id, "worker/1")
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: pid_of(run_id, "worker/1") != before, "another worker/1")
    interrupt(process)
    assert process.returncode == 130
    assert_nothing_left(run_id, END_SECS)


def test_a_cut_link_ends_the_job_on_both_sides(launcher: Launcher, nodes: Nodes) -> None:
    process = start(launcher, nodes, "child", limits=SHORT)
    run_id = launcher.run_id()
    nodes.cut("node2")
    output, _ = process.communicate(timeout=END_SECS)
    assert process.returncode == 1
    assert "on node2 failed: no message from its agent for 3 s" in output
    # The link is still cut, so it is the agent's lease that ends the tasks there.
    assert_nothing_left(run_id, END_SECS)


def test_a_node_that_comes_back_rejoins(launcher: Launcher, nodes: Nodes) -> None:
    process = start(launcher, nodes, restarts=5)
    run_id = launcher.run_id()
    before = pid_of(run_id, "worker/1")
    nodes.kill("node3")
    time.sleep(2)
    nodes.start_sshd("node3")
    wait_for(lambda: pid_of(run_id, "worker/1") != before, "another worker/1")
    interrupt(process)
    assert_nothing_left(run_id, END_SECS)


def test_clean_ends_what_a_power_cut_of_the_launcher_left(launcher: Launcher, nodes: Nodes) -> None:
    process = start(launcher, nodes, "child", "deaf")
    run_id = launcher.run_id()
    # Kill launcher, agents and guards at once, so that none of them can end the tasks' children.
    everyone = [process.pid, *(p for p, w in processes_of(run_id).items() if "launch-agent" in w)]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for pid in everyone:
            os.kill(pid, signum)
    process.communicate()
    wait_for(lambda: not agent_pids(run_id), "end of the agents")
    assert processes_of(run_id)
    output = launcher.verb("clean")
    assert f"run {run_id}: node" in output
    assert_nothing_left(run_id)


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


def test_an_unreachable_host_is_named(launcher: Launcher, nodes: Nodes) -> None:
    absent = f"{nodes.network}.99"
    hosts = ("--hosts", f"node1,{absent},nowhere.invalid")
    output = launcher.up(hosts, "--no-check", "--", exit_code=1)
    assert f"{absent}: it does not answer; is it up, and in reach?" in output
    assert "nowhere.invalid: ssh does not know the name; try: ssh nowhere.invalid" in output


def test_check_goes_through_the_hosts(launcher: Launcher, nodes: Nodes) -> None:
    """The stand-in has neither TensorFlow nor records, and one port is taken."""
    space = f"/run/netns/{nodes.namespace('node2')}"
    code = 'import socket, time; s = socket.create_server(("", 2222)); time.sleep(60)'
    taken = subprocess.Popen(["nsenter", f"--net={space}", "python3", "-c", code])
    try:
        listens = Path(f"/proc/{taken.pid}/net/tcp")
        wait_for(lambda: ":08AE 00000000:0000 0A" in listens.read_text(), "taken port 2222")
        output = launcher.verb_on(cluster(launcher, nodes), "check", exit_code=1)
    finally:
        taken.kill()
        taken.wait()
    problems = [line for line in output.splitlines() if line.startswith("problem: ")]
    assert (
        "problem: node1: no records in data; copy them there: python -m launch setup, or name "
        "--data-dir" in problems
    )
    assert "node2: port 2222 is in use (ss -ltnp shows by what); end that, or" in output, output
    assert not any("cannot reach" in problem for problem in problems)


def test_check_warns_of_ports_that_the_internet_may_reach(launcher: Launcher, nodes: Nodes) -> None:
    """Only the test's own network namespace has the public address, and nothing connects to it."""
    in_node2 = ("-n", nodes.namespace("node2"), "addr")
    ip(*in_node2, "add", "11.78.0.2/32", "dev", "eth0")
    try:
        output = launcher.verb_on(cluster(launcher, nodes), "check", exit_code=1)
    finally:
        ip(*in_node2, "del", "11.78.0.2/32", "dev", "eth0")
    assert [line for line in output.splitlines() if line.startswith("warning: ")] == [
        "warning: node2: 11.78.0.2 may be reached from the internet, on ports 2222, 2223; "
        "TensorFlow's servers admit whoever reaches them: admit only the cluster's hosts there "
        "with a firewall (`ports:` sets the ports), or use hosts with private addresses alone"
    ]


def test_up_does_not_start_what_check_finds_fault_with(launcher: Launcher, nodes: Nodes) -> None:
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
        assert f"problem: node1: cannot reach {wrong} port 2222: {why}" in output
        assert f"problem: node2: cannot reach {wrong} port 2223: {why}" in output


def test_many_hosts_behind_a_jump_host_that_takes_ten_logins_at_once_are_all_reached(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"far{number}" for number in range(20)]
    jump, target = nodes.address("node1"), nodes.address("node2")
    config = (nodes.folder / "config").read_text()
    far = f"Host far*\n  HostName {target}\n  HostKeyAlias {target}\n  ProxyJump {jump}\n"
    config = config.replace("Host node* ", "Host node* far* ", 1)
    (tmp_path / "config").write_text(f"{far}{config}")
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "ssh"
    # The jump takes the same configuration.
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/config "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    hosts = [Host(name, name, (("master", 1),), workdir="/", user="root") for name in names]

    try:
        nodes.kill("node1")
        nodes.start_sshd("node1", MaxStartups="10:100:10")
        with Questions(SSH, []) as questions:
            answers = questions.ask(hosts, lambda _: {"do": "dial", "targets": []})
    finally:
        nodes.kill("node1")
        nodes.start_sshd("node1")
    assert answers.failed == {}
    assert list(answers.found) == names


def test_real_training_runs_to_its_end_on_hosts_that_were_checked(
    launcher: Launcher, nodes: Nodes, tmp_path: Path
) -> None:
    data = program.make_records(tmp_path / "data", 1000)
    hosts = ",".join(nodes.address(name) for name in nodes.names[:2])
    launcher.workdir = ROOT
    words = ["--num-layers=8", "--train-steps=30", "--train-batch-size=32"]
    folders = [f"--data-dir={data}", f"--output-dir={tmp_path / 'output'}"]
    cluster = ("--hosts", hosts, "--python", sys.executable)
    output = launcher.up(cluster, "--", *words, *folders)
    assert (tmp_path / "output" / "result.json").exists()
    assert f"[worker/0 {nodes.address('node2')}] " in output
    assert output.splitlines()[-1] == "master/0 is done"
    assert_nothing_left(launcher.run_id())


def _find(pattern: str) -> list[int]:
    done = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False)
    return [int(pid) for pid in done.stdout.split()]
