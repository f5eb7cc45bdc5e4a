"""How outside money comes in: x402, invoices, gift cards, the price oracle and the chains behind them."""
