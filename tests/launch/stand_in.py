"""A stand-in for cifar10_main.py: follows the same contract with the launcher, without TensorFlow.

An argument of the form `worker/0:die=3` is for one task, others are for all tasks:
  steps=N        the master ends after N steps of 0.05 s (default 10)
  together       the master does not end, and no task dies, before each trainer has written a step
  die=CODE       ends with this exit code at the first step, in every attempt
  die_once=CODE  ends with this exit code at the first step, in the first attempt only
  at=N           delays die and die_once to step N
  deaf           ignores SIGTERM
  child          starts a child in a session of its own, which ignores SIGTERM
  flood=N        writes N lines
  print=TEXT     writes TEXT
  saves=PATH     names PATH as what it has saved, after SIGTERM
  env=NAME       writes the value of a variable
"""

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    """Runs the task that TF_CONFIG names."""
    config = json.loads(os.environ["TF_CONFIG"])
    kind, index = config["task"]["type"], config["task"]["index"]
    name = f"{kind}/{index}"
    options = {}
    for argument in sys.argv[1:]:
        whom, colon, rest = argument.partition(":")
        if not colon or whom == name:
            key, _, value = (rest if colon else argument).partition("=")
            options[key] = value
    saves = functools.partial(_save, name, f" {options['saves']}" if "saves" in options else "")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in options else saves)
    listening = _listen(config, kind, index)
    if "child" in options:
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    if "env" in options:
        print(f"{options['env']}={os.environ.get(options['env'])}", flush=True)
    if "print" in options:
        # In one write, so that tasks that share a pipe do not mix their lines; print makes two.
        sys.stdout.write(f"{options['print']}\n")
        sys.stdout.flush()
    for i in range(int(options.get("flood", 0))):
        print(f"line {i} {'x' * 100}")
    sys.stdout.flush()
    trainers = [
        f"{kind}/{number}"
        for kind in ("master", "chief", "worker")
        for number in range(len(config["cluster"].get(kind, ())))
    ]
    _train(name, options, trainers if "together" in options else [])
    if listening is not None:
        listening.close()
    return 0


def _train(name: str, options: "dict[str, str]", awaited: "list[str]") -> None:
    done = _mark("done")
    steps = int(options.get("steps", 10))
    step = 0
    is_chief = name.startswith(("master", "chief"))
    while (
        step < steps or not is_chief or not all(_mark("wrote", name).exists() for name in awaited)
    ):
        is_together = all(_mark("wrote", name).exists() for name in awaited)
        if step >= int(options.get("at", 0)) and is_together:
            _perhaps_die(name, options)
        if not is_chief and done.exists():
            return
        step += 1
        if not name.startswith("ps"):
            print(f"epoch 0.1/1  step {step:,}/{steps:,}  loss 1.9  512 images/s", flush=True)
            if awaited:
                _mark("wrote", name).touch()
        time.sleep(0.05)
    done.touch()


def _mark(what: str, name: str = "") -> Path:
    words = [what, name.replace("/", "-"), os.environ["LAUNCH_RUN_ID"]]
    return Path("-".join(filter(None, words)))


def _perhaps_die(name: str, options: "dict[str, str]") -> None:
    mark = _mark("died", name)
    if "die" in options:
        print("about to fail", flush=True)
        sys.exit(int(options["die"]))
    if "die_once" in options and not mark.exists():
        mark.touch()
        sys.exit(int(options["die_once"]))


def _listen(config: "dict", kind: str, index: int) -> "socket.socket | None":
    addresses = config["cluster"].get(kind)
    if addresses is None:
        return None
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("", int(addresses[index].rpartition(":")[2])))
    listening.listen()
    return listening


def _save(name: str, what: str, signum: int, _: object) -> None:
    signal.signal(signum, signal.SIG_IGN)  # Like the program, which treats repeated signals as one.
    print("saving", flush=True)
    time.sleep(0.2)
    print(f"saved{what}", flush=True)
    with contextlib.suppress(OSError):  # a ps in a container can write nothing
        _mark("saved", name).touch()
    os._exit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
