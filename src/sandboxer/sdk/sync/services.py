"""`client.services`: processes with a name that are kept running, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sandboxer.sdk.routes import services as routes
from sandboxer.sdk.routes.sandboxes import VolumesIn, volumes_in
from sandboxer.sdk.routes.services import FilesIn
from sandboxer.sdk.sync.line import Line
from sandboxer.sdk.sync.streams import server_events
from sandboxer.wire import services as wire


class Services:
    """A service is named by its id, or by its name in the account."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def create(
        self,
        name: str,
        *,
        bootstrap: str | None = None,
        command: str | None = None,
        files: FilesIn | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        port: int | None = None,
        health: Mapping[str, Any] | None = None,
        restart: Mapping[str, Any] | None = None,
        idle_s: float | None = None,
        wake: bool | None = None,
        public: bool | None = None,
        profile: str | None = None,
        image: str | None = None,
        snapshot: str | None = None,
        volumes: VolumesIn | None = None,
        resources: Mapping[str, float] | None = None,
        wait: bool = True,
        idempotency_key: str | None = None,
    ) -> wire.Service:
        """`bootstrap` (a script) or `command` (for a shell); it listens on $PORT unless `port` is given."""
        wanted: dict[str, Any] = {"name": name, "bootstrap": bootstrap, "command": command}
        wanted |= {"files": routes.files_in(files), "env": env, "secrets": secrets, "port": port}
        wanted |= {"health": health, "restart": restart, "idle_s": idle_s, "wake": wake, "public": public}
        wanted |= {"profile": profile, "image": image, "snapshot": snapshot, "resources": resources}
        wanted |= {"volumes": volumes_in(volumes)}
        return self._line.do(routes.create(wanted, wait=wait, idempotency_key=idempotency_key))

    def list(self, *, state: str | None = None, limit: int | None = None) -> Iterator[wire.Service]:
        """All of them, newest first, page by page; `limit` is the size of a page."""
        cursor: str | None = None
        while True:
            page = self._line.do(routes.page(state=state, cursor=cursor, limit=limit))
            yield from page.services
            cursor = page.next_cursor
            if cursor is None:
                return

    def get(self, service: str) -> wire.Service:
        return self._line.do(routes.get(service))

    def change(
        self,
        service: str,
        *,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        health: Mapping[str, Any] | None = None,
        restart: Mapping[str, Any] | None = None,
        idle_s: float | None = None,
        wake: bool | None = None,
        public: bool | None = None,
        vcpus: int | None = None,
    ) -> wire.Service:
        """What is left out stays; a change of `env` or `port` makes a new process."""
        changes: dict[str, Any] = {"env": env, "port": port, "health": health, "restart": restart}
        changes |= {"idle_s": idle_s, "wake": wake, "public": public, "vcpus": vcpus}
        return self._line.do(routes.change(service, changes))

    def redeploy(
        self,
        service: str,
        *,
        bootstrap: str | None = None,
        command: str | None = None,
        files: FilesIn | None = None,
        env: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> wire.Service:
        """The old process goes on until the new one is well; an error says why that never was."""
        wanted: dict[str, Any] = {"bootstrap": bootstrap, "command": command, "env": env}
        wanted |= {"files": routes.files_in(files)}
        return self._line.do(routes.redeploy(service, wanted, wait=wait))

    def freeze(self, service: str) -> wire.Service:
        return self._line.do(routes.act(service, "freeze"))

    def thaw(self, service: str) -> wire.Service:
        return self._line.do(routes.act(service, "thaw"))

    def stop(self, service: str) -> wire.Service:
        return self._line.do(routes.act(service, "stop"))

    def start(self, service: str) -> wire.Service:
        return self._line.do(routes.act(service, "start"))

    def lock(self, service: str) -> wire.Service:
        """From now on removing and unlocking it need a second proof (`confirm`)."""
        return self._line.do(routes.act(service, "lock"))

    def unlock(self, service: str) -> wire.Service:
        return self._line.do(routes.act(service, "unlock"))

    def remove(self, service: str) -> wire.Service:
        """With its sandbox, its disk and its log."""
        return self._line.do(routes.remove(service))

    def logs(self, service: str, *, tail: int = 100, after: int | None = None) -> Sequence[wire.LogLine]:
        return self._line.do(routes.logs(service, tail=tail, after=after)).lines

    def follow(self, service: str, *, tail: int = 100, after: int | None = None) -> Iterator[wire.LogLine]:
        """The last lines, then each as it comes; ends when the service is removed."""
        for event in server_events(self._line, routes.follow(service, tail=tail, after=after)):
            yield routes.line(event)

    def vault(self, service: str) -> wire.Vault:
        """Names only: values never come out."""
        return self._line.do(routes.vault(service))

    def set_vault(self, service: str, secrets: Mapping[str, str]) -> wire.Vault:
        """All there shall be; the next process has it."""
        return self._line.do(routes.change_vault(service, secrets, replacing=True))

    def change_vault(self, service: str, secrets: Mapping[str, str | None]) -> wire.Vault:
        """Single names; None takes one out."""
        return self._line.do(routes.change_vault(service, secrets, replacing=False))

    def domains(self, service: str) -> Sequence[wire.Domain]:
        return self._line.do(routes.domains(service)).domains

    def claim_domain(self, service: str, domain: str) -> wire.Domain:
        """Says what the domain must serve, and where, to prove that it is yours."""
        return self._line.do(routes.claim_domain(service, domain))

    def verify_domain(self, service: str, domain: str) -> wire.Domain:
        return self._line.do(routes.verify_domain(service, domain))

    def remove_domain(self, service: str, domain: str) -> None:
        self._line.do(routes.remove_domain(service, domain))
