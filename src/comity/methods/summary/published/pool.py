"""What the published curator holds: all that it was ever sent and has not taken yet stays open to every later round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from comity.methods.summary.auction.pool import Offer, Pool, Taken

Floats = NDArray[np.float64]


class OpenPool(Pool):
    """The best of everything along the present direction wins, whenever it was offered."""

    def take(self, offers: Mapping[str, Offer], aim: Floats) -> Floats | None:
        """End a round; the features of the record that joined the summary, if there was any."""
        places = {owner: place for place, owner in enumerate(self._owners)}
        self.left_over += [Taken(places[owner], offer, 0.0) for owner, offer in offers.items()]
        if not self.left_over:
            return None
        found = self._features(np.array([one.offer.row for one in self.left_over]))
        best = int(np.argmax(found @ aim))
        taken = self.left_over.pop(best)
        self.winners.append(Taken(taken.owner, taken.offer, float(found[best] @ aim)))
        self.sum = self.sum + found[best]
        return np.asarray(found[best], np.float64)
