"""What the published average lets leave, from whom to whom, and on which terms it runs at all."""

from __future__ import annotations

from comity.errors import StudyError
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Protection, Public, Sealed, Selected
from comity.federation.declare.release import Array, Blob, Count, Each, Fields, Form
from comity.methods.averaging.published.noise import PublishedNoise, claim, pure_epsilon
from comity.methods.averaging.published.smallest import Comparisons
from comity.privacy.unit import Neighbours, Unit

MOST_PARTIES = 1000
CURATOR = "curator"

# Whoever is that party finds out: what is left of the published sum without its own noise has the length of models.
SMALLEST = "the party with the fewest records, which knows the noise that hides the others' models"
EXPOSED = f"not private against {SMALLEST}"

_SHUFFLED = "shares of the sizes in a secret order: uniform ones, and others under the keyholder's key"
_ADVERSARY = (
    "everyone who sees the model except the party with the fewest records, who drew its noise; for sizes and models, "
    "each participant alone, honest but curious"
)


def ends(consortium: Consortium) -> tuple[str, str]:
    """The mixer and the keyholder."""
    return consortium.parties[0], consortium.parties[-1]


def chain_of(consortium: Consortium) -> tuple[str, ...]:
    """The order in which the product of stage 2 goes round: the mixer, who blinds it, is the last."""
    return (*consortium.parties[1:], consortium.parties[0])


def check(consortium: Consortium) -> None:
    """Refuse terms on which the published proof says nothing."""
    if consortium.unit is not Unit.RECORD or consortium.neighbours is not Neighbours.REPLACE:
        raise StudyError(
            f"the published average protects a record, replaced; found unit = {consortium.unit}, neighbours = "
            f'{consortium.neighbours}. Set privacy.unit = "record" and privacy.neighbours = "replace": its noise '
            "depends on secret sizes, which adding or removing a record would change",
            key="privacy.unit",
        )
    if consortium.colluders:
        raise StudyError(
            f"the published average holds against no collusion, found privacy.colluders = {consortium.colluders}: the "
            "curator and a party with a role learn sizes, or whose noise it is. Set it to 0, or choose the default "
            "variant",
            key="privacy.colluders",
        )
    if consortium.dropouts:
        raise StudyError(
            f"the published average needs every party to the end, found privacy.dropouts = {consortium.dropouts}. Set "
            "it to 0, or choose the default variant",
            key="privacy.dropouts",
        )
    if not 2 <= consortium.size <= MOST_PARTIES or CURATOR in consortium.parties:
        raise StudyError(
            f"the published average needs 2 to {MOST_PARTIES} parties, none named {CURATOR!r}; found {consortium.size}",
            key="parties",
        )
    pure_epsilon(consortium.loss)


def declared(
    consortium: Consortium, noise: PublishedNoise, comparisons: Comparisons, *, radius: float, key_bits: int
) -> Declaration:
    """Every message of the three stages. `noise` is what each party is charged for: each draws, though only the draw of
    one is opened, because who pays must not tell whose it is."""
    mixer, keyholder = ends(consortium)
    ciphertext = key_bits // 4
    key, many = Blob(ciphertext + 4), Blob(ciphertext * max(consortium.size, noise.width))
    words = Array((noise.width,), "<u8")
    pair = Fields({"share": Array((1,), "<u8"), "encrypted": Blob(ciphertext)})
    pairs = Fields({"shares": Array((consortium.size,), "<u8"), "encrypted": many})
    made, uniform = Public("a public key of this run"), Sealed("a uniform share")
    largest = noise.sensitivity(1)

    def release(name: str, source: str, to: str, protection: Protection, form: Form) -> Release:
        return Release(name=name, source=source, to=to, protection=protection, form=form)

    return Declaration(
        (
            release("key", keyholder, EVERY_PARTY, Sealed(made.why), key),
            release("key_for_curator", keyholder, COORDINATOR, made, key),
            release("place", mixer, EVERY_PARTY, Sealed("its own place in a random order"), Count(consortium.size - 1)),
            release("size", EVERY_PARTY, mixer, Sealed("a uniform share, and an encrypted one"), pair),
            release("shuffled", mixer, COORDINATOR, Sealed(_SHUFFLED), pairs),
            release("masked", COORDINATOR, keyholder, Public("uniform numbers, encrypted"), many),
            *comparisons.declare(consortium).releases,
            release("curator_key", COORDINATOR, EVERY_PARTY, made, key),
            release("indicator", COORDINATOR, EVERY_PARTY, Public("encrypted under the curator's key"), many),
            Release(
                name="noise",
                source=EVERY_PARTY,
                to=EVERYONE,
                protection=Selected(noise.mechanism),
                form=Array((noise.width,), "<i8"),
                bound=OpenedValue(l2=largest, l1=largest, limit=radius),
                grid=noise.grid,
            ),
            release("product", EVERY_PARTY, EVERY_PARTY, Sealed("noise under the curator's key"), many),
            release("blinded", mixer, COORDINATOR, Public("noise under a uniform mask"), many),
            release("piece", EVERY_PARTY, EVERY_PARTY, uniform, words),
            release("piece_for_curator", EVERY_PARTY, COORDINATOR, uniform, words),
            release("piece_of_curator", COORDINATOR, EVERY_PARTY, uniform, words),
            release("share", EVERY_PARTY, COORDINATOR, Derived("noise"), words),
            release("shares", COORDINATOR, EVERYONE, Derived("noise"), Each(words, keys="participants")),
        ),
        adversary=_ADVERSARY,
        claim=EXPOSED if noise.kind == "spherical" else f"{claim(noise)}; and {EXPOSED}",
        exposed=SMALLEST,
    )
