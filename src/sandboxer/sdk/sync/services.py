# Written by scripts/generate-sync from sdk/aio/services.py. Do not edit.
"""`client.services`: processes with a name that are kept running, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from sandboxer.sdk.bodies import FilesIn, VolumesIn, files_in
from sandboxer.sdk.call import new_idempotency_key, parse
from sandboxer.sdk.calls import services as calls
from sandboxer.sdk.sync.line import Noun, items, server_events
from sandboxer.wire import services as wire


class Services(Noun):
    """A service is a process with a name that is kept running; its id or its name finds it."""

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
        network: str | None = None,
        snapshot: str | None = None,
        volumes: VolumesIn | None = None,
        resources: Mapping[str, float] | None = None,
        inspect: Literal["refuse", "warn", "no"] | None = None,
        wait: bool = True,
        idempotency_key: str | None = None,
    ) -> wire.Service:
        """Starts `bootstrap` (a script) or `command` (for a shell), which listens on $PORT, or on `port`.

        With `inspect="refuse"` a public one is not opened where everyone inside may read secrets.

        Examples:
            >>> service = client.services.create("web", command="python3 -m http.server $PORT")
            >>> print(service.url)
        """
        return self._line.send(
            calls.create_service(
                name=name,
                bootstrap=bootstrap,
                command=command,
                files=files_in(files),
                env=env,
                secrets=secrets,
                port=port,
                health=health,
                restart=restart,
                idle_s=idle_s,
                wake=wake,
                public=public,
                profile=profile,
                image=image,
                network=network,
                snapshot=snapshot,
                volumes=volumes,
                resources=resources,
                inspect=inspect,
                wait=None if wait else False,
                idempotency_key=idempotency_key or new_idempotency_key(),
            )
        )

    def list(self, *, state: str | None = None, limit: int | None = None) -> Iterator[wire.Service]:
        """Yields all of them, newest first, page by page; `limit` is the size of a page."""
        return items(
            self._line,
            lambda cursor: calls.list_services(state=state, cursor=cursor, limit=limit),
            lambda page: page.services,
        )

    def get(self, service: str) -> wire.Service:
        """Returns one service."""
        return self._line.send(calls.get_service(service))

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
        inspect: Literal["refuse", "warn", "no"] | None = None,
    ) -> wire.Service:
        """Changes it; what is left out stays. A change of `env` or `port` makes a new process."""
        return self._line.send(
            calls.change_service(
                service,
                env=env,
                port=port,
                health=health,
                restart=restart,
                idle_s=idle_s,
                wake=wake,
                public=public,
                vcpus=vcpus,
                inspect=inspect,
            )
        )

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
        """Replaces the process; the old one goes on until the new one is healthy, or an error says why."""
        return self._line.send(
            calls.redeploy_service(
                service,
                bootstrap=bootstrap,
                command=command,
                files=files_in(files),
                env=env,
                wait=None if wait else False,
            )
        )

    def freeze(self, service: str) -> wire.Service:
        """Pauses its processes in memory."""
        return self._line.send(calls.freeze_service(service))

    def thaw(self, service: str) -> wire.Service:
        """Lets a frozen service go on."""
        return self._line.send(calls.thaw_service(service))

    def stop(self, service: str) -> wire.Service:
        """Ends its process and keeps its disk."""
        return self._line.send(calls.stop_service(service))

    def start(self, service: str) -> wire.Service:
        """Starts a stopped service again."""
        return self._line.send(calls.start_service(service))

    def lock(self, service: str) -> wire.Service:
        """Makes removing and unlocking it need a second proof (`confirm`)."""
        return self._line.send(calls.lock_service(service))

    def unlock(self, service: str) -> wire.Service:
        """Ends the lock; this itself needs a second proof (`confirm`)."""
        return self._line.send(calls.unlock_service(service))

    def remove(self, service: str) -> wire.Service:
        """Removes it with its sandbox, its disk and its log."""
        return self._line.send(calls.remove_service(service))

    def logs(self, service: str, *, tail: int = 100, after: int | None = None) -> Sequence[wire.LogLine]:
        """Returns the last lines of its output, or those after line `after`."""
        return self._line.send(calls.read_service_logs(service, tail=tail, after=after)).lines

    def follow(self, service: str, *, tail: int = 100, after: int | None = None) -> Iterator[wire.LogLine]:
        """Yields the last lines, then each as it comes; ends when the service is removed."""
        call = calls.read_service_logs(service, tail=tail, after=after, follow=True)
        for event in server_events(self._line, call.streamed()):
            yield parse(wire.LogLine, event.data)

    def vault(self, service: str) -> wire.Vault:
        """Lists names only: values never come out."""
        return self._line.send(calls.get_service_vault(service))

    def set_vault(self, service: str, secrets: Mapping[str, str]) -> wire.Vault:
        """Replaces all of it; the next process has it."""
        return self._line.send(calls.set_service_vault(service, secrets=secrets))

    def change_vault(self, service: str, secrets: Mapping[str, str | None]) -> wire.Vault:
        """Changes single names; None takes one out."""
        return self._line.send(calls.change_service_vault(service, secrets=secrets))

    def wipe_vault(self, service: str) -> wire.Vault:
        """Takes all of it out; the next process has none."""
        return self._line.send(calls.wipe_service_vault(service))

    def domains(self, service: str) -> Sequence[wire.Domain]:
        """Returns the domains that were claimed for it."""
        return self._line.send(calls.list_service_domains(service)).domains

    def claim_domain(self, service: str, domain: str) -> wire.Domain:
        """Says what the domain must serve, and where, to prove that it is yours."""
        return self._line.send(calls.claim_service_domain(service, domain=domain))

    def verify_domain(self, service: str, domain: str) -> wire.Domain:
        """Looks whether the domain serves what `claim_domain` asked for."""
        return self._line.send(calls.verify_service_domain(service, domain))

    def remove_domain(self, service: str, domain: str) -> None:
        """Takes a domain away from it."""
        self._line.send(calls.remove_service_domain(service, domain))
