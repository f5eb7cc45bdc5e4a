"""Renews what a copy must not share with its origin: machine id, host name, ssh host keys, seeds.

The kept disk was a tenant's: nothing of its names and contents is trusted, no link in it is followed. What is
written, and where nothing may be followed either, is the launcher's business (`acts.c`).
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from sandboxer.backends.launch import DiskBirths
from sandboxer.backends.namespaces.pool import HOSTS, NAMESERVER
from sandboxer.backends.shared import opened, opened_beneath
from sandboxer.kernel.values import value_class

_HOST_KEY = re.compile(r"ssh_host_(rsa|ecdsa|ed25519)_key")
_OF_HOST_KEYS = re.compile(r"ssh_host_[A-Za-z0-9_.-]{1,60}")
_SEEDS = ("var/lib/systemd/random-seed", "var/lib/urandom/random-seed", "var/lib/systemd/credential.secret")
_MACHINE_IDS = ("etc/machine-id", "var/lib/dbus/machine-id")
_MAX_HOSTS_BYTES = 64 * 1024
# Acts that one order of the launcher may hold, less those of every order.
_MAX_HOST_KEYS = 24


@value_class
class Renewal:
    """Lists what is to be renewed. Found once: a kept disk does not change."""

    # Where a machine id is beside the usual place, the tenant's lines of /etc/hosts, names in /etc/ssh.
    machine_ids: tuple[str, ...]
    hosts: str
    host_keys: tuple[str, ...]
    stray_keys: tuple[str, ...]
    seeds: tuple[str, ...]


def look_for(disk: Path) -> Renewal:
    """Finds what is to be renewed in this kept disk. Blocks."""
    with opened(disk / "upper") as upper:
        names = sorted(_listed(upper, "etc/ssh"))[:_MAX_HOST_KEYS]
        keys = tuple(name for name in names if _HOST_KEY.fullmatch(name))
        public = {f"{name}.pub" for name in keys}
        strays = [n for n in names if _OF_HOST_KEYS.fullmatch(n) and n not in keys and n not in public]
        return Renewal(
            machine_ids=tuple(path for path in _MACHINE_IDS if _is_file(upper, path)),
            hosts=_kept_lines(_read(upper, "etc/hosts")),
            host_keys=keys,
            stray_keys=tuple(strays),
            seeds=tuple(path for path in _SEEDS if _is_file(upper, path)),
        )


def name_server_of(disk: Path) -> DiskBirths:
    """Returns what tells programs where to ask for names, unless the disk of a sandbox says that already.
    Blocks.
    """
    with opened(disk / "upper") as upper:
        is_there = _is_file(upper, "etc/resolv.conf")
    return [] if is_there else [("renew", f"{disk}/./upper/etc/resolv.conf", NAMESERVER)]


def births(disk: Path, renewal: Renewal, hostname: str) -> DiskBirths:
    """Returns what the launcher has to do to the copy at `disk`. Makes new keys: call it in a thread."""
    ours, theirs = str(disk), f"{disk}/./upper"
    acts: DiskBirths = [("folder", f"{ours}/upper/etc", None)]
    machine_id = secrets.token_hex(16) + "\n"
    for path in {"etc/machine-id", *renewal.machine_ids}:
        acts.append(("renew", f"{theirs}/{path}", machine_id))
    acts.append(("renew", f"{theirs}/etc/hostname", hostname + "\n"))
    acts.append(("renew", f"{theirs}/etc/hosts", HOSTS.format(hostname=hostname) + renewal.hosts))
    for name in renewal.host_keys:
        private, public = _new_host_key(name, hostname)
        acts.append(("renew_private", f"{theirs}/etc/ssh/{name}", private))
        acts.append(("renew", f"{theirs}/etc/ssh/{name}.pub", public))
    acts += [("forget", f"{theirs}/etc/ssh/{name}", None) for name in renewal.stray_keys]
    acts += [("forget", f"{theirs}/{path}", None) for path in renewal.seeds]
    return acts


def _new_host_key(name: str, hostname: str) -> tuple[str, str]:
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    if "rsa" in name:
        key = rsa.generate_private_key(public_exponent=65537, key_size=3072)
    elif "ecdsa" in name:
        key = ec.generate_private_key(ec.SECP256R1())
    else:
        key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return private, f"{public} root@{hostname}\n"


def _kept_lines(hosts: bytes) -> str:
    """Returns the tenant's own lines; those that every sandbox has are written anew."""
    text = hosts.decode("utf-8", "replace").replace("\0", "")
    lines = [line for line in text.splitlines() if line.split()[:1] not in ([], ["127.0.1.1"])]
    usual = {line for line in HOSTS.splitlines() if "{" not in line}
    return "".join(f"{line}\n" for line in lines if line not in usual)


def _listed(root: int, path: str) -> list[str]:
    with opened_beneath(root, os.fsencode(path)) as fd:
        return [] if fd is None else os.listdir(fd)


def _is_file(root: int, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    with opened_beneath(root, os.fsencode(folder)) as fd:
        if fd is None:
            return False
        try:
            return stat.S_ISREG(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
        except OSError:
            return False


def _read(root: int, path: str) -> bytes:
    if not _is_file(root, path):
        return b""
    folder, _, name = path.rpartition("/")
    with opened_beneath(root, os.fsencode(folder)) as fd:
        if fd is None:
            return b""
        with opened(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd) as file:
            return os.read(file, _MAX_HOSTS_BYTES)
