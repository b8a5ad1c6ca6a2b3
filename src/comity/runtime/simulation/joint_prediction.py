"""Joint prediction on this machine: hosts with their own columns of new records, and a coordinator that adds up.

The hosts, policies, seals and masks are those of a deployment. What is simulated is that one person is every site: it
puts each score beside the identifier of its record, which in a deployment each site can do for its own records alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.crypto.sealing.sealed import Identity
from comity.data import Records
from comity.entropy import derive
from comity.errors import Refused, Stopped, StudyError
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.parties import Parties, run
from comity.federation.declaring.agreed import Agreed
from comity.federation.declaring.consortium import COORDINATOR
from comity.federation.declaring.plan import Plan, plan
from comity.federation.declaring.policy import SIMULATION, Policy
from comity.federation.messages.codec import decode
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.federation.subprotocols.alignment import ROWS
from comity.privacy.ledger import Ledger
from comity.privacy.randomness import ReleasedNoise
from comity.protocols.vertical.prediction import MOST_ROWS, JointPrediction
from comity.runtime.local.channel import LocalChannel
from comity.runtime.simulation.simulate import new_run_id
from comity.runtime.study.predicting import joint_prediction_of
from comity.runtime.study.study import Study, naming

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class JointScores:
    """Exact scores of new records: outside every guarantee, as the plan says.

    `ids` are there if the schema has an identifier, whose common rows come in an order of chance; otherwise the scores
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

    `parties` are the new records as each party has them, `where` names them in errors. `policies` are the parties' own;
    without one a party allows everything, as in every simulation.
    """
    who = study.consortium
    if set(parties) != set(who.parties):
        raise StudyError(
            f"{study.where}: a joint prediction needs new records of {', '.join(who.parties)}, found those of "
            f"{', '.join(parties) or 'nobody'}; give each party its own",
            key="parties",
        )
    with naming(study.where):
        most = max(1, min(MOST_ROWS, max(map(len, parties.values()))))
        protocol = joint_prediction_of(study.protocol, study.schema, coef, most=most)
    named = where or {}
    records = {
        party: protocol.encoding_of(party).encode(parties[party], where=named.get(party, party)).records
        for party in who.parties
    }
    return _scored(study, protocol, records, policies or {})


def _scored(
    study: Study, protocol: JointPrediction, records: Mapping[str, Records], policies: Mapping[str, Policy]
) -> JointScores:
    name = derive(bytes.fromhex(study.hash), "joint prediction", protocol.coef.tobytes().hex(), protocol.most).hex()
    names = (COORDINATOR, *study.consortium.parties)
    keys = {name: Identity(derive(name.encode(), "simulated identity", name)) for name in names}
    who = replace(study.consortium, roster={name: identity.public for name, identity in keys.items()})
    agreed = Agreed(name, protocol, who, study.name)
    hosts = {
        party: Host(
            agreed,
            party,
            records=records[party],
            keys=keys[party],
            store=Store(
                Ledger.in_memory(dataset=party, unit=who.unit, neighbours=who.neighbours),
                unit=who.unit,
                neighbours=who.neighbours,
            ),
            noise=ReleasedNoise(),
            policy=policies.get(party, SIMULATION),
        )
        for party in who.parties
    }
    first, run_id, order = who.parties[0], new_run_id(), list[NDArray[np.int64]]()

    def before_the_end(path: str) -> None:
        """Which rows were common is the site's own, and deleted when the run ends."""
        if path.startswith("run.end") and protocol.parts:
            rows = hosts[first].store.state(run_id, ROWS)
            if rows is not None:
                order.append(decode(rows))

    channel = LocalChannel(hosts)
    coordinator = Parties(
        agreed,
        run=run_id,
        channel=channel,
        journal=Journal(),
        keys=keys[COORDINATOR],
        noise=ReleasedNoise(),
        progress=before_the_end,
    )
    try:
        scores = np.asarray(run(coordinator)["scores"], np.float64)
    except (Refused, Stopped) as error:
        if error.party in channel.refusals:
            raise channel.refusals[error.party] from error
        raise
    ids = records[first].ids
    if ids is not None and order:
        ids = np.asarray(ids[order[0]], object)
    return JointScores(scores, ids, plan(study.name, protocol, who))
