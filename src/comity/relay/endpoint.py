"""A site's end of the relay, made from its site file: asks go to the owner's desk, packed studies to its inbox."""

from __future__ import annotations

from comity.errors import Refused, StudyError
from comity.relay.certificates import CERTIFICATE
from comity.relay.consortium import membership
from comity.relay.dialling import Relay
from comity.relay.serving import serve
from comity.site.desk import Desk
from comity.site.serving import alone
from comity.site.site_file import SiteFile


class NatsEndpoint:
    """Refuses a certificate that makes its holder another member than the party of the site file: nobody would hear
    what is asked of that party."""

    def __init__(self, site: SiteFile) -> None:
        assert site.relay is not None
        self.relay = Relay(site.relay.address, site.home / (site.relay.certificate or f"relay/{CERTIFICATE}"))
        member, joined = membership(self.relay.certificate.parent)
        if member != site.party:
            raise StudyError(
                f"{site.where}: party = {site.party!r}, and {self.relay.certificate} is a certificate for {member!r}; "
                "correct one of them",
                key="party",
            )
        if joined.address != self.relay.address:
            raise StudyError(
                f"{site.where}: relay.address = {self.relay.address!r}, and the invitation said {joined.address!r}; "
                "correct it, or join again",
                key="relay.address",
            )

        self.relay.require()

    def serve(self, desk: Desk) -> None:
        with alone(desk.site):
            serve(_AtDesk(desk), self.relay)


class _AtDesk:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.party = desk.site.party

    def answer(self, raw: bytes) -> bytes:
        return self._desk.answered(raw).reply

    def receive(self, pack: bytes) -> bytes:
        return self._desk.submitted(pack)

    def dropped(self, why: bytes) -> None:
        word = why.decode("ascii")
        self._desk.refused(
            Refused(f"refused: {_DROPPED.get(word, 'something that can not be read arrived')}", code=word)
        )


_DROPPED = {
    "size": "a message was announced that is larger than a site takes",
    "frame": "something arrived at this site's subject that is no message of Comity",
    "untrue": "a message arrived that is another than was announced",
}
