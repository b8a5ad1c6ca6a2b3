"""What one lying owner of 5 and of 20 makes of a model, and whether public figures notice: `python -m
tests.attacks.influence` prints the table of docs/security.md."""

from __future__ import annotations

from comity.errors import Implausible
from comity.federation.coordinator.lifecycle import run

from .liar import host_all, multiply_contributions, send_zeros
from .studies import Case, case

METHODS = ("averaging", "softlabel", "synthetic")
HONEST = "no lie"
LIES = {
    "flipped labels": 1.0,
    "flipped labels, × 10": 10.0,
    "flipped labels, × 40": 40.0,
    "flipped labels, × 100": 100.0,
}
ZEROS = "zeros in place of the masked vector"


def attacked(study: Case, lie: str) -> float | str:
    """The error on test records where the last owner lies; or the sentence with which the run ended."""
    records, liars = dict(study.records), {}
    if lie == ZEROS:
        liars = {study.liar: send_zeros(study.protocol, study.consortium)}
    elif lie != HONEST:
        records[study.liar] = study.flipped
        liars = {study.liar: multiply_contributions(study.protocol, study.consortium, LIES[lie])}
    parties, _ = host_all(study.protocol, study.consortium, records, liars=liars)
    try:
        return study.error(run(parties))
    except Implausible as found:
        return str(found)


def main() -> None:
    print("| method | owners | a constant | " + " | ".join((HONEST, *LIES, ZEROS)) + " |")
    print("| --- " * (len(LIES) + 5) + "|")
    for method in METHODS:
        for parties in (5, 20):
            study = case(method, parties)
            found = [attacked(study, lie) for lie in (HONEST, *LIES, ZEROS)]
            shown = [f"{one:.3f}" if isinstance(one, float) else "ended" for one in found]
            print(f"| {method} | {parties} | {study.constant:.3f} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
