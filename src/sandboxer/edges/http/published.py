"""Published images as the words of the wire."""

from __future__ import annotations

from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.snapshots.lifecycle import State
from sandboxer.wire.images import Finding, PublishedImage
from sandboxer.wire.sandboxes import Resources


def shown_image(record: records.PublishedImage, *, is_theirs: bool = False) -> PublishedImage:
    """What was found and left out is told to whoever may change it."""
    found = [Finding.model_construct(path=one.path, kind=one.kind) for one in record.findings]
    return PublishedImage.model_construct(
        id=record.id,
        name=record.name,
        description=record.description,
        account=record.account,
        visibility=record.visibility.value,
        state=record.state.value,
        reason=record.reason,
        source=record.source,
        backend=record.backend,
        base=record.base,
        profile=record.profile,
        resources=Resources.model_construct(
            vcpus=record.resources.vcpus,
            memory_mb=record.resources.memory_mb,
            disk_mb=record.resources.disk_mb,
            pids=record.resources.pids,
        ),
        config=dict(record.config),
        digest=record.digest,
        size_bytes=record.size_bytes,
        files=record.files,
        findings=found if is_theirs else [],
        findings_count=record.findings_count if is_theirs else 0,
        stripped=list(record.stripped) if is_theirs else [],
        stripped_count=record.stripped_count if is_theirs else 0,
        offered_to=record.offered_to,
        rate_msats_per_s=record.rate_msats if record.state is State.KEPT else 0,
        created_at=record.created_at,
        verified_at=record.verified_at,
        expires_at=record.expires_at,
        ended_at=record.ended_at,
        locked_at=record.locked_at,
    )
