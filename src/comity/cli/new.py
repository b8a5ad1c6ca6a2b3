"""`comity new`: a study that runs as it is, with generated records or from own files."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import AsJson
from comity.cli.output import say, show
from comity.methods import PROTOCOLS, entry_of
from comity.untrusted.text import escape_line

if TYPE_CHECKING:
    from comity.study.drafting.draft import DraftedStudy, Wishes
    from comity.study.drafting.own_files import OwnFile
    from comity.study.drafting.proposals import Decisions, Proposal

QUESTIONS: dict[str, str] = {
    "averaging": "We hold the same columns of different people, and want one model.",
    "vertical": "We hold different columns of the same people, and want one model.",
    "synthetic": "We want a dataset that anyone may use.",
    "softlabel": "We have few records each, and public ones without labels.",
    "summary": "One of us wants to receive records of the others that look like its own.",
}
"""What a consortium says about itself, by the method that fits."""
_GENERATED = "softlabel"


# A command with more than 13 options.
def new(  # noqa: PLR0913
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The folder to create, and the name of the study.", show_default=False)
    ],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="More files, after --data.", show_default=False)
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help=f"The method: {', '.join(PROTOCOLS)}. With --data: asked, or by what the files hold.",
            show_default=_GENERATED,
        ),
    ] = None,
    variant: Annotated[
        str, typer.Option(help="default, or published: the method as its paper has it, with the paper's constants.")
    ] = "default",
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE...", help="Draft the study from these files, one for each party.", show_default=False
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The column to predict, by its name in the first file.", show_default=False)
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="The column of one file that names each record's party.", show_default=False)
    ] = None,
    identifier: Annotated[
        str | None, typer.Option(help="The column that identifies the person of a record.", show_default=False)
    ] = None,
    public: Annotated[
        Path | None, typer.Option(help="softlabel: a file of public records without labels.", show_default=False)
    ] = None,
    consumer: Annotated[
        str | None, typer.Option(help="summary: the party that receives records.", show_default=False)
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY.COLUMN=NAME", help="A column of a party's file is this one.", show_default=False),
    ] = None,
    recode: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY.COLUMN.CODE=VALUE", help="A code of a party's file.", show_default=False),
    ] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTY.COLUMN=FACTOR",
            help="A column of a party's file times this factor is in the unit of the first file.",
            show_default=False,
        ),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column that is no part of the study.", show_default=False),
    ] = None,
    codes: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column whose numbers are codes of categories.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take every proposal about differences of the files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a study that runs as it is: study.toml, schema.toml and records, generated or from your own files.

    Bounds that are drafted from your files are placeholders: replace them by public knowledge before a study leaves
    this machine.

    Example: comity new triage --protocol softlabel

    Example: comity new baseline --protocol averaging --variant published

    Example: comity new heart --data cleveland.csv hungary.csv --target disease

    Example: comity new heart --data all.csv --by hospital --target disease --protocol synthetic
    """
    if protocol is not None and protocol not in PROTOCOLS:
        raise typer.BadParameter(f"--protocol must be one of {', '.join(PROTOCOLS)}, found {protocol!r}.")
    folder = Path(name)
    if not re.fullmatch(r"[A-Za-z0-9._ -]{1,80}", folder.name):
        raise typer.BadParameter(
            f"a study's name has 1 to 80 letters, digits, spaces, . _ or -; found {folder.name!r}."
        )
    if not data:
        own = {"target": target, "by": by, "identifier": identifier, "public": public, "consumer": consumer}
        translated = {"rename": rename, "recode": recode, "unit": unit, "leave-out": leave_out, "codes": codes}
        given = [f"--{key}" for key, value in {**own, **translated}.items() if value is not None]
        if files or given:
            raise typer.BadParameter(
                f"{given[0] if given else files[0] if files else ''} needs --data: comity new NAME --data FILE FILE "
                "--target COLUMN."
            )
        _write_starter(folder, protocol or _GENERATED, variant, as_json=as_json)
        return
    if variant != "default":
        raise typer.BadParameter("--variant published writes generated records; leave it or --data out.")
    if folder.suffix.lower() in (".csv", ".parquet"):
        raise typer.BadParameter(f"the study's name comes first: comity new NAME --data {folder} ...")
    _require_files([*data, *(files or [])])
    # Before anybody answers questions.
    _require_absent(folder)
    asks = sys.stdin.isatty() and not yes and not as_json
    draft = _draft(
        [*data, *(files or [])],
        {
            "name": folder.name,
            "protocol": protocol,
            "target": target,
            "by": by,
            "identifier": identifier,
            "public": public,
            "consumer": consumer,
            "rename": _parse_renames(rename),
            "recode": _parse_recodes(recode),
            "unit": _parse_units(unit),
            "leave_out": tuple(leave_out or ()),
            "codes": tuple(codes or ()),
        },
        asks=asks,
        yes=yes,
    )
    _write_draft(folder, *draft, as_json=as_json)


