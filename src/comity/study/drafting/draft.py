"""A study drafted from owners' own files: schema, study file, and copies of the files beside them.

Bounds, values and fills of the schema come from the files, which are private: each is marked `draft = true`, and no
site runs the study while one is. The files are copied because a study reads nothing outside its folder.
"""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from comity.data import Schema
from comity.data.schemas.drafting import draft_schema
from comity.data.schemas.reading import category_text, find_blank, quote_text, read_numbers
from comity.errors import BadInput, DataError, did_you_mean, nearest_name
from comity.federation.declare.consortium import (
    COORDINATOR,
    EVERYONE,
    ITSELF,
    MAX_NAME_LENGTH,
    check_party_name,
    is_party_name,
)
from comity.study.drafting.matching import (
    ask_about_errors,
    find_identifier,
    identifies,
    is_distinct,
    match_codes,
    match_columns,
    match_units,
    with_names,
)
from comity.study.drafting.own_files import (
    OwnFile,
    are_compatible,
    holds_codes,
    kind_of,
    read_own_file,
    require_column,
    texts_of,
)
from comity.study.drafting.proposals import Decisions
from comity.study.drafting.questions import ask_about_codes, ask_about_target
from comity.study.drafting.similar import same_name
from comity.study.drafting.study_text import StudyText

if TYPE_CHECKING:
    import pandas as pd

PUBLIC = "public.parquet"
# Words that releases use for participants, the names of roles, and the names of options here.
_RESERVED = (COORDINATOR, EVERYONE, ITSELF, "owner", "consumer", "sharer", "public", "count")


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the author of a draft says about it. `rename`, `recode` and `unit` are by party; `by` is the column that
    names each record's party, where one file has all of them. Columns in `leave_out` are not part of the study; whole
    numbers of columns in `codes` are names of categories."""

    name: str
    protocol: str
    target: str | None = None
    by: str | None = None
    identifier: str | None = None
    public: Path | None = None
    consumer: str | None = None
    rename: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    recode: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    unit: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    leave_out: Sequence[str] = ()
    codes: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class DraftedStudy:
    """A study's schema and text, the files to copy beside it under these names, and public records to write."""

    schema: Schema
    text: StudyText
    copies: Mapping[str, Path]
    public: pd.DataFrame | None = None

    def write(self, folder: Path) -> None:
        for name, path in self.copies.items():
            shutil.copyfile(path, folder / name)
        if self.public is not None:
            self.public.to_parquet(folder / PUBLIC, index=False)
        (folder / "schema.toml").write_text(schema_text(self.schema), encoding="utf-8")
        (folder / "study.toml").write_text(self.text.write(), encoding="utf-8")


_HEAD = """\
# DRAFTED FROM PRIVATE RECORDS: a placeholder for simulations, and no schema to agree on.
#
# A bound that was looked up in private records gives something of them away, and the guarantee does not count it.
# Replace every bound, value and fill below by what is known without the records: the range of the instrument, the code
# book, the law. Then delete the line draft = true. A study is not packed, submitted or approved while one is left.
"""
_MARK = "draft = true"


def schema_text(schema: Schema) -> str:
    lines = schema.to_toml().split("\n")
    marked = [
        f"{line}  # taken from the records: replace by public knowledge" if line == _MARK else line for line in lines
    ]
    return _HEAD + "\n" + "\n".join(marked)


# Reading the files.


def read_files(paths: Sequence[Path], by: str | None, decisions: Decisions) -> list[OwnFile]:
    """The owners' files, each with the name of its party."""
    if by is not None and len(paths) != 1:
        raise BadInput(f"--by splits one file among its parties, and {len(paths)} files were given; give one", key="by")
    if by is None and len(paths) < 2:
        raise BadInput(
            "a study needs the files of two or more parties; give one file for each, or --by COLUMN if a column of one "
            "file names each record's party",
            key="data",
        )
    names = ["data"] if by is not None else name_parties(paths)
    return [read_own_file(name, path, decisions) for name, path in zip(names, paths)]


