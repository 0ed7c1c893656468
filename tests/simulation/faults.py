"""What goes wrong in a run: a few things by chance, often at about the same time."""

import signal
from typing import TYPE_CHECKING, Optional

from tests.simulation.hosts import Process, SimHost

if TYPE_CHECKING:
    from tests.simulation.runs import AgentRun


def draw_faults(run: "AgentRun") -> None:
    """Chooses what goes wrong, and when."""
    rng, world = run.world.rng, run.world
    kinds = [
        _task_exits, _task_exits, _task_exits, _task_is_killed, _task_is_killed, _user_stops,
        _platform_stops, _platform_stops, _link_breaks, _host_is_cut_off, _host_hangs,
        _host_crashes, _agent_is_killed, _start_is_refused, _links_are_slow, _launcher_pauses,
        _launcher_dies, _platform_ends_a_ps_first,
    ]  # fmt: skip
    moment = rng.choice((rng.uniform(0.1, 35), run.training.done, run.training.done + 1))
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))):
        at = moment + rng.choice((0.0, 0.001, 0.05, 0.5, 1.5, 4.0, 9.0))
        world.later(max(at, 0.05), rng.choice(kinds), run)


def _host(run: "AgentRun") -> SimHost:
    return run.hosts[run.world.rng.choice(sorted(run.hosts))]


def _process(run: "AgentRun") -> Optional[Process]:
    alive = [p for h in run.hosts.values() for p in h.processes if p.code is None]
    return run.world.rng.choice(alive) if alive else None


def _task_exits(run: "AgentRun") -> None:
    _fail(run, run.world.rng.choice((1, 1, 2, 3, 143)))


def _task_is_killed(run: "AgentRun") -> None:
    _fail(run, -run.world.rng.choice((9, 9, 11, 15)))


def _fail(run: "AgentRun", code: int) -> None:
    process = _process(run)
    if process is not None and process.program is not None and not process.host.is_down:
        run.world.say(process.name, "fails by itself")
        process.program.fail(code)


def _user_stops(run: "AgentRun") -> None:
    rng = run.world.rng
    signum = rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    for i in range(rng.choice((1, 1, 2, 3))):
        run.world.later(i * rng.choice((0.01, 0.3, 3.0)), run.signal, signum)


def _platform_stops(run: "AgentRun") -> None:
    """Sends SIGTERM to everything: to tasks, agents and the launcher, in any order."""
    rng, world = run.world.rng, run.world
    world.say("the platform stops everything")
    hosts = list(run.hosts.values()) if run.is_slurm else [_host(run)]
    for host in hosts:
        for process in host.processes:
            host.later(rng.uniform(0, 0.3), _platforms_sigterm, process)
        for machine in host.machines:
            host.later(rng.uniform(0, 0.3), machine.sigterm)
    if run.is_slurm and rng.random() < 0.7:
        world.later(rng.uniform(0, 0.3), run.signal, signal.SIGTERM)


def _platform_ends_a_ps_first(run: "AgentRun") -> None:
    """Ends a ps by a SIGTERM, whose report comes before the word that the platform stops all."""
    for host in run.hosts.values():
        for process in host.processes:
            if process.name == "ps/0" and process.code is None:
                process.end(-signal.SIGTERM)
    run.world.later(run.world.rng.choice((0.0, 0.1, 1.0, 4.0)), _platform_stops, run)


def _platforms_sigterm(process: Process) -> None:
    """Delivers a SIGTERM that is not the launcher's: the task then ends by itself."""
    if process.code is None and process.program is not None:
        process.host.world.say(process.name, "gets SIGTERM of the platform")
        process.program.take(signal.SIGTERM)


def _link_breaks(run: "AgentRun") -> None:
    link = run.link_of(_host(run).name)
    if link is not None:
        link.cut()


def _host_is_cut_off(run: "AgentRun") -> None:
    host = _host(run)
    host.cut_off_until = run.world.now + run.world.rng.choice((1.0, 5.0, 7.0, 20.0))
    run.world.say(host.name, "is cut off until", f"{host.cut_off_until:.3f}")


def _host_hangs(run: "AgentRun") -> None:
    host = _host(run)
    host.frozen_until = run.world.now + run.world.rng.choice((1.0, 5.0, 7.0, 20.0))
    run.world.say(host.name, "hangs until", f"{host.frozen_until:.3f}")


def _host_crashes(run: "AgentRun") -> None:
    _host(run).crash()


def _agent_is_killed(run: "AgentRun") -> None:
    host = _host(run)
    if host.machines and not host.is_down:
        host.machines[-1].kill()


def _start_is_refused(run: "AgentRun") -> None:
    _host(run).refuses_starts = True


def _links_are_slow(run: "AgentRun") -> None:
    for name in run.hosts:
        link = run.link_of(name)
        if link is not None:
            link.is_slow = True


def _launcher_pauses(run: "AgentRun") -> None:
    secs = run.world.rng.choice((0.8, 4.0, 10.0))
    run.paused_until = run.world.now + secs
    run.ledger.paused_secs += secs
    run.world.say("launcher stands still for", secs)


def _launcher_dies(run: "AgentRun") -> None:
    """Kills the launcher, whose connections close."""
    run.world.say("launcher is killed")
    run.is_dead = True
    for name in run.hosts:
        link = run.link_of(name)
        if link is not None:
            link.kill()
