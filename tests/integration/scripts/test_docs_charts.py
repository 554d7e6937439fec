"""The charts of the documentation: valid SVG, marks where the values are, words for those who do not see them."""

import xml.etree.ElementTree as ElementTree

import docs_charts
import pytest

SVG = docs_charts.dots("Speed", "times", {"A <b>": {"one": 0.5, "two": 2.0}, "B": {"one": 8.0}})


def elements(chart: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(chart).iter(kind))


def test_dots_are_on_a_logarithmic_axis_and_series_differ_in_shape() -> None:
    half, eight = (float(each.get("cx")) for each in elements(SVG, "circle")[1:])  # the first is the legend's
    square = elements(SVG, "rect")[1]
    two = float(square.get("x")) + 4
    assert two - half == pytest.approx(eight - two, abs=0.2) and two > half
    [limit] = [each for each in elements(SVG, "line") if each.get("class") == "limit"]
    assert float(limit.get("x1")) == pytest.approx((half + two) / 2, abs=0.2)


def test_charts_describe_their_numbers_and_escape_names() -> None:
    [title], [description] = elements(SVG, "title"), elements(SVG, "desc")
    assert title.text == "Speed" and "A <b> 0.5, 2; B 8" in description.text
    assert ElementTree.fromstring(SVG)[0].get("aria-label") == "Speed"


def test_growth_that_is_proportional_is_a_straight_line() -> None:
    chart = docs_charts.lines("Growth", "clips", "ms", {"light": {8: 1.0, 16: 2.0, 32: 4.0}})
    [line] = elements(chart, "polyline")
    (x0, y0), (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in line.get("points").split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2) and y1 - y0 == pytest.approx(y2 - y1, abs=0.2) and y0 > y1
    assert "8 1, 16 2, 32 4" in elements(chart, "desc")[0].text
