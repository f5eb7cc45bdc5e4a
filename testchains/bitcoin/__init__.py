"""Bitcoin on Bitcoin Core's own validation library (`py-bitcoinkernel`): every block and every input is
judged by Core's code; miner, mempool and HTTP faces are ours, because no `bitcoind` can be had here."""
