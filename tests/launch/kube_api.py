"""A stand-in for a Kubernetes cluster, used through the real kubectl.

It starts at once on every machine. It implements enough of the API for kubectl, rejects objects
that `kube_schema` finds invalid, and simulates

- the controller of Jobs, which replaces pods that are deleted;
- the garbage collector, which deletes objects whose owner is gone;
- a kubelet: each container is a process here, with its preStop hook, signals and grace period. All
  of them share this machine's network, so each service name maps to a loopback port.
"""

import contextlib
import copy
import datetime
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Optional
from urllib.parse import parse_qs, urlsplit

from testbeds.ports import free_ports
from tests.launch.kube_schema import check_object

Object = dict[str, Any]

# Plural name -> (API version, kind).
_RESOURCES = {
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "secrets": ("v1", "Secret"),
    "jobs": ("batch/v1", "Job"),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy"),
}
_PATH = re.compile(
    r"/(?:api|apis)/(?P<version>v1|[a-z0-9.]+/v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?P<log>/log)?"
)
_OPENAPI = b"\n\x032.0"  # an OpenAPI document without schemas, as protobuf, for kubectl's check
_REMOVAL_SECS = 1.0  # until a kubelet confirms the deletion of a pod that has ended
_DELETED = "deletionTimestamp"
_JOB = "training.kubeflow.org/job-name"