# Generated records.


def _write_starter(folder: Path, protocol: str, variant: str, *, as_json: bool) -> None:
    from comity.files import make_private
    from comity.methods import load_object

    starters = {"default": entry_of(protocol).starter, "published": entry_of(protocol).published_starter}
    if not starters.get(variant):
        allowed = " or ".join(key for key, path in starters.items() if path)
        raise typer.BadParameter(f"--variant of {protocol} must be {allowed}, found {variant!r}.")
    with _new_folder(folder):
        load_object(starters[variant])(folder)
        make_private(folder)
    files = sorted(path.name for path in folder.iterdir())
    text = (
        f"{folder}: {', '.join(files)}\n"
        f"  next: cd {quote(str(folder))} && comity plan study.toml && comity run study.toml --seed 7"
    )
    show(text, {"folder": str(folder), "files": files}, as_json=as_json)


def _require_absent(folder: Path) -> None:
    from comity.errors import BadInput

    if folder.exists():
        raise BadInput(f"{folder}: exists already and is never overwritten; choose another name")


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Create the folder, and remove it again if what is written into it fails."""
    from comity.errors import BadInput
    from comity.files import make_folder

    try:
        make_folder(folder, exist_ok=False)
    except FileExistsError:
        _require_absent(folder)
        raise
    except OSError as error:
        raise BadInput(f"{folder}: can't be created ({error.strerror}); choose another place") from error
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


# Own files.


def _require_files(paths: Sequence[Path]) -> None:
    """Refuse a second value of --rename, --recode or --unit that stands where a file would."""
    for path in paths:
        if re.fullmatch(r"[^./=\\]+\.[^=]+=.*", str(path)) and not path.exists():
            raise typer.BadParameter(
                f"{str(path)!r} is no file; --rename, --recode and --unit take one value each, so write the option "
                "again before it: --recode A.SEX.W=F --recode A.SEX.M=M."
            )


def _draft(
    paths: Sequence[Path], given: Mapping[str, Any], *, asks: bool, yes: bool
) -> tuple[DraftedStudy, Decisions, str]:
    """The drafted study, what was decided about the files, and why this method."""
    from comity.study.drafting.draft import Wishes, draft_by_columns, draft_by_rows, holds_columns, read_files
    from comity.study.drafting.proposals import Decisions, take_all, take_sure

    decisions = Decisions(_ask_about if asks else take_all if yes else take_sure)
    # What is asked about the files comes after the questions about the study, whose defaults the files suggest.
    files = read_files(paths, given["by"], Decisions() if asks else decisions)
    by_columns = given["by"] is None and holds_columns(files)
    protocol, why = _choose_protocol(given["protocol"], by_columns=by_columns, asks=asks)
    target = given["target"] or (_ask_target(files) if asks and protocol != "synthetic" else None)
    public, consumer = given["public"], given["consumer"]
    if asks and protocol == "softlabel" and public is None:
        public = Path(typer.prompt("Which file has the public records"))
    if asks and protocol == "summary" and consumer is None:
        consumer = typer.prompt(f"Which party receives records ({', '.join(file.party for file in files)})")
    wishes = Wishes(
        **{**given, "protocol": protocol, "target": target, "public": public, "consumer": consumer},
    )
    _require(wishes)
    files = read_files(paths, wishes.by, decisions) if asks else files
    draft = draft_by_columns if protocol == "vertical" or (protocol == "synthetic" and by_columns) else draft_by_rows
    return draft(files, wishes, decisions), decisions, why


def _choose_protocol(named: str | None, *, by_columns: bool, asks: bool) -> tuple[str, str]:
    likely = "vertical" if by_columns else "averaging"
    if named is not None:
        return named, QUESTIONS[named]
    if not asks:
        return likely, f"{QUESTIONS[likely]} (by what the files hold; --protocol chooses another)"
    say(["Which of these is true?", *(f"  {place}  {text}" for place, text in enumerate(QUESTIONS.values(), 1))])
    place = 0
    while not 1 <= place <= len(QUESTIONS):
        place = typer.prompt("Number", default=list(QUESTIONS).index(likely) + 1, type=int)
    chosen = list(QUESTIONS)[place - 1]
    return chosen, QUESTIONS[chosen]


def _ask_target(files: Sequence[OwnFile]) -> str:
    columns = list(dict.fromkeys(name for file in files for name in file.columns))
    say([f"Columns: {', '.join(columns)}"])
    return str(typer.prompt("Which one is to be predicted"))


def _ask_about(proposal: Proposal) -> bool:
    return typer.confirm(escape_line(f"{proposal.party}: {proposal.sentence}. Right?"), default=proposal.sure)


def _require(wishes: Wishes) -> None:
    """Refuse options that the method can't do without."""
    if wishes.target is None and wishes.protocol in ("averaging", "vertical", "softlabel"):
        raise typer.BadParameter(f"{wishes.protocol} predicts a column; name it: --target COLUMN.")
    if wishes.protocol == "softlabel" and wishes.public is None:
        raise typer.BadParameter(
            "softlabel needs public records of the same columns, without labels: --public FILE. Without any, "
            "averaging learns from the same files."
        )


