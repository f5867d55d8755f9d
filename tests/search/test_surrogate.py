from __future__ import annotations

import numpy as np
import pytest

from tuner.search.surrogate import Surrogate

RNG = np.random.default_rng(0)
FEATURES = RNG.random((200, 3)).astype(np.float32)
TRUTH = np.sin(5.0 * FEATURES[:, 0].astype(np.float64))  # the other two columns do not matter
VALUES = (TRUTH - TRUTH[:40].mean()) / TRUTH[:40].std()
SEEN, REST = np.arange(40), np.arange(40, 200)


@pytest.fixture(scope="module")
def fitted() -> Surrogate:
    model = Surrogate(FEATURES)
    model.fit(SEEN, VALUES[SEEN], 60)
    return model


def test_what_was_seen_is_known_and_what_was_not_is_predicted(fitted):
    mean, variance = fitted.posterior(SEEN, VALUES[SEEN], np.arange(200))
    assert np.abs(mean - VALUES)[SEEN].max() < 0.1
    assert np.sqrt(np.square(mean - VALUES)[REST].mean()) < 0.15
    assert variance[SEEN].max() < variance[REST].mean()


def test_fitting_finds_out_which_column_matters(fitted):
    mean, _ = fitted.posterior(SEEN, VALUES[SEEN], REST)
    plain, _ = Surrogate(FEATURES).posterior(SEEN, VALUES[SEEN], REST)
    assert np.square(mean - VALUES[REST]).sum() < 0.5 * np.square(plain - VALUES[REST]).sum()


def test_the_mean_alone_is_the_posterior_mean(fitted):
    mean, _ = fitted.posterior(SEEN, VALUES[SEEN], REST)
    assert fitted.mean(SEEN, VALUES[SEEN], REST) == pytest.approx(mean, abs=2e-3)


def test_samples_have_the_mean_and_the_spread_of_the_posterior(fitted):
    at = REST[:20]
    mean, variance = fitted.posterior(SEEN, VALUES[SEEN], at)
    drawn = fitted.samples(SEEN, VALUES[SEEN], at, np.random.default_rng(1).standard_normal((4000, 20)))
    assert drawn.mean(axis=0) == pytest.approx(mean, abs=0.05)
    assert drawn.var(axis=0) == pytest.approx(variance + 1e-4, rel=0.15, abs=1e-3)


def test_the_gradient_is_that_of_the_loss():
    model = Surrogate(FEATURES)
    seen = FEATURES[SEEN].astype(np.float64)
    apart = np.ascontiguousarray(np.square(seen[:, None, :] - seen[None, :, :]).transpose(2, 0, 1))
    theta = np.array([0.3, -0.4, 0.1, 0.2, -5.0])
    _, gradient = model._loss(theta, apart, VALUES[SEEN])
    for at in range(5):
        step = np.eye(5)[at] * 1e-5
        rise = model._loss(theta + step, apart, VALUES[SEEN])[0] - model._loss(theta - step, apart, VALUES[SEEN])[0]
        assert gradient[at] == pytest.approx(rise / 2e-5, rel=1e-3, abs=1e-3)
