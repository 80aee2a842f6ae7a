"""`POST /v1/jobs/ID/hand`: the owner's business, and root's; seeing a job is not enough."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from starlette.requests import Request

from sentinel.server.access import Viewer
from sentinel.server.jobs import routes
from sentinel.server.respond import HttpError
from tests.server.small import SmallDaemon

ALICE, BOB = 111_111, 222_222
REPORT = {"hand": "h1", "seq": 1}


async def post(daemon: SmallDaemon, job: str, viewer: Viewer) -> Any:
    (route,) = [each for each in routes(daemon) if each.path.endswith("/hand")]

    async def body() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(REPORT).encode(), "more_body": False}

    scope = {
        "type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"",
        "path_params": {"job": job}, "state": {"viewer": viewer},
    }  # fmt: skip
    answer = await route.endpoint(Request(scope, body))
    return json.loads(answer.body)


@pytest.mark.parametrize("viewer", [Viewer(ALICE, "alice", everything=False), Viewer(0, "root", everything=True)])
async def test_the_owner_and_root_may_lend_a_hand(viewer: Viewer) -> None:
    daemon = SmallDaemon()
    job = daemon.add_job("train", uid=ALICE)

    assert (await post(daemon, job.id, viewer))["heard"] == REPORT


@pytest.mark.parametrize(
    ("viewer", "status"),
    [
        (Viewer(BOB, "bob", everything=False), 404),
        (Viewer(BOB, "of the group", everything=True), 403),
        (Viewer(None, "tcp", everything=True, controls=False), 403),
    ],
)
async def test_nobody_else_may(viewer: Viewer, status: int) -> None:
    daemon = SmallDaemon()
    job = daemon.add_job("train", uid=ALICE)

    with pytest.raises(HttpError) as refused:
        await post(daemon, job.id, viewer)

    assert refused.value.status == status


async def test_a_job_of_the_daemons_own_user_needs_no_hand() -> None:
    daemon = SmallDaemon()
    job = daemon.add_job("train", uid=os.getuid())

    with pytest.raises(HttpError) as refused:
        await post(daemon, job.id, Viewer(os.getuid(), "me", everything=True))

    assert refused.value.status == 409
