"""Settings of what is kept: snapshots, images and volumes, and how long garbage stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, Field

from sandboxer.artifacts.images.published.policy import ImagePolicy
from sandboxer.artifacts.policy import KeepPolicy
from sandboxer.kernel.clock import parse_duration


class ArtifactSettings(BaseModel):
    retention: Annotated[str, Field(description="How long stopped and failed sandboxes are kept.")] = "7d"
    garbage_grace: Annotated[
        str, Field(description="How long what nobody needs stays (older builds of images).")
    ] = "1d"
    quarantine_grace: Annotated[
        str,
        Field(
            description="How long disks and processes without a record stay (another database's, a crash's)"
            " before they are removed; time in which no server ran does not count."
        ),
    ] = "7d"
    snapshots_per_account: Annotated[
        int, Field(ge=0, le=1_000_000, description="Snapshots that one account may keep.")
    ] = 100
    snapshots_mb_per_account: Annotated[
        int, Field(ge=0, le=1 << 40, description="What the snapshots of one account may hold together.")
    ] = 100 * 1024
    images_per_account: Annotated[
        int, Field(ge=0, le=1_000_000, description="Images that one account may publish.")
    ] = 100
    images_mb_per_account: Annotated[
        int, Field(ge=0, le=1 << 40, description="What the images of one account may hold together.")
    ] = 100 * 1024
    image_upload_mb: Annotated[
        int, Field(ge=1, le=1 << 20, description="Largest archive that may be imported as an image.")
    ] = 8 * 1024
    volumes_per_account: Annotated[
        int, Field(ge=0, le=1_000_000, description="Volumes that one account may have.")
    ] = 100
    volumes_mb_per_account: Annotated[
        int, Field(ge=0, le=1 << 40, description="What the volumes of one account may be together.")
    ] = 100 * 1024

    @property
    def retention_time(self) -> timedelta:
        return parse_duration(self.retention, field="retention")

    @property
    def garbage_kept_for(self) -> timedelta:
        return parse_duration(self.garbage_grace, field="garbage_grace")

    @property
    def quarantine_time(self) -> timedelta:
        return parse_duration(self.quarantine_grace, field="quarantine_grace")

    @property
    def snapshot_policy(self) -> KeepPolicy:
        return KeepPolicy(
            per_account=self.snapshots_per_account,
            bytes_per_account=self.snapshots_mb_per_account << 20,
            retention=self.retention_time,
        )

    @property
    def image_policy(self) -> ImagePolicy:
        return ImagePolicy(
            per_account=self.images_per_account,
            bytes_per_account=self.images_mb_per_account << 20,
            retention=self.retention_time,
            upload_bytes=self.image_upload_mb << 20,
        )

    @property
    def volume_policy(self) -> KeepPolicy:
        return KeepPolicy(
            per_account=self.volumes_per_account,
            bytes_per_account=self.volumes_mb_per_account << 20,
            retention=self.retention_time,
        )
