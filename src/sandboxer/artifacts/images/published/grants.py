"""Sharing of images: what their owner changes, grants and revokes, and how an image is handed to another
account.

An image changes hands only if the other side accepts it: keeping an image costs, and nobody may be made to
pay.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandboxer.accounts import records as accounts
from sandboxer.artifacts import policy as rules
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.records import PublishedImage, Visibility
from sandboxer.artifacts.images.published.use_cases import ImageUseCases
from sandboxer.artifacts.policy import check_room
from sandboxer.artifacts.records import Signal, State, holding
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, Forbidden, InvalidRequest
from sandboxer.kernel.values import value_class

MOST_GRANTS = 1000


@value_class
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
        use_cases = self.use_cases
        await use_cases.own(image_id, caller)
        given = {"name": name, "description": description, "visibility": visibility}
        changes = {key: value for key, value in given.items() if value is not None}

        def check(image: PublishedImage) -> None:
            use_cases.refuse_over(image)
            if visibility not in (None, Visibility.PRIVATE):
                rules.refuse_findings(image)

        return await use_cases.amend(image_id, caller, "changed", changes, check=check)

    async def grant(self, image_id: str, name: str, caller: Caller) -> list[str]:
        """Grants access to an account by its id or public id. Granted already counts as success. Returns all
        accounts that may use it.

        Raises NotFound for an account that does not exist.
        """
        image = await self.use_cases.own(image_id, caller)
        self.use_cases.refuse_over(image)
        rules.refuse_findings(image)
        if (account := await self._account(name)) == image.account:
            raise InvalidRequest(field="account", why="the image belongs to this account already")
        granted = await self.use_cases.grantees(image_id)
        if account not in granted and len(granted) >= MOST_GRANTS:
            raise Forbidden(why=f"at most {MOST_GRANTS} grants", hint="Make the image unlisted instead.")
        now = self.use_cases.clock.now()
        await self.use_cases.amend(
            image_id,
            caller,
            "granted",
            {},
            {"account": account},
            check=None,
            also=lambda conn: records.add_grant(conn, image_id, account, now=now),
        )
        return await self.use_cases.grantees(image_id)

    async def revoke(self, image_id: str, name: str, caller: Caller) -> list[str]:
        """Revokes a grant. Not granted counts as success. What was made from the image stays."""
        await self.use_cases.own(image_id, caller)
        known = await self.use_cases.repository.store.read(lambda conn: accounts.find_public(conn, name))
        account = name if known is None else known.id
        await self.use_cases.amend(
            image_id,
            caller,
            "revoked",
            {},
            {"account": account},
            check=None,
            also=lambda conn: records.drop_grant(conn, image_id, account),
        )
        return await self.use_cases.grantees(image_id)

    async def grants(self, image_id: str, caller: Caller) -> list[str]:
        await self.use_cases.own(image_id, caller)
        return await self.use_cases.grantees(image_id)

    async def offer(self, image_id: str, name: str | None, caller: Caller) -> PublishedImage:
        """Offers it to another account by its id or public id, which may then accept it; None withdraws the
        offer.

        Raises NotFound for an account that does not exist.
        """
        image = await self.use_cases.own(image_id, caller)
        account = None if name is None else await self._account(name)
        if account == image.account:
            raise InvalidRequest(field="account", why="the image belongs to this account already")
        if account is not None:
            rules.refuse_findings(image)
        return await self.use_cases.amend(image_id, caller, "offered", {"offered_to": account})

    async def accept(self, image_id: str, caller: Caller) -> PublishedImage:
        """Makes the image the caller's: from now on the caller may change and remove it, and pays for it."""
        image = await self.use_cases.get(image_id, caller)
        account = caller.account

        def check(current: PublishedImage) -> None:
            self.use_cases.refuse_over(current)
            if current.offered_to != account:
                raise Conflict(
                    why=f"{image_id} is not offered to {account}",
                    reason="not_offered",
                    hint="Its owner offers it (POST /v1/images/{image_id}/transfer), then accept it again.",
                )
            if current.locked_at is not None:
                raise Conflict(
                    why=f"{image_id} is locked",
                    reason="locked",
                    hint=f"Its owner unlocks it first: POST /v1/images/{image_id}/unlock.",
                )

        await self.use_cases.repository.store.read(
            lambda conn: check_room(
                holding(conn, records.rows, account),
                self.use_cases.policy,
                "image",
                more_bytes=image.size_bytes,
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
        data = {"from": image.account}
        return await self.use_cases.amend(
            image_id, caller, "accepted", changes, data, signal=signal, check=check
        )

    async def _account(self, name: str) -> str:
        found = await self.use_cases.repository.store.read(lambda conn: accounts.resolve(conn, name))
        return found.id
