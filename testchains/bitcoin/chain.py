"""Bitcoin and the Dogecoin stand-in, ready to be talked to over HTTP."""

from __future__ import annotations

from sandboxer.payments.chains.addresses import network_of
from testchains.bitcoin.esplora_face import EsploraFace
from testchains.bitcoin.node import KernelNode
from testchains.bitcoin.rpc_face import RpcFace
from testchains.http_face import HttpFace


class _Kernel(KernelNode):
    """A kernel node whose RPC listens at `url`, with `user` and `password`."""

    def __init__(self, coin: str, network: str, *, old: bool) -> None:
        super().__init__(network_of(coin, network))
        self.user, self.password = "sandboxer", "regtest"
        self.rpc = RpcFace(self, old=old)
        self._faces = [HttpFace(self.rpc.route, user=self.user, password=self.password)]
        self.url = self._faces[0].url

    def close(self) -> None:
        self.pause()
        super().close()

    def pause(self) -> None:
        """The node is down: nothing listens until `resume`."""
        for face in self._faces:
            face.stop()

    def resume(self) -> None:
        for face in self._faces:
            face.start()


class Bitcoin(_Kernel):
    """`url`: Core's RPC; `esplora_url`: the same chain, seen through Esplora's REST."""

    def __init__(self) -> None:
        super().__init__("BTC", "regtest", old=False)
        self._faces.append(HttpFace(EsploraFace(self).route))
        self.esplora_url = self._faces[1].url

    def __enter__(self) -> Bitcoin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Dogecoin(_Kernel):
    """A stand-in: Dogecoin's address bytes, first block and RPC dialect (Dogecoin Core 1.14) over a chain
    that Bitcoin's rules judge. It proves our side of the talk, not Dogecoin Core itself or merged mining."""

    def __init__(self) -> None:
        super().__init__("DOGE", "mainnet", old=True)
        self._faces.append(HttpFace(EsploraFace(self).route))
        self.esplora_url = self._faces[1].url

    def __enter__(self) -> Dogecoin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
