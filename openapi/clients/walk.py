"""Walks one reservation with the generated Python client: from a demand to a cost report."""

import sys
import time

from broker_client import AuthenticatedClient
from broker_client.api.plans import make_plan
from broker_client.api.quotes import make_quote
from broker_client.api.reports import cost_report
from broker_client.api.reservations import (
    confirm_reservation,
    place_reservation,
    release_reservation,
    reservation_access,
    show_reservation,
)
from broker_client.api.ssh_keys import add_ssh_key
from broker_client.models import Problem
from broker_client.models.add_ssh_key import AddSshKey
from broker_client.models.demand_gpus import DemandGpus
from broker_client.models.demand_gpus_kind import DemandGpusKind
from broker_client.models.make_quote import MakeQuote
from broker_client.models.place_reservation import PlaceReservation
from broker_client.models.policy import Policy

PUBLIC_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea walk"
)


def good(answer):
    """The answer, which is no problem document."""
    assert answer is not None and not isinstance(answer, Problem), answer
    return answer


def until(client, reservation_id, state):
    """Looks each second until the reservation is in the state."""
    for _ in range(120):
        now = good(show_reservation.sync(client=client, id=reservation_id))
        if now.state == state:
            return now
        assert now.state != "closed", now
        time.sleep(1)
    raise AssertionError(f"{reservation_id} is not {state} after two minutes: {now}")


def main(url, key):
    client = AuthenticatedClient(base_url=url, token=key)
    good(add_ssh_key.sync(client=client, body=AddSshKey(name="walk", public_key=PUBLIC_KEY)))
    # It shows at once that a machine has ended; others prove it by two lists, minutes apart.
    policy = Policy(allow_providers=["lambda"])
    demand = DemandGpus(kind=DemandGpusKind.GPUS, gpu="H100-SXM", count=8, policy=policy)
    plan = good(make_plan.sync(client=client, body=demand))
    best = plan.candidates[0]
    quote = good(make_quote.sync(client=client, body=MakeQuote(plan_id=plan.id, candidate=best.rank)))
    held = good(
        place_reservation.sync(
            client=client, body=PlaceReservation(quote_id=quote.id), idempotency_key="walk-py"
        )
    )
    assert held.state == "held", held
    good(confirm_reservation.sync(client=client, id=held.id, idempotency_key="walk-py-confirm"))
    until(client, held.id, "active")
    access = good(reservation_access.sync(client=client, id=held.id))
    assert access.nodes[0].gpus == 8 and access.nodes[0].host_keys, access
    time.sleep(3)  # something to be charged for
    good(release_reservation.sync(client=client, id=held.id, idempotency_key="walk-py-release"))
    until(client, held.id, "closed")
    report = good(cost_report.sync(client=client, group_by="provider,gpu"))
    assert report.rows and float(report.total_usd) > 0, report
    print(f"walk.py: {held.id} walked from plan to report, {report.total_usd} USD")


main(*sys.argv[1:])