class Refused(Exception):
    """An error answer of the API: HTTP status code, reason and message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Cluster:
    """The stand-in cluster, as a context manager that ends every process.

    Args:
      folder: folder for the kubeconfig.
      workdir: working folder of the containers, which stands in for /data.

    Attributes:
      kubeconfig: path of the kubeconfig, for the variable KUBECONFIG.
      posted: every object as it was given to `create`.
    """

    def __init__(self, folder: Path, workdir: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.workdir = workdir
        self.posted: list[Object] = []
        self.lock = threading.RLock()
        self.closing = False
        self.processes: dict[str, _Container] = {}  # by the pod's uid
        self._deleted: dict[str, float] = {}  # by the pod's uid
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._addresses: dict[str, str] = {}

    def __enter__(self) -> "Cluster":
        cluster = self

        class Handler(_Handler):
            api = cluster

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        context = {"cluster": "here", "user": "me", "namespace": "vision"}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "stand-in",
            "clusters": [{"name": "here", "cluster": {"server": url}}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [{"name": "stand-in", "context": context}],
        }  # fmt: skip
        self.kubeconfig.write_text(json.dumps(config))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._controllers = threading.Thread(target=self._control, daemon=True)
        self._controllers.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.closing = True
        self._controllers.join()
        for container in self.processes.values():
            container.kill()
        self._server.shutdown()
        self._server.server_close()

    # The interface for tests.

    def left(self, plural: Optional[str] = None) -> list[str]:
        """Returns the existing objects, as `plural/name`."""
        with self.lock:
            keys = [*self._objects]
        return sorted(f"{kind}/{name}" for kind, _, name in keys if plural in (None, kind))

    def running(self) -> list[int]:
        """Returns the pids of containers that have not ended."""
        containers = list(self.processes.values())
        return [
            container.process.pid for container in containers if container.process.poll() is None
        ]

    # The API.

    def create(self, plural: str, namespace: str, found: Object) -> Object:
        """Checks an object strictly and stores it.

        Raises:
          Refused: the object is invalid or exists already.
        """
        if errors := check_object(found):
            raise Refused(422, "Invalid", f"{plural} is invalid: {'; '.join(errors)}")
        name = found["metadata"]["name"]
        with self.lock:
            if (plural, namespace, name) in self._objects:
                raise Refused(409, "AlreadyExists", f'{plural} "{name}" already exists')
            found = copy.deepcopy(found)
            self.posted.append(copy.deepcopy(found))
            if plural == "secrets":
                found["data"] = found.pop("stringData", {})  # as kubelets read it here
            found["metadata"] |= {
                "namespace": namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": _now()[:19] + "Z",
            }
            self._objects[plural, namespace, name] = found
            return found

    def get(self, plural: str, namespace: str, name: str) -> Object:
        with self.lock:
            found = self._objects.get((plural, namespace, name))
            if found is None:
                version = _RESOURCES[plural][0].rpartition("/")[0]
                kind = f"{plural}.{version}" if version else plural
                raise Refused(404, "NotFound", f'{kind} "{name}" not found')
            return found

    def all_of(self, plural: str, namespace: Optional[str]) -> list[Object]:
        with self.lock:
            return [
                copy.deepcopy(found) for (kind, space, _), found in self._objects.items()
                if kind == plural and namespace in (None, space)
            ]  # fmt: skip

    def delete(self, plural: str, namespace: str, name: str, grace: Optional[int]) -> Object:
        """Removes an object; a pod with a container is removed once that has ended."""
        with self.lock:
            found = self.get(plural, namespace, name)
            container = self.processes.get(found["metadata"]["uid"])
            if plural == "pods" and container is not None:
                if grace is None:
                    grace = found["spec"]["terminationGracePeriodSeconds"]
                found["metadata"]["deletionTimestamp"] = _now()
                self._deleted.setdefault(found["metadata"]["uid"], time.monotonic())
                container.stop(grace)
                return found
            self._remove(plural, found)
            return found

    def _remove(self, plural: str, found: Object) -> None:
        metadata = found["metadata"]
        del self._objects[plural, metadata["namespace"], metadata["name"]]

    # The controllers.

    def _control(self) -> None:
        while not self.closing:
            with self.lock:
                for job in self.all_of("jobs", None):
                    self._reconcile_job(job)
                self._collect_garbage()
                for pod in self.all_of("pods", None):
                    self._run_pod(pod)
            time.sleep(0.03)

    def _reconcile_job(self, job: Object) -> None:
        """Reconciles a Job of one pod once: up to 1.22, Kubernetes replaces one that is deleted.

        It makes no other pod if one has failed, which is what a backoffLimit of 0 means.
        """
        for pod in self.all_of("pods", _key(job)[0]):
            metadata, phase = pod["metadata"], pod.get("status", {}).get("phase")
            is_its = metadata["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
            if is_its and (phase in ("Failed", "Succeeded") or not metadata.get(_DELETED)):
                return
        self._create_pod(job)

    def _create_pod(self, job: Object) -> None:
        owner = {key: job[key] for key in ("apiVersion", "kind")}
        owner |= {key: job["metadata"][key] for key in ("name", "uid")}
        template = copy.deepcopy(job["spec"]["template"])
        metadata = {
            "name": f"{_key(job)[1]}-{uuid.uuid4().hex[:5]}",
            "labels": template["metadata"]["labels"],
            "ownerReferences": [{**owner, "controller": True}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self.create("pods", _key(job)[0], pod)

    def _collect_garbage(self) -> None:
        uids = {found["metadata"]["uid"] for found in self._objects.values()}
        for (plural, namespace, name), found in list(self._objects.items()):
            owners = found["metadata"].get("ownerReferences", [])
            is_ending = "deletionTimestamp" in found["metadata"]
            if owners and not is_ending and not any(owner["uid"] in uids for owner in owners):
                self.delete(plural, namespace, name, None)

    def _run_pod(self, pod: Object) -> None:
        """Updates a pod once, as the scheduler and the kubelet do."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        status = pod.get("status", {"phase": "Pending"})
        container = self.processes.get(uid)
        found = self._objects["pods", pod["metadata"]["namespace"], name]
        if status["phase"] in ("Failed", "Succeeded"):
            if time.monotonic() > self._deleted.get(uid, math.inf) + _REMOVAL_SECS:
                self._remove("pods", found)
            return
        if container is None:
            new = self._start(pod)
        else:
            code, secs = container.code(), pod["spec"].get("activeDeadlineSeconds", math.inf)
            is_late = time.monotonic() > container.began + secs
            if code is None:
                if is_late:
                    container.stop(pod["spec"]["terminationGracePeriodSeconds"])
                return
            phase = "Failed" if code else "Succeeded"
            reason = "Error" if code else "Completed"
            new = _status(phase, terminated={"exitCode": code, "reason": reason})
            new |= {"reason": "DeadlineExceeded", "message": "Pod was active"} if is_late else {}
        if new != status:
            found["status"] = new
            found["spec"]["nodeName"] = "node-a"

    def _start(self, pod: Object) -> Object:
        container = pod["spec"]["containers"][0]
        env = {variable["name"]: variable["value"] for variable in container.get("env", [])}
        for source in container.get("envFrom", []):
            key = ("secrets", pod["metadata"]["namespace"], source["secretRef"]["name"])
            if key not in self._objects:
                return _status("Pending", waiting={"reason": "CreateContainerConfigError"})
            env = {**self._objects[key]["data"], **env}
        if "TF_CONFIG" in env:
            env["TF_CONFIG"] = self._with_local_addresses(env["TF_CONFIG"])
        env["LAUNCH_RUN_ID"] = pod["metadata"]["labels"][_JOB]  # the stand-in script's
        self.processes[pod["metadata"]["uid"]] = _Container(container, env, self.workdir)
        return _status("Running", running={"startedAt": _now()})

    def _with_local_addresses(self, text: str) -> str:
        config = json.loads(text)
        for addresses in config["cluster"].values():
            for i, address in enumerate(addresses):
                if address not in self._addresses:
                    self._addresses[address] = f"127.0.0.1:{free_ports(1)[0]}"
                addresses[i] = self._addresses[address]
        return json.dumps(config)


