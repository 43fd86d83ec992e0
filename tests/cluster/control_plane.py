"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and any number of kube-schedulers.

- Fresh: every start has its own ports, state folder, certificate and tokens; the stop leaves nothing behind.
- RBAC decides. Users are static tokens: `admin` may do everything, `system:kube-scheduler` what Kubernetes
  grants it, and every other user what the test grants.
- There is no controller manager: nobody makes tokens for pods, taints nodes or finishes a namespace, so the
  admission plugins that count on it are off.
- There is no kubelet either: a Node is an API object, and a bound pod stays as it is until a test changes it.
"""

import csv
import json
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import yaml

from benchmarks.processes import kube_settings
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import free_port
from tests.cluster.api import Api, ApiError
from tests.cluster.component import Component
from tests.cluster.polling import eventually

ADMIN = "admin"
SCHEDULER = "system:kube-scheduler"


def new_state() -> Path:
    """Return a new folder for what a control plane writes."""
    return Path(tempfile.mkdtemp(prefix="gputopo-cluster-"))


class ControlPlane:
    """A context manager: entering starts etcd and kube-apiserver and returns when they serve (about 3 s).

    Args:
        binaries: a folder from `binaries.find_or_build`.
        users: further users, each with its groups.
        flags: of kube-apiserver, beside ours or instead of them.
        address: where kube-apiserver listens; at HTTPS's own port, if it is not loopback.
        scheduler_flags: of each kube-scheduler, beside ours.

    """

    def __init__(
        self,
        binaries: Path,
        users: Mapping[str, Sequence[str]] | None = None,
        flags: Mapping[str, object] | None = None,
        address: str = "127.0.0.1",
        state: Path | None = None,
        scheduler_flags: Mapping[str, object] | None = None,
    ) -> None:
        self.binaries = binaries
        self._scheduler_flags = dict(scheduler_flags or {})
        self._groups: dict[str, Sequence[str]] = {ADMIN: ["system:masters"], SCHEDULER: [], **(users or {})}
        self._tokens = {user: secrets.token_hex(16) for user in self._groups}
        self._apis: dict[str, Api] = {}
        self.state = state or new_state()
        self.etcd_url = f"http://127.0.0.1:{free_port()}"
        port = free_port() if address == "127.0.0.1" else 443
        self.url = f"https://{address}:{port}"
        self.etcd = self._etcd()
        self.apiserver = self._apiserver(port, {"bind-address": address, "advertise-address": address, **(flags or {})})
        self.schedulers: list[Component] = []
        self.controllers: Component | None = None
        self._scheduler_numbers = count()

    def __enter__(self) -> Self:
        try:
            self._write_tokens()
            self.etcd.start()
            self.apiserver.run()
            eventually(self._has_default_service_account)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop everything and remove the state folder.

        The order matters: an API server whose etcd went first ignores SIGTERM and keeps its port.
        """
        self.stop_schedulers()
        if self.controllers:
            self.controllers.stop()
        for api in self._apis.values():
            api.close()
        self.apiserver.stop()
        self.etcd.stop()
        shutil.rmtree(self.state, ignore_errors=True)

    @property
    def components(self) -> list[Component]:
        """Everything that was started, in the order of the start."""
        return [self.etcd, self.apiserver, *self.schedulers]

    @property
    def admin(self) -> Api:
        """The client of the user that may do everything."""
        return self.api(ADMIN)

    def api(self, user: str) -> Api:
        """Return the client of `user`."""
        if user not in self._apis:
            self._apis[user] = Api(self.url, self._tokens[user], self._ca_file)
        return self._apis[user]

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Return a kubeconfig file for `user`."""
        return self._write_kubeconfig(user, self._tokens[user])

    def service_account_kubeconfig(self, namespace: str, name: str, pod: str | None = None) -> Path:
        """Return a kubeconfig file with a `service_account_token`."""
        return self._write_kubeconfig(f"{namespace}.{pod or name}", self.service_account_token(namespace, name, pod))

    @contextmanager
    def service_account(self, namespace: str, name: str, pod: str | None = None) -> Iterator[Api]:
        """Give a client with a `service_account_token`."""
        with closing(Api(self.url, self.service_account_token(namespace, name, pod), self._ca_file)) as api:
            yield api

    def service_account_token(self, namespace: str, name: str, pod: str | None = None) -> str:
        """Return a real, hour-long token of an existing ServiceAccount.

        One that a pod finds in its file system is bound to the pod, and names the pod's node; such a one is made for `pod`.
        """
        bound_to = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod}} if pod else {}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": bound_to}
        answer = self.admin.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
        token: str = answer["status"]["token"]
        return token

    def start_scheduler(
        self,
        configuration: Mapping[str, Any] | Path | None = None,
        kubeconfig: Path | None = None,
        hostname: str | None = None,
    ) -> Component:
        """Start a kube-scheduler and return when it has synced its caches.

        Args:
            configuration: a `KubeSchedulerConfiguration`, or a YAML file with one. The kubeconfig is set here;
                leader election is off and the client's rate limit lifted unless it says otherwise.
            kubeconfig: whose rights it has; by default those that Kubernetes grants its own scheduler.
            hostname: of its pod, by which it takes part in leader elections; by default this machine's.

        Raises:
            StartFailed: it refused the configuration, or was not ready in time.

        """
        name = f"kube-scheduler-{next(self._scheduler_numbers)}"
        given = yaml.safe_load(configuration.read_text()) if isinstance(configuration, Path) else configuration
        whole = kube_settings.scheduler_configuration(given or {}, kubeconfig or self.kubeconfig(SCHEDULER))
        file = self.state / f"{name}.json"
        file.write_text(json.dumps(whole))
        port = free_port()
        # The first one makes a certificate, and the others find it: to make it is half the CPU time of a start.
        certificates = self.state / "kube-scheduler"
        flags = {**kube_settings.scheduler_flags(file, certificates, port), **self._scheduler_flags}
        # The scheduler of 1.30 does not say when its caches are synced; what it has not listed it schedules nothing on.
        says = "readyz" if int(self.admin.get("/version")["minor"]) > 30 else "healthz"
        command = [*on_host(hostname), *kube_settings.command(self.binaries / "kube-scheduler", flags)]
        scheduler = Component(name, command, self.state, f"https://127.0.0.1:{port}/{says}")
        self.schedulers.append(scheduler)
        scheduler.run()
        return scheduler

    def start_controllers(self, controllers: str = "*") -> Component:
        """Start a kube-controller-manager, by default with all controllers, which give pods their accounts' tokens besides."""
        name, port, key = "kube-controller-manager", free_port(), kube_settings.ca_file(self.state).with_suffix(".key")
        flags = kube_settings.controller_flags(
            self.kubeconfig(), self._ca_file, key, self.state / name, port, controllers
        )
        self.controllers = self._component(name, name, flags, f"https://127.0.0.1:{port}/healthz")
        self.controllers.run()
        return self.controllers

    def stop_schedulers(self) -> None:
        """Stop all schedulers; those that were killed are forgotten."""
        while self.schedulers:
            self.schedulers.pop().stop()

    @property
    def _ca_file(self) -> Path:
        return kube_settings.ca_file(self.state)

    def _etcd(self) -> Component:
        flags = kube_settings.etcd_flags(self.state, self.etcd_url, f"http://127.0.0.1:{free_port()}")
        return self._component("etcd", "etcd", flags, f"{self.etcd_url}/health")

    def _apiserver(self, port: int, other_flags: Mapping[str, object]) -> Component:
        flags = {
            **kube_settings.apiserver_flags(self.state, self.etcd_url, port),
            "allow-privileged": "true",
            "delete-collection-workers": 16,
            **other_flags,
        }
        return self._component("kube-apiserver", "kube-apiserver", flags, f"{self.url}/readyz")

    def _component(self, name: str, program: str, flags: Mapping[str, object], ready_url: str) -> Component:
        return Component(name, kube_settings.command(self.binaries / program, flags), self.state, ready_url)

    def _write_tokens(self) -> None:
        with kube_settings.tokens_file(self.state).open("w", newline="") as file:
            rows = csv.writer(file)
            for user, token in self._tokens.items():
                rows.writerow([token, user, user, ",".join(self._groups[user])])

    def _write_kubeconfig(self, user: str, token: str) -> Path:
        # Where a kubeconfig is expected a colon separates several of them.
        file = self.state / f"{quote(user.replace(':', '.'), safe='')}.kubeconfig"
        write_kubeconfig(file, self.url, user=user, token=token, ca_file=self._ca_file)
        return file

    def _has_default_service_account(self) -> bool:
        """Create the ServiceAccount that a controller would; its namespace appears just after readiness."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        try:
            self.admin.post("/api/v1/namespaces/default/serviceaccounts", account)
        except ApiError as error:
            if error.reason not in ("NotFound", "AlreadyExists"):
                raise
            return error.reason == "AlreadyExists"
        return True


def on_host(name: str | None) -> Sequence[str]:
    """Return what a command begins with that sees this hostname; a user namespace gives the right to set one."""
    if name is None:
        return ()
    return ("unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name)
