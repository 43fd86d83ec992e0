"""I6: whatever is asked for, by its schema or against it, the answer is one that the schema names, and never a 5xx."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest
import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from benchmarks.processes.client import Json
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from extender.verbs.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from extender.web.routes import PREFIX
from tests.security.target import target
from topology.annotations import keys

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
NODES = (SimulatedNode("n1", "dgx-a100"), SimulatedNode("n2", "dgx-1v"))
PODS = ("p1", "p2")
VERBS = {
    "filter": (ExtenderArgs, ExtenderFilterResult),
    "prioritize": (ExtenderArgs, list[HostPriority]),
    "preempt": (ExtenderPreemptionArgs, ExtenderPreemptionResult),
    "bind": (ExtenderBindingArgs, ExtenderBindingResult),
}
REFUSAL = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def one_of(*known: str) -> Json:
    """Return the schema of a name that may be one that there is."""
    return {"anyOf": [{"enum": list(known)}, {"type": "string"}]}


def an_object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


REQUESTS = {
    keys.REQUIRED_AFFINITY: one_of("nvlink", "numa-node"),
    keys.MIN_BANDWIDTH: one_of("1", "200"),
    keys.GPU_MODEL: one_of("*A100*"),
    keys.RELAX_AFTER: one_of("10m"),
}


def with_verbs(document: Json) -> Json:
    """Add the scheduler's verbs to the served document, which names what is for people: their types are their schema."""
    bodies, components = msgspec.json.schema_components(
        [body for pair in VERBS.values() for body in pair],
        schema_hook=lambda _: {"type": ["string", "integer", "null"]},  # `object`: a quantity
        ref_template="#/components/schemas/{name}",
    )
    document["components"]["schemas"] |= components
    for verb, asked, answered in zip(VERBS, bodies[::2], bodies[1::2], strict=True):
        responses = {code: answer(schema) for code, schema in (("200", answered), ("400", REFUSAL))}
        document["paths"][f"{PREFIX}/{verb}"] = {"post": {"requestBody": answer(asked), "responses": responses}}
    return document


def answer(schema: Json) -> Json:
    return {"description": "", "required": True, "content": {"application/json": {"schema": schema}}}


def hinted(document: Json) -> Json:
    """Let questions be whole, and of things that there are: by chance hardly any would ask for a GPU, or name a node."""
    schemas = document["components"]["schemas"]
    nodes = one_of(*(node.name for node in NODES))
    schemas["ExtenderArgs"]["properties"]["NodeNames"] = {"type": "array", "items": nodes, "minItems": 1}
    schemas["ExtenderArgs"]["required"] = ["Pod", "NodeNames"]
    schemas["Pod"]["required"] = ["metadata", "spec"]
    schemas["ObjectMeta"]["required"] = ["name", "uid"]
    schemas["ObjectMeta"]["properties"] |= {
        "uid": {"type": "string", "minLength": 1},
        "annotations": {"type": "object", "properties": REQUESTS, "additionalProperties": {"type": "string"}},
    }
    schemas["PodSpec"]["properties"]["containers"] |= {"minItems": 1}
    schemas["PodSpec"]["required"] = ["containers"]
    schemas["Container"]["required"] = ["name", "resources"]
    limits = an_object(**{keys.GPU_RESOURCE: one_of("1", "2", "8")})
    schemas["ResourceRequirements"] = an_object(limits=limits | {"additionalProperties": {"type": "string"}})
    for path, methods in document["paths"].items():
        for parameter in methods.get("get", {}).get("parameters", ()):
            if parameter["in"] == "path":
                parameter["schema"] = one_of("default", *PODS) if "pods" in path else nodes
    return document


def ask(url: str, operation: APIOperation[Any, Any, Any, Any], cases: int) -> int:
    """Ask for one operation, as its schema has it and against it; return how often, which is once where nothing can vary."""
    asked, session = 0, requests.Session()

    @hypothesis.settings(max_examples=cases, database=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(operation.as_strategy() | operation.as_strategy(GenerationMode.NEGATIVE))
    def one(case: schemathesis.Case[Any]) -> None:
        nonlocal asked
        asked += 1
        case.call_and_validate(base_url=url, session=session, checks=CHECKS)

    one()
    return asked


def ask_everything(url: str, cases: int) -> list[int]:
    """Ask for each operation so often, none left out; return how often it was."""
    document = with_verbs(requests.get(f"{url}/openapi.json", timeout=10).json())
    schema = schemathesis.openapi.from_dict(hinted(document))
    operations = [operation.ok() for operation in schema.get_all_operations() if isinstance(operation, Ok)]
    assert {operation.path for operation in operations} == set(document["paths"])
    return [ask(url, operation, cases) for operation in operations]


@pytest.mark.slow
async def test_i6_answers_are_as_the_schema_says(
    tmp_path: Path, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """A short form; more than 50,000 questions with `--long`."""
    cases = rounds(40, 6_300)
    async with target(tmp_path, *NODES) as extender:
        for name in PODS:
            (await extender.api.call("POST", "/api/v1/namespaces/default/pods", gpu_pod(name, 2))).ok()
        asked = await asyncio.to_thread(ask_everything, extender.url, cases)
    assert len(asked) >= 11 + len(VERBS)
    figure(f"I6: {sum(asked):,} questions of {len(asked)} kinds")
