"""What a user of openapi-python-client writes: typed calls of a node by the client that was made of its document."""

from __future__ import annotations

import os

from made.api.consumers import ack, claim
from made.api.messages import cancel_message, enqueue, get_message
from made.api.topics import put_topic
from made.client import AuthenticatedClient
from made.models.claim import Claim
from made.models.claimed_views import ClaimedViews
from made.models.enqueue_items import EnqueueItems
from made.models.message import Message
from made.models.message_view import MessageView
from made.models.outcome_view import OutcomeView
from made.models.outcomes import Outcomes
from made.models.placed import Placed
from made.models.problem import Problem
from made.models.receipt_list import ReceiptList
from made.models.topic_change import TopicChange
from made.models.topic_view import TopicView

TOPIC = "made-by-python"


def main() -> None:
    # What it makes asks for a token everywhere; a node without tokens ignores it.
    node = AuthenticatedClient(os.environ["DUETIME_URL"], token="none", raise_on_unexpected_status=True)
    made = put_topic.sync(TOPIC, client=node, body=TopicChange(visibility_timeout="30s"))
    assert isinstance(made, TopicView) and made.visibility_timeout == "30s", made

    placed = enqueue.sync(TOPIC, client=node, body=Message(id="a/é", delay="30m", payload={"order": 42}))
    assert isinstance(placed, Placed) and placed.outcome == "scheduled", placed
    found = get_message.sync(TOPIC, "a/é", client=node)
    assert isinstance(found, MessageView) and found.payload == '{"order":42}', found
    cancelled = cancel_message.sync(TOPIC, "a/é", client=node)
    assert isinstance(cancelled, OutcomeView) and cancelled.outcome == "cancelled", cancelled
    unknown = cancel_message.sync(TOPIC, "a/é", client=node)
    assert isinstance(unknown, Problem) and unknown.outcome == "unknown", unknown
    refused = get_message.sync(TOPIC, "a/é", client=node)
    assert isinstance(refused, Problem) and refused.code == "unknown_message", refused

    many = enqueue.sync(TOPIC, client=node, body=[Message(id="b"), Message(id="c", delay="soon")])
    assert isinstance(many, EnqueueItems) and len(many.results) == 2, many
    claimed = claim.sync(TOPIC, client=node, body=Claim(max_=1, wait="20s"))
    assert isinstance(claimed, ClaimedViews), claimed
    done = ack.sync(TOPIC, client=node, body=ReceiptList([each.receipt for each in claimed.messages]))
    assert isinstance(done, Outcomes), done
    (outcome,) = done.results
    assert isinstance(outcome, OutcomeView) and outcome.outcome == "ok", outcome


main()
