"""The HTML report: one page that is well formed, self-contained and escaped."""

from html.parser import HTMLParser

from audioaug.report.to_html import render

VOID = {"meta", "br"}


class Outline(HTMLParser):
    """Collects the tags, checks that each is closed, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.words = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def outline(report):
    """The page, parsed."""
    parsed = Outline()
    parsed.feed(render(report))
    parsed.close()
    assert parsed.open == []
    return parsed


def test_the_page_is_well_formed_without_script_or_network(report):
    parsed = outline(report)
    assert not parsed.seen & {"script", "link", "img", "iframe"}
    assert "http" not in render(report)


def test_names_are_shown_as_they_are(hostile):
    text = "".join(outline(hostile).words)
    assert "Use <script>|alert(1)|</script>`[x](y)` [31m [bold]* now." in text
    assert "\x1b" not in text


def test_the_verdict_comes_first_and_the_numbers_follow(race):
    words = [word for word in outline(race).words if word.strip()]
    body = words[2:]
    assert body[0] == race.verdict
    assert body[1] == f"{race.recommendation.because} "
    assert "40.1 ±0.3" in body
    assert any("284 ms = model 38.0 ms + waiting 246 ms" in word for word in body)
