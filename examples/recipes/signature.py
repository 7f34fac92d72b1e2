"""Checks the signature of a webhook without a client of Duetime, in the ten lines that any language has."""

import base64
import hmac
import re
import time
from collections.abc import Mapping

TOLERANCE_S = 300


def is_signed(body: bytes, headers: Mapping[str, str], secret: str, now: float | None = None) -> bool:
    """`body`: the bytes as they came. `headers`: with names in small letters. `secret`: `whsec_…`."""
    id, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (id and re.fullmatch("[0-9]{1,15}", sent_at)):
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{id}.{sent_at}.".encode() + body, "sha256")
    made = b"v1," + base64.b64encode(digest)
    # Several, with spaces between them, while the secret is being changed.
    given = headers.get("webhook-signature", "").encode().split()
    is_fresh = abs((time.time() if now is None else now) - int(sent_at)) <= TOLERANCE_S
    return is_fresh and any(hmac.compare_digest(made, each) for each in given)
