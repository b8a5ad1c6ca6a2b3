"""`comity site`: an owner's side of studies between organisations. Nothing runs that the owner did not approve here."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.console import LOOPBACK, AsRole, ConsoleOptions, Invite, takes_console_options
from comity.cli.failure import REFUSED
from comity.cli.keys import TEXTS, read_key_texts
from comity.cli.options import BY_SUFFIX, AsJson, ProtectedUnit, Reading, Relation, Yes, confirm, make_group, reads_data
from comity.cli.output import say, show, table
from comity.errors import ComityError
from comity.privacy.unit import Neighbours, Unit
from comity.site.logs import Form

if TYPE_CHECKING:
    from comity.privacy.loss import Approx, Pure
    from comity.site.approval import ApprovalPreview
    from comity.site.inbox import Arrival
    from comity.site.site_file import SiteFile
    from comity.study.study import Study

app = make_group("An owner's site: take in studies, approve them, and answer their steps.", example="comity site inbox")

SITE = Path("site.toml")
SiteOption = Annotated[Path, typer.Option("--site", help="The site file.")]


@app.command()
@reads_data
def init(  # noqa: PLR0913 (a parameter for each option of the command)
    site: Annotated[Path, typer.Option("--site", help="The site file to write.")] = SITE,
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
    unit: ProtectedUnit = Unit.RECORD,
    neighbours: Relation = Neighbours.REPLACE,
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
    approval: Annotated[
        str, typer.Option(help="Who approves studies: you (by-hand), or the policy (within-policy).")
    ] = "by-hand",
    invitation: Annotated[
        str, typer.Option(help="The consortium's invitation, as seen from the site file's folder.")
    ] = "consortium.toml",
    ledger: Annotated[Path | None, typer.Option(help="The ledger's file.", show_default="PARTY.ledger")] = None,
    keys: Annotated[Path | None, typer.Option(help="The key file.", show_default="PARTY.keys")] = None,
    reading: Reading = BY_SUFFIX,
    serve_now: Annotated[bool, typer.Option("--serve", help="Then serve, as comity site serve does.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a site file, with keys and a ledger if there are none, and the public keys to send.

    Nothing is overwritten.

    Settings that it does not ask for are written with the strictest value; edit them in the file.

    Example: comity site init --party north --dataset patients --data patients.parquet --epsilon 3 --protocols vertical
    """
    from comity.cli.ledger import parse_grant
    from comity.crypto import key_file
    from comity.crypto.public_block import block_text
    from comity.errors import BadInput
    from comity.files import write_atomically, write_new
    from comity.site.site_file import SiteFile

    if site.exists():
        raise BadInput(f"{site}: a site file exists already; edit it, or name another: --site FILE", key="site")
    prompt = _Prompt(is_possible=sys.stdin.isatty() and not as_json)
    party = prompt.text("party", "Your name in studies", party)
    dataset = prompt.text("dataset", "A name for your records", dataset)
    data = prompt.text("data", "Where they are (a CSV or Parquet file, a database's file or URL)", data)
    if schema is None and prompt.is_possible:
        named = typer.prompt("A schema to check them against (empty for none)", default="", show_default=False)
        schema = Path(named) if named else None
    epsilon = prompt.text("epsilon", "Epsilon that you grant in total", epsilon)
    methods = prompt.text("protocols", "Methods that may run, separated by commas", protocols).split(",")
    grant, home = parse_grant(epsilon, delta), site.parent
    source = reading.source_table(data)
    findings = _check_records(source, dataset, home, schema)
    answers: dict[str, Any] = {
        "party": party,
        "ledger": str(ledger or f"{party}.ledger"),
        "keys": str(keys or f"{party}.keys"),
        "invitation": invitation,
        "dataset": dataset,
        "source": source,
        "protocols": [name.strip() for name in methods if name.strip()],
        "epsilon_per_study": float(grant.epsilon) / 3 if epsilon_per_study is None else epsilon_per_study,
        "delta_per_study": float(delta),
        "epsilon_per_period": epsilon_per_period,
        "period_days": period_days,
        "approval": approval,
        "pinned": _submitters(submitter or []),
    }
    text = site_text(answers)
    _check_site_text(text, site)
    path, block = home / answers["keys"], home / f"{party}.toml"
    known = key_file.load(path) if path.exists() else None
    if block.exists() and (known is None or block.read_text("utf-8") != block_text(party, known)):
        raise BadInput(f"{block}: exists already, and your public keys belong there; move it away", key="keys")
    _create_ledger(home / answers["ledger"], dataset, grant, unit, neighbours)
    identity = key_file.create(path) if known is None else known
    write_new(site, text)
    SiteFile.load(site).owner()
    write_atomically(block, block_text(party, identity))
    lines = [
        *(f"warning: {sentence}" for sentence in findings),
        f"{site}: the site of {party}, with {answers['ledger']} and {answers['keys']}",
        f"Send {block}, your public keys, to the consortium's holder and to authors of studies; compare by telephone:",
        f"  {identity.public.fingerprint}",
        f"Put the invitation that you get at {home / invitation}; then: comity site serve",
    ]
    document = {"site": str(site), "party": party, "keys": identity.to_texts(), "findings": list(findings)}
    document |= {"public": str(block), "fingerprint": identity.public.fingerprint}
    show("\n".join(lines), document, as_json=as_json)
    if serve_now:
        serve(site=site, as_json=as_json)


