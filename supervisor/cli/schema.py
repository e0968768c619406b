"""`supervise schema`: the JSON Schema of the run spec, for editors."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of the run spec.

    An editor takes it by a first line `# yaml-language-server: $schema=./supervise.schema.json` in the spec.
    """
    import json

    from supervisor.edges import specfile

    click.echo(json.dumps(specfile.json_schema(), ensure_ascii=False, indent=2))