def name_parties(paths: Sequence[Path]) -> list[str]:
    """A party's name for each file: the file's, or with the folder's before it where two files have one name."""
    stems = [party_name(path.stem) for path in paths]
    names = [
        stem if stems.count(stem) == 1 else party_name(f"{path.absolute().parent.name}-{path.stem}")
        for stem, path in zip(stems, paths)
    ]
    if len(set(names)) < len(names):
        first = next(place for place, name in enumerate(names) if names.count(name) > 1)
        other = names.index(names[first], first + 1)
        raise BadInput(
            f"{paths[first]} and {paths[other]} would both be the party {names[first]!r}; rename one of the files",
            key="data",
        )
    return names


def party_name(text: str) -> str:
    """The name that a party may have most like this text."""
    letters = unicodedata.normalize("NFKD", text.replace("ß", "ss")).encode("ascii", "ignore").decode().lower()
    plain = re.sub(r"[^a-z0-9_-]+", "-", letters).strip("-_")[:MAX_NAME_LENGTH].rstrip("-_")
    if is_party_name(plain) and plain not in _RESERVED:
        return plain
    return check_party_name(f"party-{plain}"[:MAX_NAME_LENGTH].rstrip("-"))


def holds_columns(files: Sequence[OwnFile]) -> bool:
    """Whether files most likely hold different columns of the same people: they share identifiers, and at most half
    of the columns of the smaller file beside these."""
    try:
        identifier, renamed = find_identifier(files, None, Decisions())
    except BadInput:
        return False
    first, *others = ([name for name in file.columns if name != identifier] for file in renamed)
    return all(
        2 * sum(any(same_name(name, own) for name in first) for own in other) <= min(len(first), len(other))
        for other in others
    )


# Whole records at every party.


def draft_by_rows(files: Sequence[OwnFile], wishes: Wishes, decisions: Decisions) -> DraftedStudy:
    """Parties hold the same columns of different people."""
    if wishes.by is not None:
        return _draft_split(files[0], wishes.by, wishes, decisions)
    _check_parties(wishes, [file.party for file in files])
    first, *others = [_with_own_codes(file, wishes) if place == 0 else file for place, file in enumerate(files)]
    _require_target(first, wishes.target)
    files = [first, *(_match(first, other, wishes, decisions) for other in others)]
    _check_columns(wishes, files)
    common = _common_columns(files, wishes, decisions)
    files = [_complete(file, wishes.target, decisions) for file in files]
    for file in files:
        ask_about_errors(file, common, decisions)
    schema, public = _draft_common(files, common, wishes, decisions)
    copies = {f"{file.party}{file.path.suffix.lower()}": file.path for file in files}
    text = StudyText(
        name=wishes.name,
        protocol=wishes.protocol,
        records={file.party: len(file.frame) for file in files},
        data={file.party: file.table(name) for file, name in zip(files, copies)},
        consumer=wishes.consumer,
    )
    return DraftedStudy(schema, text, copies, public)


def _draft_split(file: OwnFile, by: str, wishes: Wishes, decisions: Decisions) -> DraftedStudy:
    """One file, and a column of it that names each record's party."""
    file = _with_own_codes(file, wishes)
    _require_target(file, wishes.target)
    _check_columns(wishes, [file])
    require_column(file, by, "by")
    if by == wishes.target:
        raise BadInput(f"--by and --target both name {by!r}; a party can't be predicted from its own name", key="by")
    if find_blank(file.frame[by]).any():
        raise DataError(f"{file.path}: column {by!r} names no party in some records; complete it", key="by")
    values = texts_of(file.frame[by])
    if len(values) < 2:
        raise DataError(f"{file.path}: column {by!r} names {len(values)} party; a study needs two or more", key="by")
    names = {value: party_name(value) for value in values}
    if len(set(names.values())) < len(names):
        raise DataError(f"{file.path}: two values of {by!r} would be parties of one name; rename one", key="by")
    codes = {value: name for value, name in names.items() if value != name}
    if codes:
        recode = {**file.translation.recode, by: codes}
        file = file.with_translation(replace(file.translation, recode=recode))
    _check_parties(wishes, list(names.values()))
    file = _complete(file, wishes.target, decisions)
    common = _columns_to_learn([file], [name for name in file.columns if name != by], wishes, decisions)
    ask_about_errors(file, common, decisions)
    schema, public = _draft_common([file], common, wishes, decisions)
    counts = file.frame[by].map(lambda value: names.get(str(value), str(value))).value_counts()
    copy = f"records{file.path.suffix.lower()}"
    text = StudyText(
        name=wishes.name,
        protocol=wishes.protocol,
        records={name: int(counts[name]) for name in names.values()},
        data=file.table(copy),
        split_column=by,
        consumer=wishes.consumer,
    )
    return DraftedStudy(schema, text, {copy: file.path}, public)


