"""The operations on pricing."""

from __future__ import annotations

from sandboxer.wire.invoices import RateList
from sandboxer.wire.operations.declaration import Answered, AnyOperation, Empty, Json, NoParameters, Operation
from sandboxer.wire.operations.terms import ANY_KEY, NEVER_DELEGATED, Access, RateClass
from sandboxer.wire.pricing import AskQuote, Pricing, Quote

LIST_RATES = Operation(
    id="listRates",
    method="GET",
    path="/v1/rates",
    noun="pricing",
    summary="US dollars for one of each asset, and who says so",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=RateList),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
)
GET_PRICING = Operation(
    id="getPricing",
    method="GET",
    path="/v1/pricing",
    noun="pricing",
    summary="Every price",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Pricing),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
)
GET_PRICING_FOR_AGENTS = Operation(
    id="getPricingForAgents",
    method="GET",
    path="/pricing-for-agents.json",
    noun="pricing",
    summary="The same, where agents look for it",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Pricing),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
)
ASK_QUOTE = Operation(
    id="askQuote",
    method="POST",
    path="/v1/quotes",
    noun="pricing",
    summary="What a sandbox would cost; create and extend may name it and pay these rates",
    parameters=NoParameters,
    query=NoParameters,
    body=Json(AskQuote),
    answer=Answered(model=Quote, status=201),
    access=Access.SIGNED,
    needs=ANY_KEY,
    rate=RateClass.API,
    failures=(404, 409),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    LIST_RATES,
    GET_PRICING,
    GET_PRICING_FOR_AGENTS,
    ASK_QUOTE,
)
