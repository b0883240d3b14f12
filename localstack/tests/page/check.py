"""Looks at the page of a running stack with a real browser: python3 check.py URL.

Each check is a function whose name says what holds; names and contrast are for axe (`--axe`). With `--leave`, stays for two lines on
standard input, which say that the stack is gone, and that another stands in its place, and looks at what the page makes of that.
"""

import argparse
import os
import pathlib
import secrets
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import Skipped, Wrong, checks_of, tools, until

try:
    from selenium import webdriver
except ModuleNotFoundError:
    try:
        python = tools("page", ["selenium==4.36.0"]) / "python"
    except Skipped as error:
        sys.exit(f"selenium cannot be fetched: {error}")
    os.execv(python, [str(python), "-B", *sys.argv])
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By

DESK = (1440, 1000)
PHONE = (360, 740)
TAB = "\ue004"
HOSTILE = "</script><script>window.broken=1</script>\"'&#%2f?{}é/".format(secrets.token_hex(3))


class Browser(webdriver.Chrome):
    """A headless Chromium with one window of a size."""

    def __init__(self, width, height, phone=False):
        options = webdriver.ChromeOptions()
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}"):
            options.add_argument(flag)
        if phone:
            metrics = {"width": width, "height": height, "pixelRatio": 2.0, "touch": True}
            options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        super().__init__(options, webdriver.ChromeService(shutil.which("chromedriver")))
        self.run = self.execute_script

    def press(self, *keys):
        webdriver.ActionChains(self).send_keys(*keys).perform()

    def click(self, css):
        self.find_element(By.CSS_SELECTOR, css).click()

    def write(self, css, text):
        """Replaces what a field holds."""
        field = self.find_element(By.CSS_SELECTOR, css)
        field.clear()
        field.send_keys(text)

    def text(self, css):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? null", css)

    def media(self, **features):
        """Pretends that the person prefers something, as `prefers_color_scheme="dark"`."""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})

    def complaints(self):
        """What the console said that is an error, since it was last asked."""
        return [line["message"] for line in self.get_log("browser") if line["level"] == "SEVERE"]


def number(browser, css):
    text = browser.text(css) or ""
    return int(text.replace(",", "")) if text.replace(",", "").replace("−", "-").lstrip("-").isdigit() else None


def live(browser):
    until("the page is live", lambda: (browser.text("#connection") or "").startswith("Live"))


def show(browser, post):
    browser.write("#post", post)
    browser.click("#show button")
    until(f"{post} is in focus", lambda: browser.text("#focus .id") == post)
    until("its count is shown", lambda: number(browser, "#focus .count") is not None)


def act(browser, name):
    """Presses the button of this name and gives the answer, which has to be that it was done."""
    before = browser.text("#answers")
    browser.run(
        "const all = [...document.querySelectorAll('#actions button')];"
        "const one = all.find((button) => button.textContent === arguments[0]); one.scrollIntoView({block: 'center'}); one.click();",
        name,
    )
    until(f"{name} is answered", lambda: browser.text("#answers") != before)
    line = browser.text("#answers li:first-child")
    assert f"{name}: " in line and "not done" not in line, line
    return line


# What holds at a desk: the functions `check_..`. Each gets a browser with the page open and live.


def check_the_figures_and_the_counts_move(browser):
    events = until("events are shown", lambda: number(browser, "[data-figure=events]"))
    counts = browser.text("#hot")
    until("events move", lambda: number(browser, "[data-figure=events]") > events)
    until("counts move", lambda: browser.text("#hot") != counts)
    until("staleness is known", lambda: "ms" in browser.text("[data-figure=p99]") or "s" in browser.text("[data-figure=p99]"))
    until("the chart has a line", lambda: browser.run("return document.querySelector('#chart-rate .line')?.getAttribute('d')"))


