"""The calls that comparisons time; a stand-in is the GPU."""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import SimpleNamespace

import pytest
import torch

from tests.checkout import checkout


@pytest.fixture
def timed_calls(monkeypatch):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    monkeypatch.setattr(sys, "path", [*sys.path, str(checkout())])
    monkeypatch.setattr(torch.cuda, "Stream", lambda: "stream")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return importlib.import_module("benchmarks.timed_calls")


def test_a_call_is_warmed_up_and_recorded_as_the_tuner_does(timed_calls, monkeypatch):
    called = []
    monkeypatch.setattr(
        timed_calls, "recorded", lambda call, stream: called.append(stream) or SimpleNamespace(replay=call)
    )
    call = timed_calls.captured(lambda: called.append(torch.is_grad_enabled()))
    assert called == [False, "stream"]
    call()
    assert len(called) == 3


def test_what_cannot_be_recorded_or_run_is_timed_as_it_is_and_that_is_said(timed_calls, monkeypatch, capsys):
    monkeypatch.setattr(timed_calls, "recorded", lambda call, stream: None)

    def fails():
        raise RuntimeError("no such kernel\nand more")

    for call, said in ((lambda: None, "it synchronises"), (fails, "no such kernel\n")):
        assert timed_calls.captured(call) is call
        assert f"not captured: {said}" in capsys.readouterr().out
