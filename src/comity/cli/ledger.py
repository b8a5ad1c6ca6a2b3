"""`comity ledger`: an owner's privacy budget. Nothing here spends; `grant` and `write-off` record their reason."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import AsJson, ProtectedUnit, Relation, make_group
from comity.cli.output import show, table, warn
from comity.privacy.currency import Currency
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.privacy.ledger import Account
    from comity.privacy.loss import Approx, Pure

app = make_group(
    "An owner's privacy budget: granted, reserved, spent, left.", example="comity ledger show north.ledger"
)

LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file.", show_default=False)]
Epsilon = Annotated[str, typer.Option(help="Epsilon, a positive number.", show_default=False)]
Delta = Annotated[str, typer.Option(help="Delta, below 1; 0 for pure differential privacy.")]
Why = Annotated[str, typer.Option(help="The reason, kept in the ledger.", show_default=False)]

UNSIGNED = "the entries are consistent, but nothing proves that the owner wrote them or that none is missing."


@app.command()
def init(
    path: LedgerFile,
    dataset: Annotated[str, typer.Option(help="The name of the dataset.", show_default=False)],
    epsilon: Epsilon,
    delta: Delta = "0",
    unit: ProtectedUnit = Unit.RECORD,
    neighbours: Relation = Neighbours.REPLACE,
    currency: Annotated[
        Currency | None,
        typer.Option(
            help="How losses are counted; by default gaussian with a delta, pure without.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a ledger with its first grant. An existing file is never overwritten.

    The currency can't be changed later, and decides which noise the ledger pays for. pure: noise without a delta.
    gaussian: Gaussian noise, and pure losses at a high price. concentrated: both, and noise with a Rényi bound.
    approx: (eps, delta) losses, which are added up.

    Example: comity ledger init north.ledger --dataset patients --epsilon 3 --delta 1e-5 --unit record
    """
    from comity.privacy.ledger import Ledger

    ledger = Ledger.create(
        path,
        dataset=dataset,
        grant=parse_grant(epsilon, delta),
        unit=unit,
        neighbours=neighbours,
        currency=currency,
    )
    show_accounts(path, ledger.summary(), as_json=as_json)


