#!/usr/bin/env python3
"""Draws the pictures of README.md and docs/how-it-works.md, as SVG files beside this script.

    docs/pictures/draw.py           draws them
    docs/pictures/draw.py --check   draws nothing, and exits with 1 where a file is stale; .ci/shape runs this

It needs Python alone.
"""
import pathlib
import sys
from html import escape

HERE = pathlib.Path(__file__).resolve().parent
INK, GREY, RED, GREEN = "#1f2933", "#6b7785", "#c0392b", "#1e7e45"
# Fill and line of what stores, what runs, and what people use.
LOG, TABLE, PROGRAM, PEOPLE = ("#fff1d6", "#b7791f"), ("#dcebfa", "#2b6cb0"), ("#eef1f4", "#6b7785"), ("#e7f6ec", "#2f855a")


class Picture:
    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            '<style>text{font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}'
            ".b{font-weight:600}.s{font-size:11.5px}.m{font-family:ui-monospace,Menlo,\"DejaVu Sans Mono\",monospace;font-size:12px}</style>",
            "<defs>",
            *(
                f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
                f'<path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
                for name, colour in (("ink", INK), ("red", RED), ("grey", GREY), ("green", GREEN))
            ),
            "</defs>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        ]

    def text(self, x, y, words, style="", colour=INK, anchor="middle"):
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{style}" fill="{colour}">{escape(words)}</text>')

    def box(self, x, y, width, height, lines, look=PROGRAM, dashed=False):
        """A box with its lines of text in the middle, the first one bold."""
        fill, line = look
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{line}" stroke-width="1.5"{dash}/>'
        )
        top = y + height / 2 - 8 * len(lines) + 12
        for nth, words in enumerate(lines):
            self.text(x + width / 2, top + 16 * nth, words, "b" if nth == 0 else "s")

    def log(self, x, y, width, lines):
        """A topic, with the records of a partition below its name."""
        self.box(x, y, width, 44, lines, LOG)
        for nth in range(8):
            self.parts.append(
                f'<rect x="{x + 6 + nth * (width - 12) / 8:.1f}" y="{y + 50}" width="{(width - 12) / 8 - 3:.1f}" height="9" '
                f'fill="{LOG[0]}" stroke="{LOG[1]}"/>'
            )

    def cells(self, x, y, width, cells, look=LOG):
        """Records of a partition side by side: a number above each, and what it says. A third word crosses it out or colours it."""
        for nth, (number, lines, *mark) in enumerate(cells):
            left, dead = x + nth * width, "lost" in mark
            fill = "#ffffff" if dead else look[0]
            dash = ' stroke-dasharray="4 3"' if dead else ""
            height = 16 + 16 * len(lines)
            self.parts.append(f'<rect x="{left}" y="{y}" width="{width - 6}" height="{height}" fill="{fill}" stroke="{look[1]}"{dash}/>')
            self.text(left + (width - 6) / 2, y - 6, str(number), "s", GREY)
            for line, words in enumerate(lines):
                colour = {"red": RED, "green": GREEN}.get(mark[0] if mark else "", INK)
                self.text(left + (width - 6) / 2, y + 20 + 16 * line, words, "s", colour)

    def table(self, x, y, widths, rows, look=TABLE):
        """Rows of words, the first one bold."""
        for nth, row in enumerate(rows):
            left, top = x, y + 24 * nth
            for width, words in zip(widths, row, strict=True):
                fill = look[0] if nth == 0 else "#ffffff"
                self.parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="24" fill="{fill}" stroke="{look[1]}"/>')
                self.text(left + 8, top + 16, words, "s b" if nth == 0 else "s", anchor="start")
                left += width

    def arrow(self, *points, words="", at=None, colour="ink", dashed=False, anchor="middle"):
        """A line through the points, with words at a place."""
        ink = {"ink": INK, "red": RED, "grey": GREY, "green": GREEN}[colour]
        path = "M" + "L".join(f"{x} {y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<path d="{path}" fill="none" stroke="{ink}" stroke-width="1.5" marker-end="url(#{colour})"{dash}/>')
        if words:
            (x, y), last = points[0], points[-1]
            place = at or ((x + last[0]) / 2, (y + last[1]) / 2 - 6)
            for nth, line in enumerate(words.split("\n")):
                self.text(place[0], place[1] + 14 * nth, line, "s", ink, anchor)

    def cross(self, x, y, width, height):
        self.parts.append(
            f'<path d="M{x} {y}l{width} {height}M{x + width} {y}l{-width} {height}" stroke="{RED}" stroke-width="2" opacity="0.45"/>'
        )

    def svg(self):
        return "\n".join([*self.parts, "</svg>", ""])


def pipeline():
    picture = Picture(980, 470, "Two steps: events become rows, changes of rows become counts")
    text, box, arrow = picture.text, picture.box, picture.arrow
    text(20, 28, "Step 1: events become rows", "b", anchor="start")
    box(20, 52, 90, 44, ["producers"], PEOPLE)
    picture.log(150, 52, 130, ["topic likes", "Kafka"])
    box(325, 52, 110, 44, ["consumer", "writes rows"])
    box(485, 52, 130, 44, ["table likes", "DynamoDB, rows"], TABLE)
    box(325, 134, 110, 34, ["topic likes.dlq"], LOG)
    for left, right in ((110, 150), (280, 325), (435, 485)):
        arrow((left, 74), (right, 74))
    arrow((380, 96), (380, 134), words="not an event", at=(386, 119), anchor="start")

    text(960, 28, "Step 2: changes of rows go to a log ...", "b", anchor="end")
    box(700, 52, 90, 44, ["relay"])
    picture.log(835, 52, 125, ["topic changes", "Kafka"])
    arrow((615, 74), (700, 74), words="stream")
    arrow((790, 74), (835, 74))

    box(560, 180, 130, 48, ["recount", "compares, corrects"])
    arrow((575, 96), (575, 180), words="rows", at=(569, 150), anchor="end")
    arrow((690, 196), (868, 196), (868, 114), words="corrections", at=(778, 190))
    arrow((884, 114), (884, 214), (690, 214), words="reads the log", at=(778, 229))

    text(920, 374, "... and become counts", "b", anchor="end")
    box(770, 296, 155, 54, ["fold", "keeps the counters"])
    arrow((900, 114), (900, 296))
    box(500, 254, 160, 40, ["table like_counts"], TABLE)
    box(500, 306, 160, 34, ["who was the Nth"], TABLE)
    box(500, 352, 160, 40, ["Redis", "cache"], TABLE)
    arrow((770, 308), (715, 308), (715, 274), (660, 274))
    arrow((770, 323), (660, 323))
    arrow((770, 338), (715, 338), (715, 372), (660, 372))
    arrow((600, 254), (600, 228))

    box(800, 410, 160, 44, ["trends", "what is trending"])
    arrow((945, 114), (945, 410))
    box(215, 290, 150, 60, ["count-api", "number, exact,", "as_of, fresh"])
    arrow((500, 274), (430, 274), (430, 308), (365, 308))
    arrow((500, 323), (365, 323))
    arrow((500, 372), (430, 372), (430, 338), (365, 338))
    arrow((800, 432), (290, 432), (290, 350), words="topic boards", at=(580, 426))
    box(20, 298, 90, 44, ["people"], PEOPLE)
    arrow((215, 320), (110, 320))
    arrow((250, 290), (250, 116), words="PUT and DELETE", at=(244, 200), colour="grey", dashed=True, anchor="end")
    return picture


def rows():
    picture = Picture(900, 400, "A consumer is killed, and another one reads the same records again")
    text = picture.text
    text(20, 28, "One partition of the topic likes", "b", anchor="start")
    picture.cells(20, 62, 104, [(41, ["ann likes"]), (42, ["bob likes"]), (43, ["ann unlikes"]), (44, ["cat likes"])])
    picture.arrow((20, 130), (20, 100), words="committed: 41", at=(26, 128), anchor="start", colour="grey")
    picture.box(20, 165, 190, 60, ["consumer A", "41 and 43 are written,", "42 is under way"])
    picture.cross(20, 165, 190, 60)
    picture.text(115, 245, "killed", "s b", RED)
    picture.box(20, 290, 190, 60, ["consumer B", "takes the partition over,", "begins at 41 again"])
    text(480, 28, "Its rows in the table likes, in the end", "b", anchor="start")
    picture.table(480, 50, [90, 90, 200], [
        ("user", "version", "says"), ("ann", "43", "tombstone: does not like"), ("bob", "42", "likes"), ("cat", "44", "likes"),
    ])
    picture.arrow((210, 180), (480, 86), words="41, 43", at=(360, 112), colour="grey")
    picture.arrow((210, 205), (440, 196), (480, 110), words="42 arrives late: written", at=(300, 192), colour="grey", dashed=True)
    for nth, (words, colour) in enumerate([
        ("41 ann likes: refused, the row has 43", "red"),
        ("42 bob likes: refused, the row has 42", "red"),
        ("43 ann unlikes: refused, the row has 43", "red"),
        ("44 cat likes: written, there was no row", "green"),
    ]):
        picture.arrow((210, 298 + 15 * nth), (270, 285 + 24 * nth), colour=colour)
        text(282, 289 + 24 * nth, words, "m", {"red": RED, "green": GREEN}[colour], "start")
    text(282, 384, "A refusal is a success: the row is at least as new. B commits 45.", "s", anchor="start")
    return picture


def changes():
    picture = Picture(740, 465, "A relay is replaced, and sends some changes again")
    text = picture.text
    text(20, 28, "The table's change stream", "b", anchor="start")
    picture.cells(20, 58, 62, [(f"s{nth}", [who]) for nth, who in enumerate(["ann", "bob", "cat", "dan", "eve"], 1)], TABLE)
    picture.arrow((110, 124), (110, 96), colour="grey")
    text(110, 138, "stored: s2 is in", "s", GREY)
    picture.box(20, 150, 130, 58, ["relay A", "sends s1 to s4"])
    picture.cross(20, 150, 130, 58)
    text(20, 227, "dies before it stores s4", "s b", RED, "start")
    picture.box(480, 150, 170, 58, ["relay B", "begins after s2"])
    picture.arrow((48, 96), (48, 150))
    picture.arrow((172, 96), (172, 168), (480, 168), words="from s3 on", at=(330, 162))
    text(20, 270, "One partition of the topic changes", "b", anchor="start")
    picture.cells(20, 302, 180, [
        (7, ["back-link: the start", "s1 ann +1,  s2 bob +1"]),
        (8, ["back-link: s2", "s3 cat +1,  s4 dan +1"]),
    ])
    picture.cells(480, 302, 236, [(9, ["back-link: s2", "s3 cat +1,  s4 dan +1,  s5 eve +1"])])
    picture.arrow((150, 195), (290, 195), (290, 286), words="7 and 8", at=(297, 245), anchor="start")
    picture.arrow((598, 208), (598, 286), words="9", at=(605, 245), anchor="start")
    text(20, 382, "The filter of every reader", "b", anchor="start")
    for x, words, colour in ((107, "has s2", INK), (287, "has s4", INK)):
        text(x, 404, words, "s", colour)
    text(595, 404, "s3 and s4 are in: passed over", "s", RED)
    text(595, 422, "s5 is new: accepted, has s5", "s", GREEN)
    text(107, 448, "count 2", "s b")
    text(287, 448, "count 4", "s b")
    text(595, 448, "count 5", "s b")
    return picture


def correction():
    picture = Picture(940, 415, "A counter is edited by hand, and a recount corrects it while people like")
    text = picture.text
    text(20, 28, "One partition of the topic changes", "b", anchor="start")
    picture.cells(20, 62, 148, [
        (20, ["cat +1"]), (21, ["dan +1"]), (22, ["marker 7f3a"]), (23, ["correction: in doubt"], "red"),
        (24, ["marker 91c0"]), (25, ["correction: -27"], "green"),
    ])
    begins = "1: reading begins at the offset\nthat the fold has stored"
    picture.arrow((20, 140), (20, 98), words=begins, at=(26, 124), anchor="start", colour="grey")
    found = "3: the marker is in the log, and so is all\nthat happened before the rows were read"
    picture.arrow((387, 140), (387, 98), words=found, at=(393, 124), anchor="start", colour="grey")
    again = "the second pass:\n1 to 4 again"
    picture.arrow((683, 140), (683, 98), words=again, at=(689, 124), anchor="start", colour="grey")
    text(20, 190, "The first pass", "b", anchor="start")
    text(20, 222, "2: The rows are read: ann, bob, cat", "b", anchor="start")
    text(20, 241, "Dan's row comes a moment too late to be read.", "s", anchor="start")
    text(20, 258, "After two seconds a marker is put beside the rows.", "s", anchor="start")
    text(20, 292, "4: The counter is read, then the log up to its version", "b", anchor="start")
    picture.table(20, 306, [150, 90, 210], [("like_counts", "likes", "version"), ("edited to 30, and dan", "31", "23: all before 23 is in")])
    text(20, 380, "Rows as of 23: ann and bob as read, cat and dan as the log says: 4.", "s", anchor="start")
    text(20, 398, "The counter has 31. It has to lose 27.", "s b", anchor="start")
    text(520, 222, "5: What the fold makes of the corrections", "b", anchor="start")
    picture.table(520, 236, [90, 60, 100, 150], [
        ("after offset", "likes", "corrections", "answers say"), ("22", "31", "0", "exact, and is wrong"),
        ("23", "31", "1", "not exact"), ("25", "4", "2", "exact"),
    ])
    text(520, 354, "The correction at 23 must be the counter's 1st, that at 25 its 2nd.", "s", anchor="start")
    text(520, 372, "So a copy of either does nothing.", "s", anchor="start")
    return picture


PICTURES = {"pipeline": pipeline, "rows": rows, "changes": changes, "correction": correction}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    for name, draw in PICTURES.items():
        file, svg = HERE / f"{name}.svg", draw().svg()
        if not sys.argv[1:]:
            file.write_text(svg)
        elif not file.exists() or file.read_text() != svg:
            sys.exit(f"docs/pictures/{name}.svg is stale: run docs/pictures/draw.py")


if __name__ == "__main__":
    main()
