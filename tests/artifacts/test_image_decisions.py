"""What is found, left out, shared and collected: decided without a platform."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.artifacts.garbage import Kept, Tier, collectable
from sandboxer.artifacts.images.published.records import PublishedImage, Visibility
from sandboxer.artifacts.images.published.scan import Finding, Scan, is_stripped, kinds_in
from sandboxer.artifacts.policy import is_visible, refuse_findings
from sandboxer.artifacts.reconciler import SPARED
from sandboxer.artifacts.records import OVER, State
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict
from tests.support.archives import IMAGE, NOW


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn", "private_key"),
        (b"-----BEGIN RSA PRIVATE KEY-----\nMIIE", "private_key"),
        (b"key = AKIA" + b"IOSFODNN7EXAMPLQ", "aws_key"),
        (b"x ghp_" + b"a1B2" * 9, "github_token"),
        (b"xoxb-" + b"123456789012-abcdefghijkl", "slack_token"),
        (b"OPENAI=sk-proj-" + b"Ab1_" * 10, "api_key"),
        (b"postgres://app:s3cr3tpass@db.internal/x", "url_password"),
        (b"amqp://worker:correct-horse@10.0.0.7:5672/", "url_password"),
        (b"DATABASE_URL=mysql://root:password123@mysql/", "url_password"),
        (b"https://user:pa%24%24w0rd!(x)@git.corp.io/a.git", "url_password"),
        (b"redis://user:Xk^9d|2&q@cache-1.internal", "url_password"),
        # One of each: what is an example hides nothing beside it.
        (b"http://me:password@host.io then postgres://app:s3cr3tpass@db.internal", "url_password"),
        (b"postgres://app:s3cr3tpass@example.com.corp.io/x", "url_password"),
        (b"API_TOKEN = 'Zk9" + b"fQ27xLp0aVt83RmWc'", "high_entropy"),
    ],
)
def test_what_looks_like_a_secret_is_found(content: bytes, kind: str) -> None:
    assert kind in kinds_in(b"first line\n" + content + b"\nlast\n")


@pytest.mark.parametrize(
    "content",
    [
        b"-----BEGIN CERTIFICATE-----\nMIIE",
        b"if b'-----BEGIN RSA PRIVATE KEY-----' in text:",
        b"password = getpass.getpass()",
        b"token_secret = settings.token_secret.value_of_all",
        b"https://example.com/a:b@c",
        b"$http->get('http://john%40example.com:password@example.com');",
        b"ftp://username:password@ftp.host.org/",
        b"postgresql://scott:tiger-tiger@db.example.org:5432/",
        b"https://alice:YOUR_PASSWORD@host.io, https://alice:your-token-here@host.io",
        b"https://alice:<password>@host.io https://alice:${PASSWORD}@host.io https://alice:$PASS_WORD@host.io",
        b"https://alice:{password}@host.io https://alice:%(password)s@host.io https://a:[password]@host.io",
        b"https://alice:xxxxxxxx@host.io https://alice:********@host.io",
        rb"re.compile('http://[^:]+:([^@:]+)@host.io'), 'https://\w+:\S+aaaa@host.io'",
        b"config.PrivateKey = testEd25519PrivateKey, PrivateKey: MarshalPKCS1PrivateKey(x)",
        b"secret_name: my-very-long-name-of-a-secret",
    ],
)
def test_what_only_talks_of_secrets_is_not(content: bytes) -> None:
    assert kinds_in(content) == set()


def test_a_secret_over_the_seam_of_two_pieces_is_found_and_its_value_never_told() -> None:
    scan = Scan(b"app/config.py")
    secret = b"ghp_" + b"a1B2" * 9
    scan.feed(b"# " + b"." * 5000 + secret[:10])
    scan.feed(secret[10:])
    scan.finish()
    assert scan.findings == [Finding("/app/config.py", "github_token")]
    assert secret.decode() not in repr(scan.findings)


@pytest.mark.parametrize("path", ["app/.env", "app/.env.production", "root/id_rsa", "x/wallet.dat"])
def test_places_of_secrets_are_found_by_name(path: str) -> None:
    scan = Scan(path.encode())
    scan.feed(b"something")
    scan.finish()
    assert scan.findings
    assert not is_stripped(b"app/.env.example")


@pytest.mark.parametrize(
    "path",
    [
        "etc/machine-id",
        "usr/local/share/ca-certificates/sandboxer-egress.crt",
        "etc/ssl/certs/sandboxer-egress.pem",
        "etc/sandboxer/egress/ca-bundle.pem",
        "etc/apt/apt.conf.d/95sandboxer-egress",
        "etc/ssh/ssh_host_rsa_key",
        "root/.ssh/authorized_keys",
        "home/a/.bash_history",
        "root/.aws/credentials",
        "run/secrets/token",
        "home/a/.docker/config.json",
        "root/.gnupg/x/y",
    ],
)
def test_credentials_and_what_tells_machines_apart_are_left_out(path: str) -> None:
    assert is_stripped(path.encode())
    assert not is_stripped(b"opt/" + path.rpartition("/")[2].lstrip(".").encode() + b".txt")


def test_findings_are_refused_by_path_and_kind() -> None:
    refuse_findings(IMAGE)
    found = replace(IMAGE, findings=(Finding("/a", "aws_key"),), findings_count=3)
    with pytest.raises(Conflict) as refused:
        refuse_findings(found)
    assert refused.value.facts["findings"] == [{"path": "/a", "kind": "aws_key"}]


def test_who_sees_what() -> None:
    def caller(account: str) -> Caller:
        return Caller(public_key="k", account=account, is_owner=False)

    for visibility, seen in (
        (Visibility.PRIVATE, False),
        (Visibility.UNLISTED, True),
        (Visibility.PUBLIC, True),
    ):
        image = replace(IMAGE, visibility=visibility)
        assert is_visible(image, caller("bob"), []) is seen
        assert is_visible(image, caller("bob"), ["bob"])
        assert is_visible(image, caller("alice"), [])
    assert is_visible(replace(IMAGE, offered_to="bob"), caller("bob"), [])


@st.composite
def images(draw: st.DrawFn) -> PublishedImage:
    late = draw(st.booleans())
    return replace(
        IMAGE,
        id="img_" + draw(st.sampled_from("abcdefgh")),
        account=draw(st.sampled_from(["alice", "bob"])),
        state=draw(st.sampled_from(State)),
        reason=draw(st.sampled_from(["published", SPARED])),
        base=draw(st.sampled_from(["base@1", "base@2"])),
        expires_at=draw(
            st.sampled_from([None, NOW - timedelta(hours=1) if late else NOW + timedelta(hours=1)])
        ),
        locked_at=draw(st.sampled_from([None, NOW])),
    )


@given(
    known=st.lists(images(), max_size=8, unique_by=lambda one: one.id),
    disks=st.frozensets(st.sampled_from([f"img_{c}" for c in "abcdefghxyz"])),
    in_use=st.frozensets(st.sampled_from([f"img_{c}" for c in "abcdefghxyz"])),
    lies_over=st.dictionaries(st.sampled_from(["sbx_1", "snp_1"]), st.sampled_from(["base@1", "base@3"])),
    ended=st.sampled_from([[], ["bob"]]),
)
def test_nothing_that_something_needs_is_ever_collected(
    known: list[PublishedImage],
    disks: frozenset[str],
    in_use: frozenset[str],
    lies_over: dict[str, str],
    ended: list[str],
) -> None:
    trees = frozenset({"base@1", "base@2", "base@3"})
    kept = Kept(disks=disks, in_use=in_use, trees=trees, lies_over=lies_over)
    found = collectable(kept, known, ended_accounts=ended, now=NOW)
    by_id = {one.id: one for one in known}
    for name, tier in found.items():
        assert name not in in_use
        if tier is Tier.BASE:
            assert name not in lies_over.values()
            assert all(one.base != name for one in known if one.state not in OVER)
            continue
        image = by_id.get(name)
        if image is None:
            assert tier is Tier.LEFTOVER
            continue
        # Paid for or still in its retention time, and its account goes on: it stays.
        if image.state is State.KEPT:
            assert image.account in ended
        if image.state is State.TAKING:
            pytest.fail("what is being made was collected")
        if image.state is State.UNPAID and image.account not in ended:
            assert image.expires_at is not None
            assert image.expires_at <= NOW
            assert image.locked_at is None or image.reason == SPARED
    # And what nobody needs does not stay for ever.
    for disk in disks - by_id.keys() - in_use:
        assert found[disk] is Tier.LEFTOVER
