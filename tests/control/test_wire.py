"""Requests and answers survive the way; texts that are too long lose their beginnings."""

import json

from dlrover_cli.control.redaction import REDACTED, names_secret_option, redacted, without_secrets
from dlrover_cli.control.wire import Answer, Command, Missing, NodeAnswer, Request


def test_a_request_survives_the_way() -> None:
    request = Request(Command.STACKS, 3, (0, 7), native=True, seconds=2.5)
    assert Request.from_json(json.loads(json.dumps(request.to_json()))) == request


def test_an_answer_survives_the_way() -> None:
    node = NodeAnswer("host", 1, "agent", False, "no", {3: "stack"}, {3: "native"}, "gpus")
    answer = Answer((node,), (Missing("node 2", "silent"),), ("a remark",))
    assert Answer.from_json(json.loads(json.dumps(answer.to_json()))) == answer


def test_long_stacks_keep_their_ends() -> None:
    node = NodeAnswer("host", stacks={0: "a" * 10_000 + "main", 1: "\u20ac" * 10_000, 2: "short"})
    cut = node.within(6000)
    assert len(json.dumps(cut.to_json())) < 8000
    assert cut.stacks[0].endswith("main")
    assert cut.stacks[0].startswith("[cut:")
    assert cut.stacks[2] == "short"
    assert node.within(10**6) is node


def test_an_environment_keeps_its_names_and_loses_its_secrets() -> None:
    environ = {
        "AWS_SECRET_ACCESS_KEY": "x",
        "HF_TOKEN": "x",
        "MYSQL_PWD": "x",
        "Db_Password": "x",
        "GOOGLE_APPLICATION_CREDENTIALS": "x",
        "GH_PAT": "x",
        "AZURE_STORAGE_CONNECTION_STRING": "AccountKey=x",
        "EMPTY_TOKEN": "",
        "HTTPS_PROXY": "http://me:pw@proxy:3128",
        "TOKENIZERS_PARALLELISM": "false",
        "PWD": "/home/me",
    }
    shown = redacted(environ)
    assert list(shown) == sorted(environ)
    hidden = {name for name, value in shown.items() if value == REDACTED}
    assert hidden == {
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "MYSQL_PWD",
        "Db_Password",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GH_PAT",
        "AZURE_STORAGE_CONNECTION_STRING",
    }
    assert shown["HTTPS_PROXY"] == "http://[redacted]@proxy:3128"
    assert shown["PWD"] == "/home/me"


def test_texts_lose_what_is_called_a_secret() -> None:
    assert without_secrets("--api-key=abc x") == "--api-key=[redacted] x"
    assert without_secrets("s3://u:p@h/x?token=abc&y=1") == (
        "s3://[redacted]@h/x?token=[redacted]&y=1"
    )
    assert without_secrets("Authorization: Bearer abcdefghijk").endswith("Bearer [redacted]")
    assert without_secrets("--wandb-key=abc --keys=2") == "--wandb-key=[redacted] --keys=2"
    assert names_secret_option("--hf-token")
    assert names_secret_option("--wandb_key")
    for harmless in ("tokenizer=bert max_tokens=512", "/etc/secrets/x", "tokens: 17 of 20"):
        assert without_secrets(harmless) == harmless
    assert not names_secret_option("--tokenizer")
