"""`client.services`: processes with a name that are kept running, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sandboxer.sdk.aio.line import AsyncLine, pages, server_events
from sandboxer.sdk.bodies import FilesIn, VolumesIn, files_in
from sandboxer.sdk.call import new_idempotency_key, parse
from sandboxer.sdk.calls import services as calls
from sandboxer.wire import services as wire


class AsyncServices:
    """A service is named by its id, or by its name in the account."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def create(
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
        call = calls.create_service(
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
            snapshot=snapshot,
            volumes=volumes,
            resources=resources,
            wait=None if wait else False,
            idempotency_key=idempotency_key or new_idempotency_key(),
        )
        return await self._line.send(call)

    async def list(
        self, *, state: str | None = None, limit: int | None = None
    ) -> AsyncIterator[wire.Service]:
        """Yields all of them, newest first, page by page; `limit` is the size of a page."""
        async for page in pages(
            self._line, lambda cursor: calls.list_services(state=state, cursor=cursor, limit=limit)
        ):
            for found in page.services:
                yield found

    async def get(self, service: str) -> wire.Service:
        return await self._line.send(calls.get_service(service))

    async def change(
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
        call = calls.change_service(
            service,
            env=env,
            port=port,
            health=health,
            restart=restart,
            idle_s=idle_s,
            wake=wake,
            public=public,
            vcpus=vcpus,
        )
        return await self._line.send(call)

    async def redeploy(
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
        call = calls.redeploy_service(
            service,
            bootstrap=bootstrap,
            command=command,
            files=files_in(files),
            env=env,
            wait=None if wait else False,
        )
        return await self._line.send(call)

    async def freeze(self, service: str) -> wire.Service:
        return await self._line.send(calls.freeze_service(service))

    async def thaw(self, service: str) -> wire.Service:
        return await self._line.send(calls.thaw_service(service))

    async def stop(self, service: str) -> wire.Service:
        return await self._line.send(calls.stop_service(service))

    async def start(self, service: str) -> wire.Service:
        return await self._line.send(calls.start_service(service))

    async def lock(self, service: str) -> wire.Service:
        """From now on removing and unlocking it need a second proof (`confirm`)."""
        return await self._line.send(calls.lock_service(service))

    async def unlock(self, service: str) -> wire.Service:
        return await self._line.send(calls.unlock_service(service))

    async def remove(self, service: str) -> wire.Service:
        """Removes it with its sandbox, its disk and its log."""
        return await self._line.send(calls.remove_service(service))

    async def logs(
        self, service: str, *, tail: int = 100, after: int | None = None
    ) -> Sequence[wire.LogLine]:
        return (await self._line.send(calls.read_service_logs(service, tail=tail, after=after))).lines

    async def follow(
        self, service: str, *, tail: int = 100, after: int | None = None
    ) -> AsyncIterator[wire.LogLine]:
        """Yields the last lines, then each as it comes; ends when the service is removed."""
        call = calls.read_service_logs(service, tail=tail, after=after, follow=True)
        async for event in server_events(self._line, call.streamed()):
            yield parse(wire.LogLine, event.data)

    async def vault(self, service: str) -> wire.Vault:
        """Lists names only: values never come out."""
        return await self._line.send(calls.get_service_vault(service))

    async def set_vault(self, service: str, secrets: Mapping[str, str]) -> wire.Vault:
        """Replaces all of it; the next process has it."""
        return await self._line.send(calls.set_service_vault(service, secrets=secrets))

    async def change_vault(self, service: str, secrets: Mapping[str, str | None]) -> wire.Vault:
        """Single names; None takes one out."""
        return await self._line.send(calls.change_service_vault(service, secrets=secrets))

    async def wipe_vault(self, service: str) -> wire.Vault:
        """Take all of it out; the next process has none."""
        return await self._line.send(calls.wipe_service_vault(service))

    async def domains(self, service: str) -> Sequence[wire.Domain]:
        return (await self._line.send(calls.list_service_domains(service))).domains

    async def claim_domain(self, service: str, domain: str) -> wire.Domain:
        """Says what the domain must serve, and where, to prove that it is yours."""
        return await self._line.send(calls.claim_service_domain(service, domain=domain))

    async def verify_domain(self, service: str, domain: str) -> wire.Domain:
        return await self._line.send(calls.verify_service_domain(service, domain))

    async def remove_domain(self, service: str, domain: str) -> None:
        await self._line.send(calls.remove_service_domain(service, domain))
