"""Spark Connect servers of Sail, which need no Java: one process, or a driver with workers in processes of their own.

Sail starts the workers of a cluster through Kubernetes. Here the part of Kubernetes is played by a server on the
loopback interface: for each pod that the driver orders it starts `sail worker` with the pod's environment.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

_SAIL = str(Path(sys.executable).parent / "sail")
_ROOT = Path(__file__).parents[2]
_SECONDS = 30


@dataclass
class Cluster:
    """The server's address, and the workers that were started so far."""

    url: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)


@contextmanager
def serve() -> Iterator[str]:
    """The address of a server whose tasks run in its own process."""
    with _server({}) as url:
        yield url


@contextmanager
def serve_cluster(folder: Path, *, workers: int = 2, slots: int = 2) -> Iterator[Cluster]:
    """A driver that starts so many workers for each session, each with so many places for tasks."""
    cluster = Cluster("")
    kubernetes = ThreadingHTTPServer(("127.0.0.1", 0), _pods_of(cluster))
    Thread(target=kubernetes.serve_forever, name="kubernetes", daemon=True).start()
    one = {"name": "here"}
    access = {
        "clusters": [{**one, "cluster": {"server": f"http://127.0.0.1:{kubernetes.server_address[1]}"}}],
        "users": [{**one, "user": {}}],
        "contexts": [{**one, "context": {"cluster": "here", "user": "here"}}],
        "current-context": "here",
    }
    config = folder / "kubernetes.json"
    config.write_text(json.dumps(access))
    settings = {
        "KUBECONFIG": str(config),
        "SAIL_MODE": "kubernetes-cluster",
        "SAIL_CLUSTER__WORKER_INITIAL_COUNT": str(workers),
        "SAIL_CLUSTER__WORKER_MAX_COUNT": str(workers),
        "SAIL_CLUSTER__WORKER_TASK_SLOTS": str(slots),
        "SAIL_CLUSTER__WORKER_HEARTBEAT_INTERVAL_SECS": "1",
        "SAIL_CLUSTER__WORKER_HEARTBEAT_TIMEOUT_SECS": "5",
    }
    try:
        with _server(settings) as cluster.url:
            yield cluster
    finally:
        kubernetes.shutdown()
        kubernetes.server_close()
        for worker in cluster.workers:
            worker.kill()
            worker.wait()


@contextmanager
def _server(settings: dict[str, str]) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [_SAIL, "spark", "server", "--port", str(port)]
    server = subprocess.Popen(
        command, env={**_environment(), **settings}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _environment() -> dict[str, str]:
    # Workers import the package that is tested, and the tests' functions.
    paths = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "RUST_LOG": os.environ.get("RUST_LOG", "error")}


def _pods_of(cluster: Cluster) -> type[BaseHTTPRequestHandler]:
    class Pods(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            pod = self._body()
            ordered = {one["name"]: one.get("value", "127.0.0.1") for one in pod["spec"]["containers"][0]["env"]}
            # No other machine needs to reach these.
            own = {"SAIL_CLUSTER__WORKER_LISTEN_HOST": "127.0.0.1"}
            worker = subprocess.Popen(
                [_SAIL, "worker"],
                env={**_environment(), **ordered, **own},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            cluster.workers.append(worker)
            self._answer(201, {**pod, "metadata": {**pod["metadata"], "uid": str(worker.pid)}, "status": {}})

        def do_DELETE(self) -> None:
            self._body()
            self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

        def _body(self) -> Any:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            return json.loads(raw) if raw else None

        def _answer(self, code: int, value: Any) -> None:
            raw = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Pods