class _Prompt:
    """Asks at a terminal for what no option gave."""

    def __init__(self, *, is_possible: bool) -> None:
        self.is_possible = is_possible

    def text(self, flag: str, question: str, given: str | None) -> str:
        if given is not None:
            return given
        if not self.is_possible:
            raise typer.BadParameter(f"--{flag} is missing, and there is no terminal to ask at.")
        return str(typer.prompt(question))


def site_text(answers: Mapping[str, Any]) -> str:
    """The text of the site file for these answers, with a comment on each key."""

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    lines = [f"{key} = {text(answers[key])}" for key in ("party", "ledger", "keys", "invitation")]
    lines += ["", f"[data.{text(answers['dataset'])}]"]
    lines += [f"{key} = {text(value)}" for key, value in answers["source"].items()]
    lines += [
        "",
        "[policy]",
        f"protocols = {text(answers['protocols'])}",
        'variants = ["default"]',
        f"epsilon_per_study = {answers['epsilon_per_study']!r}    # at delta_per_study; the ledger holds the total",
        f"delta_per_study = {answers['delta_per_study']!r}    # 0 refuses every study with Gaussian noise",
    ]
    if answers["epsilon_per_period"] is not None:
        lines.append(f"epsilon_per_period = {answers['epsilon_per_period']!r}    # of all studies within period_days")
    if answers["period_days"] is not None:
        lines.append(f"period_days = {answers['period_days']}")
    lines += [
        f"submitters = {text(list(answers['pinned']))}    # who may submit; their keys are pinned below",
        "sizes_may_leave = false    # exact numbers of rows and of matches",
        "records_may_leave = false",
        "joint_predictions = 0    # new records that a run may score jointly and exactly",
        "unproven = false    # methods that are not private as claimed; the plan shows their true loss",
        f"approval = {text(answers['approval'])}    # by-hand | within-policy",
    ]
    for name, texts in answers["pinned"].items():
        lines += ["", f"[pinned.{text(name)}]", *(f"{key} = {text(texts[key])}" for key in TEXTS)]
    return "\n".join(lines) + "\n"


def _check_records(source: Mapping[str, str], dataset: str, home: Path, schema: Path | None) -> tuple[str, ...]:
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


def _submitters(pairs: list[str]) -> dict[str, dict[str, str]]:
    submitters = {}
    for pair in pairs:
        name, equals, file = pair.partition("=")
        if not equals or not name or not file:
            raise typer.BadParameter(
                f"--submitter expects NAME=FILE, as in coordinator=coordinator.toml; found {pair!r}."
            )
        submitters[name] = read_key_texts(Path(file), key="submitter")
    return submitters


def _check_site_text(text: str, site: Path) -> None:
    """Report wrong answers before creating anything."""
    import tempfile

    from comity.site.site_file import SiteFile

    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / site.name
        draft.write_text(text, encoding="utf-8")
        SiteFile.load(draft)


def _create_ledger(path: Path, dataset: str, grant: Pure | Approx, unit: Unit, neighbours: Neighbours) -> None:
    """Create the ledger, or add the dataset to one that has no budget for it."""
    from comity.privacy.ledger import Ledger

    if not path.exists():
        Ledger.create(path, dataset=dataset, grant=grant, unit=unit, neighbours=neighbours)
    elif dataset not in {account.dataset for account in Ledger(path).summary()}:
        Ledger(path).add_dataset(dataset=dataset, grant=grant, unit=unit, neighbours=neighbours)


# Studies that arrived, and the owner's decisions.

