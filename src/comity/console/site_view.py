"""What a site's console reads: the site file, the inbox, the ledger and the results, opened once and read again when
they change.

Promise    Pages read. Decisions, abandoned runs and write-offs go through the functions of the commands, with their
           locks. A transaction that a page opens ends before the page is written, so a slow browser holds nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from comity.errors import ComityError
from comity.federation.owner.registry import Owner
from comity.files import FileState, read_file_state
from comity.privacy.ledger import LedgerFollower
from comity.site.approval import ApprovalPreview, choose_dataset, preview_plan
from comity.site.decisions import digest_of_shown
from comity.site.inbox import Arrival, Inbox
from comity.site.site_file import SiteFile
from comity.study.study import Study

_KEPT = 128

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """The newest values by key. Two threads may make one value at once; both get an equal one."""

    def __init__(self, most: int = _KEPT) -> None:
        self._values: OrderedDict[Any, Value] = OrderedDict()
        self._lock = Lock()
        self._most = most

    def get(self, key: Any, make: Callable[[], Value]) -> Value:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            self._values[key] = made
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return made


@dataclass(frozen=True)
class OpenedSite:
    """The site file of one moment, with what it names. `state` changes when the file does."""

    state: FileState | None
    site: SiteFile
    owner: Owner
    inbox: Inbox
    follower: LedgerFollower


@dataclass(frozen=True)
class ShownStudy:
    """A study as an owner sees it now: a preview and the digest that its approval must carry, or the sentence with
    which policy, budget or keys refuse it."""

    study: Study
    dataset: str
    runs: int
    preview: ApprovalPreview | None
    digest: str
    refusal: str


class SiteView:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._opened: OpenedSite | None = None
        self._studies: Cache[Study] = Cache()
        self._previews: Cache[ApprovalPreview] = Cache()
        self.rendered: Cache[Any] = Cache()

    def current(self) -> OpenedSite:
        """The site as its file says now; raises what is wrong with it."""
        state = read_file_state(self.path)
        with self._lock:
            if self._opened is None or self._opened.state != state:
                site = SiteFile.load(self.path)
                owner = site.owner()
                self._opened = OpenedSite(state, site, owner, Inbox(site.home), LedgerFollower(owner.ledger))
            return self._opened

    def study(self, opened: OpenedSite, study: str) -> Study:
        """A study of the inbox, for reading. Deciding reads its files again."""
        folder = opened.inbox.folder / study / "study"
        states = tuple((one.name, read_file_state(one)) for one in sorted(folder.iterdir()) if one.is_file())
        return self._studies.get((study, states), lambda: opened.inbox.study(study))

    def show(self, opened: OpenedSite, arrival: Arrival, dataset: str, runs: int) -> ShownStudy:
        """What an approval would mean, without the warnings about the records, for which all of them would be read."""
        study = self.study(opened, arrival.study)
        decided = "" if arrival.decision is None else arrival.decision.dataset
        chosen = dataset or decided or next(iter(opened.site.data))
        try:
            chosen = choose_dataset(opened.site, chosen)
            # A preview tries the reservation, which takes the ledger's lock for some milliseconds; once a commit.
            key = (arrival.study, chosen, runs, opened.state, opened.owner.ledger.commit_head())
            preview = self._previews.get(
                key, lambda: preview_plan(opened.site, opened.owner, study, dataset=chosen, runs=runs)
            )
        except ComityError as error:
            return ShownStudy(study, chosen, runs, None, "", str(error))
        return ShownStudy(study, chosen, runs, preview, digest_of_shown(preview, arrival), "")
