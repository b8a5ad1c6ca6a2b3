"""An owner's host for a study that arrived. A joint prediction must apply the model that this owner was released."""

from __future__ import annotations

import numpy as np

from comity.errors import ComityError, Malformed, Refused
from comity.federation.evaluation.protocol import MODEL
from comity.federation.messages.codec import decode
from comity.federation.messages.paths import END
from comity.federation.owner.host import Host
from comity.federation.owner.hosting import Approval, Owner, host_of
from comity.federation.owner.store import Store
from comity.site.inbox import Inbox
from comity.site.site_file import SiteFile
from comity.study.study import Study


def host_for(site: SiteFile, owner: Owner, study: Study, approval: Approval) -> Host:
    """The host of an approved study. Refused as by `host_of`, and where a joint prediction brings other weights than a
    run released to this owner."""
    _require_own_model(site, owner, study)
    return host_of(owner, study.agreed, approval)


def _require_own_model(site: SiteFile, owner: Owner, study: Study) -> None:
    """A joint prediction applies the model that a run of an approved study released to this owner, to the same columns
    of the same parties. Weights of a coordinator's own choice would make a score any function that it likes to see: one
    that is zero but for a single column is that column, record by record."""
    table = study.prediction
    if table is None:
        return
    from comity.methods.vertical.prediction import JointPrediction

    short = study.hash[:12]
    try:
        trained = Inbox(site.home).study(table.of)
    except ComityError as error:
        raise Refused(
            f"refused: study {short} applies a model of study {table.of[:12]}, which is not in this inbox as it "
            f"arrived ({error})",
            code="study",
            key="prediction.of",
        ) from error
    if _laid_out(trained) != _laid_out(study):
        raise Refused(
            f"refused: study {short} has another schema, other parties, columns, keys or parameters than study "
            f"{table.of[:12]}, whose model it applies; let its author write it with comity predict",
            code="study",
            key="prediction.of",
        )
    who = trained.consortium
    store = Store(owner.ledger, unit=who.unit, neighbours=who.neighbours, study=trained.hash)
    raw = store.delivered(table.run, MODEL).get(MODEL, {}).get(str(END))
    try:
        released = None if raw is None else np.asarray(decode(raw), np.float64).reshape(-1)
    except (Malformed, ValueError, TypeError):
        released = None
    if released is None:
        raise Refused(
            f"refused: study {short} applies the model of run {table.run} of study {table.of[:12]}, which released "
            "none here; see: comity site status",
            code="study",
            key="prediction.run",
        )
    assert isinstance(study.protocol, JointPrediction)
    if released.tobytes() != study.protocol.coef.tobytes():
        raise Refused(
            f"refused: the weights of study {short} are not those that run {table.run} released to this site; ask its "
            "author why",
            code="study",
            key="prediction.weights",
        )


def _laid_out(study: Study) -> tuple[object, ...]:
    """What decides which weight belongs to which column of which party, in the order that it depends on."""
    parties = study.parties if isinstance(study.parties, int) else tuple(study.parties.items())
    return study.schema.digest(), parties, study.parameters
