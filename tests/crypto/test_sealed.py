from __future__ import annotations

from collections.abc import Callable

import pytest

from comity.crypto.sealing import Identity, PublicIdentity, lock, unlock
from comity.errors import Malformed


def flip(raw: bytes, at: int) -> bytes:
    out = bytearray(raw)
    out[at] ^= 1
    return bytes(out)


def test_only_the_receiver_opens_and_only_in_context() -> None:
    ash, birch = Identity(), Identity()
    box = ash.public.seal(b"secret", b"context")
    assert ash.open(box, b"context") == b"secret"
    attempts: tuple[Callable[[], bytes], ...] = (
        lambda: birch.open(box, b"context"),
        lambda: ash.open(box, b"another context"),
        lambda: ash.open(flip(box, -1), b"context"),
        lambda: ash.open(flip(box, 3), b"context"),
        lambda: ash.open(box[:-1], b"context"),
        lambda: ash.open(b"", b"context"),
    )
    for wrong in attempts:
        with pytest.raises(Malformed):
            wrong()


def test_sealing_twice_gives_different_bytes() -> None:
    one = Identity().public
    assert one.seal(b"same", b"") != one.seal(b"same", b"")


def test_signatures_bind_signer_and_data() -> None:
    ash, birch = Identity(), Identity()
    signature = ash.sign(b"data")
    ash.public.verify(signature, b"data")
    for public, made, data in (
        (birch.public, signature, b"data"),
        (ash.public, signature, b"date"),
        (ash.public, b"x", b"data"),
    ):
        with pytest.raises(Malformed):
            public.verify(made, data)


def test_an_identity_comes_back_from_its_secret_and_its_public_half_from_text() -> None:
    one, two = Identity(b"k" * 32), Identity(b"k" * 32)
    assert one.public == two.public == PublicIdentity.from_texts(one.public.to_texts())
    assert two.open(one.public.seal(b"x", b""), b"") == b"x"
    assert Identity().public != Identity().public


def test_locks_open_with_key_and_context_only() -> None:
    box = lock(b"k" * 32, b"will", b"context")
    assert unlock(b"k" * 32, box, b"context") == b"will"
    for key, raw, context in (
        (b"l" * 32, box, b"context"),
        (b"k" * 32, flip(box, 0), b"context"),
        (b"k" * 32, box, b""),
    ):
        with pytest.raises(Malformed):
            unlock(key, raw, context)