@app.command()
def add(
    path: LedgerFile,
    dataset: Annotated[str, typer.Option(help="The name of the new dataset.", show_default=False)],
    epsilon: Epsilon,
    delta: Delta = "0",
    unit: ProtectedUnit = Unit.RECORD,
    neighbours: Relation = Neighbours.REPLACE,
    currency: Annotated[
        Currency | None, typer.Option(help="How losses are counted, as in init.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a dataset with a separate budget. The ledger does not add up the losses of people in several datasets.

    Example: comity ledger add north.ledger --dataset visits --epsilon 1 --delta 1e-5
    """
    from comity.privacy.ledger import Ledger

    ledger = Ledger(path)
    ledger.add_dataset(
        dataset=dataset, grant=parse_grant(epsilon, delta), unit=unit, neighbours=neighbours, currency=currency
    )
    show_accounts(path, ledger.summary(), as_json=as_json)


@app.command("show")
def show_ledger(
    path: LedgerFile,
    entries: Annotated[bool, typer.Option("--entries", help="Also list every entry.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page that draws the budget over time.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show for each dataset what was granted, spent and reserved, and what is left.

    Example: comity ledger show north.ledger --entries

    Example: comity ledger show north.ledger --html north.html
    """
    from dataclasses import asdict

    from comity.privacy.ledger import Ledger

    ledger = Ledger(path)
    listed = ledger.entries() if entries else []
    rows = [(str(e.seq), e.time, e.kind, e.dataset, e.loss, e.study[:12], e.run, e.step, e.note) for e in listed]
    heads = ("no", "time", "kind", "dataset", "loss", "study", "run", "step", "note")
    more: dict[str, Any] = {"entries": [asdict(entry) for entry in listed]} if entries else {}
    text = table(heads, rows) if entries else ""
    if html is not None:
        from comity.files import write_atomically
        from comity.report.ledger_page import render_ledger

        write_atomically(html, render_ledger(path.name, ledger.summary(), ledger.history()))
        more["page"] = str(html)
        text += f"{chr(10) if text else ''}  page: {html}"
    show_accounts(path, ledger.summary(), as_json=as_json, text=text, more=more)


@app.command()
def grant(
    path: LedgerFile,
    why: Why,
    epsilon: Annotated[str, typer.Option(help="Epsilon to add; 0 to add delta only.")] = "0",
    delta: Delta = "0",
    dataset: Annotated[str | None, typer.Option(help="Which dataset, if there are several.")] = None,
    as_json: AsJson = False,
) -> None:
    """Grant more. A grant can't be taken back; its reason stays in the ledger.

    Example: comity ledger grant north.ledger --epsilon 0.5 --why "ethics board, 12 March"
    """
    from comity.privacy.ledger import Ledger

    ledger = Ledger(path)
    ledger.grant_more(parse_grant(epsilon, delta, least=0), why, dataset=dataset)
    show_accounts(path, ledger.summary(), as_json=as_json)


@app.command()
def verify(
    path: LedgerFile,
    signed_by: Annotated[
        Path | None, typer.Option(help="Public keys of the owner who exported it, as comity keys show prints them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the hash chain and every sum of a ledger, or of a file that `export` wrote.

    For an exported file, only the owner's signature proves that no entry is missing or changed.

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
            from comity.cli.keys import read_public_keys
            from comity.study.results.signatures import export_checker

            owner = read_public_keys(signed_by, key="signed-by")
            check = export_checker(owner)
        try:
            exported = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"{path}: can't be read as an exported ledger ({error}); export it again") from error
        try:
            verified = verify_export(exported, check)
        except BadInput as error:
            raise BadInput(f"{path}: {error}", code=error.code) from error
        if verified.signed:
            proof = f"signed by {signed_by} on {verified.exported}: the ledger had exactly these entries then"
        elif exported.get("signature") is not None:
            proof = "NOT CHECKED: the file is signed; give the owner's public keys with --signed-by FILE. " + UNSIGNED
        else:
            proof = "NOT SIGNED: " + UNSIGNED
    elif signed_by is not None:
        raise BadInput(f"{path}: --signed-by checks an exported ledger (.json); leave it out", key="signed-by")
    else:
        verified = Ledger(path).verify()
    text = f"{path}: {verified.entries} entries, the chain holds; head {verified.head}" + (
        f"\n{proof}" if proof else ""
    )
    if verified.frozen:
        text += f"\nFROZEN: {describe_freeze(str(path), verified.frozen)}"
    show(text, {**asdict(verified), **({"proof": proof} if proof else {})}, as_json=as_json)


@app.command()
def export(
    path: LedgerFile,
    to: Annotated[Path | None, typer.Option(help="Write the export here instead of printing it.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Sign it with the owner's key file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export all entries as JSON, which `comity ledger verify FILE.json` checks anywhere.

    Sign it with --keys; otherwise nobody else can tell whether entries are missing.

    Example: comity ledger export north.ledger --to north.json --keys north.keys
    """
    import sys

    from comity.privacy.ledger import Ledger

    sign = None
    if keys is not None:
        from comity.crypto import key_file
        from comity.study.results.signatures import export_signer

        sign = export_signer(key_file.load(keys))
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
    """Abandon a run that will never end: free what it did not draw, delete what is stored of it, and close it.

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
        typer.Option(help="The epsilon that may be missing; without --delta a pure loss.", show_default=False),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(
            help="The delta of the missing runs, if their plans say that the noise is Gaussian.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Write off all that is left.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count as spent what a ledger restored from a backup may lack, and unfreeze the ledger. Open runs end.

    --epsilon alone counts a pure loss. That is enough for any noise, and expensive in a ledger with a delta. With
    --delta it counts the Gaussian noise of (epsilon, delta), which is less: use it only if the plans of the missing
    runs state that epsilon at that delta. A delta below the granted one counts as the granted one. Give the epsilon in
    the ledger's unit and relation: a plan for added or removed records costs a ledger of replaced records twice its
    epsilon. --epsilon 0 says that nothing is missing.

    Example: comity ledger write-off north.ledger --all --why "restored from the backup of Monday"
    """
    from comity.privacy.ledger import Ledger

    if (epsilon is None) != everything:
        raise typer.BadParameter("give either --epsilon or --all.")
    if epsilon is None and delta is not None:
        raise typer.BadParameter("--delta needs --epsilon; --all writes off everything that is left.")
    ledger = Ledger(path)
    ledger.write_off("all" if epsilon is None else parse_grant(epsilon, delta or "0", least=None), why)
    show_accounts(path, ledger.summary(), as_json=as_json)


def parse_grant(epsilon: str, delta: str, *, least: int | None = 1) -> Pure | Approx:
    """The loss that the options give. With `least` 0 it may be a delta alone; with None it may be zero."""
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
