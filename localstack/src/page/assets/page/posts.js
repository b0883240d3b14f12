// A post: its counters as they move, and using them by hand, all through the public API.

import { COUNTERS, celebrate, claim, others } from "./counters.js";
import { byId, clock, el, list, mark, number, say, span } from "./dom.js";
import { follow, post as send, request } from "./live.js";

const EVERY = 1000;
const EXACT = {
  true: "The rows had this number at some moment since the time beside it. Damage that nothing has noticed yet is found by a recount.",
  false: "A loss is known and not repaired yet. A recount repairs what is wrong.",
};
const utf8 = new TextEncoder();

/** A name that there is not yet. */
const fresh = () => [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

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

const countersOf = (post) => `/v1/posts/${encodeURIComponent(post)}/counters`;
const memberOf = (post, counter, member) => `${countersOf(post)}/${counter}/members/${encodeURIComponent(member)}`;

/** The post of the page; `now()` is the stack's time. */
export function posts(now) {
  // By post: the value of each counter, and in which of them this person is.
  const counts = new Map();
  const mine = new Map();
  const busy = new Set();
  let focus = null;
  let user = sessionStorage.getItem("user") ?? `you-${crypto.getRandomValues(new Uint16Array(1))[0].toString(16).padStart(4, "0")}`;
  // What each Region adds to the likes of a post, where there are several.
  const entries = new Map();
  let several = false;
  let unfollow = null;
  let reached = true;
  let turn = 0;

  function view(post) {
    const heart = el("button", { type: "button", class: "heart" }, el("span", { class: "sign", "aria-hidden": "true" }));
    const label = el("span", { class: "label" });
    heart.append(label);
    heart.addEventListener("click", () => use(post, "likes"));
    const count = el("span", { class: "count" }, "–");
    const exact = el("span", { class: "exact" });
    const fresh = el("span", { class: "fresh" });
    const rest = others((counter) => use(post, counter));
    const numbers = el("span", { class: "numbers" }, count, exact, fresh);
    const root = el("article", { class: "post" }, heart, el("h3", { class: "id" }, post), numbers, rest.root);
    return { root, post, heart, label, count, exact, fresh, rest };
  }

  function fill(view) {
    const { post } = view;
    const known = counts.get(post)?.likes;
    const liked = mine.get(post)?.likes ?? false;
    view.rest.fill(counts.get(post), mine.get(post) ?? {}, (counter) => busy.has(`${counter} ${post}`), EXACT);
    mark(view.heart, "aria-pressed", liked);
    mark(view.heart, "aria-busy", busy.has(`likes ${post}`));
    say(view.label, liked ? "Liked" : "Like");
    if (!known) return;
    say(view.count, number(known.value));
    claimed(view, known);
  }

  /** What is claimed of a number. */
  function claimed({ exact, fresh }, known) {
    mark(exact, "data-exact", known.exact);
    mark(exact, "title", EXACT[known.exact]);
    say(exact, claim(known));
    const age = known.as_of ? span(Math.max(0, now() - known.as_of)) : null;
    say(fresh, age === null ? "age unknown" : `as of ${age} ago`);
    mark(fresh, "data-fresh", known.fresh);
    fresh.title = known.as_of ? `includes every like and unlike before ${clock(known.as_of)}` : "";
  }

  function region(name) {
    const [count, exact, fresh] = ["count", "exact", "fresh"].map((name) => el("span", { class: name }));
    return { root: el("li", { "data-region": name }, el("span", { class: "name" }, name), count, exact, fresh), count, exact, fresh };
  }

  const showRegions = list(byId("regions"), ({ region }) => region, region, (one, entry) => {
    say(one.count, number(entry.count));
    claimed(one, entry);
  });
  const showFocus = list(byId("focus"), (post) => post, view, fill);
  const beside = byId("beside");
  const [besideId, besideCount, besideExact] = ["id", "count", "exact"].map((name) => el("span", { class: name }));
  beside.append(besideId, besideCount, besideExact);
  const draw = () => {
    showFocus(focus === null ? [] : [focus]);
    const parts = entries.get(focus) ?? [];
    byId("regions").hidden = parts.length === 0;
    showRegions(parts);
    // The same once more beside the buttons that change it: on a phone the post itself is far up.
    const known = counts.get(focus)?.likes;
    beside.hidden = known === undefined;
    if (beside.hidden) return;
    say(besideId, focus);
    say(besideCount, number(known.value));
    mark(besideExact, "data-exact", known.exact);
    say(besideExact, claim(known));
  };

  const tell = (text, bad = false) => {
    const said = byId("said");
    said.classList.toggle("bad", bad);
    say(said, text);
  };

  /** Takes a count, unless a newer one is known: answers may overtake each other. */
  function take(count) {
    const all = counts.get(count.post_id) ?? {};
    const known = all[count.counter];
    if (known && known.version > count.version) return;
    const same = known && known.version === count.version && known.as_of > count.as_of;
    counts.set(count.post_id, { ...all, [count.counter]: same ? { ...count, as_of: known.as_of, fresh: known.fresh } : count });
  }

  function show(post) {
    const wrong = fault(post);
    if (wrong) return tell(`A post's id that ${wrong} is none.`, true);
    byId("post").value = post;
    if (post === focus) return;
    if (focus !== null) tell("");
    byId("milestone").replaceChildren();
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
      events: `${countersOf(focus)}:stream`,
      names: [...Object.keys(COUNTERS), "milestone"],
      heard: (told) => {
        if (told.n !== undefined) return celebrate(byId("milestone"), told);
        take(told);
        draw();
      },
    });
  }

  /** Asks for the counts of the post in focus, which also says how fresh it is, and for what this person is in. */
  async function tick() {
    if (focus === null || document.hidden) return;
    const person = user;
    // What is begun or ends meanwhile says more of this person than what was asked for before.
    const before = turn;
    try {
      const answer = await send("/v1/counters:batchGet", { post_ids: [focus], counters: Object.keys(COUNTERS), member: person });
      answer.counts.forEach(take);
      if (person === user && before === turn) answer.counts.forEach(own);
      if (several) {
        const { post_id: post, regions = [] } = await request(`${countersOf(focus)}/likes?detail=regions`);
        entries.set(post, regions);
      }
      if (!reached) tell("The counts are back.");
      reached = true;
    } catch (error) {
      if (reached) tell(`No counts: ${error.message}.`, true);
      reached = false;
    }
    mark(document.documentElement, "data-counts", reached ? "live" : "lost");
    draw();
  }

  /** Takes whether this person is in a counter, unless they are just changing it. */
  function own({ post_id: post, counter, mine: present }) {
    if (present === undefined || busy.has(`${counter} ${post}`)) return;
    mine.set(post, { ...mine.get(post), [counter]: present });
  }

  /** Does what the counter's button says; one at a time, since the order of one person's events is what counts. */
  async function use(post, counter) {
    const { verb, done, undone, member: kind } = COUNTERS[counter];
    const key = `${counter} ${post}`;
    if (busy.has(key)) return;
    const toggles = undone !== undefined;
    const wanted = !(toggles && mine.get(post)?.[counter]);
    const member = kind === "person" ? user : `reply-${fresh()}`;
    const said = `${wanted ? done : undone} ${post}`;
    const began = performance.now();
    const took = () => span(performance.now() - began);
    busy.add(key);
    turn += 1;
    if (toggles) mine.set(post, { ...mine.get(post), [counter]: wanted });
    draw();
    try {
      if (kind) await request(memberOf(post, counter, member), { method: wanted ? "PUT" : "DELETE" });
      else await send(`${countersOf(post)}/${counter}/events`, { action: "increment" });
      const acknowledged = took();
      if (!kind) tell(`${said}: Kafka acknowledged after ${acknowledged}, the number follows.`);
      else if (await landed(post, counter, member, wanted)) tell(`${said}: Kafka acknowledged after ${acknowledged}, the row shows it after ${took()}.`);
      else tell(`${said}: Kafka acknowledged after ${acknowledged}, but no row shows it after ${took()}.`, true);
    } catch (error) {
      tell(`${verb} ${post}? ${error.message}.`, true);
      if (toggles) mine.set(post, { ...mine.get(post), [counter]: undefined });
    }
    busy.delete(key);
    turn += 1;
    await tick();
  }

  /** Whether the row says what is wanted, sooner or later. */
  async function landed(post, counter, member, wanted) {
    const until = performance.now() + 20_000;
    while (performance.now() < until) {
      const { present } = await request(memberOf(post, counter, member)).catch(() => ({}));
      if (present === wanted) return true;
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
      if (focus === null && hottest.length > 0) show(hottest[0]);
      draw();
    },
    show,
    /** Whether there are several Regions. */
    across(regions) {
      several = regions;
    },
    /** Forgets what was known: another stack is there now. */
    forget() {
      counts.clear();
      entries.clear();
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
