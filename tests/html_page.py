"""The elements and texts of a page of ours, read without a browser."""

from html.parser import HTMLParser

VOID = {"wbr", "meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """The elements and texts of a page, whose tags must be balanced."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.texts, self.scripts = [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append((dict(attributes).get("type"), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, text):
        if self.open and self.open[-1] == "script":
            kind, before = self.scripts[-1]
            self.scripts[-1] = kind, before + text
        else:
            self.texts.append(text)

    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]
