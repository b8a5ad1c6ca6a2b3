"""The key at the relay: one identity, two keys, and neither does what the other does."""

from __future__ import annotations

import base64
import tomllib
from pathlib import Path

import pytest

from comity.crypto import key_file
from comity.crypto.public_block import PublicBlock, block_text
from comity.crypto.relay_key import RelayKey, decode_user, encode_user, relay_statement
from comity.crypto.sealing import Identity, PublicIdentity, relay_seed
from comity.errors import BadInput, Malformed
from tests.relay.hostile_relay import comity_statements, hostile_nonces, verifies

ROOT = bytes(range(32))


def test_a_user_is_written_as_nats_writes_it() -> None:
    """As its own library (nkeys 0.2.1) does for this seed."""
    key = RelayKey(bytes(32))
    assert key.user == "UA5WUJ54Z23KILLCUOUNAKTPBVZWKMQVO4O6EQ5GHLAERIMLLHNCTYM5"
    assert decode_user(key.user) == key.public and encode_user(key.public) == key.user


@pytest.mark.parametrize(
    "damage",
    [lambda t: t[:-1], lambda t: t[:-1] + "A", lambda t: "A" + t[1:], str.lower, lambda t: t + "=", lambda t: ""],
)
def test_what_is_no_user_is_refused(damage: object) -> None:
    text = RelayKey(bytes(32)).user
    assert callable(damage)
    with pytest.raises(ValueError):
        decode_user(damage(text))


def test_no_nonce_of_a_relay_gives_a_signature_of_comity() -> None:
    """Nor would the relay's own key sign what Comity signs, were it pinned in a study."""
    relay, identity = RelayKey(relay_seed(ROOT)), Identity(ROOT)
    assert relay.public != identity.public.sign
    for nonce in hostile_nonces():
        with pytest.raises(Malformed, match="not a nonce"):
            relay.answer(nonce)
    for nonce in ("QJ2o_9xZbW-fKpA", "a" * 8, "-" * 32):
        signature = base64.b64decode(relay.answer(nonce))
        assert verifies(relay.public, signature, nonce.encode()), "the control: it is an answer to this nonce"
        for statement in [nonce.encode(), *comity_statements()]:
            assert not verifies(identity.public.sign, signature, statement)
            assert statement == nonce.encode() or not verifies(relay.public, signature, statement)


def test_every_statement_of_comity_is_no_nonce() -> None:
    """By its zero bytes: so that a nonce is never a statement, whatever key is asked."""
    assert all(b"\0" in statement for statement in comity_statements()) and len(comity_statements()) >= 8


def test_a_block_is_good_for_a_study_and_for_a_consortium(tmp_path: Path) -> None:
    identity = key_file.create(tmp_path / "north.keys")
    path = tmp_path / "north.toml"
    path.write_text(block_text("north", identity))
    block = PublicBlock.load(path)
    assert (block.name, block.identity) == ("north", identity.public)
    assert block.user == key_file.load_relay_key(tmp_path / "north.keys").user
    assert f"# fingerprint: {identity.public.fingerprint}" in path.read_text()
    assert (
        identity.public.fingerprint
        == PublicIdentity.from_texts(tomllib.loads(path.read_text())["parties"]["north"]["keys"]).fingerprint
    )


def _texts(**changed: str) -> str:
    texts = {**Identity(ROOT).to_texts(), **changed}
    return "[parties.north.keys]\n" + "".join(f'{key} = "{text}"\n' for key, text in texts.items() if text)


_OTHER = Identity(bytes(32)).to_texts()["relay"]
_OWN = Identity(ROOT).to_texts()["relay"]
_SIGNS = encode_user(Identity(ROOT).public.sign)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_texts(relay=_OTHER), "is not signed by its own key"),
        (_texts(relay=_OTHER.partition(".")[0] + "." + _OWN.partition(".")[2]), "is not signed by its own key"),
        (
            _texts(relay=f"{_SIGNS}.{Identity(ROOT).sign(relay_statement(_SIGNS)).hex()}"),
            "must not be the key that signs",
        ),
        (_texts(relay=""), "sign, mlkem, x25519 and relay"),
        (_texts(relay="U.zz"), "USER.SIGNATURE"),
        (_texts(sign="zz"), "sign, mlkem, x25519 and relay"),
        (_texts() + _texts().replace("north", "south"), "found 2"),
        ("[coordinator]\nkeys = 3\n", "found 0"),
        ("[[[", "can't be read as TOML"),
    ],
)
def test_a_relay_key_that_its_owner_did_not_sign_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """The fingerprint that people compare is of the keys that studies pin; the signature binds the relay key to it."""
    (tmp_path / "north.toml").write_text(text)
    with pytest.raises(BadInput, match=said):
        PublicBlock.load(tmp_path / "north.toml")
