"""axe.py URL AXE: what axe-core finds wrong with the page, as people with several devices and wishes have it."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "localstack/tests/page"))
from webdriver import Driver  # noqa: E402

SEEN_AS = [
    ("desk, light", (1280, 900), False, "light"),
    ("desk, dark", (1280, 900), False, "dark"),
    ("phone, light", (390, 844), True, "light"),
    ("phone, dark", (390, 844), True, "dark"),
]
# Answers a promise, which WebDriver waits for.
RUN = """
return axe.run(document).then(({violations, passes}) => ({
  passes: passes.length,
  violations: violations.map(({id, impact, help, nodes}) => ({id, impact, help, nodes: nodes.map(({target}) => target.join(" "))})),
}));
"""


def main(url, axe):
    axe = pathlib.Path(axe).read_text()
    wrong = passed = 0
    with Driver() as driver:
        for name, size, phone, scheme in SEEN_AS:
            with driver.browser(*size, phone=phone) as browser:
                browser.media(prefers_color_scheme=scheme)
                browser.open(url)
                browser.until("the page is live", lambda: "Live" in (browser.text("#connection") or ""))
                browser.run(axe)
                found = browser.run(RUN)
            passed += found["passes"]
            for violation in found["violations"]:
                wrong += 1
                print(f"{name}: {violation['impact']}: {violation['id']}: {violation['help']}: {violation['nodes'][:5]}")
    print(f"axe: {passed} rules passed in {len(SEEN_AS)} views, {wrong} violations")
    return 1 if wrong or not passed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