def _match(first: OwnFile, other: OwnFile, wishes: Wishes, decisions: Decisions) -> OwnFile:
    """The other file in the terms of the first."""
    other = match_columns(first, other, wishes.rename.get(other.party, {}), decisions)
    common = [name for name in first.columns if name in other.columns]
    other = match_codes(first, other, common, wishes.recode.get(other.party, {}), decisions)
    return match_units(first, other, common, wishes.unit.get(other.party, {}), decisions)


def _with_own_codes(first: OwnFile, wishes: Wishes) -> OwnFile:
    """The file with the names, codes and factors that its author gives for it."""
    rename, recode = wishes.rename.get(first.party, {}), wishes.recode.get(first.party, {})
    unit = wishes.unit.get(first.party, {})
    if not rename and not recode and not unit:
        return first
    renamed = with_names(first, {**first.translation.rename, **rename})
    for name in unit:
        require_column(renamed, name, "unit")
    kept = renamed.translation
    codes = {name: {**kept.recode.get(name, {}), **given} for name, given in recode.items()}
    return first.with_translation(replace(kept, recode={**kept.recode, **codes}, unit={**kept.unit, **unit}))


def _common_columns(files: Sequence[OwnFile], wishes: Wishes, decisions: Decisions) -> list[str]:
    """The columns that every file has, with values of one kind. The others are named."""
    first, *others = files
    common: list[str] = []
    for name in first.columns:
        missing = [file.party for file in others if name not in file.columns]
        if missing:
            decisions.unmatched.append(
                f"{first.party}: {name} has no counterpart in {', '.join(missing)} and is left out; if a column means "
                f"the same, give --rename {missing[0]}.COLUMN={name}"
            )
            continue
        strange = [file.party for file in others if not _holds_the_same(first, file, name)]
        if strange and name != wishes.target:
            decisions.unmatched.append(
                f"{name} holds other kinds of values at {', '.join(strange)} than at {first.party}, and is left out"
            )
            continue
        common.append(name)
    for file in others:
        surplus = [file.translation.own_name(name) for name in file.columns if name not in first.columns]
        decisions.unmatched.extend(
            f"{file.party}: {name} has no counterpart in {first.party} and is left out" for name in surplus
        )
    if wishes.target is not None and wishes.target not in common:
        raise BadInput(
            f"the target {wishes.target!r} has no counterpart in every file; say which column it is: --rename "
            f"PARTY.COLUMN={wishes.target}. For different columns of the same people: --protocol vertical",
            key="target",
        )
    _check_classes(files, wishes.target)
    return _columns_to_learn(files, common, wishes, decisions)


def _holds_the_same(first: OwnFile, other: OwnFile, name: str) -> bool:
    """Whether a column holds values of one kind in both files, after codes were matched."""
    series = (first.frame[name], other.frame[name])
    numbers = [not read_numbers(one).wrong.any() for one in series]
    return are_compatible(*series) and (numbers[0] == numbers[1] or {kind_of(one) for one in series} == {"category"})


def _check_classes(files: Sequence[OwnFile], target: str | None) -> None:
    """Refuse target codes of one file that the first doesn't have: they would be further classes."""
    first, *others = files
    if target is None or kind_of(first.frame[target]) != "category":
        return
    classes = texts_of(first.frame[target])
    for file in others:
        if not holds_codes(file.frame[target]):
            raise BadInput(
                f"{file.path}: the target {target!r} holds numbers or days, and {first.path} has classes; name the "
                f"column with the same classes: --rename {file.party}.COLUMN={target}",
                key="target",
            )
        strange = [value for value in texts_of(file.frame[target]) if value not in classes]
        # A file with one class does not say what the classes are.
        if strange and len(classes) > 1:
            raise BadInput(
                f"{file.path}: the target {target!r} holds {', '.join(map(quote_text, strange[:5]))}, which "
                f"{'is' if len(strange) == 1 else 'are'} none of {', '.join(map(quote_text, classes[:10]))}; say what "
                f"each means: --recode {file.party}.{target}.CODE=CLASS",
                key="target",
            )


