"""The page of the security matrix says what its tests assert."""

from __future__ import annotations

from .matrix import BEGIN, END, PAGE, printed, rows


def test_the_page_is_printed_from_the_tests() -> None:
    text = PAGE.read_text("utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.split(BEGIN)[1].split(END)[0] == printed(), "print it: python -m tests.relay.matrix"


def test_every_attack_that_a_deployment_must_refuse_has_its_row() -> None:
    found = "\n".join(row.what for row in rows())
    for word in (
        *(
            "no key",
            "stranger's key",
            "an entry that ended",
            "revoked key",
            "nonce",
            "wrong name",
            "listening to what another",
        ),
        *("listening to everything", "asking as a party", "replying for another", "guessing inboxes"),
        *("subjects of the system", "flood", "oversized", "malformed", "unapproved study", "changed study"),
        *("replayed job", "key swap by the coordinator", "key swap by the relay", "path tricks", "submitted code"),
        *("foreign ledger head", "a begin that one party refuses"),
    ):
        assert word in found, word
    names = [row.test for row in rows()]
    assert len(set(names)) == len(names) > 40
