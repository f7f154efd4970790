import pytest

from carteiro.settings import Settings, SettingsError


def test_nothing_set_gives_the_defaults() -> None:
    settings = Settings.from_environment({})
    assert settings.database_url is None
    assert settings.window_s == 86_400
    assert settings.bucket_s == 60
    assert settings.slice_max == 1000
    assert settings.callback_allow_private is False


def test_every_kind_of_value_is_read() -> None:
    settings = Settings.from_environment(
        {
            "CARTEIRO_DATABASE_URL": "postgresql:///carteiro",
            "CARTEIRO_WINDOW_S": "20",
            "CARTEIRO_BUCKET_S": "0.2",
            "CARTEIRO_PORT": "9000",
            "CARTEIRO_CALLBACK_ALLOW_PRIVATE": "true",
            "CARTEIRO_FORBIDDEN_UTILITY_TERMS": "promo, black friday",
        }
    )
    assert settings.database_url == "postgresql:///carteiro"
    assert (settings.window_s, settings.bucket_s, settings.port) == (20.0, 0.2, 9000)
    assert settings.callback_allow_private is True
    assert settings.forbidden_utility_terms == ("promo", "black friday")


def test_an_empty_variable_counts_as_unset() -> None:
    assert Settings.from_environment({"CARTEIRO_PORT": ""}).port == 8000


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CARTEIRO_PORT", "eighty"),
        ("CARTEIRO_PORT", "80.5"),
        ("CARTEIRO_BUCKET_S", "0"),
        ("CARTEIRO_WINDOW_S", "nan"),
        ("CARTEIRO_WINDOW_S", "inf"),
        ("CARTEIRO_LEASE_GRACE_S", "-1"),
        ("CARTEIRO_CALLBACK_ALLOW_PRIVATE", "yes"),
        ("CARTEIRO_LOG_LEVEL", "loud"),
        ("CARTEIRO_LOG_FORMAT", "xml"),
        ("CARTEIRO_PUBLIC_URL", "carteiro.example"),
        ("CARTEIRO_PUBLIC_URL", "http://carteiro.example/"),
        ("CARTEIRO_POOL_MIN_SIZE", "11"),
        ("CARTEIRO_BUCKET_S", "86401"),
        ("CARTEIRO_CALL_TIMEOUT_S", "31"),
    ],
)
def test_an_unusable_value_is_refused_by_the_name_of_its_variable(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        Settings.from_environment({variable: value})


def test_a_command_that_needs_a_database_names_the_variable() -> None:
    with pytest.raises(SettingsError, match="CARTEIRO_DATABASE_URL"):
        Settings.from_environment({}).require_database_url()
