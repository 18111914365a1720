"""The scale of a job file: how a service follows its load."""

from __future__ import annotations

from dataclasses import replace

from phalanx.document import Field, Fields
from phalanx.workload.formats.limits import QUERY_MAX, REPLICAS_MAX, TARGET_MAX
from phalanx.workload.gang import Gang
from phalanx.workload.job import Kind
from phalanx.workload.scale import COOL_DOWN_MS, Metric, Scale

SCALE_KEYS = ("metric", "target", "min", "max", "cool_down")
METRIC_KEYS = ("query",)
REPORTED = tuple(metric for metric in Metric if metric is not Metric.QUERY)


def read_scale(fields: Fields, kind: Kind, gang: Gang) -> Scale | None:
    """How a service follows its load; None where its size is fixed, or what its gang says."""
    if "scale" not in fields:
        return None
    place = fields["scale"]
    if kind is not Kind.SERVICE:
        raise place.error(f"only a service follows its load, and this is a {kind} job: give kind: service")
    fields.refuse(("min_available",), "'scale' says with 'min' how many replicas are never taken away, leave it out")
    if len(gang.roles) != 1 or gang.roles[0].members:
        raise place.error("expected a gang of one role of single tasks beside 'scale', which sets its replicas")
    role = gang.roles[0]
    if (role.replicas_min, role.replicas_max) != (1, 1):
        raise place.error("'min' and 'max' of it say how many replicas there are: leave out 'replicas' in 'gang'")
    return _read(place)


def within_scale(gang: Gang, scale: Scale) -> Gang:
    """The gang of a service that follows its load, before that is known: with the least replicas that can run."""
    least = max(scale.least, 1)
    return replace(gang, roles=(replace(gang.roles[0], replicas_min=least, replicas_max=least),))


def _read(place: Field) -> Scale:
    fields = place.mapping(SCALE_KEYS)
    metric, query = fields.need("metric", _read_metric)
    least = fields.get("min", lambda count: count.integer(0, REPLICAS_MAX), 1)
    if least == 0 and metric is not Metric.QUERY:
        raise fields["min"].error(
            f"without a replica there is no report of {metric} that could wake the service: "
            "expected at least 1, or as 'metric' a query of what waits for it, such as {query: …}"
        )
    return Scale(
        metric=metric,
        target=fields.need("target", lambda target: _read_target(target, metric)),
        least=least,
        most=fields.need("max", lambda count: count.integer(max(least, 1), REPLICAS_MAX)),
        cool_down_ms=fields.get("cool_down", Field.duration_ms, COOL_DOWN_MS),
        query=query,
    )


def _read_metric(field: Field) -> tuple[Metric, str]:
    if not field.is_mapping:
        if not any(map(field.is_word, REPORTED)):
            raise field.expected(f"one of {', '.join(REPORTED)}, or a mapping with a Prometheus query: {{query: …}}")
        return Metric(field.text()), ""
    query = field.mapping(METRIC_KEYS).need("query", Field.text)
    if not query.strip() or len(query) > QUERY_MAX:
        raise field.expected(f"a Prometheus query of 1 to {QUERY_MAX} characters")
    return Metric.QUERY, query


def _read_target(field: Field, metric: Metric) -> float:
    target = field.number(0, 1 if metric.is_mean else TARGET_MAX)
    if not target:
        raise field.expected("a number above 0: how much of the load each replica is to have")
    return target