def _parse_renames(given: Sequence[str] | None) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for text in given or ():
        left, equals, column = text.rpartition("=")
        party, dot, own = left.partition(".")
        if not (equals and dot and party and own and column):
            raise typer.BadParameter(f"--rename expects PARTY.COLUMN=NAME, as in south.alter=age; found {text!r}.")
        found.setdefault(party, {})[own] = column
    return found


def _parse_recodes(given: Sequence[str] | None) -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = {}
    for text in given or ():
        left, equals, value = text.partition("=")
        party, _, rest = left.partition(".")
        column, dot, code = rest.rpartition(".")
        if not (equals and dot and party and column and code):
            raise typer.BadParameter(f"--recode expects PARTY.COLUMN.CODE=VALUE, as in south.sex.w=f; found {text!r}.")
        found.setdefault(party, {}).setdefault(column, {})[code] = value
    return found


def _parse_units(given: Sequence[str] | None) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for text in given or ():
        left, _, factor = text.rpartition("=")
        party, dot, column = left.partition(".")
        number = _as_number(factor)
        if not (dot and party and column) or number is None:
            raise typer.BadParameter(
                f"--unit expects PARTY.COLUMN=FACTOR with a finite factor other than 0, as in south.height=100; found "
                f"{text!r}."
            )
        found.setdefault(party, {})[column] = number
    return found


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number != 0 else None


def _write_draft(folder: Path, draft: DraftedStudy, decisions: Decisions, why: str, *, as_json: bool) -> None:
    from comity.files import make_private
    from comity.study.study import Study

    with _new_folder(folder):
        draft.write(folder)
        make_private(folder)
        # A draft that can't be planned is no draft: the refusal names what the files do not allow.
        Study.load(folder / "study.toml").plan()
    files = sorted(path.name for path in folder.iterdir())
    records = draft.text.records
    few = ", ".join(f"{party} ({count} records)" for party, count in list(records.items())[:6])
    parties = few + (f" and {len(records) - 6} more" if len(records) > 6 else "")
    lines = [
        f"{folder}: {', '.join(files)}",
        f"  method     {draft.text.protocol}: {why}",
        f"  parties    {parties}",
        *(f"  note       {note}" for note in decisions.notes),
        *(f"  taken      {one.party}: {one.sentence}" for one in decisions.taken),
        *(f"  not taken  {one.party}: {one.sentence}" for one in decisions.declined),
        *(f"  unmatched  {sentence}" for sentence in decisions.unmatched),
        *(f"  CHECK      {sentence}" for sentence in decisions.checks),
        f"  DRAFT      the bounds of {len(draft.schema.drafts)} columns in schema.toml come from your records. They "
        "are placeholders for a simulation: replace each by public knowledge and delete its line draft = true. The "
        "study can't be packed, submitted or approved before that",
        f"  next: cd {quote(str(folder))} && comity plan study.toml && comity run study.toml --seed 7",
    ]
    document = {
        "folder": str(folder),
        "files": files,
        "protocol": draft.text.protocol,
        "parties": dict(records),
        "taken": [vars(one) for one in decisions.taken],
        "not_taken": [vars(one) for one in decisions.declined],
        "unmatched": list(decisions.unmatched),
        "checks": list(decisions.checks),
        "notes": list(decisions.notes),
        "drafts": list(draft.schema.drafts),
    }
    show(lines, document, as_json=as_json)
