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
from urllib.parse import quote, urlsplit

import yaml

from tests.cluster.api import Api, ApiError
from tests.cluster.component import Component, free_port
from tests.cluster.polling import eventually

ADMIN = "admin"
SCHEDULER = "system:kube-scheduler"


class ControlPlane:
    """A context manager: entering starts etcd and kube-apiserver and returns when they serve (about 3 s).

    Args:
        binaries: a folder from `binaries.find_or_build`.
        users: further users, each with its groups.
        flags: of kube-apiserver, beside ours or instead of them.

    """

    def __init__(
        self,
        binaries: Path,
        users: Mapping[str, Sequence[str]] | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> None:
        self.binaries = binaries
        self._groups: dict[str, Sequence[str]] = {ADMIN: ["system:masters"], SCHEDULER: [], **(users or {})}
        self._tokens = {user: secrets.token_hex(16) for user in self._groups}
        self._apis: dict[str, Api] = {}
        self.state = Path(tempfile.mkdtemp(prefix="gputopo-cluster-"))
        self.etcd_url = f"http://127.0.0.1:{free_port()}"
        self.url = f"https://127.0.0.1:{free_port()}"
        self.etcd = self._etcd()
        self.apiserver = self._apiserver(flags or {})
        self.schedulers: list[Component] = []
        self._scheduler_numbers = count()

    def __enter__(self) -> Self:
        try:
            self._write_tokens()
            self.etcd.start()
            self.apiserver.start()
            self.apiserver.wait_ready()
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
        self, configuration: Mapping[str, Any] | Path | None = None, kubeconfig: Path | None = None
    ) -> Component:
        """Start a kube-scheduler and return when it has synced its caches.

        Args:
            configuration: a `KubeSchedulerConfiguration`, or a YAML file with one. The kubeconfig is set here;
                leader election is off and the client's rate limit lifted unless it says otherwise.
            kubeconfig: whose rights it has; by default those that Kubernetes grants its own scheduler.

        Raises:
            StartFailed: it refused the configuration, or was not ready in time.

        """
        name = f"kube-scheduler-{next(self._scheduler_numbers)}"
        given = yaml.safe_load(configuration.read_text()) if isinstance(configuration, Path) else configuration
        completed = _completed(given or {}, kubeconfig or self.kubeconfig(SCHEDULER))
        file = self.state / f"{name}.json"
        file.write_text(json.dumps(completed))
        port = free_port()
        flags = {
            "config": file,
            "authentication-skip-lookup": "true",
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "cert-dir": self.state / name,
        }
        # The scheduler of 1.30 does not say when its caches are synced; what it has not listed it schedules nothing on.
        says = "readyz" if int(self.admin.get("/version")["minor"]) > 30 else "healthz"
        scheduler = self._component(name, "kube-scheduler", flags, f"https://127.0.0.1:{port}/{says}")
        self.schedulers.append(scheduler)
        scheduler.start()
        scheduler.wait_ready()
        return scheduler

    def stop_schedulers(self) -> None:
        """Stop all schedulers; those that were killed are forgotten."""
        while self.schedulers:
            self.schedulers.pop().stop()

    @property
    def _ca_file(self) -> Path:
        """The API server signs its own certificate with a CA that it puts into the same file."""
        return self.state / "apiserver" / "apiserver.crt"

    def _etcd(self) -> Component:
        peer_url = f"http://127.0.0.1:{free_port()}"
        flags = {
            "name": "etcd",
            "data-dir": self.state / "etcd",
            "listen-client-urls": self.etcd_url,
            "advertise-client-urls": self.etcd_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"etcd={peer_url}",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }
        return self._component("etcd", "etcd", flags, f"{self.etcd_url}/health")

    def _apiserver(self, other_flags: Mapping[str, object]) -> Component:
        certificates = self.state / "apiserver"
        flags = {
            "etcd-servers": self.etcd_url,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": urlsplit(self.url).port,
            "cert-dir": certificates,
            "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": "10.0.0.0/24",
            "authorization-mode": "RBAC",
            "token-auth-file": self.state / "tokens.csv",
            "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
            "service-account-issuer": "https://kubernetes.default.svc",
            # Made with the certificate before it is read here, so no key has to be made or kept by us.
            "service-account-signing-key-file": certificates / "apiserver.key",
            "service-account-key-file": certificates / "apiserver.key",
            "allow-privileged": "true",
            "delete-collection-workers": 16,
            **other_flags,
        }
        return self._component("kube-apiserver", "kube-apiserver", flags, f"{self.url}/readyz")

    def _component(self, name: str, program: str, flags: Mapping[str, object], ready_url: str) -> Component:
        arguments = [f"--{flag}={value}" for flag, value in flags.items()]
        return Component(name, [self.binaries / program, *arguments], self.state, ready_url)

    def _write_tokens(self) -> None:
        with (self.state / "tokens.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            for user, token in self._tokens.items():
                rows.writerow([token, user, user, ",".join(self._groups[user])])

    def _write_kubeconfig(self, user: str, token: str) -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self._ca_file)}
        context = {"cluster": "test", "user": user, "namespace": "default"}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        # Where a kubeconfig is expected a colon separates several of them.
        file = self.state / f"{quote(user.replace(':', '.'), safe='')}.kubeconfig"
        file.write_text(json.dumps(kubeconfig, indent=2))
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


def _completed(configuration: Mapping[str, Any], kubeconfig: Path) -> dict[str, Any]:
    connection = {"qps": 1000, "burst": 2000, **configuration.get("clientConnection", {})}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        **configuration,
        "clientConnection": {**connection, "kubeconfig": str(kubeconfig)},
    }