def check_a_like_appears_in_a_second_window_and_an_unlike_too(browser):
    post = f"checked-{secrets.token_hex(4)}"
    show(browser, post)
    first, url = browser.current_window_handle, browser.run("return location.href")
    browser.switch_to.new_window("window")
    second = browser.current_window_handle
    browser.get(url)
    live(browser)
    until("the second window shows the post", lambda: browser.text("#focus .id") == post)
    users = browser.run("return document.querySelector('#user').value")
    until("it has no like", lambda: number(browser, "#focus .count") == 0)
    browser.switch_to.window(first)
    assert users != browser.run("return document.querySelector('#user').value"), "each window has a user of its own"
    for count, pressed in ((1, "true"), (0, "false")):
        browser.click("#focus .heart")
        until("the button shows it", lambda: heart(browser) == pressed)
        until("the row is reported", lambda: "the row shows it after" in browser.text("#said"))
        until("the count follows", lambda: number(browser, "#focus .count") == count)
        browser.switch_to.window(second)
        until("the second window follows", lambda: number(browser, "#focus .count") == count)
        assert heart(browser) == "false", "the second window's user likes nothing"
        browser.switch_to.window(first)
    browser.switch_to.window(second)
    browser.close()
    browser.switch_to.window(first)


def heart(browser):
    return browser.run("return document.querySelector('#focus .heart').getAttribute('aria-pressed')")


def check_every_counter_of_a_post_is_shown_and_can_be_used(browser):
    show(browser, f"checked-{secrets.token_hex(4)}")
    counted = lambda name: number(browser, f'#focus .others [data-counter="{name}"] .count')  # noqa: E731
    for name in ("retweets", "replies", "views"):
        until(f"{name} are shown", lambda: counted(name) == 0)
    use = lambda name: browser.click(f'#focus .use[data-counter="{name}"]')  # noqa: E731
    pressed = "return document.querySelector('#focus .use[data-counter=\"retweets\"]').getAttribute('aria-pressed')"
    for wanted, count in (("true", 1), ("false", 0)):
        use("retweets")
        until("the button shows it", lambda: browser.run(pressed) == wanted)
        until("the retweets follow", lambda: counted("retweets") == count)
        idle(browser)
    for count in (1, 2):
        use("replies")
        until("each reply counts", lambda: counted("replies") == count)
        idle(browser)
        use("views")
        until("each view counts", lambda: counted("views") == count)
        idle(browser)
    assert number(browser, "#focus .count") == 0, "likes are a counter of their own"
    browser.run("document.querySelector('#focus .use[data-counter=\"retweets\"]').focus()")
    browser.press(" ")
    until("a space retweets", lambda: counted("retweets") == 1)
    assert browser.run("return document.activeElement.matches('#focus .use[data-counter=\"retweets\"]')"), "focus stays"
    exact = "return [...document.querySelectorAll('#focus .others .exact')].map((node) => node.textContent)"
    until("each says how sure it is", lambda: browser.run(exact) == ["exact"] * 3)


def check_a_threshold_that_the_post_reaches_is_said_and_moves_nothing_where_less_motion_is_asked_for(browser):
    post = f"checked-{secrets.token_hex(4)}"
    show(browser, post)
    said = "return document.querySelector('#milestone').textContent"
    assert browser.run(said) == "", "nothing is reached yet"
    # The events of the post are listened to once its counts are told.
    until("the replies are shown", lambda: number(browser, '#focus .others [data-counter="replies"] .count') == 0)
    for count in (1, 2, 3):
        browser.click('#focus .use[data-counter="replies"]')
        until("the reply counts", lambda: number(browser, '#focus .others [data-counter="replies"] .count') == count)
        idle(browser)
    until("it is said", lambda: browser.run(said) != "")
    told = browser.text("#milestone")
    assert f"3 replies of {post}" in told and "was first" in told, told
    assert browser.run("return document.querySelector('#milestone').getAttribute('role')") == "status", "a screen reader says it"
    animation = "return getComputedStyle(document.querySelector('#milestone .spark')).animationName"
    for wish, name in (("no-preference", "spark"), ("reduce", "none")):
        browser.media(prefers_reduced_motion=wish)
        until(f"with {wish} it is {name}", lambda: browser.run(animation) == name)
    browser.media()
    show(browser, f"checked-{secrets.token_hex(4)}")
    until("it is not said of another post", lambda: browser.run(said) == "")


