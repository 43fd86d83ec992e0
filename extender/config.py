"""The extender's settings: one versioned document, section by section. `extender.kit.configuration` puts it together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ByteSize, Field, field_validator, model_validator

from extender.cluster.caches.schedulers import SCHEDULER_NAME
from extender.cluster.candidates.holds import HOLD_SECONDS
from extender.cluster.objects.group_words import Source
from extender.cluster.objects.health_words import HealthWords, Word, condition, label, taint
from extender.cluster.objects.locations import LABELS
from extender.config_autoscaling import Autoscaling, NodeGroups
from extender.kit import configuration
from extender.kit.configuration import Document
from extender.kit.settings import Bytes, Duration, Items, Names, Section, Table
from topology.annotations import keys
from topology.request.domains import Level
from topology.value.score import Weights


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Listen(Section):
    """Where kube-scheduler calls us, and people look."""

    host: str = "127.0.0.1"
    """On which address."""
    port: int = Field(default=8888, ge=0, le=65535)
    """0 takes a free one and logs it."""
    allowed_hosts: Names = ()
    """Further host names that pages and JSON answer to without TLS, such as a proxy's; `*` stands for anything."""

    @property
    def is_private(self) -> bool:
        """Whether only our own machine, or pod, can connect."""
        return _is_loopback(self.host)


class Tls(Section):
    """Mutual TLS for callers on other machines; without it we listen on loopback only. PEM files, read again when they change."""

    cert_file: Path | None = None
    """Our certificate."""
    key_file: Path | None = None
    """Its key."""
    client_ca_file: Path | None = None
    """A CA that signs the certificates of kube-schedulers and nothing else: whoever has one may bind pods."""
    reload: Duration = 10.0
    """How often the files are looked at."""

    @model_validator(mode="after")
    def _is_whole(self) -> Tls:
        if len({file is None for file in (self.cert_file, self.key_file, self.client_ca_file)}) > 1:
            raise ValueError("certFile, keyFile and clientCaFile go together")
        return self


class Health(Section):
    """A second listener with nothing but /livez, /readyz and /metrics, for probes and scrapes from outside the pod."""

    host: str = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from other addresses
    """On which address; `::` is all of IPv4 and IPv6."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """Where it is not set, they are served beside the verbs only."""


class Kubernetes(Section):
    """How to reach the API server."""

    kubeconfig: Path | None = None
    """Not set: the pod's service account."""
    context: str | None = None
    """Of the kubeconfig; not set: its current one."""
    request_timeout: Duration = 10.0
    """For list pages, events and releases; a bind has its own deadline."""
    connections: int = Field(default=32, ge=1)
    """Connections to the API server: at most so many for lists and watches, and as many again for single requests."""


class Scheduling(Section):
    """How nodes and GPUs are chosen."""

    resource: str = keys.GPU_RESOURCE
    """The extended resource that stands for whole GPUs."""
    scheduler_names: Names = (SCHEDULER_NAME,)
    """The schedulers that ask us; pods with GPUs that others place, or that wait for others, are counted."""
    tolerated_taints: Names = ()
    """Keys of taints that all pods with GPUs tolerate, beside the resource's own name: nodes with others do not count as free."""
    candidates: int = Field(default=16, ge=0)
    """Nodes that filter passes on; 0: all that fit, 1: pin."""
    foresight: float = Field(default=Weights().pods_to_come, ge=0)
    """λ: how much the value that a placement destroys weighs against what the pod gains; 0 looks at this pod alone."""
    demand: Table[int, float] = Field(default=dict(Weights().demand), min_length=1)
    """The pods still to come: share by GPUs asked for. Believed while few pods have been seen."""
    admission: float = Field(default=Weights().admission, ge=0)
    """What it is worth to serve a pod at all, or to meet its preferred affinity, when perfect wiring adds 1.

    Low keeps islands whole, high fills gaps."""
    domain_labels: Table[Level, tuple[str, ...]] = Field(default=dict(LABELS), validate_default=True)
    """Labels of nodes that name their NVLink domain, rack and block; of several the first that a node has counts."""
    appraise_after: Duration = 15.0
    """How long after the start the values of free GPUs are first computed; until then a formula serves."""
    hold: Duration = HOLD_SECONDS
    """How long the predicted winner's GPUs are kept from other pods, from prioritize on until its bind has had its turn."""
    bind_deadline: Duration = 3.0
    """Must be shorter than the scheduler's `httpTimeout`."""

    @field_validator("domain_labels")
    @classmethod
    def _keeps_the_other_levels(cls, given: dict[Level, tuple[str, ...]]) -> dict[Level, tuple[str, ...]]:
        return {level: tuple(labels) for level, labels in {**LABELS, **given}.items()}

    @model_validator(mode="after")
    def _holds_for_a_whole_bind(self) -> Scheduling:
        if self.hold <= self.bind_deadline:
            raise ValueError(
                "hold must be longer than bindDeadline, or GPUs are offered to others while a bind waits for its turn"
            )
        return self

    @property
    def weights(self) -> Weights:
        """λ, admission and demand, as the plan takes them."""
        demand = tuple(sorted(self.demand.items()))
        return Weights(pods_to_come=self.foresight, admission=self.admission, demand=demand)


