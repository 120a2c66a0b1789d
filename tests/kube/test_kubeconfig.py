"""trainmaster.kube.kubeconfig and kubefile"""

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from tests.kube.build import Json, a_kubeconfig, write_yaml
from trainmaster.core.errors import BadConfig
from trainmaster.kube.config import Config, Material, Plugin
from trainmaster.kube.kubeconfig import load_config

SECRET = "s3cr3t"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def loaded(tmp_path: Path, content: Json, *, master: str = "") -> Config:
    return load_config(kubeconfig=str(write_yaml(tmp_path / "config", content)), master=master)


def content_of(material: Material | None) -> bytes:
    assert material is not None
    return material.read()


# --- which files -------------------------------------------------------------------------------


def named(context: str, server: str, **user: str) -> Json:
    return {
        "current-context": context,
        "clusters": [{"name": f"{context}-cluster", "cluster": {"server": server}}],
        "contexts": [{"name": context, "context": {"cluster": f"{context}-cluster", "user": "red"}}],
        "users": [{"name": "red", "user": user}],
    }


def test_explicit_file_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_yaml(tmp_path / "other", named("env", "https://env"))))

    assert loaded(tmp_path, named("given", "https://given")).server == "https://given"


def test_home_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    write_yaml(Path.home() / ".kube" / "config", named("home", "https://home"))

    assert load_config().server == "https://home"


def test_environment_wins_over_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_yaml(Path.home() / ".kube" / "config", named("home", "https://home"))
    monkeypatch.setenv("KUBECONFIG", str(write_yaml(tmp_path / "env", named("env", "https://env"))))

    assert load_config().server == "https://env"


def test_error_without_a_kubeconfig_lists_all_places() -> None:
    with pytest.raises(BadConfig, match=r"--kubeconfig.*\$KUBECONFIG.*inside a cluster.*\.kube/config"):
        load_config()


def test_first_file_of_a_list_wins_whole_entries_and_missing_files_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_yaml(tmp_path / "first", named("one", "https://one", token="first"))
    second = write_yaml(tmp_path / "second", named("two", "https://two", token="second", username="x"))
    files = [str(tmp_path / "missing"), "", str(first), str(second), str(first)]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(files))

    assert load_config().server == "https://one"
    other = load_config(context="two")
    assert other.server == "https://two"
    assert content_of(other.user.token) == b"first"
    assert other.user.basic == ""


