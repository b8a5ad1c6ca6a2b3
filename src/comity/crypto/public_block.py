"""A member's public block: a few lines of TOML that it sends to others, the same for a study and for a consortium.

    # fingerprint: 0a1b 2c3d ...
    [parties.north.keys]
    sign = "..."
    mlkem = "..."
    x25519 = "..."
    relay = "UABC....SIGNATURE"

A study pins `sign`, `mlkem` and `x25519` and ignores `relay`, so its hash does not depend on it. A consortium's holder
takes `relay`, which is good only with the signature of `sign`. People compare the fingerprint of the three pinned keys;
because of that signature it vouches for all four.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import BadInput, Malformed
from comity.untrusted.toml import read_tables

_COORDINATOR = "coordinator"
_HINT = "write it with: comity keys show FILE --party NAME"


@dataclass(frozen=True)
class PublicBlock:
    """A member's name, its pinned keys, and its user at a relay."""

    name: str
    identity: PublicIdentity
    user: str

    @classmethod
    def load(cls, path: Path) -> PublicBlock:
        """The one block in a file. Its name is checked by the caller, its relay key here."""
        try:
            found = list(_blocks(read_tables(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            raise BadInput(f"{path}: can't be read as TOML ({error}); {_HINT}", code="keys") from error
        if len(found) != 1:
            raise BadInput(f"{path}: expected the public keys of one member, found {len(found)}; {_HINT}", code="keys")
        (name, texts) = found[0]
        try:
            identity = PublicIdentity.from_texts(texts)
            return cls(name, identity, identity.relay_user(texts["relay"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadInput(
                f"{path}: the keys of {name} are sign, mlkem, x25519 and relay, as text; {_HINT}", code="keys"
            ) from error
        except Malformed as error:
            raise BadInput(
                f"{path}: the relay key of {name} is not signed by its own key ({error}); ask {name} for it again",
                code="keys",
            ) from error


def block_text(name: str, identity: Identity) -> str:
    """The block of a member, with its fingerprint in a comment."""
    # The coordinator has a separate table in a study.
    table = f"{_COORDINATOR}.keys" if name == _COORDINATOR else f"parties.{name}.keys"
    lines = [f'{key} = "{text}"' for key, text in identity.to_texts().items()]
    return "\n".join([f"# fingerprint: {identity.public.fingerprint}", f"[{table}]", *lines]) + "\n"


def _blocks(table: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    parties = table.get("parties")
    named = list(parties.items()) if isinstance(parties, Mapping) else []
    for name, one in [(_COORDINATOR, table.get(_COORDINATOR)), *named]:
        if isinstance(one, Mapping) and isinstance(one.get("keys"), Mapping):
            yield name, one["keys"]
