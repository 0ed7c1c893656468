"""Known error messages of the tools that backends call, with their meaning and the way out."""

import re
from typing import Optional

_OPERATOR = (
    "https://www.kubeflow.org/docs/components/trainer/legacy-v1/installation, or: kubectl apply "
    "--server-side -k github.com/kubeflow/training-operator.git/manifests/overlays/standalone"
    "?ref=v1.8.1"
)
_OLD_PYTHON = ("needs Python 3.9", "its {python} is older than 3.9; say `agent_python:`")
_NO_PYTHON = "it has no {python} on PATH; say `agent_python:`"

# Tool -> (regular expression for its standard error, what that means and the way out). Case does
# not matter, and the first match counts. `ssh` has its own errors, and `login shell` those of the
# command on the host.
_MEANINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "ssh": (
        ("REMOTE HOST ID", "its host key has changed; if that is right: ssh-keygen -R {name}"),
        ("Host key verification", "its host key is not known; look at it once: ssh {target}"),
        (r"Permission denied \([a-z]", "login refused; install your key: ssh-copy-id {target}"),
        ("Could not resolve hostname", "ssh does not know the name; try: ssh {target}"),
        ("Connection refused", "nothing answers at its ssh port; is sshd running?"),
        ("Connection timed out|No route to host", "it does not answer; is it up, and in reach?"),
        # Last: a jump host that cannot be reached is a nearer cause.
        (
            "(kex|ssh)_exchange_identification",
            "closed before the login; for many at once, raise MaxStartups of its sshd",
        ),
    ),
    "login shell": (
        (r"python\S*: not found|command not found", _NO_PYTHON),
        _OLD_PYTHON,
    ),
    "srun": (
        ("No such file or directory", _NO_PYTHON),
        _OLD_PYTHON,
        ("Node failure", "the node has failed"),
        ("Invalid job id|Job/step already completing", "Slurm has ended the job"),
    ),
    "kubectl": (
        (
            r'no matches for kind "TFJob"|have a resource type "?tfjobs?',
            "the cluster does not support TFJob: install Kubeflow's training operator, "
            f"{_OPERATOR}",
        ),
        (
            r"current-context must exist|current-context is not set",
            "kubectl has no current context; choose one: kubectl config use-context NAME, or say "
            "`context:` under `kubernetes:`",
        ),
        (
            r"context was not found|cannot locate context|context \S+ does not exist",
            "the kubeconfig has no context {context}; see: kubectl config get-contexts",
        ),
        (
            r'namespaces "[^"]*" not found',
            "there is no namespace {namespace}; make it: kubectl create namespace {namespace}",
        ),
        (
            r"Unauthorized|must be logged in|getting credentials",
            "the cluster rejected your credentials; log in again, then try: kubectl get pods",
        ),
        (
            r"connection to the server|Unable to connect|connection refused|no such host"
            r"|i/o timeout",
            "the cluster does not answer; is it up, and is this the right context? try: kubectl "
            "cluster-info",
        ),
    ),
}


def meaning(tool: str, errors: str, **facts: object) -> Optional[str]:
    """Returns what a tool's standard error means, and the way out; None if that is unknown.

    Args:
      tool: a key of the table above.
      errors: the tool's standard error.
      **facts: values for the placeholders in the texts of this tool.
    """
    for pattern, text in _MEANINGS[tool]:
        if re.search(pattern, errors, re.IGNORECASE):
            return text.format(**facts)
    return None


def last_line(errors: str, otherwise: str) -> str:
    """Returns the last line of a tool's standard error that is not blank, or else `otherwise`."""
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else otherwise
