"""Joint prediction on this machine: hosts with their columns of new records, and a coordinator that adds up scores.

Where records have identifiers, the first party receives the scores too, as a receiver does in a deployment: only its
site can put them beside identifiers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Records
from comity.entropy import derive
from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.declare.policy import Policy
from comity.federation.plan import Plan, plan
from comity.methods.vertical.prediction import MAX_ROWS, SCORED, JointPrediction
from comity.study.local.consortium import LocalConsortium, new_run_id
from comity.study.prediction import joint_prediction_of
from comity.study.simulation.ledgers import ledgers_in_memory
from comity.study.study import Study
from comity.study.tables import prefix_errors

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class JointScores:
    """Exact scores of new records: outside every guarantee, as the plan says.

    `ids` are there if the schema has an identifier, whose common rows come in random order; otherwise the scores
    are in the order of the records.
    """

    scores: Floats
    ids: NDArray[np.object_] | None
    plan: Plan


def predict_jointly(
    study: Study,
    coef: Floats,
    parties: Mapping[str, pd.DataFrame],
    *,
    where: Mapping[str, str] | None = None,
    policies: Mapping[str, Policy] | None = None,
) -> JointScores:
    """Scores of new records whose columns different parties hold, by the weights that a vertical study released.

    `parties` are the new records as each party has them, `where` names them in errors. A party without
    one of the `policies` allows everything, as in every simulation.
    """
    consortium = study.consortium
    if set(parties) != set(consortium.parties):
        raise StudyError(
            f"{study.where}: a joint prediction needs new records of {', '.join(consortium.parties)}, found those of "
            f"{', '.join(parties) or 'nobody'}; give each party its own",
            key="parties",
        )
    with prefix_errors(study.where):
        most = max(1, min(MAX_ROWS, max(map(len, parties.values()))))
        receiver = None if study.schema.identifier is None else consortium.parties[0]
        protocol = joint_prediction_of(study.protocol, study.schema, coef, most=most, receiver=receiver)
    names = where or {}
    records = {
        party: protocol.encoding_of(party).encode(parties[party], where=names.get(party, party)).records
        for party in consortium.parties
    }
    return _score(study, protocol, records, policies or {})


def _score(
    study: Study, protocol: JointPrediction, records: Mapping[str, Records], policies: Mapping[str, Policy]
) -> JointScores:
    """One run; where there is a receiver, it keeps the identifiers of the scored records in the order of the scores."""
    identity = derive(
        bytes.fromhex(study.hash), "joint prediction", protocol.coef.tobytes().hex(), protocol.max_rows
    ).hex()
    agreement = Agreement(identity, protocol, study.consortium, study.name, study.about)
    ledgers = ledgers_in_memory(agreement)
    local = LocalConsortium.create(agreement, records, run=new_run_id(), ledgers=ledgers, policies=policies)
    released, _ = local.execute()
    ids = None if protocol.receiver is None else local.received(protocol.receiver).own.get(SCORED)
    return JointScores(
        np.asarray(released["scores"], np.float64),
        None if ids is None else np.array(ids, object),
        plan(study.name, protocol, agreement.consortium),
    )
