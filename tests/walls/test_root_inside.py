"""Root inside is useful: packages, users, owners and renames work as on a machine of one's own."""

from __future__ import annotations

import pytest

from tests.support.walls import Maker, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")

BUILD_PACKAGE = """
set -e
mkdir -p /tmp/pkg/DEBIAN /tmp/pkg/usr/share/walls /tmp/pkg/etc
cat > /tmp/pkg/DEBIAN/control <<END
Package: walls-probe
Version: 1
Architecture: all
Maintainer: m <m@example.org>
Description: probe
END
printf '#!/bin/sh\\nuseradd -r walls-user\\n' > /tmp/pkg/DEBIAN/postinst
chmod 755 /tmp/pkg/DEBIAN/postinst
echo hello > /tmp/pkg/usr/share/walls/file
chown -R 7:8 /tmp/pkg/usr/share/walls
dpkg-deb --build /tmp/pkg /tmp/walls-probe.deb >/dev/null
"""


async def test_owners_can_be_changed(attacker: Sandbox) -> None:
    ran = await attacker.sh(
        "touch /root/o && chown 33:44 /root/o && chmod 4750 /root/o && stat -c '%u %g %a' /root/o"
    )
    assert ran.stdout == "33 44 4750\n"


async def test_a_package_installs_with_dpkg(make: Maker) -> None:
    box = await make()
    ran = await box.sh(
        BUILD_PACKAGE + "dpkg -i /tmp/walls-probe.deb && cat /usr/share/walls/file && id walls-user"
    )
    assert ran.code == 0, ran.stderr
    assert "hello" in ran.stdout


async def test_a_package_installs_with_apt_as_its_own_download_user(make: Maker) -> None:
    box = await make()
    script = BUILD_PACKAGE + "chmod 644 /tmp/walls-probe.deb; apt-get install -y /tmp/walls-probe.deb"
    ran = await box.sh(script + " && cat /usr/share/walls/file", timeout_s=60)
    assert ran.code == 0, ran.stderr
    assert ran.stdout.endswith("hello\n")


async def test_users_can_be_made_and_become(make: Maker) -> None:
    box = await make()
    ran = await box.sh(
        "useradd -m -s /bin/sh someone && su someone -c 'id -un; touch ~/mine; stat -c %U ~/mine'"
    )
    assert ran.stdout == "someone\nsomeone\n", ran.stderr


async def test_tar_keeps_owners(make: Maker) -> None:
    box = await make()
    script = (
        "cd /tmp && mkdir t && touch t/f && chown 12:34 t/f && tar cf t.tar t && rm -r t && tar xpf t.tar"
    )
    assert (await box.sh(script + " && stat -c '%u %g' t/f")).stdout == "12 34\n"


async def test_a_folder_of_the_image_can_be_renamed(make: Maker) -> None:
    box = await make()
    ran = await box.python(
        "import os; os.rename('/usr/share/doc', '/usr/share/x'); print(os.path.isdir('/usr/share/x'))"
    )
    assert ran.stdout == "True\n", ran.stderr


async def test_files_of_other_users_of_the_image_can_be_changed(make: Maker) -> None:
    """The overlay copies them up with the sandbox's own credentials."""
    box = await make()
    script = "chown 5:5 /etc/hostname && chmod 600 /etc/debian_version && echo x >> /etc/debian_version"
    script += " && rm /etc/issue && echo ok"
    assert (await box.sh(script)).stdout == "ok\n"


async def test_unprivileged_users_inside_meet_ordinary_permissions(attacker: Sandbox) -> None:
    ran = await attacker.sh("cat /etc/shadow || echo denied; id -u", user="nobody")
    assert ran.stdout == "denied\n65534\n"


async def test_sudo_serves_scripts_that_expect_it(attacker: Sandbox) -> None:
    if (await attacker.sh("command -v sudo")).code:
        pytest.skip("this image has no sudo shim")
    assert (await attacker.sh("sudo id -u")).stdout == "0\n"


async def test_terminals_work(attacker: Sandbox) -> None:
    program = (
        "import os, pty; m, s = pty.openpty(); print(os.ttyname(s)); print(os.stat(os.ttyname(s)).st_gid)"
    )
    assert (await attacker.python(program)).stdout.startswith("/dev/pts/")


async def test_shared_memory_and_semaphores_work(attacker: Sandbox) -> None:
    program = """
from multiprocessing import Lock, shared_memory
Lock()
shared_memory.SharedMemory(create=True, size=1024).unlink()
print("ok")
"""
    assert (await attacker.python(program)).stdout == "ok\n"
