"""A study in one file, signed by its coordinator, in which it reaches the owners over any channel.

Promise    An unpacked study is what the holder of a pinned key packed: the study and the public files that its hash
           covers, nothing else, under plain names inside one folder.
Against    Anyone who carries the pack, and a submitter whose file names lead elsewhere or whose files are too large.

`[simulation]` is not packed: the study's hash does not cover it, and it may name files on its author's disk.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import Malformed, Refused, StudyError
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.policy import name_drafts
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.messages.wire_format import OTHER_RELEASE, SAME_RELEASE, WIRE_FORMAT
from comity.site.pack_limits import MAX_PACK_BYTES
from comity.study.study import Study
from comity.untrusted.file_names import UnsafeName, check_name, write_inside

STUDY = "study.toml"
MAX_FILES = 64
_FORMAT_NAME = "comity-study-"
_FORMAT = f"{_FORMAT_NAME}{WIRE_FORMAT}"
"""A site of another release refuses the study when it arrives, instead of failing in an approved run."""
_TABLE = re.compile(r"^\s*\[+\s*([A-Za-z0-9_-]+)")


@dataclass(frozen=True)
class Packed:
    """The files of a study by name, and the name by which the owner knows the submitter who signed them."""

    files: Mapping[str, bytes]
    submitter: str


def pack(study: Study, keys: Identity) -> bytes:
    """Pack a study into one file. `keys` must be those of the coordinator that the study pins: sites refuse others."""
    require_confirmed(study)
    if isinstance(study.parties, int) or any(party.keys is None for party in study.parties.values()):
        raise StudyError(
            f"{study.where}: a study between organisations pins the keys of each party; add [parties.NAME.keys], as "
            "comity keys show prints them",
            key="parties",
        )
    pinned = study.consortium.roster.get(COORDINATOR)
    if pinned is None:
        raise StudyError(
            f"{study.where}: coordinator.keys is missing; add [coordinator.keys] with the coordinator's public keys",
            key="coordinator.keys",
        )
    if pinned != keys.public:
        raise Refused(
            f"{study.where}: coordinator.keys are not those of the key file; sign with the coordinator's key file",
            code="keys",
            key="coordinator.keys",
        )
    files = {STUDY: _without_simulation(study).encode()}
    for name in study.files.values():
        _check_name(name, study.where)
        if name == STUDY:
            raise StudyError(f"{study.where}: a file of the study can't be called {STUDY}; rename it", key="study")
        files[name] = (study.folder / name).read_bytes()
    body = encode({"format": _FORMAT, "files": files})
    if len(body) + SIGNATURE_BYTES > MAX_PACK_BYTES:
        raise StudyError(
            f"{study.where}: the study and its public files have {len(body):,} bytes, and sites take packs of at most "
            f"{MAX_PACK_BYTES:,}; shorten the public files",
            key="files",
        )
    return body + keys.sign(_signed(body))


def require_confirmed(study: Study) -> None:
    """Refuse a schema with bounds that are still a draft: sites would refuse it too."""
    drafted, schema = study.schema.drafts, study.folder / study.files.get("study.schema", "the schema")
    if drafted:
        raise Refused(
            f"{study.where}: the schema marks {name_drafts(drafted)} as a draft, with bounds or values taken from "
            "records; a study between organisations needs bounds that are known without them. Replace each by public "
            f"knowledge in {schema}, and delete its line draft = true",
            code="draft",
            key="study.schema",
        )


def unpack(raw: bytes, submitters: Mapping[str, PublicIdentity]) -> Packed:
    """The contents of a pack that one of these submitters signed. The signature is checked before anything is read."""
    if len(raw) > MAX_PACK_BYTES:
        raise Refused(
            f"refused: the pack has {len(raw):,} bytes, and a site takes at most {MAX_PACK_BYTES:,}; its author must "
            "shorten the public files",
            code="size",
            key="files",
        )
    body, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
    for name, identity in submitters.items():
        try:
            identity.verify(signature, _signed(body))
        except Malformed:
            continue
        return Packed(_files(body), name)
    raise Refused(
        f"refused: none of policy.submitters ({', '.join(submitters) or 'none'}) signed this pack, or it was altered "
        "on the way",
        code="policy",
        key="submitters",
    )


def require_only_named(packed: Packed, study: Study) -> None:
    """Refuse a pack with files that its study does not name: no hash covers them, so no approval does."""
    more = sorted(set(packed.files) - {STUDY, *study.files.values()})
    if more:
        raise Refused(
            f"refused: the pack of study {study.hash[:12]} contains {more[0]}, which the study does not name; "
            f"{packed.submitter} can pack it with: comity study pack",
            code="form",
            key="files",
        )


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files into a new folder; no name leads out of it, and nothing is overwritten."""
    for name, content in files.items():
        write_inside(folder, name, content)


def _files(body: bytes) -> dict[str, bytes]:
    match decode(body):
        case {"format": str(kind), "files": dict(files), **rest} if kind == _FORMAT and not rest:
            pass
        case {"format": str(kind)} if kind.startswith(_FORMAT_NAME) and kind != _FORMAT:
            raise Malformed(
                f"the packed study has format {kind[len(_FORMAT_NAME) :][:8]!r}, and this release of Comity runs "
                f"{_FORMAT[len(_FORMAT_NAME) :]!r}: {SAME_RELEASE}",
                code=OTHER_RELEASE,
                key="format",
            )
        case _:
            raise Malformed("a packed study must have a format and files, and nothing else", code="form")
    if STUDY not in files or len(files) > MAX_FILES or not all(type(one) is bytes for one in files.values()):
        raise Malformed(f"a packed study has a {STUDY} and at most {MAX_FILES} files", code="form")
    for name in files:
        _check_name(name, "a packed study")
    _check_distinct_paths(files)
    return files


def _check_distinct_paths(names: Iterable[str]) -> None:
    """Refuse two names that collide, even on a file system that ignores case, and a file that is another's folder."""
    taken: set[str] = set()
    for name in sorted(map(str.lower, names)):
        parts = name.split("/")
        if name in taken or any("/".join(parts[:deep]) in taken for deep in range(1, len(parts))):
            raise Malformed(f"a packed study: {name[:80]!r} collides with another file of it", code="form", key="files")
        taken.add(name)


def _check_name(name: str, where: str) -> None:
    try:
        check_name(name, portable=True)
    except UnsafeName as error:
        raise Malformed(
            f"{where}: {name[:80]!r} can't name a file inside the study's folder: it {error}; use letters, digits, "
            "_ - and ., in at most a few folders",
            code="form",
            key="files",
        ) from error


def _without_simulation(study: Study) -> str:
    """The study's text without its [simulation] tables; refused if removing them would change the study."""
    lines, inside = [], False
    for line in study.text.splitlines(keepends=True):
        header = _TABLE.match(line)
        inside = header[1] == "simulation" if header else inside
        if not inside:
            lines.append(line)
    text = "".join(lines).rstrip() + "\n"
    packed = Study.parse(text, folder=study.folder, where=study.where)
    if packed.hash != study.hash or packed.simulation.data is not None:
        raise StudyError(
            f"{study.where}: [simulation] can't be separated from the rest; write it as separate tables at the end",
            key="simulation",
        )
    return text


def _signed(body: bytes) -> bytes:
    return encode(["packed study", hashlib.sha256(body).digest()])
