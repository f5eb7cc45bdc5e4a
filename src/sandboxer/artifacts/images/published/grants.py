"""Sharing of images: what their owner changes, grants and revokes, and how an image is handed to another
account.

An image changes hands only if the other side accepts it: keeping an image costs, and nobody may be made to
pay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sandboxer.accounts import records as accounts
from sandboxer.artifacts.images.published import policy as rules
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.records import PublishedImage, Visibility
from sandboxer.artifacts.images.published.repository import Step
from sandboxer.artifacts.images.published.use_cases import ImageUseCases
from sandboxer.artifacts.policy import check_room
from sandboxer.artifacts.snapshots.lifecycle import USABLE, Signal, State
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, Forbidden, IllegalTransition, InvalidRequest
from sandboxer.sandboxes.dependencies import actor_of

MOST_GRANTS = 1000
Check = Callable[[PublishedImage], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSharing:
    use_cases: ImageUseCases

    async def change(
        self,
        image_id: str,
        caller: Caller,
        *,
        name: str | None = None,
        description: str | None = None,
        visibility: Visibility | None = None,
    ) -> PublishedImage:
        """Changes settings; a field that is None stays as it is. Refused, with what was found, if others
        would see what looks like a secret.
        """
        await self._own(image_id, caller)
        given = {"name": name, "description": description, "visibility": visibility}
        changes = {key: value for key, value in given.items() if value is not None}

        def check(image: PublishedImage) -> None:
            _refuse_over(image)
            if visibility not in (None, Visibility.PRIVATE):
                rules.refuse_findings(image)

        return await self._amend(image_id, caller, "changed", changes, check=check)

    async def grant(self, image_id: str, name: str, caller: Caller) -> list[str]:
        """Grants access to an account by its id or public id. Granted already counts as success. Returns all
        accounts that may use it.

        Raises NotFound for an account that does not exist.
        """
        image = await self._own(image_id, caller)
        _refuse_over(image)
        rules.refuse_findings(image)
        account = await self._account(name)
        if account == image.account:
            raise InvalidRequest(field="account", why="it is theirs already")
        granted = await self.use_cases.grantees(image_id)
        if account not in granted and len(granted) >= MOST_GRANTS:
            raise Forbidden(why=f"at most {MOST_GRANTS} grants", hint="Make the image unlisted instead.")
        now = self.use_cases.clock.now()
        step = self._step(caller, "granted", {"account": account})
        step = replace(step, also=lambda conn: records.add_grant(conn, image_id, account, now=now))
        await self.use_cases.repository.move(image_id, step)
        return await self.use_cases.grantees(image_id)

    async def revoke(self, image_id: str, name: str, caller: Caller) -> list[str]:
        """Revokes a grant. Not granted counts as success. What was made from the image stays."""
        await self._own(image_id, caller)
        known = await self.use_cases.repository.store.read(lambda conn: accounts.find_public(conn, name))
        account = name if known is None else known.id
        step = self._step(caller, "revoked", {"account": account})
        step = replace(step, also=lambda conn: records.drop_grant(conn, image_id, account))
        await self.use_cases.repository.move(image_id, step)
        return await self.use_cases.grantees(image_id)

    async def grants(self, image_id: str, caller: Caller) -> list[str]:
        await self._own(image_id, caller)
        return await self.use_cases.grantees(image_id)

    async def offer(self, image_id: str, name: str | None, caller: Caller) -> PublishedImage:
        """Offers it to another account by its id or public id, which may then accept it; None withdraws the
        offer.

        Raises NotFound for an account that does not exist.
        """
        image = await self._own(image_id, caller)
        account = None if name is None else await self._account(name)
        if account == image.account:
            raise InvalidRequest(field="account", why="it is theirs already")
        if account is not None:
            rules.refuse_findings(image)
        return await self._amend(image_id, caller, "offered", {"offered_to": account}, check=_refuse_over)

    async def accept(self, image_id: str, caller: Caller) -> PublishedImage:
        """Makes the image the caller's: from now on the caller may change and remove it, and pays for it."""
        image = await self.use_cases.get(image_id, caller)
        account = caller.account

        def check(current: PublishedImage) -> None:
            _refuse_over(current)
            if current.offered_to != account:
                raise Conflict(why=f"{image_id} is not offered to {account}", reason="not_offered")
            if current.locked_at is not None:
                raise Conflict(
                    why=f"{image_id} is locked", reason="locked", hint="Its owner unlocks it first."
                )

        await self.use_cases.repository.store.read(
            lambda conn: check_room(
                records.holding(conn, account), self.use_cases.policy, "image", more_bytes=image.size_bytes
            )
        )
        changes: Mapping[str, object] = {
            "account": account,
            "created_by": caller.public_key,
            "offered_to": None,
            "hands": image.hands + 1,
            "rate_msats": self.use_cases.repository.rate(account, image.profile, image.size_bytes),
            "expires_at": None,
        }
        # Whoever accepts it pays for it from now on.
        signal = Signal.PAID if image.state is State.UNPAID else None
        step = self._step(caller, "accepted", {"from": image.account})
        step = replace(step, signal=signal, changes=changes, check=check)
        return await self.use_cases.repository.move(image_id, step)

    async def lock(self, image_id: str, caller: Caller) -> PublishedImage:
        """Locks it. One that is locked already counts as success."""
        image = await self._own(image_id, caller)
        if image.locked_at is not None:
            return image
        changes = {"locked_at": self.use_cases.clock.now()}
        return await self._amend(image_id, caller, "locked", changes, check=_refuse_over)

    async def unlock(self, image_id: str, caller: Caller) -> PublishedImage:
        """Unlocks it after the edge had it confirmed. One that is not locked counts as success."""
        image = await self._own(image_id, caller)
        if image.locked_at is None:
            return image
        return await self._amend(image_id, caller, "unlocked", {"locked_at": None}, check=_refuse_over)

    async def _account(self, name: str) -> str:
        found = await self.use_cases.repository.store.read(lambda conn: accounts.resolve(conn, name))
        return found.id

    async def _own(self, image_id: str, caller: Caller) -> PublishedImage:
        image = await self.use_cases.get(image_id, caller)
        rules.refuse_strangers(image, caller)
        return image

    async def _amend(
        self,
        image_id: str,
        caller: Caller,
        what: str,
        changes: Mapping[str, object],
        *,
        check: Check | None = None,
    ) -> PublishedImage:
        step = replace(self._step(caller, what, {}), changes=changes, check=check)
        return await self.use_cases.repository.move(image_id, step)

    def _step(self, caller: Caller, what: str, data: Mapping[str, object]) -> Step:
        return Step(
            signal=None, actor=actor_of(caller), reason=f"{what}_by_caller", kind=f"image.{what}", data=data
        )


def _refuse_over(image: PublishedImage) -> None:
    if image.state not in USABLE:
        raise IllegalTransition(signal="change", state=image.state.value)
