"""A backend from outside the tree: LSF, whose jobs run the tasks on the job's one host.

`python -m tests.launch.backends.lsf VERB` is the launcher with this backend.
"""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from launch.backends.batch import Batch, JobState, description
from launch.backends.local import TRANSPORT
from launch.backends.registry import BACKENDS, KINDS
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import ROOT
from launch.cluster.show import Document
from launch.cluster.tasks import Job, make_job
from launch.cluster.yaml_section import matching, setting
from launch.errors import HostError
from launch.record.output import writer
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents
from launch.verbs.cli import main


@dataclass(frozen=True)
class LsfSettings:
    queue: str = setting("normal", matching("[a-z]+", "a queue of small letters"))


class Lsf(Batch):
    name = "lsf"
    title = "LSF"
    settings = LsfSettings

    def plan(self, job: Job) -> list[Document]:
        settings: LsfSettings = job.cluster.settings.get("lsf", LsfSettings())
        command = f'{sys.executable} -m {MODULE} job "$1" {shlex.join(job.arguments)}'
        text = f"#BSUB -q {settings.queue}\ncd {ROOT}\nexec {command} <<'END'\n"
        return [Document("job.sh", f"#!/bin/sh\n{text}{description(job.cluster)}\nEND\n")]

    def submit(self, job: Job, folder: RunFolder) -> str:
        script = folder.path / "job.sh"
        script.write_text(self.plan(job)[0].text)
        output = str(self.output_path(folder))
        words = ["bsub", "-J", folder.run_id, "-o", output, "sh", str(script), str(folder.path)]
        return re.findall("<([0-9]+)>", _run(*words))[0]

    def find(self, run_id: str) -> str:
        return _run("bjobs", "-noheader", "-o", "jobid", "-J", run_id).strip()

    def poll(self, job_id: str) -> JobState:
        state, code = _run("bjobs", "-noheader", "-o", "stat exit_code", job_id).split()
        is_over = state in ("DONE", "EXIT")
        code = code if code.isdigit() else "0"
        return JobState(state, state == "PEND", is_over=is_over, exit_code=int(code))

    def end(self, job_id: str, *, saves: bool) -> None:
        _run("bkill", *(["-s", "TERM"] if saves else []), job_id)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, start_new_session=True)
    if done.returncode:
        raise HostError(f"{words[0]}: {done.stderr.strip()}")
    return done.stdout


def in_job(folder: RunFolder, arguments: list[str]) -> int:
    cluster = read_cluster("/dev/stdin", KINDS)
    (host,) = cluster.hosts
    here = replace(cluster, hosts=(replace(host, name="here", address="127.0.0.1"),))
    display = Display(writer(folder.output_log), live=False)
    outcome = run_with_agents(make_job(here, arguments), folder, TRANSPORT, display)
    folder.write_end(outcome)
    return outcome.exit_code


MODULE = "tests.launch.backends.lsf"
BACKENDS["lsf"] = f"{MODULE}:Lsf"

if __name__ == "__main__":
    if sys.argv[1] == "job":
        sys.exit(in_job(RunFolder(Path(sys.argv[2])), sys.argv[3:]))
    sys.exit(main())
