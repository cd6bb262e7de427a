"""The plot of a read-ahead window."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.bench.window import Event, Sample, ascii_plot, svg
from tiered.settings import MIB

SAMPLES = [Sample(n * MIB, (1 + n % 8) * MIB, n % 3 * MIB, n / 10) for n in range(1, 65)]


def test_the_picture_is_well_formed_and_shows_every_event() -> None:
    root = ElementTree.fromstring(svg(SAMPLES, [Event(20 * MIB, "this"), Event(40 * MIB, "that")]))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"this", "that", "MiB read"} <= set(texts)
    line = root.find("{http://www.w3.org/2000/svg}polyline")
    assert line is not None
    assert len(line.attrib["points"].split()) == len(SAMPLES)


def test_the_plot_for_a_terminal_fits_it() -> None:
    lines = ascii_plot(SAMPLES).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].endswith("64 MiB read")
