"""Programs that ask to act for an account: who is shown what, and who may allow it."""

from __future__ import annotations

from tests.support.http.accounts import cut
from tests.support.http.flows import flow
from tests.support.http.oauth import BACK, asked_for
from tests.support.http.served import Served


@flow("showClientRequest", "allowClient", "refuseClient")
async def test_a_program_is_shown_and_allowed_once(served: Served) -> None:
    team = await served.stranger("team")
    code = await asked_for(team.http, "A host")
    shown = (await team.get(f"/v1/keys/requests/{code}")).json()
    assert (shown["client_name"], shown["answered_at"]) == ("A host", BACK)
    assert "exec" in shown["scopes"]
    allowed = await team.post(f"/v1/keys/requests/{code}/allow", {"slots": 1})
    assert allowed.status_code == 200, allowed.text
    assert (await team.post(f"/v1/keys/requests/{code}/allow", {})).status_code == 404
    other = await asked_for(team.http)
    assert (await team.delete(f"/v1/keys/requests/{other}")).status_code == 204
    assert (await team.get(f"/v1/keys/requests/{other}")).status_code == 404


async def test_a_code_that_nobody_was_shown_is_not_there(served: Served) -> None:
    assert (await served.client.get("/v1/keys/requests/BCDF-GHJK")).status_code == 404
    assert (await served.client.get("/v1/keys/requests/bcdf-ghjk")).status_code == 422


async def test_a_key_that_may_not_delegate_may_not_allow(served: Served) -> None:
    team = await served.stranger("team")
    code = await asked_for(team.http)
    child = await cut(served, team, scopes=["exec"])
    assert (await child.post(f"/v1/keys/requests/{code}/allow", {})).status_code == 403
    assert (await team.get(f"/v1/keys/requests/{code}")).status_code == 200
