// Posts: their counts as they move, and liking and unliking them by hand, all through the public API.

import { byId, clock, el, list, mark, number, say, span } from "./dom.js";
import { follow, post as send, request } from "./live.js";

const EVERY = 1000;
const SHOWN = 7;
// So long after a finger has left the list nothing moves in it.
const STILL = 3_000;
const EXACT = {
  true: "The rows had this number at some moment since the time beside it. Damage that nothing has noticed yet is found by a recount.",
  false: "A loss is known and not repaired yet, or how things stand was not read for some seconds. A recount repairs what is wrong.",
};
const utf8 = new TextEncoder();

/** What is wrong with an id; nothing if it may be one. */
function fault(id) {
  if (id === "") return "is empty";
  if (!id.isWellFormed()) return "has half a character in it";
  if (utf8.encode(id).length > 256) return "is longer than 256 bytes";
  if (/\p{Cc}/u.test(id)) return "has control characters in it";
  // Escaped or not, a browser takes these for steps in the path.
  if (id === "." || id === "..") return "cannot be asked for by a browser";
  return null;
}

const likesOf = (post) => `/v1/posts/${encodeURIComponent(post)}/likes`;
const likeOf = (post, user) => `${likesOf(post)}/${encodeURIComponent(user)}`;

/** The posts of the page; `now()` is the stack's time. */
export function posts(now) {
  const counts = new Map();
  const mine = new Map();
  const busy = new Set();
  let candidates = [];
  let shown = [];
  let touched = -Infinity;
  let focus = null;
  let user = sessionStorage.getItem("user") ?? `you-${crypto.getRandomValues(new Uint16Array(1))[0].toString(16).padStart(4, "0")}`;
  let unfollow = null;
  let reached = true;
  let turn = 0;

  const listed = () => [...new Set([focus, ...candidates, ...shown])].filter((post) => post !== null);

  // What is seen of one post, large or in the list.
  function view(post, large) {
    const heart = el("button", { type: "button", class: "heart" }, el("span", { class: "sign", "aria-hidden": "true" }));
    const label = el("span", { class: large ? "label" : "label hidden" });
    heart.append(label);
    heart.addEventListener("click", () => toggle(post));
    const name = large ? el("h3", { class: "id" }, post) : el("button", { type: "button", class: "id" }, post);
    if (!large) name.addEventListener("click", () => show(post));
    const count = el("span", { class: "count" }, "–");
    const exact = el("span", { class: "exact" });
    const fresh = el("span", { class: "fresh" });
    const root = large ? el("article", { class: "post" }) : el("li", { class: "post" });
    root.append(heart, name, el("span", { class: "numbers" }, count, exact, fresh));
    return { root, post, large, heart, label, name, count, exact, fresh };
  }

  function fill(view) {
    const { post, large } = view;
    const known = counts.get(post);
    const liked = mine.get(post) ?? false;
    mark(view.heart, "aria-pressed", liked);
    mark(view.heart, "aria-busy", busy.has(post));
    say(view.label, large ? (liked ? "Liked" : "Like") : `${liked ? "Liked" : "Like"} ${post}`);
    if (!large) mark(view.name, "aria-current", post === focus);
    if (!known) return;
    say(view.count, number(known.likes));
    mark(view.exact, "data-exact", known.exact);
    mark(view.exact, "title", EXACT[known.exact]);
    say(view.exact, known.exact ? "exact" : "not exact");
    const age = known.as_of ? span(Math.max(0, now() - known.as_of)) : null;
    say(view.fresh, age === null ? "age unknown" : large ? `as of ${age} ago` : age);
    view.fresh.title = known.as_of ? `includes every like and unlike before ${clock(known.as_of)}` : "";
  }

  const hot = byId("hot");
  const showList = list(hot, (post) => post, (post) => view(post, false), fill);
  const showFocus = list(byId("focus"), (post) => post, (post) => view(post, true), fill);
  const beside = byId("beside");
  const [besideId, besideCount, besideExact] = ["id", "count", "exact"].map((name) => el("span", { class: name }));
  beside.append(besideId, besideCount, besideExact);
  const draw = () => {
    rank();
    showList(shown);
    showFocus(focus === null ? [] : [focus]);
    // The same once more beside the buttons that change it: on a phone the post itself is far up.
    const known = counts.get(focus);
    beside.hidden = known === undefined;
    if (beside.hidden) return;
    say(besideId, focus);
    say(besideCount, number(known.likes));
    mark(besideExact, "data-exact", known.exact);
    say(besideExact, known.exact ? "exact" : "not exact");
  };

  // Ordered by the numbers shown. While a person is using the list it stays as it is: nothing moves under a finger.
  function rank() {
    const pointed = matchMedia("(hover: hover)").matches && hot.matches(":hover");
    if (pointed || hot.querySelector(":focus-visible") || performance.now() - touched < STILL) return;
    const likes = (post) => counts.get(post)?.likes ?? -1;
    shown = [...candidates].sort((a, b) => likes(b) - likes(a) || (likes(a) < 0 ? 0 : a < b ? -1 : 1)).slice(0, SHOWN);
  }
  hot.addEventListener("touchstart", () => (touched = performance.now()), { passive: true });

  const tell = (text, bad = false) => {
    const said = byId("said");
    said.classList.toggle("bad", bad);
    say(said, text);
  };

  /** Takes a count, unless a newer one is known: answers may overtake each other. */
  function take(count) {
    const known = counts.get(count.post_id);
    if (known && known.version > count.version) return;
    counts.set(count.post_id, known && known.version === count.version && known.as_of > count.as_of ? { ...count, as_of: known.as_of } : count);
  }

  function show(post) {
    const wrong = fault(post);
    if (wrong) return tell(`A post's id that ${wrong} is none.`, true);
    byId("post").value = post;
    if (post === focus) return;
    if (focus !== null) tell("");
    focus = post;
    history.replaceState(null, "", `#${encodeURIComponent(post)}`);
    attend();
    tick();
  }

  /** Follows the post in focus while the page is visible. */
  function attend() {
    unfollow?.();
    unfollow = null;
    if (focus === null || document.hidden) return;
    unfollow = follow({
      places: ["tally-post-1", "tally-post-2"],
      events: `${likesOf(focus)}:stream`,
      heard: (count) => {
        take(count);
        draw();
      },
    });
  }

  /** Asks for every count shown, which also says how fresh it is, and for some of our own likes. */
  async function tick() {
    const asked = listed();
    if (asked.length === 0 || document.hidden) return;
    turn += 1;
    // Of the list one by one: each is a request of its own.
    const own = new Set([focus, shown[turn % shown.length], ...[focus, ...shown].filter((post) => !mine.has(post))]);
    try {
      const answer = await send("/v1/likes:batchGet", { post_ids: asked });
      answer.counts.forEach(take);
      await Promise.all([...own].filter((post) => post != null).map(refresh));
      if (!reached) tell("The counts are back.");
      reached = true;
    } catch (error) {
      if (reached) tell(`No counts: ${error.message}.`, true);
      reached = false;
    }
    mark(document.documentElement, "data-counts", reached ? "live" : "lost");
    draw();
  }

  async function refresh(post) {
    const asked = user;
    const { liked } = await request(likeOf(post, asked));
    if (asked === user && !busy.has(post)) mine.set(post, liked);
  }

  /** Likes or unlikes; one at a time, since the order of one user's events is what counts. */
  async function toggle(post) {
    if (busy.has(post)) return;
    const wanted = !(mine.get(post) ?? false);
    const verb = wanted ? "Liked" : "Unliked";
    const began = performance.now();
    const took = () => span(performance.now() - began);
    busy.add(post);
    mine.set(post, wanted);
    draw();
    try {
      await request(likeOf(post, user), { method: wanted ? "PUT" : "DELETE" });
      const acknowledged = took();
      if (await landed(post, wanted)) {
        tell(`${verb} ${post}: Kafka acknowledged after ${acknowledged}, the row shows it after ${took()}.`);
      } else {
        tell(`${verb} ${post}: Kafka acknowledged after ${acknowledged}, but no row shows it after ${took()}.`, true);
      }
    } catch (error) {
      tell(`${verb} ${post}? ${error.message}.`, true);
    }
    busy.delete(post);
    await refresh(post).catch(() => mine.delete(post));
    await tick();
  }

  /** Whether the row says what is wanted, sooner or later. */
  async function landed(post, wanted) {
    const until = performance.now() + 20_000;
    while (performance.now() < until) {
      const { liked } = await request(likeOf(post, user)).catch(() => ({}));
      if (liked === wanted) return true;
      await new Promise((done) => setTimeout(done, 50));
    }
    return false;
  }

  const field = byId("user");
  field.value = user;
  byId("show").addEventListener("submit", (event) => {
    event.preventDefault();
    const named = field.value;
    const wrong = fault(named);
    if (wrong) return tell(`A user's id that ${wrong} is none.`, true);
    if (named !== user) {
      user = named;
      mine.clear();
      tick();
    }
    sessionStorage.setItem("user", user);
    show(byId("post").value);
  });
  document.addEventListener("visibilitychange", () => {
    attend();
    tick();
  });
  window.addEventListener("hashchange", () => show(named()));
  setInterval(tick, EVERY);
  sessionStorage.setItem("user", user);
  if (named()) show(named());

  return {
    /** Posts worth showing, about the hottest first. */
    offer(hottest) {
      candidates = hottest;
      if (focus === null && candidates.length > 0) show(candidates[0]);
      draw();
    },
    /** Forgets what was known: another stack is there now. */
    forget() {
      counts.clear();
      mine.clear();
    },
  };
}

function named() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}