_MAX_NAME = 200
Hash = Annotated[str, typer.Argument(metavar="HASH", help="The study's hash, or its beginning.", show_default=False)]
Dataset = Annotated[str | None, typer.Option(help="The dataset that the study may read.", show_default="the only one")]
Runs = Annotated[int, typer.Option(help="How many runs in all, including those already started.", min=1)]
By = Annotated[str, typer.Option(metavar="NAME", help="Who decides; kept with the decision.", show_default=False)]


@app.command()
def receive(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A packed study.", show_default=False)],
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Take in a packed study that did not come over the relay. One of policy.submitters must have signed it.

    Example: comity site receive readmission-3d59a0c41b7e.study
    """
    from comity.errors import BadInput
    from comity.site.service import SiteService

    try:
        raw = file.read_bytes()
    except OSError as error:
        raise BadInput(
            f"{file}: the pack can't be read ({error.strerror}); name a file of comity study pack"
        ) from error
    arrival = SiteService(site).take_in(raw)
    line = f"{arrival.study[:12]}  {arrival.name} of {arrival.submitter}: {_describe_decision(arrival)}"
    show([line], _arrival_document(arrival), as_json=as_json)


@app.command()
def inbox(
    study: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="Show one study in full.", show_default=False)
    ] = None,
    dataset: Dataset = None,
    runs: Runs = 1,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """List the studies that arrived, unread ones first; or show what one means for you, which marks it read.

    Example: comity site inbox

    Example: comity site inbox 3d59
    """
    from comity.site.inbox import Inbox
    from comity.site.site_file import SiteFile

    loaded = SiteFile.load(site)
    box = Inbox(loaded.home)
    if study is not None:
        arrival = box.find(study)
        box.mark_read(arrival.study)
        try:
            preview = _preview(loaded, arrival, dataset, runs)
        except ComityError:
            if not as_json:
                # An owner first looks at who takes part, even if its policy or its records exclude the study.
                say(_parties(loaded, box.study(arrival.study)))
            raise
        document = {**_arrival_document(box.find(study)), **preview.as_json()}
        show(preview.as_text(), document, as_json=as_json)
        return
    arrivals = box.arrivals()
    heads = ("", "hash", "study", "protocol", "from", "arrived", "state")
    rows = [
        (
            "" if it.read else "new",
            it.study[:12],
            it.name,
            it.protocol,
            it.submitter,
            it.arrived[:16],
            _describe_decision(it),
        )
        for it in arrivals
    ]
    text = table(heads, rows) if rows else "no study has arrived"
    show(text, {"studies": [_arrival_document(one) for one in arrivals]}, as_json=as_json)


@app.command()
def approve(
    study: Hash,
    dataset: Dataset = None,
    runs: Runs = 1,
    by: By = "",
    yes: Yes = False,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Approve a study for one dataset and a number of runs, after showing what would leave and what would be left.

    The site file's policy applies to approved studies too. An approval is for a hash: a changed study needs another.

    Example: comity site approve 3d59 --dataset patients --runs 1 --by "data protection officer"
    """
    from comity.site.decisions import approve_study, digest_of_shown
    from comity.site.inbox import Inbox
    from comity.site.site_file import SiteFile

    loaded, decider = SiteFile.load(site), _decider(by)
    box = Inbox(loaded.home)
    arrival = box.find(study)
    preview = _preview(loaded, arrival, dataset, runs)
    if not as_json:
        say(preview.as_text())
    if not confirm("Approve this study?", yes=yes, as_json=as_json):
        raise typer.Exit(REFUSED)
    name, shown = preview.view.dataset, digest_of_shown(preview, arrival)
    approve_study(loaded, loaded.owner(), arrival.study, dataset=name, runs=runs, by=decider, shown=shown)
    line = f"approved: {arrival.name} {arrival.study[:12]} for {name}, {runs} run{'s' * (runs > 1)} in all{_by(by)}"
    show([line], {"approved": arrival.study, "by": by, **preview.as_json()}, as_json=as_json)


@app.command()
def refuse(
    study: Hash,
    why: Annotated[str, typer.Option(help="The reason; the study's coordinator reads it.")] = "",
    by: By = "",
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Refuse a study, or withdraw its approval. What it drew stays spent. End its open runs with: comity site end RUN

    Example: comity site refuse 3d59 --why "no legal basis yet"
    """
    from comity.site.decisions import refuse_study
    from comity.site.site_file import SiteFile
    from comity.site.status import list_runs

    loaded = SiteFile.load(site)
    owner = loaded.owner()
    arrival = refuse_study(loaded, owner, study, why=why, by=_decider(by))
    open_runs = [one.run for one in list_runs(owner.ledger) if one.is_of(arrival.study) and one.state == "open"]
    more = f"; open runs: {', '.join(open_runs)} (comity site end RUN)" if open_runs else ""
    document = {"refused": arrival.study, "why": why, "by": by, "open_runs": open_runs}
    show([f"refused: {arrival.name} {arrival.study[:12]}{more}"], document, as_json=as_json)


def _preview(site: SiteFile, arrival: Arrival, dataset: str | None, runs: int) -> ApprovalPreview:
    from comity.site.approval import choose_dataset, preview_approval
    from comity.site.inbox import Inbox

    decided = None if arrival.decision is None else arrival.decision.dataset
    name = choose_dataset(site, dataset or decided or None)
    return preview_approval(site, site.owner(), Inbox(site.home).study(arrival.study), dataset=name, runs=runs)


def _parties(site: SiteFile, study: Study) -> list[str]:
    from comity.federation.declare.policy import KnownParties
    from comity.site.approval import parties_lines

    return parties_lines(KnownParties.of(study.consortium, site.party, site.policy.pinned))


def _decider(name: str) -> str:
    """The name of the person who decides: one line."""
    if len(name) > _MAX_NAME or "\n" in name or "\r" in name:
        raise typer.BadParameter(f"--by is one line of at most {_MAX_NAME} characters.")
    return name.strip()


def _by(name: str) -> str:
    return f", by {name.strip()}" if name.strip() else ""


def _describe_decision(arrival: Arrival) -> str:
    decision = arrival.decision
    if decision is None:
        return "waits for you"
    if decision.decision == "refused":
        return "refused" + _by(decision.by) + (f": {decision.why}" if decision.why else "")
    reason = f", {decision.why}" if decision.why else ""
    return f"approved for {decision.dataset}, {decision.runs} run{'s' * (decision.runs > 1)}{reason}{_by(decision.by)}"


def _arrival_document(arrival: Arrival) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(arrival), "state": _describe_decision(arrival)}


# Serving.

_REFUSALS = 10


@app.command()
def serve(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of sites that share this process, each with a site.toml.", show_default="--site"),
    ] = None,
    site: SiteOption = SITE,
    log: Annotated[
        Form, typer.Option(help="Log text for people, or one JSON object a line without the texts of exceptions.")
    ] = Form.TEXT,
    as_json: AsJson = False,
) -> None:
    """Connect to the relay and answer for approved studies until stopped. See refusals with: comity site status

    Example: comity site serve

    Example: comity site serve --log json

    Example: comity site serve wards/north wards/south
    """
    from comity.site.logs import log_to_stderr

    log_to_stderr(log)
    try:
        if folders:
            _serve_together([folder / SITE.name for folder in folders], as_json=as_json)
        else:
            _serve_one(site, as_json=as_json)
    except KeyboardInterrupt:
        # Ctrl-C is how an operator stops it; open runs continue when it serves again.
        raise typer.Exit(0) from None


def _serve_one(site: Path, *, as_json: bool) -> None:
    from comity.site.notices import send_notices
    from comity.site.service import SiteService, open_endpoint

    service = SiteService(site)
    endpoint = open_endpoint(service.site)
    document = {"party": service.site.party, "serving": list(service.studies)}
    show(f"{service.site.party} serves {len(service.studies)} studies", document, as_json=as_json)
    with send_notices(site):
        endpoint.serve(service)


def _serve_together(paths: Sequence[Path], *, as_json: bool) -> None:
    """Each site keeps its own keys, ledger and folder; they share processes and threads."""
    from comity.site.notices import send_notices
    from comity.site.service import SiteService, open_endpoint

    services = [SiteService(path) for path in paths]
    for service in services:
        # Refuses a site that lacks an invitation, or whose keys are not those of its party.
        open_endpoint(service.site)
    from comity.relay.endpoint import serve_services

    document = {"sites": [{"party": one.site.party, "serving": list(one.studies)} for one in services]}
    show(
        "\n".join(f"{one.site.party} serves {len(one.studies)} studies" for one in services), document, as_json=as_json
    )
    with ExitStack() as notices:
        for path in paths:
            notices.enter_context(send_notices(path))
        serve_services(services)


@app.command()
@takes_console_options
def console(
    invite: Invite = None,
    role: AsRole = "read",
    options: ConsoleOptions = LOOPBACK,
    metrics_token: Annotated[
        Path | None,
        typer.Option(help="Serve /metrics for Prometheus to programs that send this file's token.", show_default=False),
    ] = None,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Serve pages in a browser on which people read plans, approve or refuse studies, and watch budget and runs.

    The first start prints a one-time link, with which you choose a name and a password. It is a process beside
    `comity site serve`: asks never wait for it. From other machines, use a tunnel, or give a certificate.

    Example: comity site console

    Example: comity site console --invite "data protection officer" --role approve
    """
    from comity.cli.console import make_invitation, serve_console
    from comity.console.site_console import make_site_console
    from comity.site.site_file import SiteFile

    if invite is not None:
        make_invitation(SiteFile.load(site).home, options, invite, role, as_json=as_json)
        return
    address = options.address()
    from comity.console.metrics_page import load_token

    token = None if metrics_token is None else load_token(metrics_token)
    served, application = make_site_console(site, address, provider=options.open_provider(address), metrics=token)
    serve_console(served, application, options, as_json=as_json)


@app.command()
def status(
    refusals: Annotated[int, typer.Option(help="How many of the last refusals to show.", min=0)] = _REFUSALS,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Show budgets, runs, decisions, and refusals with their reasons. For your terminal only.

    Example: comity site status
    """
    from dataclasses import asdict

    from comity.cli.ledger import accounts_document
    from comity.site.inbox import Inbox
    from comity.site.results import load_own_comparison, load_own_score
    from comity.site.site_file import SiteFile
    from comity.site.status import Refusals, list_runs, open_refusals

    loaded = SiteFile.load(site)
    ledger = loaded.owner().ledger
    accounts, runs, box = ledger.summary(), list_runs(ledger), Inbox(loaded.home)
    arrivals = box.arrivals()
    last = open_refusals(Refusals(loaded.home), arrivals, refusals)
    lines = [f"{loaded.party} · {loaded.where}", *(f"  {account}" for account in accounts)]
    unread = sum(not one.read for one in arrivals)
    where = ": comity site inbox" if unread else ""
    lines.append(f"  studies        {len(arrivals)} arrived, {unread} unread{where}")
    decided = [one for one in arrivals if one.decision is not None]
    lines += [
        f"  decided        {one.decision.when[:16]} {one.study[:12]} {one.name}: {_describe_decision(one)}"
        for one in decided
        if one.decision is not None
    ]
    shown = [(one.mark[:12], one.run, one.title, one.dataset, one.state) for one in runs]
    heads = ("study", "run", "title", "dataset", "state")
    lines += table(heads, shown, indent="    ").split("\n") if shown else ["  no runs yet"]
    scores = {f"{one.mark[:12]}/{one.run}": load_own_score(loaded.home, one.mark, one.run) for one in runs if one.mark}
    lines += [f"  {name}  {score.sentence}" for name, score in scores.items() if score is not None]
    compared = {
        f"{one.mark[:12]}/{one.run}": load_own_comparison(loaded.home, one.mark, one.run) for one in runs if one.mark
    }
    lines += [f"  {name}  {one.sentence}" for name, one in compared.items() if one is not None]
    lines += [f"  refused        {one.time} {one.study} {one.sentence}".replace("  refused: ", " ") for one in last]
    document = {
        "party": loaded.party,
        "accounts": accounts_document(accounts),
        "studies": [_arrival_document(one) for one in arrivals],
        "runs": [asdict(one) for one in runs],
        "own_scores": {
            name: {**asdict(score), "worse_than_a_constant": score.is_worse}
            for name, score in scores.items()
            if score is not None
        },
        "own_comparisons": {name: asdict(one) for name, one in compared.items() if one is not None},
        "refusals": [asdict(one) for one in last],
    }
    show(lines, document, as_json=as_json)


@app.command()
def end(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or HASH/RUN.", show_default=False)],
    yes: Yes = False,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Abandon an open run for good: free what it never drew and delete its masks. What it drew stays spent.

    Example: comity site end 2026-11-17-7f3a
    """
    from comity.cli.ledger import accounts_document
    from comity.site.site_file import SiteFile
    from comity.site.status import end_run

    loaded = SiteFile.load(site)
    ledger = loaded.owner().ledger
    if not confirm(f"End run {run} for good?", yes=yes, as_json=as_json):
        raise typer.Exit(REFUSED)
    ended = end_run(ledger, run)
    accounts = ledger.summary()
    lines = [f"ended: {ended.title} run {ended.run}", *(f"  {account}" for account in accounts)]
    show(lines, {"ended": ended.run, "study": ended.mark, "accounts": accounts_document(accounts)}, as_json=as_json)
