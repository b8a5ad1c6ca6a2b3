"""Soft-label transfer as published: local classifiers vote on public records, a trusted coordinator perturbs the model.

J. Hamm, P. Cao, M. Belkin, Learning Privately from Multiparty Data, ICML 2016. Algorithm 1 is `method="vote"`,
Algorithm 2 is `method="soft"`, the baseline after Pathak et al. is `method="avg"`. The derivations of the constants
are in `proof.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from comity.data import Encoding, Records
from comity.errors import DataError, Refused, Stopped, StudyError
from comity.federation.constraints import Positive, Why
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball, Bound, OpenedValue, Simplex
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import INFINITE, Declaration, Release, TrueLoss
from comity.federation.declare.protection import Entrusted, Perturbed
from comity.federation.declare.release import Array
from comity.federation.evaluation.assessment import Baseline
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.learn.fits import Fit, contrasts, fit_logistic, fit_softmax, hard_votes, one_hot
from comity.learn.local_models import Ballot, harden, local_votes
from comity.learn.norm_bound import minimiser_radius
from comity.methods.method import ABSENT, Setting
from comity.methods.softlabel.baselines import MAX_PARTIES, common_baselines
from comity.methods.softlabel.choice import check_classes, check_terms, choose_noise
from comity.privacy.accounting import gaussian_budget, gdp_epsilon
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.mechanisms import Noise

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier

Floats = NDArray[np.float64]

AuxiliaryPrivacy = Literal["public", "private"]

WHY_PUBLISHED_ONLY = (
    'parties that vote at home need the auxiliary records, and their map is fitted on them; use variant = "published", '
    "whose trusted coordinator votes"
)

LearnsFrom = Literal["vote", "soft", "avg"]
SensitivityBound = Literal["tight", "paper"]
# Gradient norm at which a solver stops; each of two neighbours may be off by this over the strong convexity.
TOLERANCE = 1e-10
# Contributed models are put on a grid this fine relative to the radius of the ball that holds them.
FINENESS = 2.0**-40


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedSoftLabel(Protocol):
    """Votes of local classifiers on public records train a global model; the trusted coordinator adds noise to it.

    Adversary    everyone who sees the released model. The coordinator is trusted: it sees votes or local models.
    Unit         a whole party: all of its records may be replaced. With `auxiliary_privacy="private"` one auxiliary
                 record as well, at the same time; its owner, who has no ledger here, adds up the runs that use it.
    Learned      coordinator: every party's votes (avg, and private auxiliary records: its local model). Everyone: the
                 perturbed model.
    Sensitivity  `sensitivity`, in L2 on the global minimiser; derived in proof.md.
    """

    name: ClassVar[str] = "softlabel"
    version: ClassVar[int] = 3
    variant: ClassVar[str] = "published"

    auxiliary: Floats
    classes: tuple[str, ...]
    method: LearnsFrom
    l2: Annotated[Positive, Why("the noise is scaled by 1/l2")]
    sensitivity_bound: SensitivityBound
    auxiliary_privacy: AuxiliaryPrivacy
    encoding: Encoding | None = field(repr=False)

    @property
    def makes(self) -> str:
        return "one classifier"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_private_auxiliary(self.auxiliary_privacy, self.method)
        check_classes(self.classes)
        if self.auxiliary.ndim != 2 or not len(self.auxiliary):
            raise StudyError("softlabel.auxiliary must hold at least one public record", key="softlabel.auxiliary")
        if float(np.linalg.norm(self.auxiliary, axis=1).max()) > 1 + 1e-9:
            raise StudyError(
                "softlabel.auxiliary must lie in the unit ball; encode it with scaling = scaled",
                key="softlabel.auxiliary",
            )

    @property
    def title(self) -> str:
        return f"softlabel ({self.method}, published{', private auxiliary records' if self.hides_auxiliary else ''})"

    @property
    def hides_auxiliary(self) -> bool:
        return self.auxiliary_privacy == "private"

    @property
    def stackable(self) -> bool:
        return not self.hides_auxiliary

    @property
    def binary(self) -> bool:
        return len(self.classes) == 2

    @property
    def shape(self) -> tuple[int, int]:
        """Of the released coordinates: the rows of a softmax model sum to zero, so C − 1 of them carry everything."""
        return len(self.classes) - 1, self.auxiliary.shape[1]

    @property
    def radius(self) -> float:
        return minimiser_radius(self.l2, len(self.classes))

    def ballot(self, consortium: Consortium) -> Ballot | None:
        """What a party's own model votes on; None where parties send parameters of the built-in classifier."""
        return None if self._sent == "models" else Ballot(self.auxiliary, self.classes)

    def sensitivity(self, parties: int, bound: SensitivityBound | None = None) -> float:
        """How far the minimiser moves when one party is replaced, and with private auxiliary records one of them too
        (proof.md, 2 to 5 and 10). By default with the study's bound. The derived one counts the solver's inexactness;
        the printed one takes minimisers for exact."""
        bound = bound or self.sensitivity_bound
        # A single party decides a majority on its own: its votes weigh as if there were no others.
        weighing = 1 if self.method == "vote" else parties
        share = 1.0 / weighing
        if self.hides_auxiliary:
            counted = printed_share if bound == "paper" else derived_share
            share = counted(weighing, len(self.auxiliary))
        if bound == "paper":
            return 2.0 * share / self.l2
        if self.method == "avg":
            moved = 2.0 * self.radius * share
        else:
            step_of_gradient = 1.0 if self.binary else sqrt(2.0)
            moved = min(step_of_gradient * share / self.l2, 2.0 * self.radius)
        return moved + 2.0 * TOLERANCE / self.l2

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        check_terms(consortium)
        noise = choose_noise(consortium.loss)
        # Shares are taken of the parties that answered: with fewer of them each one weighs more.
        moved = self.sensitivity(consortium.survivors)
        if self.hides_auxiliary:
            check_printed_bound(moved, self.sensitivity(consortium.survivors, "tight"))
        return Declaration(
            (
                self._contribution(noise),
                Release(
                    name="model",
                    source=COORDINATOR,
                    to=EVERYONE,
                    protection=Perturbed(noise, of=self._sent),
                    form=Array(self.shape),
                    bound=OpenedValue(l2=moved, limit=self.radius + 2.0 * TOLERANCE / self.l2),
                ),
            ),
            adversary="everyone who sees the model; the coordinator is trusted"
            + (", holds the auxiliary records" if self.hides_auxiliary else "")
            + " and sees each party's "
            + ("local model" if self._sent == "models" else "votes"),
        )

    @property
    def _sent(self) -> str:
        return "models" if self.method == "avg" or self.hides_auxiliary else "votes"

    def _contribution(self, noise: Noise) -> Release:
        rows, classes = len(self.auxiliary), len(self.classes)
        bound: Bound
        if self._sent == "models":
            # A local solver's inexactness does not count here: the projection bounds what is sent.
            bound, shape, grid = Ball(self.radius), self.shape, FINENESS * self.radius
        else:
            # In units of 1/C both a vote and the neutral row of 1/C are whole numbers.
            bound, shape, grid = Simplex(rows, classes), (rows, classes), 1.0 / classes
        return Release(
            name=self._sent,
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Entrusted(noise),
            form=Array(shape, "<i8"),
            bound=bound,
            grid=grid,
        )

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        if self.hides_auxiliary:
            classes = len(self.classes)
            model = self.fit(collect_votes(parties, self.train, "models", self.auxiliary, classes))
        elif self.method == "avg":
            total = parties.sum(self.train)
            model = total.value / total.parties
        else:
            total = parties.sum(self.vote)
            model = self.fit(total.value / total.parties)
        return {"model": parties.perturb("model", model)}

    def fit(self, shares: Floats) -> Floats:
        """The global minimiser from the shares of votes (N, C), in released coordinates."""
        if self.method == "vote":
            shares = one_hot(majority(shares), len(self.classes))
        if self.binary:
            fit = fit_logistic(self.auxiliary, shares[:, 1], self.l2, tol=TOLERANCE)
        else:
            fit = fit_softmax(self.auxiliary, shares, self.l2, tol=TOLERANCE)
        if not fit.converged:
            raise Stopped(
                f"the global fit stopped at gradient norm {float(fit.gradient_norm):.1e}, above the {TOLERANCE} that "
                "its noise is scaled for; raise softlabel.l2"
            )
        return fit.weights[None, :] if self.binary else contrasts(len(self.classes)) @ fit.weights

    # What a site does.

    @step(sends="votes", stacked=True)
    def vote(self, site: Site) -> None:
        if site.local is not None:
            count = len(self.classes)
            own = local_votes(site.local, site.features, site.labels, self.auxiliary, count, filled=site.filled)
            # Whole votes as published; and shares would leave the simplex on a grid of 1/C.
            site.contribute(harden(own))
            return
        fit = self._local(site)
        chosen = hard_votes(fit.weights, self.auxiliary, multiclass=not self.binary)
        votes = one_hot(chosen, len(self.classes))
        # A party without records, or whose fit failed, votes 1/C: abstaining would move a direction without noise.
        votes[~site.filled.any(axis=-1) | ~fit.converged] = 1.0 / len(self.classes)
        site.contribute(votes)

    @step(sends="models", stacked=True)
    def train(self, site: Site) -> None:
        fit = self._local(site)
        weights = fit.weights[..., None, :] if self.binary else contrasts(len(self.classes)) @ fit.weights
        site.contribute(np.where(fit.converged[..., None, None], weights, 0.0))

    def _local(self, site: Site) -> Fit:
        """The party's own classifier: weights (..., d) for two classes, (..., C, d) for more."""
        if self.binary:
            return fit_logistic(site.features, site.labels.astype(np.float64), self.l2, mask=site.filled, tol=TOLERANCE)
        labels = one_hot(site.labels, len(self.classes))
        return fit_softmax(site.features, labels, self.l2, mask=site.filled, tol=TOLERANCE)

    # What comes out.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier:
        from comity.learn.classifiers import LinearClassifier

        coef = self.coefficients(np.asarray(released["model"], np.float64))
        return LinearClassifier(coef, classes=self.classes, encoding=self.encoding)

    def coefficients(self, coordinates: Floats) -> Floats:
        """A linear model, (1, d) or (C, d), from released coordinates."""
        return coordinates if self.binary else contrasts(len(self.classes)).T @ coordinates

    def score(self, model: LinearClassifier, test: Records) -> float:
        return measure_error(model.weights, test)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        """Constant, own data and the method without noise by its own kind of classifier, and all records pooled."""
        filled, count = [records for records in train if len(records)], len(self.classes)
        if not filled:
            return []
        local = [self._fit_rows(records.features, np.asarray(records.labels)) for records in train]
        alone = [measure_error(coef, test) for coef in local[:MAX_PARTIES]]
        if self.method == "avg":
            exact = np.mean(local, axis=0)
        else:
            votes = np.zeros((len(self.auxiliary), count))
            for coef, records in zip(local, train):
                chosen = hard_votes(coef[0] if self.binary else coef, self.auxiliary, multiclass=not self.binary)
                votes += one_hot(chosen, count) if len(records) else 1.0 / count
            exact = self.coefficients(self.fit(votes / len(train)))
        without_noise = Baseline(
            "without noise", measure_error(exact, test), note=f"{self.method} with exact contributions"
        )
        return [*common_baselines(filled, test, count, alone), without_noise]

    def _fit_rows(self, features: Floats, labels: NDArray[Any]) -> Floats:
        if self.binary:
            return fit_logistic(features, labels.astype(np.float64), self.l2, tol=TOLERANCE).weights[None, :]
        return fit_softmax(features, one_hot(labels, len(self.classes)), self.l2, tol=TOLERANCE).weights

    def expectation(self, consortium: Consortium) -> str:
        release = self.declare(consortium)["model"]
        scale = release.scale(consortium)
        dimensions = int(np.prod(self.shape))
        if isinstance(consortium.loss, Pure):
            norm = dimensions * scale.total * scale.grid
        else:
            norm = sqrt(dimensions) * scale.total * scale.grid
        ratio = norm / self.radius
        advice = ", so expect a useless model: raise l2, epsilon or the number of parties" if ratio > 1 else ""
        return (
            f"the noise has norm {norm:.3g}; any model of this regularisation has norm at most {self.radius:.3g} "
            f"(ratio {ratio:.2g}{advice})"
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        """Which sensitivity scales the noise, and what of the study the method does not look at."""
        moved = f"a sensitivity of {self.sensitivity(consortium.survivors):.3g} at {consortium.survivors} parties"
        if self.sensitivity_bound == "paper":
            said = f'sensitivity: "paper", as printed by Hamm, Cao and Belkin: {moved}'
        else:
            said = f'sensitivity: "tight", as derived in proof.md: {moved}'
        unused = "avg averages local models: the auxiliary records are checked, and nobody votes on them"
        return (said, unused) if self.method == "avg" else (said,)

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """published/proof.md, 9."""
        used, derived = self.sensitivity(consortium.survivors), self.sensitivity(consortium.survivors, "tight")
        why = f"the printed sensitivity is {used:.3g}, the derived one {derived:.3g}"
        if self.sensitivity_bound == "tight":
            why = f"the noise is scaled by the derived sensitivity of {derived:.3g}, not by the printed one"
        sent = "local models" if self._sent == "models" else "votes"
        return (
            TrueLoss(
                about="a whole party" + (" and an auxiliary record" if self.hides_auxiliary else ""),
                to="anyone who sees the model",
                claimed=str(consortium.loss),
                true=f"at most {_true_loss(consortium.loss, derived / used)}",
                why=why,
            ),
            TrueLoss(
                about="a whole party",
                to="the coordinator",
                claimed="nothing, since it is trusted",
                true=INFINITE,
                why=f"it reads the {sent} of each party",
            ),
        )

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        if not self.hides_auxiliary:
            return ()
        return (
            "the auxiliary records are private and the coordinator's, and no ledger counts what they lose: each run "
            f"costs one of them {consortium.loss}, like a whole party. Their owner adds up all runs that use "
            "them; their file is not in the study's hash",
        )


def _true_loss(loss: Loss, share: float) -> Loss:
    """The loss of noise that is scaled for a whole sensitivity, where only a share of it can move. Rounded up."""
    up = min(1.0, share * (1 + 1e-12))
    if isinstance(loss, Pure):
        return loss.scaled(Fraction(up))
    assert isinstance(loss, Approx)
    square = float(gaussian_budget(loss).square) * up * up
    # Never more than the whole budget.
    return Approx(min(Decimal(gdp_epsilon(square, float(loss.delta))), loss.epsilon), loss.delta)


def measure_error(coef: Floats, test: Records) -> float:
    """The share of test records that a linear model, (1, d) or (C, d), gets wrong."""
    assert test.labels is not None
    several = len(coef) > 1
    return float(np.mean(hard_votes(coef if several else coef[0], test.features, multiclass=several) != test.labels))


def check_private_auxiliary(privacy: str, method: str) -> None:
    """Refuse private auxiliary records where nobody votes on them."""
    if privacy == "private" and method == "avg":
        raise StudyError(
            'softlabel.auxiliary_privacy = "private" is for method = "soft" or "vote", found "avg": avg does not use '
            "auxiliary records; leave auxiliary_privacy out",
            key="softlabel.auxiliary_privacy",
        )


def check_printed_bound(used: float, derived: float) -> None:
    """Refuse noise for less than the minimiser can move: the paper prints its bounds for two classes, and with private
    auxiliary records they can be too small for more (proof.md, 10)."""
    if used < derived:
        raise StudyError(
            f'softlabel.sensitivity = "paper" is {used:.3g} here and the model can move by {derived:.3g}: the paper '
            "prints its factor for private auxiliary records for two classes and exact minimisers; use sensitivity = "
            '"tight"',
            key="softlabel.sensitivity",
        )


def majority(shares: Floats) -> NDArray[np.int64]:
    """The majority label of each record from shares of votes (N, C). Ties go to the last of the classes that tie.

    Of two classes that is equation 6 of the paper: the second class has the record from a share of one half on.
    """
    return np.asarray(shares.shape[-1] - 1 - shares[..., ::-1].argmax(axis=-1), np.int64)


def derived_share(parties: int, records: int) -> float:
    """(N + 2M − 1)/(NM): how far the mean gradient moves, in steps of one label, with a party and a record replaced.

    N − 1 records keep their place and move by one of M votes; the replaced one takes away a whole step and brings
    another (proof.md, 10). A majority is moved by one party as if M were 1.
    """
    return (records + 2 * parties - 1) / (records * parties)


def printed_share(parties: int, records: int) -> float:
    """(N + M − 1)/(NM), the paper's factor, which goes with its constant of 2; with M = 1, of a majority, it is 1."""
    return (records + parties - 1) / (records * parties)


def make_placeholder(records: int, width: int) -> Floats:
    """Rows of zeros in place of the records, at a party, which knows only their number and width."""
    return np.zeros((records, width))


def collect_votes(parties: Parties, step: Callable[..., Any], name: str, auxiliary: Floats, classes: int) -> Floats:
    """Shares of votes (N, C) on records that the parties never see, from the models that they entrust."""
    if not isinstance(parties, Parties):
        raise Refused(
            "with private auxiliary records the coordinator asks each party's model by itself, and stacks of parties "
            "have none; simulate at most 1,000 parties",
            code="no-step",
        )
    if not auxiliary.any():
        raise Refused(
            "softlabel.auxiliary: the private records are not here, and the coordinator votes on them; put the file "
            "beside its study",
            code="stopped",
            key="softlabel.auxiliary",
        )
    consortium, grid = parties.consortium, parties.declaration[name].spacing(parties.consortium)
    got = parties.ask(step, label=0, need=consortium.survivors)
    votes = np.zeros((len(auxiliary), classes))
    for values in got.values():
        votes += cast_votes(values[name] * grid, auxiliary, classes)
    return votes / len(got)


def cast_votes(coordinates: Floats, auxiliary: Floats, classes: int) -> Floats:
    """Whole votes (N, C) of one model in released coordinates. A zero model votes 1/C."""
    if not coordinates.any():
        return np.full((len(auxiliary), classes), 1.0 / classes)
    weights = coordinates[0] if classes == 2 else contrasts(classes).T @ coordinates
    return one_hot(hard_votes(weights, auxiliary, multiclass=classes > 2), classes)


def read_private_auxiliary(setting: Setting, file: str, records: int | None, encoding: Encoding) -> Floats:
    """The rows of a private file at the coordinator, and zeros at the parties, which do not have it.

    The study declares their number: the noise depends on it, and the file is not part of the agreement.
    """
    if records is None:
        raise StudyError(
            f"{setting.where}: softlabel.auxiliary_records is missing: the noise depends on how many private auxiliary "
            "records there are, and parties don't have the file; declare their number",
            key="softlabel.auxiliary_records",
        )
    try:
        frame = setting.read(file, "softlabel.auxiliary")
    except DataError as error:
        if error.code != ABSENT:
            raise
        return make_placeholder(records, encoding.width)
    if len(frame) != records:
        raise StudyError(
            f"{setting.where}: softlabel.auxiliary_records = {records}, and {file} holds {len(frame)} records; correct "
            "one of them",
            key="softlabel.auxiliary_records",
        )
    return encoding.encode_features(frame, where=f"{setting.where}: softlabel.auxiliary: {file}")
