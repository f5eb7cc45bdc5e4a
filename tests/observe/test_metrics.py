from __future__ import annotations

from sandboxer.observe.metrics import Metrics


def test_metrics_are_rendered_for_prometheus() -> None:
    metrics = Metrics()
    metrics.requests.labels("GET", "/v1/sandboxes", "200").inc()
    metrics.create_seconds.labels("total").observe(0.004)
    metrics.sandboxes.labels("ready").set(3)
    text = metrics.render().decode()
    assert 'sandboxer_requests_total{method="GET",route="/v1/sandboxes",status="200"} 1.0' in text
    assert 'sandboxer_create_seconds_bucket{le="0.005",step="total"} 1.0' in text
    assert 'sandboxer_sandboxes{state="ready"} 3.0' in text
    assert metrics.content_type.startswith("text/plain")


def test_two_platforms_in_one_process_do_not_share_metrics() -> None:
    one, other = Metrics(), Metrics()
    one.nonces.set(5)
    assert "sandboxer_nonces 0.0" in other.render().decode()
