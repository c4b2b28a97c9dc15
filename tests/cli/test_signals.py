"""Signals as exceptions: whatever a command is doing, it ends with the code of the signal."""

import os
import signal

import pytest

from millstream.cli.signals import Interrupted, InterruptGuard


def test_a_signal_outside_of_what_can_be_interrupted_waits() -> None:
    with InterruptGuard() as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted) as caught, interrupts.interruptible():
            pass
    assert caught.value.code == 128 + signal.SIGTERM


def test_it_is_no_error_that_somebody_handles() -> None:
    with InterruptGuard() as interrupts, pytest.raises(Interrupted), interrupts.interruptible():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except Exception as error:
            raise AssertionError("taken for an error") from error


def test_a_signal_while_a_class_is_made_is_still_a_signal() -> None:
    """As when a module is imported on first use: Python 3.11 turns what leaves __set_name__ into a
    RuntimeError."""

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with InterruptGuard() as interrupts, pytest.raises(Interrupted) as caught, interrupts.interruptible():
        type("Request", (), {"field": Field()})
    assert caught.value.code == 130


def test_errors_stay_errors() -> None:
    with InterruptGuard() as interrupts, pytest.raises(RuntimeError), interrupts.interruptible():
        raise RuntimeError("no signal came")
