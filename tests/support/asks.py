"""Asks as a coordinator would send them, also with keys that are not the coordinator's, and what a site replies."""

from __future__ import annotations

from typing import Any

from comity.crypto.sealing import Identity
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.messages import signatures
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.signatures import SIGNATURE_BYTES, sign_value, verify_reply
from comity.federation.messages.wire_format import WIRE_FORMAT
from comity.federation.owner.host import Host

from .consortia import RUN, STUDY, make_identity

NONCE = bytes(32)


def sign_ask(keys: Identity, party: str, ask: bytes) -> bytes:
    """The ask as it is sent to `party`, signed with `keys`."""
    return signatures.sign_ask(keys, party, ask)[0]


def path_of(message: bytes) -> str:
    """Which step a signed message asks for."""
    return str(decode(message[:-SIGNATURE_BYTES])[2])


def answer_ask(host: Host, ask: bytes) -> bytes:
    """The reply of a site to an ask that the coordinator signs."""
    raw = sign_ask(make_identity(COORDINATOR), host.party, ask)
    return verify_reply(make_identity(host.party).public, host.party, raw, host.answer(raw).reply)


def ask_host(host: Host, path: str, **values: Any) -> bytes:
    """What a site replies to an ask for this step with these values."""
    return answer_ask(host, write_ask(path, **values))


def ask_and_decode(host: Host, path: str, **values: Any) -> Any:
    """`ask_host`, with the reply decoded."""
    return decode(ask_host(host, path, **values))


def sign_released(name: str, path: str, value: Any, *, study: str = STUDY, run: str = RUN) -> bytes:
    """The coordinator's signature on a value that it releases."""
    return sign_value(make_identity(COORDINATOR), study, run, name, path, encode(value))


def write_ask(
    path: str,
    *,
    study: str = STUDY,
    run: str = RUN,
    mail: Any = (),
    nonce: bytes = NONCE,
    seen: Any = (),
    own: Any = None,
    **values: Any,
) -> bytes:
    """An ask as the coordinator writes it."""
    if path == "run.ready[0]":
        values = {"wire_format": WIRE_FORMAT, **values}
    if path == "run.begin[0]":
        values = {"coordinator_key": make_identity(COORDINATOR).public.sealing(), **values}
    if path == "run.end[0]":
        released = values.get("released", {})
        signed = {
            name: {path: sign_released(name, path, value, study=study, run=run)} for name, value in released.items()
        }
        values = {"released": {}, "yours": b"", "signed": signed, **values}
    return encode([study, run, path, encode(values), encode(own or {}), list(mail), nonce, list(seen)])
