"""The types of the Python client name what the document of a node names: fields, which are optional, and words."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import duetime
from duetime import _types

DOCUMENT = json.loads(Path(os.environ["DUETIME_DOCUMENT"]).read_text())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
#: What the client makes one field of, which is always there.
BYTES = {"payload", "payload_base64"}
#: What only a reschedule answers.
LATER = {"due_at", "smeared_ms", "late_by_ms"}
#: What TopicInfo has in `raw`.
IN_RAW = {*SCHEMAS["TopicSettings"]["properties"], "pause", "sink_issue", "unreachable_shards"}


def test_a_client_that_is_made_of_the_document_has_every_operation() -> None:
    operations = {operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()}
    made = {path.stem for path in Path("made/api").glob("*/*.py")} - {"__init__"}
    assert made == operations


def fields(schema: dict[str, Any]) -> dict[str, bool]:
    """Each field of a schema, and whether it is always there."""
    if "$ref" in schema:
        return fields(SCHEMAS[schema["$ref"].rsplit("/", 1)[1]])
    found = {name: name in schema.get("required", []) for name in schema.get("properties", {})}
    for part in schema.get("allOf", []):
        found |= fields(part)
    return found


def without(found: dict[str, bool], names: set[str]) -> dict[str, bool]:
    assert names <= found.keys(), f"{names - found.keys()} are not there"
    return {name: needed for name, needed in found.items() if name not in names}


@pytest.mark.parametrize(
    ("kind", "schema", "ours", "theirs"),
    [
        (duetime.Enqueued, "Placed", {"repeated"}, set()),
        # An OutcomeView is the answer to several calls: of some an id is always there.
        (duetime.Cancelled, "OutcomeView", {"id", "repeated"}, {"id", "receipt", *LATER}),
        (duetime.Rescheduled, "OutcomeView", {"id"}, {"id", "receipt", "became"}),
        (duetime.Settled, "OutcomeView", set(), {"became", *LATER}),
        (duetime.Became, "Became", set(), set()),
        # What it was before an operator edited it is for operators.
        (duetime.Message, "MessageView", {"payload"}, BYTES | {"previous"}),
        (duetime.Death, "DeathView", set(), set()),
        (duetime.ClaimedMessage, "ClaimedView", {"payload"}, BYTES),
        (duetime.ItemError, "ItemProblem", {"id", "request_id"}, {"line"}),
        (duetime.TopicInfo, "TopicView", {"raw"}, IN_RAW),
        (duetime.HeldBy, "HeldView", set(), set()),
        (duetime.Watermark, "WatermarkView", set(), set()),
    ],
)
def test_a_type_has_the_fields_of_its_schema_and_the_same_are_optional(
    kind: type, schema: str, ours: set[str], theirs: set[str]
) -> None:
    found = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(kind)}
    assert without(found, ours) == without(fields(SCHEMAS[schema]), theirs)


@pytest.mark.parametrize(
    ("call", "schema", "theirs"),
    [
        (duetime.NewMessage, "Message", {"payload_base64"}),
        (duetime.Topic.enqueue, "Message", {"payload_base64"}),
        (duetime.Topic.reschedule, "Reschedule", set()),
        (duetime.Topic.nack, "Nack", set()),
    ],
)
def test_a_call_takes_the_fields_of_what_it_sends(call: Any, schema: str, theirs: set[str]) -> None:
    taken = set(inspect.signature(call).parameters) - {"self"}
    # The id is in the path.
    assert taken - ({"id"} if schema == "Reschedule" else set()) == fields(SCHEMAS[schema]).keys() - theirs


def test_an_outcome_is_one_of_the_words_of_the_document() -> None:
    def words(*kinds: Any) -> set[str]:
        return {word for kind in kinds for word in get_args(kind)}

    assert words(_types.EnqueueOutcome) == set(SCHEMAS["PlacedOutcome"]["enum"])
    of_messages = words(_types.CancelOutcome, _types.RescheduleOutcome, _types.SettleOutcome)
    # Those of a topic (`Topic.delete` answers text), and of a cancel by `if_version`, which the client does not send.
    assert of_messages | {"deleted", "deleting", "changed"} == set(SCHEMAS["Outcome"]["enum"])
    assert words(get_type_hints(duetime.Message)["state"]) == set(SCHEMAS["MessageState"]["enum"])
    assert words(_types.OnConflict) == set(SCHEMAS["OnConflict"]["enum"])
    assert words(_types.HeldReason) == set(SCHEMAS["HeldReason"]["enum"])
