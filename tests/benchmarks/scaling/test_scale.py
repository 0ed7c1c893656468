import pytest

from benchmarks.scaling import jobs, scale
from benchmarks.scaling.measured_run import Figures, Run
from cifar10.config import flags
from launch.cluster.host_list import on_this_machine


def test_the_constants_are_those_of_runs_alone_and_with_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = []

    def measure(run: Run) -> Figures:
        ps = run.cluster.count("ps")
        measured.append((ps, run.log_steps))
        # 100 ms alone and 120 ms with servers, each of which keeps a tenth of a core busy: 12 ms.
        step_secs = 0.12 if ps else 0.1
        busy = {"master/0": 1.0, **{f"ps/{index}": 0.1 for index in range(ps)}}
        return Figures(640.0, step_secs, 0.05, 0.0, busy, 0.0, 1e6 / step_secs if ps else 0.0)

    monkeypatch.setattr(jobs, "measure", measure)
    config = flags.parse(["--train-batch-size=64"])
    found = scale.measure_constants(lambda ps: Run(on_this_machine(0, ps), config, 1.0))
    # A progress line comes every quarter of a second as soon as the length of a step is known.
    assert measured == [(0, 1), (1, 2), (2, 2), (0, 2), (1, 2), (2, 2), (0, 2), (1, 2), (2, 2)]
    assert (found.batch_size, found.compute_secs, found.jitter) == (64, 0.1, 0.05)
    assert found.step_bytes == pytest.approx(1e6)
    assert found.server_cpu(1) == pytest.approx(0.012)
    assert found.own_secs == pytest.approx(0.008)