def idle(browser):
    until("nothing is under way", lambda: not browser.run("return document.querySelector('#focus [aria-busy=\"true\"]')"))


def check_windows_beyond_the_browsers_connections_stay_alive(browser):
    first, url = browser.current_window_handle, browser.run("return location.href")
    more = []
    for _ in range(4):
        browser.switch_to.new_window("window")
        more.append(browser.current_window_handle)
        browser.get(url)
    for window in [first, *more]:
        browser.switch_to.window(window)
        live(browser)
        events = until("events are shown", lambda: number(browser, "[data-figure=events]"))
        until("events move", lambda: number(browser, "[data-figure=events]") > events)
    for window in more:
        browser.switch_to.window(window)
        browser.close()
    browser.switch_to.window(first)


def check_a_hostile_id_is_a_text_and_can_be_liked(browser):
    show(browser, HOSTILE)
    scripts = browser.run("return [window.broken ?? null, document.scripts.length]")
    assert scripts == [None, 1], scripts
    before = number(browser, "#focus .count")
    browser.click("#focus .heart")
    until("it is liked", lambda: number(browser, "#focus .count") == before + 1)
    assert HOSTILE in browser.text("#said"), browser.text("#said")
    browser.click("#focus .heart")
    until("it is not liked any more", lambda: number(browser, "#focus .count") == before)


def check_an_id_that_is_none_is_refused_in_words(browser):
    for bad, why in (("", "is empty"), ("x" * 257, "longer than 256"), ("..", "cannot be asked for")):
        browser.write("#post", bad)
        browser.click("#show button")
        until(why, lambda: why in browser.text("#said"))


def check_everything_is_reached_by_keyboard_and_shows_it(browser):
    show(browser, f"keys-{secrets.token_hex(3)}")
    # What comes later than this may be missed, as what is gone may.
    wanted = browser.run(
        "document.activeElement.blur(); window.scrollTo(0, 0);"
        "const all = [...document.querySelectorAll('button, input, select, a')].filter((node) => node.checkVisibility() && !node.disabled);"
        "all.forEach((node) => (node.dataset.reached = 'no')); return all.length;"
    )
    step = """
      const node = document.activeElement, style = getComputedStyle(node);
      if (node !== document.body) node.dataset.reached = "yes";
      return [style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0, node.outerHTML.slice(0, 120)];
    """
    for _ in range(wanted + 3):
        browser.press(TAB)
        seen, what = browser.run(step)
        assert seen or what.startswith("<body"), f"no focus to be seen on {what}"
    missed = browser.run("return [...document.querySelectorAll('[data-reached=no]')].map((node) => node.outerHTML.slice(0, 120))")
    assert missed == [], missed
    browser.run("document.querySelector('#focus .heart').focus()")
    browser.press(" ")
    until("a space likes", lambda: number(browser, "#focus .count") == 1)
    assert browser.run("return document.activeElement.matches('#focus .heart')"), "focus stays on the button"


def check_nothing_moves_for_who_wants_no_motion(browser):
    moving = "return [...document.querySelectorAll('*')].filter((node) => { const s = getComputedStyle(node);" \
        " return s.animationName !== 'none' || parseFloat(s.transitionDuration) > 0; }).length"
    browser.media(prefers_reduced_motion="reduce")
    assert browser.run(moving) == 0
    browser.media()


def check_the_load_pauses_and_goes_on(browser):
    act(browser, "Pause the load")
    until("it is paused", lambda: browser.text("#load") == "Let the load go on")
    until("events stand still", lambda: number(browser, "[data-figure=rate]") == 0)
    act(browser, "Let the load go on")
    until("it goes on", lambda: browser.text("#load") == "Pause the load")
    until("events move", lambda: number(browser, "[data-figure=rate]") > 0)


