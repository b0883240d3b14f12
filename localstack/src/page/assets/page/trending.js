// What is trending: the list of one counter, in one region, over one window, and how sure it is.

import { byId, clock, el, mark, number, say } from "./dom.js";
import { follow, request } from "./live.js";

const SHOWN = 10;
// So long after a finger has left the list nothing moves in it.
const STILL = 3_000;
// A list that does not change is not sent again: so often it is asked for how old it is.
const AGAIN = 3_000;
const WHY = {
  loss: "some changes of this window were lost on their way to the list",
  young: "the window begins before the list was kept",
  missing: "a part of it has not been heard of for a minute",
  clock: "a change came later than it should have",
  shed: "there was no room for all of it",
  blocked: "some of it may not be shown",
};

/** What a list says of itself, for people. */
function claim({ exact, bound, reason, as_of: at }) {
  if (exact) return `exact as of ${clock(at)}`;
  const why = bound === undefined ? (WHY[reason] ?? "it is not known how far it is off") : `no count is off by more than ${number(bound)}`;
  return `not exact as of ${clock(at)}: ${why}`;
}

/** The card; `show(post)` is called for a post that a person picks. */
export function trending(show) {
  const form = byId("trending-choice");
  const [counter, region, span] = ["counter", "region", "window"].map((name) => form.elements[name]);
  const rows = byId("hot");
  // Places stay, and what is in them changes: so nothing is moved on the page.
  const places = Array.from({ length: SHOWN }, () => {
    const [id, tag, count] = [el("button", { type: "button", class: "id" }), el("span", { class: "id" }), el("span", { class: "count" })];
    id.addEventListener("click", () => show(id.textContent));
    const root = el("li", { hidden: "" }, id, tag, count);
    rows.append(root);
    return { root, id, tag, count };
  });

  let known = null;
  let made = true;
  let asked = null;
  let unfollow = null;
  let told = null;
  let heard = -Infinity;
  let touched = -Infinity;

  const of = (name) => known?.counters.find((one) => one.name === name);
  const query = () => {
    const wanted = new URLSearchParams({ counter: counter.value, window: span.value, k: SHOWN });
    if (region.value !== "") wanted.set("region", region.value);
    return wanted.toString();
  };

  function fill(select, values) {
    const had = [...select.options].map(({ value }) => value);
    if (had.join() === values.map(([value]) => value).join()) return;
    const chosen = select.value;
    select.replaceChildren(...values.map(([value, text]) => el("option", { value }, text)));
    if (values.some(([value]) => value === chosen)) select.value = chosen;
  }

  // While a person is using the list it stays as it is: nothing changes under a finger.
  function held() {
    const pointed = matchMedia("(hover: hover)").matches && rows.matches(":hover");
    return pointed || rows.querySelector(":focus-visible") !== null || performance.now() - touched < STILL;
  }
  rows.addEventListener("touchstart", () => (touched = performance.now()), { passive: true });

  function draw(anyway = false) {
    if (!anyway && held()) return;
    const hashtags = of(counter.value)?.hashtags ?? false;
    places.forEach(({ root, id, tag, count }, at) => {
      const item = told?.items[at];
      root.hidden = item === undefined;
      if (item === undefined) return;
      id.hidden = hashtags;
      tag.hidden = !hashtags;
      say(hashtags ? tag : id, hashtags ? `#${item.id}` : item.id);
      say(count, number(item.count));
    });
    mark(rows, "data-empty", told !== null && told.items.length === 0);
    const said = byId("trending-claim");
    if (told === null) said.removeAttribute("data-exact");
    else mark(said, "data-exact", told.exact);
    say(said, told !== null ? claim(told) : made ? "no list yet" : "no lists: they are made where Kafka is in the stack's process");
  }

  function take(list) {
    heard = performance.now();
    if (told === null || list.as_of >= told.as_of) told = list;
    draw();
  }

  /** Follows the list that is chosen while the page is visible and there are lists. */
  function attend() {
    const wanted = known === null || document.hidden ? null : query();
    if (wanted === asked) return;
    unfollow?.();
    [unfollow, asked] = [null, wanted];
    if (wanted === null) return;
    const ask = () => request(`/v1/top?${wanted}`);
    unfollow = follow({ places: ["tally-top"], events: `/v1/top:stream?${wanted}`, ask, heard: take });
  }

  async function again() {
    const wanted = asked;
    if (wanted === null || performance.now() - heard < AGAIN) return;
    const list = await request(`/v1/top?${wanted}`).catch(() => null);
    if (list !== null && wanted === asked) take(list);
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    choose();
    told = null;
    draw(true);
    attend();
  });
  document.addEventListener("visibilitychange", attend);
  setInterval(again, 1_000);

  /** A counter without regions has one list alone. */
  function choose() {
    const has = of(counter.value)?.regions ?? false;
    region.disabled = !has;
    if (!has) region.value = "";
  }
  draw(true);

  return {
    /** What lists there are, nothing while there are none; and whether any are made. */
    offer(lists, any) {
      known = lists;
      if (made !== any) {
        made = any;
        draw(true);
      }
      if (lists !== null) {
        fill(counter, lists.counters.map(({ name, hashtags }) => [name, hashtags ? `${name} of hashtags` : name]));
        fill(region, [["", "all"], ...lists.regions.map((name) => [name, name])]);
        fill(span, lists.windows.map((name) => [name, name]));
        choose();
      }
      attend();
    },
    /** Forgets what was known: another stack is there now. */
    forget() {
      told = null;
      draw(true);
    },
  };
}