@pytest.mark.parametrize("files", ["/nowhere/a", "/nowhere/a:/nowhere/b"])
def test_environment_that_names_only_missing_files_is_an_error(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", files.replace(":", os.pathsep))

    with pytest.raises(BadConfig, match=r"^\$KUBECONFIG: /nowhere/a.* does not exist"):
        load_config()


def test_relative_paths_count_from_the_file_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ca.crt").write_text(f"ca in {folder}")
        (tmp_path / folder / "token").write_text(f"token-in-{folder}\n")
    cluster = {"name": "c", "cluster": {"server": "https://a", "certificate-authority": "ca.crt"}}
    user = {"name": "u", "user": {"tokenFile": "./token"}}
    context = {"name": "dev", "context": {"cluster": "c", "user": "u"}}
    first = write_yaml(tmp_path / "a" / "config", {"clusters": [cluster]})
    second = write_yaml(tmp_path / "b" / "config", {"current-context": "dev", "users": [user], "contexts": [context]})
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{second}")
    monkeypatch.chdir("/")

    config = load_config()

    assert content_of(config.tls.ca) == b"ca in a"
    assert content_of(config.user.token) == b"token-in-b"


def test_relative_kubeconfig_stays_valid_when_the_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("t")
    write_yaml(tmp_path / "config", a_kubeconfig(user={"tokenFile": "token"}))
    monkeypatch.chdir(tmp_path)

    config = load_config(kubeconfig="config")
    monkeypatch.chdir("/")

    assert content_of(config.user.token) == b"t"


# --- which context -----------------------------------------------------------------------------


def test_context_gives_server_namespace_and_user(tmp_path: Path) -> None:
    config = loaded(tmp_path, a_kubeconfig(user={"token": SECRET}, context={"namespace": "ml"}))

    assert (config.server, config.namespace) == ("https://api.test:6443", "ml")
    assert content_of(config.user.token) == SECRET.encode()
    assert config.source == f"{tmp_path / 'config'}, context dev"


def test_namespace_is_default_unless_set(tmp_path: Path) -> None:
    assert loaded(tmp_path, a_kubeconfig()).namespace == "default"


def test_context_without_user_is_anonymous(tmp_path: Path) -> None:
    user = loaded(tmp_path, a_kubeconfig(user={"token": SECRET}, context={"user": ""})).user

    assert (user.token, user.basic, user.plugin) == (None, "", None)


def test_nulls_and_unknown_fields_are_accepted(tmp_path: Path) -> None:
    content = a_kubeconfig(cluster={"proxy-url": None, "disable-compression": True}, user={"token": None, "exec": None})

    assert loaded(tmp_path, {**content, "preferences": None, "extensions": None}).user.token is None


def test_json_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text('{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c"}}],')
    path.write_text(path.read_text() + '"clusters":[{"name":"c","cluster":{"server":"https://json"}}]}')

    assert load_config(kubeconfig=str(path)).server == "https://json"


# --- master ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "server"),
    [
        pytest.param("10.0.0.1:8080", "http://10.0.0.1:8080", id="bare"),
        pytest.param("https://10.0.0.1:6443", "https://10.0.0.1:6443", id="complete"),
    ],
)
def test_master_alone_uses_no_credentials(
    master: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_yaml(tmp_path / "config", a_kubeconfig(user={"token": SECRET}))
    monkeypatch.setenv("KUBECONFIG", str(file))

    config = load_config(master=master)

    assert (config.server, config.user.token) == (server, None)


def test_master_replaces_the_server_and_its_tls_name_of_a_kubeconfig(tmp_path: Path) -> None:
    content = a_kubeconfig(
        cluster={"certificate-authority-data": encoded("ca"), "tls-server-name": "inner"}, user={"token": SECRET}
    )

    config = loaded(tmp_path, content, master="10.0.0.1:6443")

    assert config.server == "https://10.0.0.1:6443"
    assert config.tls.server_name == ""
    assert content_of(config.tls.ca) == b"ca"
    assert content_of(config.user.token) == SECRET.encode()


# --- cluster and user --------------------------------------------------------------------------


def test_cluster_has_tls_settings_and_proxy(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        a_kubeconfig(
            cluster={
                "insecure-skip-tls-verify": True,
                "tls-server-name": "inner.test",
                "proxy-url": "http://me:hush@proxy:3128",
            }
        ),
    )

    assert (config.tls.insecure, config.tls.server_name) == (True, "inner.test")
    assert config.proxy == "http://me:hush@proxy:3128"


def test_proxy_of_the_environment_is_used_unless_the_cluster_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://env:1")

    assert loaded(tmp_path, a_kubeconfig()).proxy == "http://env:1"
    assert loaded(tmp_path, a_kubeconfig(cluster={"proxy-url": "http://own:1"})).proxy == "http://own:1"
    assert loaded(tmp_path, a_kubeconfig(cluster={"server": "https://127.0.0.1:6443"})).proxy == ""


def test_inline_data_wins_over_files_and_may_have_line_breaks(tmp_path: Path) -> None:
    data = encoded("inline certificate")
    broken = f"{data[:8]}\n{data[8:]}\n"
    user = {
        "client-certificate": "missing.crt",
        "client-certificate-data": broken,
        "client-key": "missing.key",
        "client-key-data": encoded("inline key"),
    }

    config = loaded(tmp_path, a_kubeconfig(user=user))

    assert content_of(config.user.certificate) == b"inline certificate"
    assert content_of(config.user.key) == b"inline key"


def test_token_file_wins_over_the_token_while_it_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    config = loaded(tmp_path, a_kubeconfig(user={"token": "inline", "tokenFile": "token"}))

    assert content_of(config.user.token) == b"from-file"
    (tmp_path / "token").unlink()
    assert content_of(config.user.token) == b"inline"


def test_username_and_password_are_taken(tmp_path: Path) -> None:
    assert loaded(tmp_path, a_kubeconfig(user={"username": "me", "password": SECRET})).user.basic == f"me:{SECRET}"


def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    user = {"as": "ci", "as-uid": "7", "as-groups": ["dev", "ops"], "as-user-extra": {"Example.com/Team": ["x"]}}

    assert set(loaded(tmp_path, a_kubeconfig(user=user)).user.impersonate) == {
        ("Impersonate-User", "ci"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2Fteam", "x"),
    }


def plugin_of(config: Config) -> Plugin:
    assert config.user.plugin is not None
    return config.user.plugin


def an_exec(**fields: Any) -> Json:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws", **fields}}


def test_exec_plugin_is_described(tmp_path: Path) -> None:
    user = an_exec(
        args=["get-token"], env=[{"name": "A", "value": "b"}], installHint="brew install aws", interactiveMode="Never"
    )

    plugin = plugin_of(loaded(tmp_path, a_kubeconfig(user=user)))

    assert (plugin.command, plugin.args, plugin.env) == ("aws", ("get-token",), (("A", "b"),))
    assert (plugin.hint, plugin.cluster) == ("brew install aws", None)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param("aws", "aws", id="from PATH"),
        pytest.param("./bin/login", "{folder}/bin/login", id="relative"),
        pytest.param("/opt/login", "/opt/login", id="absolute"),
    ],
)
def test_only_a_command_with_a_slash_is_relative_to_the_file(command: str, expected: str, tmp_path: Path) -> None:
    plugin = plugin_of(loaded(tmp_path, a_kubeconfig(user=an_exec(command=command))))

    assert plugin.command == expected.format(folder=tmp_path)