def check_the_mirror_is_cut_and_heals(browser):
    fresh = "return [...document.querySelectorAll('#regions li')].map((one) => [one.dataset.region, one.querySelector('.fresh').dataset.fresh])"
    until("both Regions are fresh", lambda: browser.run(fresh) == [["eu", "true"], ["us", "true"]])
    act(browser, "Cut the mirror")
    until("the other Region is not fresh", lambda: ["us", "false"] in browser.run(fresh))
    until("the sum says so", lambda: "not fresh" in browser.text("#focus .exact"))
    act(browser, "Heal the mirror")
    until("both are fresh again", lambda: browser.run(fresh) == [["eu", "true"], ["us", "true"]])


def restarts(browser, part):
    script = """
      const one = [...document.querySelectorAll('#parts li')].find((part) => part.querySelector('.name').textContent === arguments[0]);
      return [one.dataset.state, parseInt(one.querySelector('.restarts').textContent) || 0];
    """
    return browser.run(script, part)


def check_services_are_killed_and_come_back(browser):
    for part in ("consumer", "change-streamer", "trends"):
        before = restarts(browser, part)[1]
        act(browser, f"Kill the {part}")
        until(f"the {part} is back", lambda: restarts(browser, part) == ["up", before + 1], 120)


def check_a_split_grows_the_tree(browser):
    shards = "return document.querySelectorAll('#shards tr').length + (parseInt(document.querySelector('#earlier:not([hidden])')?.textContent.split(' ')[1]) || 0)"
    before = browser.run(shards)
    act(browser, "Split a shard")
    until("there are two more shards", lambda: browser.run(shards) == before + 2)
    until("children stand behind a parent", lambda: browser.run("return document.querySelectorAll('#shards tr[style*=\"--depth: 1\"]').length") >= 2)


def check_the_cache_goes_and_the_counts_stay(browser):
    act(browser, "Stop the cache")
    until("it is gone", lambda: browser.text("#cache") == "Start the cache")
    counts = browser.text("#hot")
    until("counts move without it", lambda: browser.text("#hot") != counts)
    assert "No counts" not in browser.text("#said")
    act(browser, "Start the cache")
    until("it is back", lambda: browser.text("#cache") == "Stop the cache")


def check_injected_drift_is_found_by_a_recount(browser):
    post = f"drifted-{secrets.token_hex(3)}"
    show(browser, post)
    browser.click("#focus .heart")
    until("it has a counter", lambda: number(browser, "#focus .count") == 1)
    browser.write("#actions [name=post_id]", post)
    act(browser, "Inject drift")
    until("the count is wrong", lambda: number(browser, "#focus .count") == 8)
    act(browser, "Run a recount")
    until("the recount says how far it is", lambda: "row keys settled" in browser.text("#recount-said"), 120)
    until("the ledger has it", lambda: post in browser.text("#ledger"), 300)
    until("the count is right", lambda: number(browser, "#focus .count") == 1)
    cells = "return [...document.querySelectorAll('#ledger tr')].map((row) => [...row.cells].map((cell) => cell.textContent));"
    of_post = lambda: [row for row in browser.run(cells) if post in row[1]]
    (row,) = of_post()
    before, after = (int(count) for count in row[2].split(" → "))
    assert before - after == 7 and int(row[3].replace("−", "-")) == -7, row
    until("the recount says how it ended", lambda: "The last one took" in browser.text("#recount-said"), 300)
    # Lines that changed nothing hide no correction, and none of them is shown.
    act(browser, "Run a recount")
    until("another recount is under way", lambda: "Under way" in browser.text("#recount-said"), 120)
    until("and ends", lambda: "The last one took" in browser.text("#recount-said"), 300)
    assert len(of_post()) == 1, browser.run(cells)
    same = [row for row in browser.run(cells) if row[2].split(" → ")[0] == row[2].split(" → ")[1]]
    assert same == [], same