class Steering(Section):
    """Nominations: kube-scheduler is told where the pods of a queue go before it looks, and then tries that node first."""

    enabled: bool = False
    """Needs Kubernetes 1.35."""
    queue: int = Field(default=20, ge=1)
    """Pods that have to wait before any is nominated."""
    nodes: int = Field(default=500, ge=1)
    """Nobody is nominated where kube-scheduler looks at fewer nodes for a pod: there a nomination costs what it saves."""
    ahead: int = Field(default=128, ge=32)
    """About so many nominations may stand that kube-scheduler has not asked about yet: the queue's next pods."""
    life: Duration = Field(default=10.0, ge=1)
    """How long GPUs are held for a nominated pod; a nomination that has not come true a second later is taken back."""


class Watch(Section):
    """How the caches are kept. The API server sends a bookmark two seconds before it ends a watch."""

    page_size: int = Field(default=500, ge=1)
    """Objects that a list is asked for at once."""
    stream: Duration = 50.0
    """After this long the server ends a watch, and we go on from where it was."""
    silence: Duration = 55.0
    """A stream without a byte for this long is dead, whatever TCP says."""
    max_line: Bytes = ByteSize(12 << 20)
    """Bytes of one object that was changed. A larger one is passed over; etcd holds none, unless told to take requests of more
    than 1.5 MiB."""
    max_page: Bytes = ByteSize(16 << 20)
    """Bytes of one page of a list. What is larger is asked for in smaller pages; one object that is larger is passed over."""
    backoff: Duration = 0.1
    """After a failure, until the next try; doubled each time."""
    max_backoff: Duration = 5.0
    """The longest pause between two tries."""

    @model_validator(mode="after")
    def _lists_what_it_watches(self) -> Watch:
        if self.max_page <= self.max_line:
            raise ValueError("maxPage must be larger than maxLine, or what the watch tells cannot be listed")
        return self

    @model_validator(mode="after")
    def _hears_the_bookmark(self) -> Watch:
        if self.silence <= self.stream:
            raise ValueError("silence must be longer than stream, or quiet clusters look dead")
        return self


class Reconcile(Section):
    """How claims without a pod are taken back."""

    interval: Duration = 1.0
    """How often they are looked for."""
    orphan_after: Duration = 60.0
    """A claim of an unbound pod that nobody renewed for this long is fenced and dropped."""


class Agents(Section):
    """How the nodes' agents are watched."""

    namespace: str = "gputopo-system"
    """Where their pods are; a node whose agent's pod is not ready takes no new pods."""
    silence: Duration = 750.0
    """A node whose agent has not written for this long takes no new pods; agents write every five minutes."""


class SickGpus(Section):
    """What is done about pods whose GPUs have fallen sick, beside telling them."""

    evict: bool = False
    """Evict those that ask for it by `gputopo.dev/evict-when-sick`; takes the right to create `pods/eviction`."""


WordTexts = Items[Annotated[str, Field(pattern=r"^[^=:\s]")]]


class NodeWords(Section):
    """Conditions, labels and taints of nodes; `*` stands for anything."""

    conditions: WordTexts = ()
    """`TYPE`, or `TYPE=STATUS`; without a status the one that is bad: `True` where nothing else is known."""
    labels: WordTexts = ()
    """`KEY`, or `KEY=VALUE`."""
    taints: WordTexts = ()
    """`KEY`, `KEY=VALUE`, `KEY:EFFECT` or `KEY=VALUE:EFFECT`."""

    def read(self, *, closes: bool) -> Iterator[Word]:
        """Yield them as they are looked for."""
        for reader, texts in ((condition, self.conditions), (label, self.labels), (taint, self.taints)):
            yield from (replace(reader(text), closes=closes) for text in texts)


