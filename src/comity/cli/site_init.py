"""`comity site init`: write a site file with keys and a ledger, from flags or from answers to questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.keys import TEXTS, key_texts
from comity.cli.options import (
    AsJson,
    DecimalOption,
    EncodingOption,
    PasswordFileOption,
    QueryOption,
    SeparatorOption,
    TableOption,
    dialect_of,
)
from comity.cli.output import show
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.crypto.sealing import PublicIdentity


def init(  # noqa: PLR0913 (a parameter for each option of the command)
    site: Annotated[Path, typer.Option("--site", help="The site file to write.")] = Path("site.toml"),
    party: Annotated[str | None, typer.Option(help="Your name in studies.", show_default=False)] = None,
    dataset: Annotated[str | None, typer.Option(help="A name for your records.", show_default=False)] = None,
    data: Annotated[
        str | None,
        typer.Option(help="A file beside the site file, or a URL.", show_default=False),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Check the records against this schema.", show_default=False)
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="The total that the ledger grants.", show_default=False)] = None,
    delta: Annotated[str, typer.Option(help="The delta of that grant; 0 refuses all Gaussian noise.")] = "1e-5",
    unit: Annotated[Unit, typer.Option(help="Who is protected.")] = Unit.RECORD,
    neighbours: Annotated[Neighbours, typer.Option(help="How a unit may change.")] = Neighbours.REPLACE,
    protocols: Annotated[
        str | None, typer.Option(help="Methods that may run, separated by commas.", show_default=False)
    ] = None,
    epsilon_per_study: Annotated[
        float | None, typer.Option(help="The most that one study may cost.", show_default="a third of epsilon")
    ] = None,
    epsilon_per_period: Annotated[
        float | None, typer.Option(help="The most that all studies of a period may cost.", show_default=False)
    ] = None,
    period_days: Annotated[int | None, typer.Option(help="The period's length in days.", show_default=False)] = None,
    submitter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE", help="A coordinator that may submit studies, and a file with its public keys."
        ),
    ] = None,
    approval: Annotated[str, typer.Option(help="by-hand, or within-policy.")] = "by-hand",
    relay: Annotated[str | None, typer.Option(help="The relay's address.", show_default=False)] = None,
    ledger: Annotated[Path | None, typer.Option(help="The ledger's file.", show_default="PARTY.ledger")] = None,
    keys: Annotated[Path | None, typer.Option(help="The key file.", show_default="PARTY.keys")] = None,
    table: TableOption = None,
    query: QueryOption = None,
    password_file: PasswordFileOption = None,
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    encoding: EncodingOption = None,
    as_json: AsJson = False,
) -> None:
    """Write a site file, with keys and a ledger if there are none. Nothing is overwritten.

    Settings that it does not ask for are written with the strictest value; edit them in the file.

    Example: comity site init --party north --dataset patients --data patients.parquet --epsilon 3 --protocols vertical
    """
    from comity.errors import BadInput
    from comity.files import write_new
    from comity.site.site_file import SiteFile

    if site.exists():
        raise BadInput(f"{site}: a site file exists already; edit it, or name another: --site FILE", key="site")
    asks = _Asking(possible=sys.stdin.isatty() and not as_json)
    party = asks.text("party", "Your name in studies", party)
    dataset = asks.text("dataset", "A name for your records", dataset)
    data = asks.text("data", "Where they are (a CSV or Parquet file, a database's file or URL)", data)
    if schema is None and asks.possible:
        named = typer.prompt("A schema to check them against (empty for none)", default="", show_default=False)
        schema = Path(named) if named else None
    epsilon = asks.text("epsilon", "Epsilon that you grant in total", epsilon)
    methods = asks.text("protocols", "Methods that may run, separated by commas", protocols).split(",")
    home = site.parent
    source = _source(data, table, query, password_file, dialect_of(separator, decimal, encoding))
    findings = _check(source, dataset, home, schema)
    written: dict[str, Any] = {
        "party": party,
        "ledger": str(ledger or f"{party}.ledger"),
        "keys": str(keys or f"{party}.keys"),
        "relay": relay,
        "dataset": dataset,
        "source": source,
        "protocols": [name.strip() for name in methods if name.strip()],
        "epsilon_per_study": epsilon_per_study or _third(epsilon),
        "delta_per_study": float(delta),
        "epsilon_per_period": epsilon_per_period,
        "period_days": period_days,
        "approval": approval,
        "pinned": _submitters(submitter or []),
    }
    text = site_text(written)
    _check_text(text, site)
    public = _make(home / written["ledger"], home / written["keys"], dataset, epsilon, delta, unit, neighbours)
    write_new(site, text)
    SiteFile.load(site).owner()
    lines = [
        *(f"warning: {sentence}" for sentence in findings),
        f"{site}: the site of {party}, with {written['ledger']} and {written['keys']}",
        "Send these public keys to the authors of studies:",
        f"[parties.{party}.keys]",
        *(f'{name} = "{value}"' for name, value in public.to_texts().items()),
    ]
    document = {"site": str(site), "party": party, "keys": public.to_texts(), "findings": list(findings)}
    show("\n".join(lines), document, as_json=as_json)


class _Asking:
    """Asks at a terminal for what no flag gave."""

    def __init__(self, *, possible: bool) -> None:
        self.possible = possible

    def text(self, flag: str, question: str, given: str | None) -> str:
        if given is not None:
            return given
        if not self.possible:
            raise typer.BadParameter(f"--{flag} is missing, and there is no terminal to ask at.")
        return str(typer.prompt(question))


def site_text(written: Mapping[str, Any]) -> str:
    """The text of the site file for these answers, with a comment on each key."""

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    lines = [f"{key} = {text(written[key])}" for key in ("party", "ledger", "keys")]
    if written["relay"] is not None:
        lines += ["", "[relay]", f"address = {text(written['relay'])}"]
    lines += ["", f"[data.{text(written['dataset'])}]"]
    lines += [f"{key} = {text(value)}" for key, value in written["source"].items()]
    lines += [
        "",
        "[policy]",
        f"protocols = {text(written['protocols'])}",
        'variants = ["default"]',
        f"epsilon_per_study = {written['epsilon_per_study']!r}    # at delta_per_study; the ledger holds the total",
        f"delta_per_study = {written['delta_per_study']!r}    # 0 refuses every study with Gaussian noise",
    ]
    if written["epsilon_per_period"] is not None:
        lines.append(f"epsilon_per_period = {written['epsilon_per_period']!r}    # of all studies within period_days")
    if written["period_days"] is not None:
        lines.append(f"period_days = {written['period_days']}")
    lines += [
        f"submitters = {text(list(written['pinned']))}    # who may submit; their keys are pinned below",
        "sizes_may_leave = false    # exact numbers of rows and of matches",
        "records_may_leave = false",
        "joint_predictions = 0    # new records that a run may score jointly and exactly",
        "unproven = false    # methods that are not private as claimed; the plan shows their true loss",
        f"approval = {text(written['approval'])}    # by-hand | within-policy",
    ]
    for name, texts in written["pinned"].items():
        lines += ["", f"[pinned.{text(name)}]", *(f"{key} = {text(texts[key])}" for key in TEXTS)]
    return "\n".join(lines) + "\n"


def _source(
    data: str, table: str | None, query: str | None, password_file: Path | None, dialect: Mapping[str, str]
) -> dict[str, str]:
    named = {"table": table, "query": query, "password_file": None if password_file is None else str(password_file)}
    sql = {key: value for key, value in named.items() if value is not None}
    if "://" in data:
        return {"source": "sql", "url": data, **sql, **dialect}
    if sql:
        return {"source": "sql", "path": data, **sql, **dialect}
    if dialect:
        return {"source": "csv", "path": data, **dialect}
    kind = Path(data).suffix.lower().lstrip(".")
    return {"source": kind if kind in ("csv", "parquet") else "parquet", "path": data}


def _check(source: Mapping[str, str], dataset: str, home: Path, schema: Path | None) -> tuple[str, ...]:
    """Open the records before anything is written; with a schema, check all of them against it."""
    from comity.data import Schema, explain, open_source
    from comity.errors import DataError

    where = f"data.{dataset}"
    opened = open_source(source, where=where, base=home)
    if schema is None:
        return ()
    findings = explain(Schema.load(schema), opened.read(), where=where)
    wrong = [one.sentence for one in findings if one.severity == "error"]
    if wrong:
        more = f" ({len(wrong) - 1} more; see: comity schema check)" if len(wrong) > 1 else ""
        raise DataError(f"{where} does not fit {schema}: {wrong[0]}{more}", key="data")
    return tuple(one.sentence for one in findings if one.severity == "warning")


def _submitters(given: list[str]) -> dict[str, dict[str, str]]:
    found = {}
    for pair in given:
        name, equals, file = pair.partition("=")
        if not equals or not name or not file:
            raise typer.BadParameter(
                f"--submitter expects NAME=FILE, as in coordinator=coordinator.toml; found {pair!r}."
            )
        found[name] = key_texts(Path(file), key="submitter")
    return found


def _third(epsilon: str) -> float:
    from comity.privacy.loss import Pure

    return float(Pure(epsilon).epsilon) / 3


def _check_text(text: str, site: Path) -> None:
    """Report wrong answers before creating anything."""
    import tempfile

    from comity.site.site_file import SiteFile

    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / site.name
        draft.write_text(text, encoding="utf-8")
        SiteFile.load(draft)


def _make(
    ledger: Path, keys: Path, dataset: str, epsilon: str, delta: str, unit: Unit, neighbours: Neighbours
) -> PublicIdentity:
    from comity.cli.ledger import grant_of
    from comity.crypto import key_file
    from comity.privacy.ledger import Ledger

    grant = grant_of(epsilon, delta)
    if not ledger.exists():
        Ledger.create(ledger, dataset=dataset, grant=grant, unit=unit, neighbours=neighbours)
    elif dataset not in {account.dataset for account in Ledger(ledger).summary()}:
        Ledger(ledger).add_dataset(dataset=dataset, grant=grant, unit=unit, neighbours=neighbours)
    return (key_file.load(keys) if keys.exists() else key_file.create(keys)).public