def check_exact_says_what_it_means(browser):
    until("a count is there", lambda: browser.text("#focus .exact") == "exact")
    assert "found by a recount" in browser.run("return document.querySelector('#focus .exact').title")


# What the card of what is trending shows: its claim, and each place as a person reads it.
LISTED = """
const rows = [...document.querySelectorAll('#hot li')].filter((row) => !row.hidden);
return rows.map((row) => [[...row.querySelectorAll('.id')].find((node) => !node.hidden).textContent,
  Number(row.querySelector('.count').textContent.replaceAll(',', ''))]);
"""

# What has moved in the card though nothing was pressed.
MOVED = """
window.moved = [];
new PerformanceObserver((seen) => {
  for (const { sources, hadRecentInput } of seen.getEntries()) {
    if (hadRecentInput) continue;
    window.moved.push(...sources.filter(({ node }) => node?.parentElement?.closest('#trending'))
      .map(({ node, previousRect: from, currentRect: to }) => `${node.outerHTML ?? node.data}: ${from.x},${from.y} to ${to.x},${to.y}`));
  }
}).observe({ type: 'layout-shift', buffered: true });
"""


# Where a count of the card begins, by how many digits it has.
EDGES = """
const count = document.querySelector('#hot li:not([hidden]) .count');
const edge = (text) => ((count.textContent = text), count.getBoundingClientRect().x);
return ['7', '77', '777', '7,777', '777,777'].map(edge);
"""


def listed(browser):
    return browser.run(LISTED)


def choose(browser, name, value):
    browser.run(
        "const select = document.forms['trending-choice'].elements[arguments[0]]; select.value = arguments[1];"
        "select.dispatchEvent(new Event('change', { bubbles: true }));",
        name,
        value,
    )


def check_what_is_trending_moves_and_nothing_is_shifted(browser):
    until("there is a list", lambda: len(listed(browser)) >= 5)
    browser.run(MOVED)
    claim, before = browser.text("#trending-claim"), listed(browser)
    assert claim.startswith(("exact as of ", "not exact as of ")), claim
    for _ in range(2):
        until("the list moves", lambda: listed(browser) != before)
        before = listed(browser)
        assert before == sorted(before, key=lambda item: (-item[1], item[0].encode())), before
    until("so does its moment", lambda: browser.text("#trending-claim") != claim)
    moved = browser.run("return window.moved")
    assert moved == [], moved
    edges = browser.run(EDGES)
    assert len(set(edges)) == 1, f"a count with more digits moves: {edges}"


def check_counter_region_and_window_are_chosen(browser):
    until("there is a list", lambda: listed(browser))
    names = "return [...document.forms['trending-choice'].elements[arguments[0]].options].map((option) => option.value)"
    assert browser.run(names, "window") == ["1m", "10m"]
    assert browser.run(names, "counter") == ["likes", "retweets", "replies", "views", "uses"]
    assert browser.run(names, "region") == ["", "eu", "us", "apac"]
    choose(browser, "window", "10m")
    until("there is a longer one", lambda: listed(browser))
    choose(browser, "counter", "uses")
    until("hashtags are listed", lambda: any(name.startswith("#") for name, _ in listed(browser)))
    everywhere = sum(count for _, count in listed(browser))
    choose(browser, "region", "eu")
    until("those of a region are listed", lambda: 0 < sum(count for _, count in listed(browser)) < everywhere)
    choose(browser, "counter", "views")
    until("views have no regions", lambda: browser.run("return document.forms['trending-choice'].elements.region.disabled"))
    until("but a list", lambda: listed(browser) and "as of" in browser.text("#trending-claim"))
    # By keyboard: the next counter, and a post of the list.
    browser.run("document.forms['trending-choice'].elements.counter.focus()")
    browser.press("r")
    chosen = "return document.forms['trending-choice'].elements.counter.value"
    until("a letter chooses", lambda: browser.run(chosen).startswith("re"))
    until("its posts are listed", lambda: any(name.startswith("post-") for name, _ in listed(browser)))
    browser.run("document.querySelector('#hot li:not([hidden]) button').focus()")
    name = browser.run("return document.activeElement.textContent")
    browser.press(" ")
    until("a space shows the post", lambda: browser.text("#focus .id") == name)
    assert browser.run("return document.activeElement.matches('#hot button')"), "focus stays"