def test_exec_plugin_gets_cluster_info_on_request(tmp_path: Path) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster = {
        "certificate-authority-data": encoded("ca"),
        "tls-server-name": "inner",
        "proxy-url": "http://p:1",
        "extensions": [{"name": "other", "extension": {}}, extension],
    }

    plugin = plugin_of(loaded(tmp_path, a_kubeconfig(cluster=cluster, user=an_exec(provideClusterInfo=True))))

    assert plugin.cluster == {
        "server": "https://api.test:6443",
        "certificate-authority-data": encoded("ca"),
        "tls-server-name": "inner",
        "proxy-url": "http://p:1",
        "config": {"audience": "x"},
    }


# --- what is wrong -----------------------------------------------------------------------------

BAD: list[Any] = [
    pytest.param({**a_kubeconfig(), "current-context": ""}, r"no current-context .*there are: dev", id="no context"),
    pytest.param(
        {**a_kubeconfig(), "current-context": "prod"}, r"'prod' does not exist.*there are: dev", id="unknown context"
    ),
    pytest.param({}, r"no current-context .*there are: none", id="empty"),
    pytest.param(a_kubeconfig(context={"cluster": "x"}), r"context 'dev' names cluster 'x'", id="unknown cluster"),
    pytest.param(a_kubeconfig(context={"user": "x"}), r"context 'dev' names user 'x'", id="unknown user"),
    pytest.param(a_kubeconfig(cluster={"server": ""}), r"cluster 'c' has no server", id="no server"),
    pytest.param(a_kubeconfig(cluster={"server": "ftp://a"}), r"cluster 'c': the server is not", id="bad server"),
    pytest.param(
        a_kubeconfig(cluster={"server": f"https://me:{SECRET}@a"}),
        r"cluster 'c': .*put them under users",
        id="userinfo",
    ),
    pytest.param(
        a_kubeconfig(cluster={"certificate-authority": "nowhere.crt"}),
        r"cluster 'c': certificate-authority: cannot read /.*/nowhere.crt: No such file",
        id="missing CA",
    ),
    pytest.param(
        a_kubeconfig(cluster={"certificate-authority-data": f"%{SECRET}"}),
        r"certificate-authority-data is not base64",
        id="CA not base64",
    ),
    pytest.param(
        a_kubeconfig(cluster={"certificate-authority-data": encoded("ca"), "insecure-skip-tls-verify": True}),
        r"cluster 'c' has both a certificate-authority and insecure",
        id="CA and insecure",
    ),
    pytest.param(a_kubeconfig(cluster={"proxy-url": f"socks5://{SECRET}@p:1"}), r"cluster 'c': proxy-url", id="socks"),
    pytest.param(a_kubeconfig(user={"token": 123456}), r"Expected `str`, got `int` .*token", id="token is a number"),
    pytest.param(a_kubeconfig(user={"tokenFile": "nowhere"}), r"user 'u': token: cannot read", id="missing token"),
    pytest.param(
        a_kubeconfig(user={"token": SECRET, "username": "me"}), r"user 'u' has a token and a password", id="two ways"
    ),
    pytest.param(
        a_kubeconfig(user={"client-certificate-data": encoded("x")}), r"user 'u' has only one of", id="no client key"
    ),
    pytest.param(a_kubeconfig(user={"auth-provider": {"name": "gcp"}}), r"user 'u' uses an auth-provider", id="gcp"),
    pytest.param(a_kubeconfig(user={"as-groups": ["x"]}), r"impersonates groups but no user", id="groups alone"),
    pytest.param(a_kubeconfig(user={"exec": {"command": "x"}}), r"exec has apiVersion ''", id="exec without version"),
    pytest.param(
        a_kubeconfig(user=an_exec(apiVersion="client.authentication.k8s.io/v1alpha1")),
        r"exec has apiVersion 'client.authentication.k8s.io/v1alpha1'; it must be .*/v1 or .*/v1beta1",
        id="exec of an old version",
    ),
    pytest.param(a_kubeconfig(user=an_exec(command="")), r"user 'u': exec has no command", id="exec without command"),
    pytest.param({**a_kubeconfig(), "users": [{"name": "u"}, {"name": "u"}]}, r"users has 'u' twice", id="name twice"),
    pytest.param({**a_kubeconfig(), "clusters": SECRET}, r"Expected `array`, got `str`", id="clusters are no list"),
]