class NodeHealth(Section):
    """What is made of the words by which other health agents say on a Node that its GPUs are sick; the common ones are known."""

    show: NodeWords = NodeWords()
    """Words to be shown beside those that are known."""
    close: NodeWords = NodeWords()
    """Words that close a node to new pods; none by default, because they name no GPU."""

    @property
    def words(self) -> HealthWords:
        """All of them, as nodes are read."""
        return HealthWords((*self.show.read(closes=False), *self.close.read(closes=True)))


class Groups(Section):
    """Which pods belong together across nodes."""

    sources: Items[Source] = tuple(Source)
    """Other programs whose words count, where a pod has no `gputopo.dev/group`. Their order is fixed."""
    read_sizes: bool = False
    """Read how many pods a group has off Jobs, JobSets and PodGroups, where no pod says it; takes the right to list and watch
    these."""


class Policies(Section):
    """The admission policies that keep everybody else from writing our annotations."""

    required: bool = False
    """Answer no verb unless they are known to be in force."""
    look: Duration = 60.0
    """How often that is tried; it costs a dry run."""


class Measured(Section):
    """Measured bandwidths, which stand in the place of predictions for the machines that they are about."""

    file: Path | None = None
    """As `gputopo-bench measure` writes it, for example a ConfigMap's key in a volume: whoever may write it says how fast GPUs
    are. Where there is no such file, all is predicted."""
    reread: Duration = 10.0
    """How often the file is looked at."""


class Limits(Section):
    """What a caller may cost."""

    filter_body: Bytes = ByteSize(4 << 20)
    """Bytes of the body of a filter or prioritize; 5,000 names are about 0.3 MB."""
    bind_body: Bytes = ByteSize(64 << 10)
    """Bytes of the body of a bind, which names one pod."""
    receive: Duration = 10.0
    """Time for a whole request to come, from its first byte, or from connecting."""
    bodies: Bytes = ByteSize(64 << 20)
    """Bytes of all requests that are being received or wait; beyond that calls are refused with 429."""
    waiting: int = Field(default=64, ge=0)
    """Calls that may stand in line for filter, and as many for prioritize, behind the one that is worked on."""
    binds: int = Field(default=1024, ge=1)
    """Binds at once: kube-scheduler binds while it goes on scheduling, and a slow API server makes them many."""


class Log(Section):
    """One line per verb and per event worth knowing."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines of a lower level are left out."""
    format: Literal["json", "text"] = "json"
    """`json`: one object a line; `text`: for people."""


class ExtenderConfiguration(Document):
    """The whole document."""

    kind: Literal["ExtenderConfiguration"] = "ExtenderConfiguration"
    listen: Listen = Listen()
    tls: Tls = Tls()
    health: Health = Health()
    kubernetes: Kubernetes = Kubernetes()
    scheduling: Scheduling = Scheduling()
    steering: Steering = Steering()
    watch: Watch = Watch()
    reconcile: Reconcile = Reconcile()
    agents: Agents = Agents()
    sick_gpus: SickGpus = SickGpus()
    node_groups: NodeGroups = NodeGroups()
    autoscaling: Autoscaling = Autoscaling()
    node_health: NodeHealth = NodeHealth()
    groups: Groups = Groups()
    policies: Policies = Policies()
    measured: Measured = Measured()
    limits: Limits = Limits()
    log: Log = Log()

    @model_validator(mode="after")
    def _is_guarded(self) -> ExtenderConfiguration:
        if self.tls.cert_file is None and not self.listen.is_private:
            raise ValueError(
                "listen.host is not a loopback address, which takes tls.certFile, keyFile and clientCaFile"
            )
        return self

    @property
    def digest(self) -> str:
        """Name this configuration in a metric and a log line."""
        return hashlib.sha256(self.to_yaml().encode()).hexdigest()[:12]


def load(file: Path | None, environment: Mapping[str, str], settings: Mapping[str, str]) -> ExtenderConfiguration:
    """Put the configuration together; `settings` are those of `--set`, by dotted path."""
    return configuration.load(ExtenderConfiguration, file, environment, settings)
