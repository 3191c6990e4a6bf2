"""What one round remembers of requests that did not fit, so that equal requests of other gangs are not searched."""

from central.scheduler.placement import PlacementRequest

# Reasons by capacity epoch and requests. Within an epoch free capacity only shrinks, so a request that
# did not fit does not fit for another gang either.
Refusals = dict[tuple[int, tuple[PlacementRequest, ...]], str]


class Verdicts:
    """Refusals by the reservations that constrained the attempt. Who has to leave more of them free is refused as
    well."""

    def __init__(self) -> None:
        self._by_reserved: dict[frozenset[object], Refusals] = {}
        self._least: dict[tuple[PlacementRequest, ...], tuple[int, frozenset[object]]] = {}

    def of(
        self, reserved: frozenset[object], wants: tuple[PlacementRequest, ...], epoch: int
    ) -> Refusals:
        refused = self._by_reserved.setdefault(reserved, {})
        request = (epoch, wants)
        if request in refused:
            return refused
        then, fewer = self._least.get(wants, (-1, reserved))
        if then == epoch and fewer <= reserved:
            reason = self._by_reserved[fewer].get(request)
            return refused if reason is None else {request: reason}
        self._least[wants] = epoch, reserved
        return refused
