"""Settings: defaults, then the environment, then flags; a slip is named."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.settings import load_settings


def test_defaults_keep_everything_in_the_state_folder() -> None:
    settings = load_settings({})
    assert settings.database_url == "sqlite:////var/lib/sandboxer/sandboxer.db"
    assert settings.images_dir == Path("/var/lib/sandboxer/images")
    assert settings.retention_time == timedelta(days=7)
    assert settings.url == "http://127.0.0.1:7777"


def test_flags_win_over_the_environment_and_it_over_defaults() -> None:
    environment = {
        "SANDBOXER_PORT": "8000",
        "SANDBOXER_HOST": "::1",
        "SANDBOXER_STATE_DIR": "state",
        "PATH": "/bin",
    }
    settings = load_settings(environment, port=9000, host=None)
    assert settings.port == 9000
    assert settings.url == "http://[::1]:9000"
    assert settings.state_dir == Path.cwd() / "state"


def test_lists_and_maps_can_be_given_in_the_environment() -> None:
    settings = load_settings(
        {
            "SANDBOXER_WARM_POOL": '{"profile.agent-dev": 2}',
            "SANDBOXER_BACKENDS": "ext.namespaces, ext.scripted",
            "SANDBOXER_IMAGES_DIR": "/images",
        }
    )
    assert settings.warm_pool == {"profile.agent-dev": 2}
    assert settings.backends == ("ext.namespaces", "ext.scripted")
    assert settings.images_dir == Path("/images")


def test_an_unknown_variable_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match="did you mean SANDBOXER_DATABASE"):
        load_settings({"SANDBOXER_DATABSE": "x"})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SANDBOXER_PORT", "http"),
        ("SANDBOXER_PORT", "70000"),
        ("SANDBOXER_WARM_POOL", "two"),
        ("SANDBOXER_RETENTION", "a week"),
        ("SANDBOXER_LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_value_names_its_setting(variable: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_settings({variable: value})
    assert str(refused.value.facts["field"]).lower() in variable.lower()


def test_the_client_s_variables_and_a_sandbox_s_inputs_are_not_settings() -> None:
    load_settings(
        {
            "SANDBOXER_URL": "http://x",
            "SANDBOXER_SECRET_KEY": "y",
            "SANDBOXER_INPUT_REPO": "z",
            "SANDBOXER_SANDBOX_ID": "s",
        }
    )
