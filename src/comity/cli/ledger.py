"""`comity ledger`: an owner's budget. Nothing here spends; `grant` and `write-off` say why, for ever."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import AsJson
from comity.cli.output import show, table, warn
from comity.privacy.currency import Currency
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.privacy.ledger import Account
    from comity.privacy.loss import Approx, Pure

app = typer.Typer(
    help="An owner's privacy budget: granted, reserved, spent, left.\n\nExample: comity ledger show north.ledger",
    no_args_is_help=True,
    rich_markup_mode=None,
)

LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file.", show_default=False)]
Epsilon = Annotated[str, typer.Option(help="Epsilon, a positive number.", show_default=False)]
Delta = Annotated[str, typer.Option(help="Delta, below 1; 0 for pure differential privacy.")]
Why = Annotated[str, typer.Option(help="The reason, kept in the ledger.", show_default=False)]

UNSIGNED = "the entries fit together, and nothing shows that they are the owner's or that none was left out."


@app.command()
def init(
    path: LedgerFile,
    dataset: Annotated[str, typer.Option(help="The name of the records it is for.", show_default=False)],
    epsilon: Epsilon,
    delta: Delta = "0",
    unit: Annotated[Unit, typer.Option(help="Who is protected.")] = Unit.RECORD,
    neighbours: Annotated[Neighbours, typer.Option(help="How a unit may change.")] = Neighbours.REPLACE,
    currency: Annotated[
        Currency | None,
        typer.Option(
            help="What the grant is counted in; by default gaussian with a delta, pure without.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a ledger with its first grant. An existing file is never overwritten.

    The currency is fixed for good, and decides which noise it pays for: pure takes noise without a delta; gaussian
    takes Gaussian noise, and a pure loss dearly; concentrated takes these and what has a Rényi bound; approx adds up
    (eps, delta) losses.

    Example: comity ledger init north.ledger --dataset patients --epsilon 3 --delta 1e-5 --unit record
    """
    from comity.privacy.ledger import Ledger

    ledger = Ledger.create(
        path,
        dataset=dataset,
        grant=grant_of(epsilon, delta),
        unit=unit,
        neighbours=neighbours,
        currency=currency,
    )
    show_accounts(path, ledger.summary(), as_json=as_json)


