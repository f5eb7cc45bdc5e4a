"""SSH keys over HTTP: added, listed, revoked; what is no public key is refused."""

from __future__ import annotations

import base64
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from sandboxer.access.ssh import Gateway
from sandboxer.edges.ssh.dependencies import Bounds, Crowd
from tests.support.http.flows import flow
from tests.support.http.served import Served


def line(key: object) -> str:
    text: bytes = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)  # type: ignore[attr-defined]
    return text.decode()


@flow("addSshKey", "listSshKeys", "revokeSshKey", "getSshGateway")
async def test_a_key_is_added_listed_and_revoked(served: Served) -> None:
    sandbox_id = (await served.sandbox()).rsplit("/", 1)[1]
    public = line(ed25519.Ed25519PrivateKey.generate())
    body = {"public_key": f"{public} me@laptop", "sandbox_id": sandbox_id, "ttl": "1h"}
    made = await served.client.post("/v1/ssh-keys", body)
    assert made.status_code == 201, made.text
    key = made.json()
    assert (key["name"], key["public_key"], key["sandbox_id"]) == ("me@laptop", public, sandbox_id)
    assert key["fingerprint"].startswith("SHA256:")
    assert (await served.client.post("/v1/ssh-keys", body)).status_code == 409
    curve = line(ec.generate_private_key(ec.SECP256R1()))
    wide = await served.client.post("/v1/ssh-keys", {"public_key": curve, "name": "all"})
    assert wide.json()["expires_at"] is None
    listed = (await served.client.get("/v1/ssh-keys")).json()["ssh_keys"]
    assert [one["id"] for one in listed] == [wide.json()["id"], key["id"]]
    stranger = await served.stranger()
    assert (await stranger.get("/v1/ssh-keys")).json() == {"ssh_keys": []}
    assert (await stranger.delete(f"/v1/ssh-keys/{key['id']}")).status_code == 404
    assert (await stranger.post("/v1/ssh-keys", body)).status_code == 404
    assert (await served.client.delete(f"/v1/ssh-keys/{key['id']}")).status_code == 204
    assert (await served.client.delete(f"/v1/ssh-keys/{key['id']}")).status_code == 404
    assert (await served.client.get("/v1/ssh")).status_code == 422
    served.platform.access.ssh.gateway = Gateway("127.0.0.1", 2222, public, key["fingerprint"])
    assert (await served.client.get("/v1/ssh")).json()["port"] == 2222


async def test_what_is_no_public_key_is_refused_and_a_private_one_is_not_repeated(served: Served) -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    good = line(private)
    other = base64.b64encode(b"\0\0\0\x07ssh-rsa" + bytes(40)).decode()
    wrong = [
        pem,
        "",
        "hello",
        good.split()[1],
        f"{good}\n{good}",
        f'command="sh" {good}',
        f"ssh-ed25519 {other}",
        good[:-6],
        good + "A",
        line(rsa.generate_private_key(65537, 1024)),
        line(dsa.generate_private_key(1024)),
        "ssh-ed25519 " + "A" * 20_000,
    ]
    for text in wrong:
        answer = await served.client.post("/v1/ssh-keys", {"public_key": text})
        assert answer.status_code == 422, text
        assert pem[60:100] not in answer.text
    assert (await served.client.post("/v1/ssh-keys", {"public_key": good, "ttl": "9999d"})).status_code == 422


def test_a_crowd_is_counted_and_forgotten() -> None:
    crowd = Crowd(replace(Bounds(), unknown=3, unknown_per_address=2, per_sandbox=1, refusals_per_minute=2))
    for address in ("a", "a", "b"):
        assert crowd.may_knock(address, 0.0)
        crowd.knocked(address)
    assert not crowd.may_knock("a", 0.0)
    assert not crowd.may_knock("c", 0.0)
    assert crowd.may_enter("s", "acc")
    crowd.entered("a", "s", "acc")
    assert not crowd.may_enter("s", "acc")
    assert crowd.may_knock("c", 0.0)
    crowd.left("a", ("s", "acc"))
    crowd.left("a", None)
    crowd.left("b", None)
    assert [crowd.unknown.total(), crowd.addresses.total(), crowd.sandboxes.total()] == [0, 0, 0]
    for moment in (0.0, 1.0):
        assert crowd.may_knock("a", moment)
        crowd.refused("a", moment)
    assert not crowd.may_knock("a", 30.0)
    assert crowd.may_knock("a", 61.5)
    crowd.sweep(200.0)
    assert crowd.refusals == {}
