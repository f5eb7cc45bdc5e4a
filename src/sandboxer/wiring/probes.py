"""What `/health` tries: every part without which a request would fail."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sandboxer.backends.contract import Backend, HasParts
from sandboxer.backends.disk_probe import write_there
from sandboxer.identity.nonces import NonceBook
from sandboxer.kernel.tasks import TaskOwner, beside
from sandboxer.observe.probes import Probes
from sandboxer.settings import Settings
from sandboxer.store.claim import probe as write_a_row
from sandboxer.store.engine import Store


def probes_of(
    settings: Settings, owner: TaskOwner, store: Store, nonces: NonceBook, backends: Mapping[str, Backend]
) -> Probes:
    probes = Probes(owner)
    probes.add("store", partial(store.probe, write_a_row))
    # Each in a thread of its own: what hangs is a disk, and it must not take the loop with it.
    probes.add("nonces", lambda: beside(nonces.check))
    probes.add("state", lambda: beside(partial(write_there, settings.state_dir)))
    for name, backend in sorted(backends.items()):
        if isinstance(backend, HasParts):
            for part, attempt in backend.parts().items():
                probes.add(f"{name}/{part}", attempt)
    return probes
