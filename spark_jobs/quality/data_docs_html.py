"""The HTML of Data Docs: one page for an index and for a validation, without scripts, every text escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment

from cleantail.home.home_folder import GENERATOR

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --red: #b42318; --green: #1f6b3f; --link: #1557b0; }
@media (prefers-color-scheme: dark) { :root { --red: #ff9a90; --green: #8fdcae; --link: #8ab4f8; } }
body { font: 14px/1.5 system-ui, sans-serif; margin: 16px; max-width: 1200px; }
h1 { font-size: 20px; } a { color: var(--link); }
table { border-collapse: collapse; margin: 12px 0; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: 5px 10px; text-align: left; vertical-align: top; }
table.facts { width: auto; } td { overflow-wrap: anywhere; } ul { margin: 4px 0; padding-left: 18px; }
.failed { color: var(--red); font-weight: 600; } .passed { color: var(--green); }
"""
_PAGE = (
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
"""
    + GENERATOR
    + """
<title>{{ title }}</title>
<style>"""
    + _STYLE
    + """</style>
</head>
<body>
{% if up %}<p><a href="{{ up }}">All validations of {{ topic }}</a></p>{% endif %}
<h1>{{ heading }}</h1>
{% if facts %}<table class="facts">
{% for name, value in facts %}
<tr><th scope="row">{{ name }}</th><td{% if name == "Status" %} class="{{ value }}"{% endif %}>{{ value }}</td></tr>
{% endfor %}
</table>{% endif %}
<table>
<thead><tr>{% for name in head %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr>
{% for cell in row %}
<td{% if cell.status %} class="{{ cell.text }}"{% endif %}>
{% if cell.href %}<a href="{{ cell.href }}">{{ cell.text }}</a>{% else %}{{ cell.text }}{% endif %}
{% if cell.points %}<ul>{% for point in cell.points %}<li>{{ point }}</li>{% endfor %}</ul>{% endif %}
</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</body>
</html>
"""
)
_TEMPLATE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_PAGE)


def page(content: Mapping[str, Any]) -> str:
    """Returns a page as HTML, whole and without scripts; every text is escaped."""
    return _TEMPLATE.render(content)