@app.command()
def add(
    path: LedgerFile,
    dataset: Annotated[str, typer.Option(help="The name of the further records.", show_default=False)],
    epsilon: Epsilon,
    delta: Delta = "0",
    unit: Annotated[Unit, typer.Option(help="Who is protected.")] = Unit.RECORD,
    neighbours: Annotated[Neighbours, typer.Option(help="How a unit may change.")] = Neighbours.REPLACE,
    currency: Annotated[
        Currency | None, typer.Option(help="What the grant is counted in, as in init.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a dataset with a budget of its own. What people lose who are in both adds up unseen.

    Example: comity ledger add north.ledger --dataset visits --epsilon 1 --delta 1e-5
    """
    from comity.privacy.ledger import Ledger

    ledger = Ledger(path)
    ledger.add_dataset(
        dataset=dataset, grant=grant_of(epsilon, delta), unit=unit, neighbours=neighbours, currency=currency
    )
    show_accounts(path, ledger.summary(), as_json=as_json)


@app.command("show")
def show_ledger(
    path: LedgerFile,
    entries: Annotated[bool, typer.Option("--entries", help="List every entry, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what each dataset was granted, has spent, holds in reserve and has left.

    Example: comity ledger show north.ledger --entries
    """
    from dataclasses import asdict

    from comity.privacy.ledger import Ledger

    ledger = Ledger(path)
    listed = ledger.entries() if entries else []
    rows = [(str(e.seq), e.time, e.kind, e.dataset, e.loss, e.study[:12], e.run, e.step, e.note) for e in listed]
    heads = ("no", "time", "kind", "dataset", "loss", "study", "run", "step", "note")
    more = {"entries": [asdict(entry) for entry in listed]} if entries else {}
    show_accounts(path, ledger.summary(), as_json=as_json, text=table(heads, rows) if entries else "", more=more)


@app.command()
def grant(
    path: LedgerFile,
    why: Why,
    epsilon: Annotated[str, typer.Option(help="Epsilon to add; 0 where only delta is missing.")] = "0",
    delta: Delta = "0",
    dataset: Annotated[str | None, typer.Option(help="Which dataset, where there are several.")] = None,
    as_json: AsJson = False,
) -> None:
    """Grant more. It can't be taken back, and the reason stays in the ledger.

    Example: comity ledger grant north.ledger --epsilon 0.5 --why "ethics board, 12 March"
    """
    from comity.privacy.ledger import Ledger

    ledger = Ledger(path)
    ledger.grant_more(grant_of(epsilon, delta, least=0), why, dataset=dataset)
    show_accounts(path, ledger.summary(), as_json=as_json)


@app.command()
def verify(
    path: LedgerFile,
    signed_by: Annotated[
        Path | None, typer.Option(help="Public keys of the owner who exported it, as comity keys show prints them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Follow the hash chain and derive every sum again; also of a file that `export` wrote.

    Of an exported file only the owner's signature shows that no entry was removed, changed or cut off.

    Example: comity ledger verify north.ledger

    Example: comity ledger verify north.json --signed-by north.toml
    """
    import json
    from dataclasses import asdict

    from comity.errors import BadInput
    from comity.privacy.ledger import Ledger, describe_freeze, verify_export

    proof = ""
    if path.suffix == ".json":
        check = None
        if signed_by is not None:
            from comity.cli.public_keys import read_public_keys
            from comity.study.results.signed_export import check_with

            owner = read_public_keys(signed_by, key="signed-by")
            check = check_with(owner)
        try:
            exported = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"{path}: no exported ledger can be read here ({error}); export it again") from error
        try:
            found = verify_export(exported, check)
        except BadInput as error:
            raise BadInput(f"{path}: {error}", code=error.code) from error
        if found.signed:
            proof = f"signed by {signed_by} on {found.exported}: these were all entries of the ledger then"
        elif exported.get("signature") is not None:
            proof = "NOT CHECKED: it is signed; give the owner's public keys with --signed-by FILE. " + UNSIGNED
        else:
            proof = "NOT SIGNED: " + UNSIGNED
    elif signed_by is not None:
        raise BadInput(f"{path}: --signed-by is for an exported ledger (.json); leave it out", key="signed-by")
    else:
        found = Ledger(path).verify()
    text = f"{path}: {found.entries} entries, the chain holds; head {found.head}" + (f"\n{proof}" if proof else "")
    if found.frozen:
        text += f"\nFROZEN: {describe_freeze(str(path), found.frozen)}"
    show(text, {**asdict(found), **({"proof": proof} if proof else {})}, as_json=as_json)


@app.command()
def export(
    path: LedgerFile,
    to: Annotated[Path | None, typer.Option(help="Write the export here instead of printing it.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Sign it with the owner's key file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export all entries as JSON, which `comity ledger verify FILE.json` checks anywhere.

    Sign it with --keys: without, nobody else can tell whether entries were removed.

    Example: comity ledger export north.ledger --to north.json --keys north.keys
    """
    import sys

    from comity.privacy.ledger import Ledger

    sign = None
    if keys is not None:
        from comity.crypto import key_file
        from comity.study.results.signed_export import sign_with

        sign = sign_with(key_file.load(keys))
    exported = Ledger(path).export(sys.stdout if to is None else to, sign)
    if to is not None:
        document = {"path": str(to), "entries": exported.entries, "head": exported.head, "signed": sign is not None}
        show(f"{to}: {exported.entries} entries, head {exported.head}", document, as_json=as_json)
    if sign is None and not as_json:
        warn(f"not signed: {UNSIGNED} Sign it with --keys FILE.")


@app.command()
def abandon(
    path: LedgerFile,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Give up a run that nobody will end: frees what it never drew, deletes what is stored of it, and closes it.

    Example: comity ledger abandon north.ledger 2026-11-17-7f3a
    """
    from comity.federation.owner.store import Store
    from comity.privacy.ledger import Ledger

    ledger = Ledger(path)
    first = ledger.summary()[0]
    Store(ledger, unit=first.unit, neighbours=first.neighbours).abandon(run)
    show_accounts(path, ledger.summary(), as_json=as_json)


@app.command("write-off")
def write_off(
    path: LedgerFile,
    why: Why,
    epsilon: Annotated[
        str | None,
        typer.Option(help="The epsilon that may be missing. Without --delta: of a pure loss.", show_default=False),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(
            help="The delta of the missing runs, if their noise was Gaussian (their plans say so).", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Write off all that is left.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count as spent what a restored ledger may have forgotten, and thaw it. Open runs end.

    --epsilon alone counts a pure loss, converted upwards into what the ledger is counted in: enough whatever the noise
    was, and dear in a ledger with a delta. With --delta it counts the Gaussian noise that (epsilon, delta) buys, which
    is less: use it only for runs whose plan states that epsilon at that delta. A delta below the granted one counts as
    the granted one. Give the epsilon for the ledger's own unit and relation: a plan for records that are added or
    removed costs a ledger of replaced records twice its epsilon. --epsilon 0: nothing is missing.

    Example: comity ledger write-off north.ledger --all --why "restored from the backup of Monday"
    """
    from comity.privacy.ledger import Ledger

    if (epsilon is None) != everything:
        raise typer.BadParameter("give either --epsilon or --all.")
    if epsilon is None and delta is not None:
        raise typer.BadParameter("--delta belongs to --epsilon; --all writes off everything that is left.")
    ledger = Ledger(path)
    ledger.write_off("all" if epsilon is None else grant_of(epsilon, delta or "0", least=None), why)
    show_accounts(path, ledger.summary(), as_json=as_json)


def grant_of(epsilon: str, delta: str, *, least: int | None = 1) -> Pure | Approx:
    """A grant as options give it. With `least` 0 it may be of delta alone; with None it may be zero."""
    from comity.errors import BadInput
    from comity.privacy.loss import Approx, Pure

    pure, pair = Pure(epsilon), Approx(epsilon, delta)
    if least is not None and not pure.epsilon and (least or not pair.delta):
        raise BadInput(f"--epsilon must be positive, found {epsilon}", key="epsilon")
    return pair if pair.delta else pure


def show_accounts(
    path: Path, accounts: list[Account], *, as_json: bool, text: str = "", more: dict[str, Any] | None = None
) -> None:
    document = {"ledger": str(path), "accounts": accounts_document(accounts), **(more or {})}
    lines = [f"  {account}" for account in accounts]
    show("\n".join([*lines, *([text] if text else [])]), document, as_json=as_json)


def accounts_document(accounts: list[Account]) -> list[dict[str, Any]]:
    """Accounts as commands print them with --json."""
    return [
        {
            "dataset": account.dataset,
            "unit": account.unit.value,
            "neighbours": account.neighbours.value,
            "granted": None if account.granted is None else account.granted.as_text(),
            "currency": account.currency,
            "spent_epsilon": str(account.spent_epsilon),
            "reserved_epsilon": str(account.reserved_epsilon),
            "left_epsilon": None if account.left is None else str(account.left),
            "frozen": account.frozen,
        }
        for account in accounts
    ]