def _columns_to_learn(
    files: Sequence[OwnFile], common: Sequence[str], wishes: Wishes, decisions: Decisions
) -> list[str]:
    """The columns without those that the author leaves out, and without those that number or name the people of a file:
    nothing can be learned from them."""
    kept = []
    for name in common:
        if name in wishes.leave_out:
            continue
        columns = [file.frame[name] for file in files]
        if name in (wishes.target, wishes.identifier) or not identifies(columns, name):
            kept.append(name)
        elif all(map(is_distinct, columns)):
            decisions.notes.append(f"{name} identifies records and is left out")
        else:
            record = wishes.protocol != "softlabel"
            decisions.notes.append(
                f"{name} identifies people, some of them in several records, and is left out"
                + ("; the study protects each record, and not all records of one person together" if record else "")
            )
    return kept


def _draft_common(
    files: Sequence[OwnFile], common: Sequence[str], wishes: Wishes, decisions: Decisions
) -> tuple[Schema, pd.DataFrame | None]:
    import pandas as pd

    if wishes.identifier is not None and wishes.identifier not in common:
        raise BadInput(
            f"--identifier: no column {wishes.identifier!r} is in every file; name another", key="identifier"
        )
    if not set(common) - {wishes.target, wishes.identifier}:
        raise BadInput(
            "the files have no column in common beside the target; for different columns of the same people give "
            "--protocol vertical, or say which columns mean the same: --rename PARTY.COLUMN=NAME",
            key="data",
        )
    frames = [file.frame[list(common)] for file in files]
    public = None
    if wishes.public is not None:
        other = _match(files[0], read_own_file("public", wishes.public, decisions), wishes, decisions)
        features = [name for name in common if name not in (wishes.target, wishes.identifier)]
        absent = [name for name in features if name not in other.columns]
        if absent:
            raise BadInput(
                f"{wishes.public}: has no column that means {absent[0]!r}; public records need every feature. Say "
                f"which it is: --rename public.COLUMN={absent[0]}",
                key="public",
            )
        public = other.frame[features]
    together = pd.concat(frames, ignore_index=True)
    schema, left_out = draft_schema(
        together, target=wishes.target, identifier=wishes.identifier, codes=wishes.codes, where="the files"
    )
    decisions.notes.extend(f"{name} {reason}, and is left out" for name, reason in left_out.items())
    ask_about_target(together, schema, decisions)
    ask_about_codes(together, schema, decisions)
    if public is not None:
        # Public records may have gaps where the others have none: their fills and values are drafted with them.
        features = list(schema.names)
        everything = pd.concat([together, public[features]], ignore_index=True)
        whole, _ = draft_schema(
            everything[features], target=None, codes=wishes.codes, where="the files and the public records"
        )
        schema, public = Schema(whole.columns, schema.target, schema.identifier), _plain(public[list(whole.names)])
    return mark_drafts(schema), public


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with columns that Parquet can store: mixed ones as text."""
    mixed = [name for name in frame.columns if frame[name].dtype == object]
    texts = {
        name: frame[name].map(lambda value: None if value is None or value != value else category_text(value))
        for name in mixed
    }
    return frame.assign(**texts)


def _complete(file: OwnFile, target: str | None, decisions: Decisions) -> OwnFile:
    """The file without the records that have no target."""
    if target is None or target not in file.columns or not find_blank(file.frame[target]).any():
        return file
    missing = int(find_blank(file.frame[target]).sum())
    records = f"{missing} record{'s' if missing != 1 else ''}"
    decisions.notes.append(f"{file.party}: {records} without {target} {'are' if missing != 1 else 'is'} left out")
    return file.with_translation(replace(file.translation, complete=(target,)))


def _require_target(first: OwnFile, target: str | None) -> None:
    if target is not None:
        require_column(first, target, "target")


def _check_parties(wishes: Wishes, parties: Sequence[str]) -> None:
    """Refuse options that name a party which is none."""
    allowed = [*parties, *(["public"] if wishes.public is not None else [])]
    for option, given in (("rename", wishes.rename), ("recode", wishes.recode), ("unit", wishes.unit)):
        for party in given:
            if party not in allowed and wishes.by is None:
                raise BadInput(f"--{option}: there is no party {party!r}{did_you_mean(party, allowed)}", key=option)
    if wishes.protocol == "summary" and wishes.consumer not in parties:
        raise BadInput(
            "summary chooses records that look like those of one party, the consumer; name it: --consumer NAME, one of "
            f"{', '.join(parties)}" + ("" if wishes.consumer is None else f"; found {wishes.consumer!r}"),
            key="consumer",
        )


def _check_columns(wishes: Wishes, files: Sequence[OwnFile]) -> None:
    """Refuse options that name a column which no file has, by the name that the study gives it, or the target."""
    known = list(dict.fromkeys(name for file in files for name in file.columns))
    for option, names in (("leave-out", wishes.leave_out), ("codes", wishes.codes)):
        for name in names:
            if name not in known:
                raise BadInput(f"--{option}: no file has a column {name!r}{did_you_mean(name, known)}", key=option)
            if name == wishes.target:
                raise BadInput(f"--{option}: {name!r} is the target; name another column", key=option)


def mark_drafts(schema: Schema) -> Schema:
    """The schema with every column and the target marked as a draft."""
    columns = tuple(replace(column, draft=True) for column in schema.columns)
    return Schema(columns, None if schema.target is None else replace(schema.target, draft=True), schema.identifier)


# Different columns of the same people.


def draft_by_columns(files: Sequence[OwnFile], wishes: Wishes, decisions: Decisions) -> DraftedStudy:
    """Parties hold different columns of the same people, whom an identifier matches."""
    _check_parties(wishes, [file.party for file in files])
    files = [_with_own_codes(file, wishes) for file in files]
    _check_columns(wishes, files)
    identifier, files = find_identifier(files, wishes.identifier, decisions)
    holder = next((file for file in files if wishes.target is None or wishes.target in file.columns), None)
    if holder is None:
        close = nearest_name(str(wishes.target), [name for file in files for name in file.columns])
        hint = f"did you mean {close!r}?" if close else "check that the files begin with a header line"
        raise BadInput(f"no file has a column {wishes.target!r}; {hint}", key="target")
    files = [_complete(file, wishes.target, decisions) if file is holder else file for file in files]
    columns: dict[str, list[str]] = {}
    parts: list[Schema] = []
    for file in files:
        known = {name for names in columns.values() for name in names} | {identifier}
        target = wishes.target if wishes.target in file.columns and wishes.target not in known else None
        own = [name for name in file.columns if name not in known]
        decisions.notes.extend(
            f"{file.party}: {name} is held by another party already, and is left out here"
            for name in file.columns
            if name in known - {identifier}
        )
        own = _columns_to_learn([file], own, wishes, decisions)
        ask_about_errors(file, own, decisions)
        part, left_out = draft_schema(file.frame[own], target=target, codes=wishes.codes, where=str(file.path))
        ask_about_target(file.frame, part, decisions)
        ask_about_codes(file.frame, part, decisions)
        decisions.notes.extend(f"{file.party}: {name} {why}, and is left out" for name, why in left_out.items())
        columns[file.party] = [*part.names, *([] if target is None else [target])]
        parts.append(part)
    label = next((part.target for part in parts if part.target is not None), None)
    schema = mark_drafts(Schema(tuple(column for part in parts for column in part.columns), label, identifier))
    copies = {f"{file.party}{file.path.suffix.lower()}": file.path for file in files}
    text = StudyText(
        name=wishes.name,
        protocol=wishes.protocol,
        records={file.party: len(file.frame) for file in files},
        data={file.party: file.table(name) for file, name in zip(files, copies)},
        columns=columns,
        aligned=True,
    )
    return DraftedStudy(schema, text, copies)
