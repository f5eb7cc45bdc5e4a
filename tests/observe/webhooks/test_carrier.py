"""One message to receivers of every temper: how it went is said in words, and nothing is raised."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sandboxer.observe.webhooks.carrier import MAX_ANSWER_BYTES, Carrier, Failure
from tests.observe.webhooks.receivers import GOOD, receiver, status

HUGE = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
TEMPERS = {
    "500": (status(500), Failure.STATUS, "answered 500"),
    "404": (status(404), Failure.STATUS, "answered 404"),
    "redirect": (
        status(302, b"location: http://127.0.0.1:1/\r\n"),
        Failure.REDIRECT,
        "redirects are not followed",
    ),
    "garbage": (b"\x00\xff not http at all\r\n\r\n", Failure.BROKEN, "the connection broke"),
    "close": (b"", Failure.BROKEN, "the connection broke"),
    "timeout": (None, Failure.TIMEOUT, "no complete answer within"),
    "cut short": (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhalf", Failure.TIMEOUT, "no complete"),
    "endless headers": (b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 300_000, Failure.BROKEN, "broke"),
    "crumbs": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 3000 + b"0\r\n\r\n",
        Failure.TOO_LARGE,
        "too many pieces",
    ),
    "answers before the answer": (
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + GOOD,
        Failure.TOO_LARGE,
        "too many heads",
    ),
    "too large": (HUGE * 1 + HUGE[47:] * 8, Failure.TOO_LARGE, str(MAX_ANSWER_BYTES)),
}


@pytest.fixture
async def carrier():
    made = Carrier(allow_private=True, timeout_s=0.7)
    yield made
    await made.close()


async def test_what_is_accepted_is_said_so_and_arrives_as_it_was_given(carrier: Carrier) -> None:
    async with receiver() as there:
        outcome = await carrier.carry(there.url, {"webhook-id": "m1"}, b'{"a":1}')
    assert outcome.is_accepted
    assert (there.got[0].target, there.got[0].body) == ("/hook", b'{"a":1}')
    assert there.got[0].headers["webhook-id"] == "m1"


@pytest.mark.parametrize("temper", TEMPERS)
async def test_each_failure_has_its_own_name_and_words(carrier: Carrier, temper: str) -> None:
    answer, failure, words = TEMPERS[temper]
    async with receiver(lambda number: answer) as there:
        outcome = await carrier.carry(there.url, {}, b"{}")
        assert (outcome.failure, len(there.got)) == (failure, 1), outcome
    assert words in outcome.reason


async def test_nobody_there_an_unknown_name_and_plain_text_where_tls_should_be(carrier: Carrier) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refused = await carrier.carry(f"http://127.0.0.1:{free.getsockname()[1]}/", {}, b"")
    assert refused.failure is Failure.REFUSED
    unknown = await carrier.carry("http://no-such-host.invalid/", {}, b"")
    assert unknown.failure is Failure.FORBIDDEN_ADDRESS
    async with receiver(lambda number: GOOD) as there:
        plain = await carrier.carry(there.url.replace("http:", "https:"), {}, b"")
    assert plain.failure in (Failure.TLS, Failure.TIMEOUT), plain


async def test_a_certificate_nobody_vouches_for_is_a_tls_failure(carrier: Carrier, tmp_path: Path) -> None:
    context = self_signed(tmp_path)
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await carrier.carry(f"https://127.0.0.1:{port}/", {}, b"")
    assert outcome.failure is Failure.TLS
    assert "certificate" in outcome.reason


def self_signed(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    none = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context
