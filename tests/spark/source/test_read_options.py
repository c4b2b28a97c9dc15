"""Options: what is wrong with them is one line that names the option."""

import pickle

import pytest

from millstream.spark.errors import OptionError, explain
from millstream.spark.source.read_options import LATEST, OFFSETS, TIMESTAMP, parse_read_options

GOOD = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t"}, "option 'kafka.bootstrap.servers' is missing"),
        ({"kafka.bootstrap.servers": "localhost:9092"}, "One of the options 'subscribe'"),
        (GOOD | {"assign": '{"t":[0]}'}, "only one of the options 'subscribe' and 'assign'"),
        (GOOD | {"startingoffset": "latest"}, "did you mean 'startingOffsets'?"),
        (GOOD | {"kafka.isolation.levels": "x"}, "did you mean 'kafka.isolation.level'?"),
        (GOOD | {"qqq": "x"}, "unknown option 'qqq'"),
        (GOOD | {"connector": "jvm"}, 'use format("kafka")'),
        (GOOD | {"subscribe": " , "}, "'subscribe' names no topic"),
        (
            GOOD | {"startingoffsets": "soon"},
            "'startingOffsets' must be earliest, latest or JSON, not 'soon'",
        ),
        (GOOD | {"startingoffsets": "{"}, "'startingOffsets' is not valid JSON"),
        (GOOD | {"startingoffsets": '{"t":[1]}'}, "'startingOffsets' must be JSON such as"),
        (GOOD | {"startingoffsets": '{"t":{"0":-3}}'}, "-3 for t-0 is not possible"),
        (GOOD | {"startingoffsets": '{"t":{"0":"x"}}'}, "'x' is not a whole number"),
        (GOOD | {"endingoffsets": "earliest"}, "'endingOffsets' cannot be earliest"),
        (GOOD | {"maxoffsetspertrigger": "0"}, "'maxOffsetsPerTrigger' must be at least 1, not 0"),
        (GOOD | {"minpartitions": "many"}, "'minPartitions' must be a whole number, not 'many'"),
        (GOOD | {"failondataloss": "maybe"}, "'failOnDataLoss' must be true or false"),
        (GOOD | {"maxtriggerdelay": "soon"}, "'maxTriggerDelay' must be a time such as"),
        (
            GOOD | {"kafka.isolation.level": "read"},
            "'kafka.isolation.level' must be read_uncommitted or read_committed",
        ),
        (
            GOOD | {"kafka.auto.offset.reset": "latest"},
            "'kafka.auto.offset.reset' is not supported: use the option",
        ),
        (
            GOOD | {"kafka.bootstrap.servers": "::"},
            "option 'kafka.bootstrap.servers': '::' is not an address",
        ),
        (GOOD | {"kafka.security.protocol": "X"}, "option kafka.security.protocol=X is unknown"),
        (GOOD | {"kafka.request.timeout.ms": "x"}, "option kafka.request.timeout.ms=x is not a number"),
        (GOOD | {"commitoffsets": "true"}, "'commitOffsets' needs the option 'kafka.group.id'"),
        (
            GOOD | {"minoffsetspertrigger": "5", "maxoffsetspertrigger": "4"},
            "is larger than 'maxOffsetsPerTrigger'",
        ),
        (
            {"kafka.bootstrap.servers": "h:1", "subscribepattern": "("},
            "'subscribePattern' is not a regular expression",
        ),
        ({"kafka.bootstrap.servers": "h:1", "assign": '{"t":1}'}, "'assign' must be JSON"),
        ({"kafka.bootstrap.servers": "h:1", "assign": "{}"}, "'assign' names no partition"),
    ],
)
def test_mistakes(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options(options, None)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert explain(caught.value) == caught.value.message


def test_options_of_the_other_kind_of_read() -> None:
    with pytest.raises(OptionError, match="'commitOffsets' is only for a stream"):
        parse_read_options(GOOD | {"commitoffsets": "false"}, streaming=False)
    with pytest.raises(OptionError, match="'endingOffsets' is only for a batch read"):
        parse_read_options(GOOD | {"endingoffsets": "latest"}, streaming=True)
    for latest in ("latest", '{"t":{"0":-1}}'):
        with pytest.raises(OptionError, match="cannot be latest in a batch read"):
            parse_read_options(GOOD | {"startingoffsets": latest}, streaming=False)


def test_triggers_mean_nothing_in_a_batch_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Spark's source warns and goes on, whatever the values are."""
    options = {"maxOffsetsPerTrigger": "5", "minoffsetspertrigger": "7", "maxTriggerDelay": "1m"}
    settings = parse_read_options(GOOD | options, streaming=False)
    assert (settings.max_offsets, settings.min_offsets) == (None, None)
    message = capsys.readouterr().err.splitlines()
    assert [line.split("'")[1] for line in message] == [
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
    ]
    assert message[0] == "millstream: option 'maxOffsetsPerTrigger' is ignored in a batch read"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingtimestamp": "100", "endingtimestamp": "50"},
            "option 'endingTimestamp' (50) is before 'startingTimestamp' (100)",
        ),
        (
            {"startingtimestamp": "100", "endingoffsetsbytimestamp": '{"t":{"0":200,"1":50}}'},
            "option 'endingOffsetsByTimestamp' (50 of partition t-1) is before 'startingTimestamp' (100)",
        ),
        (
            {"startingoffsets": '{"t":{"0":9}}', "endingoffsets": '{"t":{"0":8}}'},
            "option 'endingOffsets' (8 of partition t-0) is before 'startingOffsets' (9)",
        ),
    ],
)
def test_an_end_before_the_start(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options(GOOD | {"failondataloss": "false"} | options, streaming=False)
    assert caught.value.message == message


def test_an_end_that_is_not_before_the_start() -> None:
    for start, end in ((-2, 8), (9, -1), (8, 8)):
        parse_read_options(
            GOOD | {"startingoffsets": f'{{"t":{{"0":{start}}}}}', "endingoffsets": f'{{"t":{{"0":{end}}}}}'},
            streaming=False,
        )


def test_timestamps_win_over_offsets() -> None:
    options = GOOD | {"startingoffsets": '{"t":{"0":3}}'}
    assert parse_read_options(options, True).start.type == OFFSETS
    options |= {"startingoffsetsbytimestamp": '{"t":{"0":1700000000000}}'}
    assert parse_read_options(options, True).start.per_partition == {("t", 0): 1700000000000}
    options |= {"startingtimestamp": "5"}
    assert (parse_read_options(options, True).start.type, parse_read_options(options, True).start.moment) == (
        TIMESTAMP,
        5,
    )
    assert parse_read_options(options, True).end.type == LATEST


def test_defaults_and_values() -> None:
    settings = parse_read_options(
        GOOD | {"maxtriggerdelay": "30s", "kafka.group.id": "g", "subscribe": "b, a,b"}, True
    )
    assert settings.topics == ("b", "a")
    assert settings.max_delay_ms == 30_000
    assert settings.group_id == "g"
    assert settings.fail_on_data_loss
    assert not settings.read_committed
    assert (settings.tries, settings.pause) == (3, 1.0)
    more = {"fetchoffset.numretries": "7", "fetchoffset.retryintervalms": "20"}
    assert (parse_read_options(GOOD | more, True).tries, parse_read_options(GOOD | more, True).pause) == (
        7,
        0.02,
    )
    for cache in ("-1", "60000"):
        parse_read_options(GOOD | {"partition.metadata.cache.ttl.ms": cache}, None)
    assert parse_read_options(GOOD | {"kafka.group.id": "g", "commitoffsets": "false"}, True).group_id is None
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301