@pytest.mark.parametrize(("content", "match"), BAD)
def test_bad_kubeconfig_is_explained_without_its_values(content: Json, match: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=match) as caught:
        loaded(tmp_path, content)

    assert SECRET not in str(caught.value)
    assert "kubeconfig" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'users:\n- name: u\n  user: {{token: "{SECRET}\n', id="open quote"),
        pytest.param(f"token: *{SECRET}", id="alias"),
        pytest.param(f"token: !!python/object:{SECRET} x", id="tag"),
        pytest.param(f"a: b: {SECRET}", id="two colons"),
    ],
)
def test_file_that_is_no_yaml_is_explained_without_quoting_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(BadConfig, match=rf"^kubeconfig {path}: not valid YAML \(line \d+, column \d+\)") as caught:
        load_config(kubeconfig=str(path))

    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"\x80abc")

    with pytest.raises(BadConfig, match="not valid YAML"):
        load_config(kubeconfig=str(path))


def test_folder_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=f"^kubeconfig {tmp_path}: cannot be read: Is a directory"):
        load_config(kubeconfig=str(tmp_path))


def test_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")

    with pytest.raises(BadConfig, match=r"user 'u': token: .*/token is empty"):
        loaded(tmp_path, a_kubeconfig(user={"tokenFile": "token"}))
