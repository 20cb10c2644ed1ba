"""A study in PostgreSQL behind a network that cuts, delays and goes silent: a proxy, TCP on both sides."""

import threading
import time
import warnings

import pytest
from extras import needs

needs("postgres", "psycopg")

from soak import network  # noqa: E402
from soak.common import pool, tcp_server  # noqa: E402
from soak.network import Plan  # noqa: E402

import manyarms as ma  # noqa: E402
from manyarms.errors import StudyStorageError  # noqa: E402

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def port():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        needs("dev", "pgserver")
    with tcp_server() as port:
        yield port


@pytest.mark.soak
def test_nothing_is_lost_or_doubled(port):
    found = network.rounds(port, 12, seed=1)
    assert found.longest < network.LIMIT


@pytest.mark.soak
def test_an_interrupt_ends_any_wait(port):
    n, slowest = network.interrupted(port, 6, seed=1)
    assert n >= 4
    assert slowest < 1


@pytest.mark.soak
def test_a_client_that_vanishes_in_a_transaction_is_rolled_back(port):
    with network.behind(port, "vanished", SILENCE=60.0, IDLE=2.0) as (url, proxy, _):
        study = ma.Study.create(url, pool())
        direct = ma.Study.open(url.replace(str(proxy.port), str(port)))

        def vanish():
            with study._store.writing() as transaction:
                transaction.append("retire", {"ids": [3], "worker": "w"})
                proxy.expect(Plan("silent", "client", 0, 1e9))
                threading.Timer(5, study._store.here().pgconn.finish).start()
                begun = time.monotonic()
                direct.tell(0, [1.0])
                assert time.monotonic() - begun < 5
                transaction.append("retire", {"ids": [4], "worker": "w"})

        with pytest.raises(StudyStorageError, match="nothing was written"):
            vanish()
        proxy.expect(None)
        assert [event.kind for event in study.events()] == ["create", "tell"]


def test_a_connection_that_was_cut_between_two_calls_is_made_again(port):
    with network.behind(port, "cut") as (url, proxy, _):
        study = ma.Study.create(url, pool())
        proxy.expect(Plan("cut", "client", 0, 0.0))
        study.tell(0, [1.0])
        proxy.expect(Plan("cut", "client", 3, 0.0))
        with pytest.raises(StudyStorageError, match="nothing was written"):
            study.tell(1, [2.0])
        assert [trial.value for trial in study.history] == [1.0]


def test_a_server_that_does_not_answer_is_a_typed_error(port):
    with network.behind(port, "silent") as (url, proxy, _):
        ma.Study.create(url, pool()).close()
        proxy.expect(Plan("silent", "server", 0, 1e9))
        begun = time.monotonic()
        with pytest.raises(StudyStorageError, match="timeout"):
            ma.Study.open(url)
        assert time.monotonic() - begun < 5