class _Container:
    """A process that stands in for a container."""

    def __init__(self, spec: Object, env: dict[str, str], workdir: Path) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.complete = False
        self.began = time.monotonic()
        self._spec, self._workdir = spec, workdir
        self._env = {"PATH": os.environ["PATH"], "HOME": "/tmp", **env}
        arguments = [argument.replace("$$", "$") for argument in spec["args"]]
        assert arguments[0].endswith(".py"), f"the image's entry point is python: {arguments}"
        arguments[0] = arguments[0].replace("/data", str(workdir), 1)
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=workdir,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._deadline: Optional[float] = None

    def code(self) -> Optional[int]:
        """Returns the exit code once the process has ended and its output is complete, or None."""
        code = self.process.poll()
        if code is None or not self.complete:
            return None
        return 128 - code if code < 0 else code

    def stop(self, grace_secs: float) -> None:
        """Runs the preStop hook and sends SIGTERM, then SIGKILL after the grace period.

        A later call can only shorten the grace period.
        """
        is_first = self._deadline is None
        self._deadline = min(self._deadline or float("inf"), time.monotonic() + grace_secs)
        if is_first:
            threading.Thread(target=self._stop, daemon=True).start()

    def kill(self) -> None:
        """Sends SIGKILL to the process group, and waits for the process."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _stop(self) -> None:
        hook = self._spec.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        if hook is not None and self.process.poll() is None:
            config = json.loads(self._env["TF_CONFIG"])
            own = config["cluster"][config["task"]["type"]][config["task"]["index"]]
            planned, here = self._spec["ports"][0]["containerPort"], int(own.rpartition(":")[2])
            command = [word.replace(f":{planned:04X} ", f":{here:04X} ") for word in hook]
            running = subprocess.Popen(command, cwd=self._workdir, start_new_session=True)
            while running.poll() is None and self.process.poll() is None and not self._is_late():
                time.sleep(0.05)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        while self.process.poll() is None and not self._is_late():
            time.sleep(0.02)
        self.kill()

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _read(self) -> None:
        if self.process.stdout is not None:
            with self.process.stdout as stream:
                for line in stream:
                    self.lines.append((_now(), line.rstrip(b"\n")))
        self.complete = True


class _Handler(BaseHTTPRequestHandler):
    """Handles HTTP requests to the API."""

    api: Cluster
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        """Handles a connection; a client that disconnects early is not an error."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""

    def do_GET(self) -> None:  # noqa: N802 (the name is the library's)
        self._answer(self._get)

    def do_POST(self) -> None:  # noqa: N802
        self._answer(self._post)

    def do_DELETE(self) -> None:  # noqa: N802
        self._answer(self._delete)

    def _answer(self, method: Any) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._body = json.loads(self.rfile.read(length) or b"null")
        url = urlsplit(self.path)
        self._query = {key: values[0] for key, values in parse_qs(url.query).items()}
        try:
            answer = method(url.path)
            if answer is not None:
                self._send(200, answer)
        except Refused as refused:
            status = {"apiVersion": "v1", "kind": "Status", "status": "Failure"}
            told = {"code": refused.code, "reason": refused.reason, "message": str(refused)}
            self._send(refused.code, {**status, **told})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _target(self, path: str) -> tuple[str, Optional[str], Optional[str], bool]:
        match = _PATH.fullmatch(path)
        plural = match["plural"] if match else ""
        if match is None or plural not in _RESOURCES or _RESOURCES[plural][0] != match["version"]:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return plural, match["namespace"], match["name"], bool(match["log"])

    def _get(self, path: str) -> Any:
        if path == "/openapi/v2":
            self._send_bytes(200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
                             _OPENAPI)  # fmt: skip
            return None
        found = _discovery(path)
        if found is not None:
            return found
        plural, namespace, name, is_log = self._target(path)
        if is_log:
            self._stream_log(self.api.get(plural, str(namespace), str(name)))
            return None
        if name is not None:
            return self.api.get(plural, str(namespace), name)
        version, kind = _RESOURCES[plural]
        with self.api.lock:
            items = [item for item in self.api.all_of(plural, namespace) if self._is_chosen(item)]
        return {"apiVersion": version, "kind": f"{kind}List", "metadata": {}, "items": items}

    def _post(self, path: str) -> Any:
        plural, namespace, _, _ = self._target(path)
        return self.api.create(plural, str(namespace), self._body)

    def _delete(self, path: str) -> Any:
        plural, namespace, name, _ = self._target(path)
        grace = (self._body or {}).get("gracePeriodSeconds")
        return self.api.delete(plural, str(namespace), str(name), grace)

    def _is_chosen(self, found: Object) -> bool:
        labels = found["metadata"].get("labels", {})
        for rule in filter(None, self._query.get("labelSelector", "").split(",")):
            key, _, value = rule.partition("=")
            if labels.get(key) != value.lstrip("="):
                return False
        return True

    def _stream_log(self, pod: Object) -> None:
        container = self.api.processes.get(pod["metadata"]["uid"])
        if container is None:
            words = f"container in pod {pod['metadata']['name']} is waiting to start"
            raise Refused(400, "BadRequest", words)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        since = self._query.get("sinceTime", "")
        sent = 0
        while not self.api.closing:
            complete = container.complete
            for stamp, line in container.lines[sent:]:
                sent += 1
                if stamp[:19] >= since[:19]:
                    prefix = f"{stamp} ".encode() if self._query.get("timestamps") else b""
                    self._send_part(prefix + line + b"\n")
            if complete:
                break
            time.sleep(0.02)
        self._send_part(b"")

    def _send_part(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, code: int, answer: Object) -> None:
        with self.api.lock:
            data = json.dumps(answer).encode()
        self._send_bytes(code, "application/json", data)

    def _send_bytes(self, code: int, content_type: str, data: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _discovery(path: str) -> Optional[Object]:
    """Answers API discovery (groups, versions, kinds); None for other paths."""
    groups = sorted({version for version, _ in _RESOURCES.values() if version != "v1"})
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        found = []
        for group in groups:
            version = {"groupVersion": group, "version": "v1"}
            name = group.split("/")[0]
            found.append({"name": name, "versions": [version], "preferredVersion": version})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
    wanted = re.fullmatch(r"/(?:api|apis)/(v1|[a-z0-9.]+/v1)", path)
    if wanted is None or wanted[1] not in ("v1", *groups):
        return None
    resources = [
        {
            "name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind,
            "verbs": ["create", "delete", "get", "list"],
        }
        for plural, (version, kind) in _RESOURCES.items()
        if version == wanted[1]
    ]  # fmt: skip
    if wanted[1] == "v1":
        resources.append({"name": "pods/log", "namespaced": True, "kind": "Pod", "verbs": ["get"]})
    group_version = {"groupVersion": wanted[1], "resources": resources}
    return {"kind": "APIResourceList", "apiVersion": "v1", **group_version}


def _status(phase: str, **state: Object) -> Object:
    return {"phase": phase, "containerStatuses": [{"name": "tensorflow", "state": state}]}


def _key(found: Object) -> tuple[str, str]:
    return found["metadata"]["namespace"], found["metadata"]["name"]


def _now() -> str:
    moment = datetime.datetime.now(datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
