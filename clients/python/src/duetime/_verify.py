"""Signatures of webhooks: Standard Webhooks, version 1, on bytes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta

from ._types import InvalidSignature

#: Digits of a time in seconds; more are no time.
_DIGITS_MAX = 15


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secrets: str | Iterable[str],
    *,
    tolerance: timedelta = timedelta(minutes=5),
    now: float | None = None,
) -> str:
    """Checks the signature of a webhook and returns its delivery id, the same for every attempt of one message.

    `body`: the bytes as they came. `secrets`: one `whsec_…`, or several while they are changed. The signature covers
    the delivery id, the time and the body; the `duetime-*` headers are not signed. `now`: Unix time in seconds.

    Raises InvalidSignature; ValueError where there is no secret, or one that cannot be one.
    """
    secrets = [secrets] if isinstance(secrets, str) else list(secrets)
    if not secrets:
        raise ValueError("no secret is given, so no webhook can be checked")
    found = {name.lower(): value for name, value in headers.items()}
    try:
        id, sent = found["webhook-id"], found["webhook-timestamp"]
        given = found["webhook-signature"].split()
    except KeyError as missing:
        raise InvalidSignature(f"the header {missing} is missing") from None
    if not (sent.isascii() and sent.isdigit() and len(sent) <= _DIGITS_MAX):
        raise InvalidSignature("webhook-timestamp is not a number of seconds")
    if abs((time.time() if now is None else now) - int(sent)) > tolerance.total_seconds():
        raise InvalidSignature(f"webhook-timestamp is further than {tolerance} from this machine's clock")
    # Some servers read a byte that is not UTF-8 as a surrogate; such a header is not signed, and no reason to fail.
    signed = f"{id}.{sent}.".encode(errors="surrogatepass") + body
    signatures = [text[3:].encode(errors="surrogatepass") for text in given if text.startswith("v1,")]
    for secret in secrets:
        wanted = base64.b64encode(hmac.new(_key(secret), signed, hashlib.sha256).digest())
        if any(hmac.compare_digest(wanted, signature) for signature in signatures):
            return id
    raise InvalidSignature("none of the secrets made webhook-signature")


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError('a secret is "whsec_" and base64')
    return key
