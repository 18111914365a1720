"""`phalanx reliability causes`, `symptoms` and `xid`: what breaks, and where that is from."""

from __future__ import annotations

import click

from phalanx.cli.output import Column, Output, emit, emit_one, output_option
from phalanx.cli.reliability.options import fleet_of, node_option

PROFILE_COLUMNS = (Column("profile"), Column("mttf_h", "MTTF H"), Column("title"), Column("source", wide=True))
CAUSE_COLUMNS = (
    Column("cause"),
    Column("domain"),
    Column("recovery"),
    Column("share"),
    Column("every_h", "EVERY H"),
    Column("rate"),
    Column("assumed", wide=True),
)
SYMPTOM_COLUMNS = (Column("symptom"), Column("domains"), Column("severity"))
XID_COLUMNS = (
    Column("code"),
    Column("name"),
    Column("domain"),
    Column("recovery"),
    Column("severity"),
    Column("blames_node", "BLAMES NODE"),
)


@click.command()
@click.argument("profile", required=False, metavar="[PROFILE]")
@click.option("--gpus", type=click.IntRange(1, 10_000_000), default=10_000, show_default=True, help="GPUs of the job.")
@node_option
@output_option
def causes(profile: str | None, gpus: int, gpus_per_node: int, output: Output) -> None:
    """List the published failure profiles, or the causes of PROFILE with their rates for a number of GPUs."""
    from phalanx.faults.taxonomy.cause import shares, unit_rate
    from phalanx.faults.taxonomy.choose import profile_of
    from phalanx.faults.taxonomy.published import PROFILES

    fleet = fleet_of(gpus, gpus_per_node)
    if profile is None:
        rows = [
            {
                "profile": each.name,
                "mttf_h": None if each.mix else round(each.mttf_hours(fleet), 3),
                "title": each.title,
                "source": f"{each.source}, {each.date}",
            }
            for each in PROFILES.values()
        ]
        emit(rows, PROFILE_COLUMNS, output)
        return
    found = profile_of(profile)
    emit(
        [
            {
                "cause": cause.name,
                "domain": cause.domain.value,
                "recovery": cause.recovery.value,
                "share": round(share, 4),
                "every_h": round(1 / cause.rate.of(fleet), 2),
                "rate": unit_rate(cause),
                "assumed": cause.assumed or None,
            }
            for cause, share in shares(found, fleet)
        ],
        CAUSE_COLUMNS,
        output,
    )
    if output in ("table", "wide"):
        click.echo(f"\nfrom {found.source}, {found.date}; one every {found.mttf_hours(fleet):.3g} h on {gpus:,} GPUs")


@click.command()
@output_option
def symptoms(output: Output) -> None:
    """List symptoms with the domains in which their cause may lie."""
    from phalanx.faults.taxonomy.symptoms import SYMPTOMS

    rows = [
        {"symptom": each.name, "domains": [domain.value for domain in each.domains], "severity": each.severity.value}
        for each in SYMPTOMS
    ]
    emit(rows, SYMPTOM_COLUMNS, output)


@click.command()
@click.argument("code", required=False, type=click.IntRange(0, 9999), metavar="[CODE]")
@output_option
def xid(code: int | None, output: Output) -> None:
    """List XID codes of the NVIDIA driver with their causes, or show one CODE."""
    from phalanx.faults.taxonomy.xid import XIDS, Xid
    from phalanx.faults.taxonomy.xid import xid as row_of

    def row(each: Xid) -> dict[str, object]:
        return {
            "code": each.code,
            "name": each.name,
            "domain": each.domain.value,
            "recovery": each.recovery.value,
            "severity": each.severity.value,
            "blames_node": each.blames_node,
        }

    if code is not None:
        emit_one(row(row_of(code)), XID_COLUMNS, output)
    else:
        emit([row(each) for each in XIDS.values()], XID_COLUMNS, output)
