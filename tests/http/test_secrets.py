"""Secrets over HTTP, on the fake: names come back, values never do; bounds; strangers see nothing."""

from __future__ import annotations

from tests.support.http.flows import flow
from tests.support.http.served import Served

VALUE = "hunter2-\u00e4-\u4e2d"


@flow(
    "putSecret",
    "listSecrets",
    "removeSecret",
    "injectSecrets",
    "listInjectedSecrets",
    "wipeSecrets",
    "wipeSecret",
)
async def test_values_go_in_and_names_come_back(served: Served) -> None:
    path = await served.sandbox()
    put = await served.client.send("PUT", "/v1/secrets/TOKEN", body={"value": VALUE})
    assert put.status_code == 200, put.text
    assert put.json()["size_bytes"] == len(VALUE.encode())
    again = await served.client.send("PUT", "/v1/secrets/TOKEN", body={"value": VALUE + "2"})
    assert again.json()["created_at"] == put.json()["created_at"]
    answers = [put, again, await served.client.get("/v1/secrets")]
    body = {"names": ["TOKEN"], "values": {"OTHER": VALUE}}
    given = await served.client.send("PUT", f"{path}/secrets", body=body)
    assert given.status_code == 200, given.text
    assert [one["name"] for one in given.json()["secrets"]] == ["OTHER", "TOKEN"]
    said = await served.client.post(f"{path}/exec", {"command": "env"})
    assert f"TOKEN={VALUE}2\n" in said.json()["stdout"]
    assert f"OTHER={VALUE}\n" in said.json()["stdout"]
    assert (await served.client.delete("/v1/secrets/TOKEN")).status_code == 204
    assert (await served.client.delete("/v1/secrets/TOKEN")).status_code == 404
    one = await served.client.delete(f"{path}/secrets/OTHER")
    assert one.json()["wiped"] == ["OTHER"]
    assert (await served.client.delete(f"{path}/secrets/OTHER")).status_code == 404
    rest = await served.client.delete(f"{path}/secrets")
    assert rest.json() == {"wiped": ["TOKEN"], "may_still_hold": []}
    said = await served.client.post(f"{path}/exec", {"command": "env"})
    assert "hunter2" not in said.json()["stdout"]
    answers += [given, one, rest, await served.client.get(f"{path}/secrets")]
    answers.append(await served.client.get(f"{path}/events?follow=false"))
    assert "secrets.wiped" in answers[-1].text
    assert not any("hunter2" in answer.text for answer in answers)


async def test_what_makes_no_sense_is_refused_without_repeating_the_value(served: Served) -> None:
    path = await served.sandbox()
    wrong: list[tuple[str, object]] = [
        ("/v1/secrets/1TOKEN", {"value": "hunter2"}),
        ("/v1/secrets/a-b", {"value": "hunter2"}),
        ("/v1/secrets/TOKEN", {"value": "hunter2\0"}),
        ("/v1/secrets/TOKEN", {"value": "hunter2", "more": "hunter2"}),
        ("/v1/secrets/TOKEN", {"value": ["hunter2"]}),
        ("/v1/secrets/TOKEN", {"value": "hunter2" * 10_000}),
        (f"{path}/secrets", {"values": {"a=b": "hunter2"}}),
        (f"{path}/secrets", {"values": {"A": "hunter2"}, "env": False}),
        (f"{path}/secrets", {"values": {"A": "hunter2"}, "names": ["A"]}),
        (f"{path}/secrets", {}),
    ]
    for where, body in wrong:
        answer = await served.client.send("PUT", where, body=body)
        assert answer.status_code == 422, (where, answer.text)
        assert "hunter2" not in answer.text
    # Two bytes each: short enough as characters, too large as bytes.
    large = await served.client.send("PUT", "/v1/secrets/TOKEN", body={"value": "\u00e4" * 40_000})
    assert large.status_code == 413
    missing = await served.client.send("PUT", f"{path}/secrets", body={"names": ["NO_SUCH"]})
    assert missing.status_code == 404
    assert "PUT /v1/secrets/NO_SUCH" in missing.text
    many = {f"S{i}": "v" * 10_000 for i in range(60)}
    assert (await served.client.send("PUT", f"{path}/secrets", body={"values": many})).status_code == 413
    assert (await served.client.get(f"{path}/secrets")).json() == {"secrets": []}


async def test_strangers_have_secrets_of_their_own(served: Served) -> None:
    path = await served.sandbox()
    await served.client.send("PUT", "/v1/secrets/TOKEN", body={"value": VALUE})
    stranger = await served.stranger()
    assert (await stranger.get("/v1/secrets")).json() == {"secrets": []}
    assert (await stranger.delete("/v1/secrets/TOKEN")).status_code == 404
    for method in ("GET", "DELETE"):
        assert (await stranger.send(method, f"{path}/secrets")).status_code == 404
    body = {"values": {"A": "b"}}
    assert (await stranger.send("PUT", f"{path}/secrets", body=body)).status_code == 404


@flow("getSecret")
async def test_a_secret_is_looked_at_by_its_name_and_its_value_stays_inside(served: Served) -> None:
    await served.client.send("PUT", "/v1/secrets/TOKEN", body={"value": VALUE})
    shown = await served.client.get("/v1/secrets/TOKEN")
    assert (shown.status_code, shown.json()["size_bytes"]) == (200, len(VALUE.encode()))
    assert VALUE not in shown.text
    stranger = await served.stranger()
    assert (await stranger.get("/v1/secrets/TOKEN")).status_code == 404
