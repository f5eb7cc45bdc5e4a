"""Opens what payments need: price sources, and the ways to be paid that an operator chose."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandboxer.accounts.records import NO_OFFERS, PaymentOffers
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import Keys
from sandboxer.identity.seal import Seal
from sandboxer.identity.siwx import Siwx
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.program import late
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.money.pricing import TierPrices
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.payments.chains.configuration import ChainPlan, HotWalletPlan, open_chains
from sandboxer.payments.chains.contract import CheckedChain, Rails, Standings
from sandboxer.payments.gift_cards.dependencies import GiftCards, open_gift_cards
from sandboxer.payments.gift_cards.ledger import GiftCardGoods
from sandboxer.payments.gift_cards.records import MailServer, read_gift_policy
from sandboxer.payments.gift_cards.use_cases import GiftCardDependencies
from sandboxer.payments.invoices.records import InvoicePolicy, read_policy
from sandboxer.payments.invoices.use_cases import InvoiceUseCases, open_invoices
from sandboxer.payments.rate_sources import open_rates
from sandboxer.payments.rates import Rates
from sandboxer.payments.x402 import ways
from sandboxer.payments.x402.dependencies import X402, open_x402
from sandboxer.store.engine import Store

if TYPE_CHECKING:
    from sandboxer.payments import hot_wallet
else:
    hot_wallet = late("sandboxer.payments.hot_wallet")


@value_class
class Payments:
    rates: Rates
    # None where the operator takes no x402 payments.
    x402: X402 | None
    offers: PaymentOffers
    invoices: InvoiceUseCases
    gift_cards: GiftCards


@value_class
class PaymentSettings:
    """What the settings say of payments."""

    url: str
    state_dir: Path
    is_charged: bool
    x402: Mapping[str, Any]
    signer_key: str | None
    # Dollars by asset; empty: the world is asked.
    fixed_rates: Mapping[str, str]
    # Whom to ask for rates, which chains are watched, and the terms of invoices.
    rates: Mapping[str, Any]
    chains: tuple[ChainPlan, ...]
    invoices: Mapping[str, Any]
    # None: refunds wait for the operator.
    hot_wallet: HotWalletPlan | None
    gift_cards: Mapping[str, Any]
    # None: no mail is sent.
    mail: MailServer | None
    tiers: TierPrices


@asynccontextmanager
async def open_payments(
    settings: PaymentSettings,
    store: Store,
    clock: Clock,
    keys: Keys,
    siwx: Siwx,
    seal: Seal,
    webhooks: Webhooks,
) -> AsyncIterator[Payments]:
    """Raises InvalidRequest for settings that cannot be."""
    taken = ways.read_settings(settings.x402)
    key_life = KeyLife(keys, store, clock)
    async with AsyncExitStack() as closing:
        asking = open_rates(settings.fixed_rates, settings.rates, clock, is_charged=settings.is_charged)
        rates = await closing.enter_async_context(asking)
        x402 = None
        if taken is not None:
            if not settings.is_charged:
                raise InvalidRequest(field="x402", why="nothing is charged here (charging is off)")
            x402 = await closing.enter_async_context(
                open_x402(
                    taken,
                    store,
                    clock,
                    keys,
                    rates,
                    siwx=siwx,
                    url=settings.url,
                    state_dir=settings.state_dir,
                    signer_key=settings.signer_key,
                )
            )
        depths = {plan.code: plan.confirmations for plan in settings.chains}
        policy = read_policy(settings.invoices, confirmations=depths)
        chains, coins = await closing.enter_async_context(_open_coins(settings.chains, policy, clock))
        invoices = await closing.enter_async_context(
            open_invoices(
                store,
                clock,
                chains=chains,
                rates=rates,
                tiers=settings.tiers,
                key_life=key_life,
                policy=policy,
                goods=(GiftCardGoods(),),
                standings=coins,
            )
        )
        if settings.hot_wallet is not None:
            await closing.enter_async_context(
                hot_wallet.open_hot_wallet(
                    settings.hot_wallet, store, clock, chains=chains, plans=settings.chains, policy=policy
                )
            )
        selling = GiftCardDependencies(
            store=store,
            clock=clock,
            seal=seal,
            rates=rates,
            tiers=settings.tiers,
            key_life=key_life,
            invoices=invoices,
            webhooks=webhooks,
            url=settings.url,
            policy=read_gift_policy(settings.gift_cards),
            mail=settings.mail,
        )
        gift_cards = await closing.enter_async_context(open_gift_cards(selling))
        offers = NO_OFFERS if x402 is None else x402.asking
        yield Payments(rates=rates, x402=x402, offers=offers, invoices=invoices, gift_cards=gift_cards)


@asynccontextmanager
async def _open_coins(
    plans: tuple[ChainPlan, ...], policy: InvoicePolicy, clock: Clock
) -> AsyncIterator[tuple[Mapping[str, CheckedChain], Standings]]:
    """Chains by code, and which of them are off: looked at before anything is offered, and from then on."""
    standings = Standings()
    async with (
        open_chains(plans, watched_for=policy.expires_after + policy.watch_for) as opened,
        own_tasks() as tasks,
    ):
        chains = {code: CheckedChain(chain) for code, chain in opened.items()}
        rails = Rails(standings, {code: chain.check for code, chain in chains.items()}, clock)
        await rails.check_all()
        tasks.start(rails.run(), name="checks of coins")
        yield chains, standings