def check_an_unlike_takes_a_post_off(browser):
    act(browser, "Pause the load")
    post = f"checked-{secrets.token_hex(4)}"
    show(browser, post)
    browser.click("#focus .heart")
    seen = lambda: [count for name, count in listed(browser) if name == post]  # noqa: E731
    # At the latest when what the load did has left the window.
    until("the like puts it on", lambda: seen() == [1], 180)
    idle(browser)
    browser.click("#focus .heart")
    until("the unlike takes it off", lambda: seen() == [], 60)
    assert "as of" in browser.text("#trending-claim"), browser.text("#trending-claim")
    act(browser, "Let the load go on")




def nothing_is_wider_than_a_phone(browser):
    show(browser, "x" * 256)
    wide = browser.run(
        "return [...document.querySelectorAll('body *')].filter((node) => node.checkVisibility() && !node.matches('.hidden, .skip') &&"
        " node.getBoundingClientRect().right > innerWidth + 0.5).map((node) => node.outerHTML.slice(0, 120))"
    )
    assert wide == [], wide
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


def a_finger_meets_no_small_button(browser):
    small = browser.run(
        "return [...document.querySelectorAll('button, select')].filter((node) => node.checkVisibility() && Math.min(node.offsetWidth, node.offsetHeight) < 40)"
        ".map((node) => node.outerHTML.slice(0, 120))"
    )
    assert small == [], small


def the_count_stays_beside_the_buttons_that_change_it(browser):
    until("a count is there", lambda: number(browser, "#focus .count") is not None)
    for button in ("Kill the consumer", "Inject drift", "Run a recount", "Pause the load"):
        seen = browser.run(
            "const all = [...document.querySelectorAll('#actions button')];"
            "all.find((button) => button.textContent === arguments[0]).scrollIntoView({block: 'end'});"
            "const at = document.querySelector('#beside').getBoundingClientRect();"
            "const top = document.elementFromPoint(at.left + at.width / 2, at.top + at.height / 2);"
            "return [at.top >= 0 && at.bottom <= innerHeight && at.height > 0, top?.closest('#beside') !== null];",
            button,
        )
        assert seen == [True, True], f"{button}: {seen}"
        same = "return document.querySelector('#beside .count').textContent === document.querySelector('#focus .count').textContent;"
        assert browser.run(same), button


ON_A_PHONE = [
    check_the_figures_and_the_counts_move,
    check_every_counter_of_a_post_is_shown_and_can_be_used,
    check_what_is_trending_moves_and_nothing_is_shifted,
    nothing_is_wider_than_a_phone,
    a_finger_meets_no_small_button,
    the_count_stays_beside_the_buttons_that_change_it,
]


def look(browser, url, checks):
    """Runs checks on one page; what fails is said, and the others still run."""
    failed = 0
    for check in checks:
        browser.get("about:blank")
        browser.get(url)
        live(browser)
        browser.complaints()
        try:
            check(browser)
            assert (complaints := browser.complaints()) == [], f"the console: {complaints}"
            print(f"ok   {check.__name__}", flush=True)
        except (AssertionError, Wrong, WebDriverException) as wrong:
            failed += 1
            print(f"FAIL {check.__name__}: {wrong}", flush=True)
    return failed


# Answers a promise, which WebDriver waits for.
AXE = """
return axe.run(document).then(({violations, passes}) => ({
  passes: passes.length,
  violations: violations.map(({id, impact, help, nodes}) => ({id, impact, help, nodes: nodes.map(({target}) => target.join(" "))})),
}));
"""


