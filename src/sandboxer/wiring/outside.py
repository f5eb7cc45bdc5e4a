"""The rooms that face the outside: webhooks, wallets, payments."""

from __future__ import annotations

from contextlib import AsyncExitStack

import httpx

from sandboxer.accounts.tree import accounts_above
from sandboxer.artifacts.images.published.records import owners_of_images
from sandboxer.artifacts.snapshots.records import owners_of_snapshots
from sandboxer.artifacts.volumes.records import owners_of_volumes
from sandboxer.identity.genesis.registry import HttpRegistry
from sandboxer.identity.keys import Keys
from sandboxer.identity.seal import Seal
from sandboxer.identity.wallet_identity import WalletIdentity, open_wallet_identity
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.usage_feed import DailyFeed, SegmentFeed
from sandboxer.observe.webhooks.feeds import EventFeed
from sandboxer.observe.webhooks.room import Webhooks, open_webhooks
from sandboxer.payments.room import PaymentSettings
from sandboxer.sandboxes.whose import owners_of
from sandboxer.settings import Settings
from sandboxer.store.engine import Store
from sandboxer.work.jobs.records import owners_of_jobs


async def open_webhook_room(
    settings: Settings, store: Store, clock: Clock, seal: Seal, closing: AsyncExitStack
) -> Webhooks:
    feeds = (
        EventFeed(
            lambda conn, subjects: (
                owners_of(conn, subjects)
                | owners_of_jobs(conn, subjects)
                | owners_of_snapshots(conn, subjects)
                | owners_of_images(conn, subjects)
                | owners_of_volumes(conn, subjects)
            )
        ),
        SegmentFeed(),
        DailyFeed(),
    )
    return await closing.enter_async_context(
        open_webhooks(
            store,
            clock,
            seal,
            feeds,
            allow_private=settings.webhook_allow_private,
            never=settings.never_reached,
            above=accounts_above,
        )
    )


async def open_wallets(
    settings: Settings, store: Store, seal: Seal, clock: Clock, keys: Keys, closing: AsyncExitStack
) -> WalletIdentity:
    registry = None
    if settings.genesis_registry_url is not None:
        client = await closing.enter_async_context(httpx.AsyncClient())
        registry = HttpRegistry(settings.genesis_registry_url, client, clock)
    elif settings.genesis_demanded:
        raise InvalidRequest(field="genesis_registry_url", why="genesis_demanded needs a registry to ask")
    return await open_wallet_identity(
        store,
        seal,
        clock,
        keys,
        url=settings.url,
        session_secret=settings.session_secret,
        production=settings.production,
        allow_test_networks=settings.allow_test_networks,
        registry=registry,
        genesis_level=settings.genesis_level,
    )


def payment_settings(settings: Settings) -> PaymentSettings:
    key = settings.x402_signer_key
    return PaymentSettings(
        url=settings.url,
        state_dir=settings.state_dir,
        charging=settings.charging,
        x402=settings.x402,
        signer_key=None if key is None else key.get_secret_value(),
        fixed_rates=settings.fixed_rates,
        rates=settings.rates,
        chains=settings.chain_plans,
        invoices=settings.invoices,
        hot_wallet=settings.hot_wallet_plan,
        gift_cards=settings.gift_cards,
        mail=settings.mail_server,
        tiers=settings.prices.tiers,
    )