def axe(url, script):
    """What axe-core finds wrong with the page, as people with several devices and wishes have it."""
    wrong = passed = 0
    for name, size, phone, scheme in (
        ("desk, light", (1280, 900), False, "light"),
        ("desk, dark", (1280, 900), False, "dark"),
        ("phone, light", (390, 844), True, "light"),
        ("phone, dark", (390, 844), True, "dark"),
    ):
        with Browser(*size, phone=phone) as browser:
            browser.media(prefers_color_scheme=scheme)
            browser.get(url)
            live(browser)
            browser.run(script)
            found = browser.run(AXE)
        passed += found["passes"]
        for violation in found["violations"]:
            wrong += 1
            print(f"{name}: {violation['impact']}: {violation['id']}: {violation['help']}: {violation['nodes'][:5]}")
    print(f"axe: {passed} rules passed in 4 views, {wrong} violations")
    return 1 if wrong or not passed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--leave", action="store_true")
    parser.add_argument("--axe", type=pathlib.Path, help="axe-core's axe.min.js, which alone is then asked")
    parser.add_argument("--only", action="append", default=[], help="checks with this in their name; may be given more than once")
    parser.add_argument("--skip", action="append", default=[], help="no check with this in its name; may be given more than once")
    asked = parser.parse_args()
    if asked.axe:
        sys.exit(axe(asked.url, asked.axe.read_text()))

    def is_asked_for(check):
        has = lambda names: any(name in check.__name__ for name in names)  # noqa: E731
        return (has(asked.only) or not asked.only) and not has(asked.skip)

    chosen = [list(filter(is_asked_for, checks)) for checks in (checks_of(globals()), ON_A_PHONE)]
    with Browser(*DESK) as browser:
        failed = look(browser, asked.url, chosen[0])
    with Browser(*PHONE, phone=True) as browser:
        failed += look(browser, asked.url, chosen[1])
    if asked.leave:
        failed += watched_to_its_end(asked.url)
    sys.exit(1 if failed else 0)


# Counts that the stack has answered are on their way to the page until `release()`.
HOLD_ANSWERS = """
const ask = window.fetch;
const released = new Promise((release) => (window.release = release));
window.held = window.given = 0;
window.fetch = async (url, options) => {
  const answer = await ask(url, options);
  if (!String(url).endsWith(":batchGet")) return answer;
  const body = await answer.text();
  window.held += 1;
  await released;
  window.given += 1;
  return new Response(body, answer);
};
"""


def watched_to_its_end(url):
    with Browser(*DESK) as browser:
        browser.get(url)
        live(browser)
        show(browser, f"outlived-{secrets.token_hex(4)}")
        browser.click("#focus .heart")
        until("the like is counted", lambda: number(browser, "#focus .count") == 1)
        browser.run(HOLD_ANSWERS)
        until("an answer is on its way", lambda: browser.run("return held > 0"))
        print("watching", flush=True)
        sys.stdin.readline()
        until("the page says that the stack is gone", lambda: "Connection lost" in browser.text("#connection"))
        tint = "return getComputedStyle(document.querySelector('#focus .exact')).color;"
        soft = "const probe = document.createElement('i'); probe.className = 'aside'; document.body.append(probe);" \
            " const { color } = getComputedStyle(probe); probe.remove(); return color;"
        until("nothing is called exact in green", lambda: browser.run(tint) == browser.run(soft))
        print("ok   the_page_says_that_the_stack_is_gone", flush=True)
        # Now come the answers that it gave before.
        browser.run("release()")
        until("they have come", lambda: browser.run("return given === held"))
        sys.stdin.readline()
        live(browser)
        # A new stack counts from nothing: what the page knew of the old one would hide that.
        until("it has no like any more", lambda: number(browser, "#focus .count") == 0)
        browser.click("#focus .heart")
        until("the like is counted", lambda: number(browser, "#focus .count") == 1)
        print("ok   the_page_finds_a_new_stack_and_forgets_the_old_one", flush=True)
    return 0


if __name__ == "__main__":
    main()
