// The stack behind the counts: figures, parts, shards, the ledger, and the actions that act on them.

import { byId, clock, el, list, mark, number, say, span } from "./dom.js";
import { post } from "./live.js";

const ANSWERS = 5;
const LEDGER = 8;
// A reader this far behind is worth a look.
const LATE = 5_000;

// Why the load makes less than it aims at. Neither is a limit of the pipeline.
const LIMITS = { gate: "held back by its gate", generator: "the load makes no more" };
const STATES = { open: "open", closing: "closing", done: "read to its end" };

/** Shows snapshots. */
export function stack() {
  const figure = (name) => document.querySelector(`[data-figure="${name}"]`);
  const endpoint = (name) => document.querySelector(`[data-endpoint="${name}"]`);
  const ms = (value) => (value == null ? "–" : span(value));

  const showParts = list(byId("parts"), ({ name }) => name, part, (one, { name, state, restarts }) => {
    mark(one.root, "data-state", state);
    say(one.state, state);
    say(one.restarts, restarts === 0 ? "" : `${restarts}×`);
    one.restarts.title = `${name} was started again ${restarts} times`;
  });
  const showShards = list(byId("shards"), ({ shard }) => shard.id, shard, (one, { shard, depth }) => {
    one.root.style.setProperty("--depth", Math.min(depth, 6));
    mark(one.root, "data-state", shard.state);
    say(one.state, STATES[shard.state]);
    say(one.lag, shard.lag_ms == null ? "–" : span(shard.lag_ms));
    mark(one.lag, "data-late", (shard.lag_ms ?? 0) > LATE);
  });
  const showLedger = list(byId("ledger"), ({ post_id }) => post_id, correction, (one, { post_id, corrections, by, last }) => {
    say(one.when, clock(last.at));
    say(one.post, post_id);
    say(one.why, last.shard === null ? `total, ${last.why}` : `shard ${last.shard}, ${last.why}`);
    say(one.change, `${number(last.before)} → ${number(last.after)}`);
    say(one.sum, `${by > 0 ? "+" : ""}${number(by)}`);
    one.sum.title = corrections === 1 ? "1 correction" : `${number(corrections)} corrections, together`;
  });

  return (snapshot) => {
    const { load, staleness, drift } = snapshot;
    say(figure("rate"), number(load.events_per_second));
    const limit = load.limit === null ? "" : `, ${LIMITS[load.limit]}`;
    say(figure("aim"), load.running ? `aims at ${number(load.rate)}${limit}` : "the load is paused");
    say(figure("p50"), ms(staleness?.p50_ms));
    say(figure("p99"), ms(staleness?.p99_ms));
    say(figure("events"), number(load.events));
    say(figure("rows"), number(snapshot.rows));
    say(figure("drift"), number(drift.found));
    say(figure("runs"), `${number(drift.corrected)} corrected in ${drift.runs === 1 ? "1 recount" : `${number(drift.runs)} recounts`}`);
    for (const [name, where] of Object.entries(snapshot.endpoints)) {
      const place = endpoint(name);
      if (place) say(place, where);
    }

    const gaps = byId("gaps");
    gaps.hidden = snapshot.open_gaps === 0;
    if (snapshot.open_gaps > 0) {
      const lost = snapshot.open_gaps === 1 ? "A part of the stream was" : `${snapshot.open_gaps} parts of the stream were`;
      say(gaps, `${lost} lost: no count is called exact until a recount has proved them all.`);
    }

    showParts(snapshot.parts);
    const { rows, hidden } = tree(snapshot.shards);
    showShards(rows);
    byId("earlier").hidden = hidden === 0;
    say(byId("earlier"), `and ${number(hidden)} earlier, read to ${hidden === 1 ? "its end" : "their ends"}`);
    showLedger(snapshot.ledger.slice(0, LEDGER));
    const unshown = Math.max(snapshot.ledger.length - LEDGER, 0) + snapshot.ledger_more;
    byId("more-corrected").hidden = unshown === 0;
    say(byId("more-corrected"), `and ${number(unshown)} more ${unshown === 1 ? "post" : "posts"}`);
    byId("no-ledger").hidden = snapshot.ledger.length > 0;
    byId("corrections").hidden = snapshot.ledger.length === 0;
    showRecount(snapshot);
    settle(snapshot);
  };
}

function part(name) {
  const state = el("span", { class: "state" });
  const restarts = el("span", { class: "restarts" });
  return { root: el("li", {}, el("i", { class: "dot" }), el("span", { class: "name" }, name), state, restarts), state, restarts };
}

function shard(id) {
  const [state, lag] = [el("td", { class: "state" }), el("td", { class: "number lag" })];
  const name = el("span", { class: "leaf", title: id }, id.length > 14 ? `…${id.slice(-8)}` : id);
  return { root: el("tr", {}, el("th", { scope: "row" }, name), state, lag), state, lag };
}

function correction() {
  const [when, post, why] = [el("td"), el("span", { class: "id" }), el("span", { class: "why" })];
  const [change, sum] = [el("td", { class: "number" }), el("td", { class: "number" })];
  return { root: el("tr", {}, when, el("td", {}, post, " ", why), change, sum), when, post, why, change, sum };
}

const counts = (count) => (count === 1 ? "1 count" : `${number(count)} counts`);

/** How far the recount is, or what the last one came to. */
function showRecount({ at, recount, rows }) {
  byId("recount").hidden = recount === null;
  if (recount === null) return;
  const { began, ended, doubted, settled, corrected } = recount;
  const bar = byId("recount-done");
  bar.hidden = ended !== null;
  bar.max = Math.max(doubted, 1);
  bar.value = settled;
  const read = `${number(recount.rows)} of about ${number(Math.max(rows, recount.rows))} rows read`;
  const said = ended === null
    ? `Under way for ${span(Math.max(0, at - began))}: ${read}, ${number(settled)} of ${number(doubted)} row keys settled that moved or differ; ${counts(corrected)} corrected so far.`
    : `The last one took ${span(ended - began)} and corrected ${counts(corrected)}; it ended at ${clock(ended)}.`;
  say(byId("recount-said"), said);
}

/** Children behind their parents. Of what is read to its end, only the parents of what is not are shown. */
function tree(shards) {
  const known = new Map(shards.map((shard) => [shard.id, shard]));
  const children = new Map();
  const roots = [];
  for (const shard of shards) {
    if (!known.has(shard.parent)) roots.push(shard);
    else children.set(shard.parent, [...(children.get(shard.parent) ?? []), shard]);
  }
  const alive = ({ state }) => state !== "done";
  const shown = (shard) => alive(shard) || (children.get(shard.id) ?? []).some(alive);
  const rows = [];
  const walk = (shard, depth) => {
    if (shown(shard)) rows.push({ shard, depth });
    const below = shown(shard) ? depth + 1 : depth;
    for (const child of children.get(shard.id) ?? []) walk(child, below);
  };
  for (const root of roots) walk(root, 0);
  return { rows, hidden: shards.length - rows.length };
}

/** Buttons that undo say so. */
function settle({ load, parts, mirror }) {
  byId("mirror-row").hidden = mirror === null;
  byId("mirror").form.dataset.action = mirror ? "cut_mirror" : "heal_mirror";
  say(byId("mirror"), mirror ? "Cut the mirror" : "Heal the mirror");
  say(byId("a-mirror"), mirror
    ? "Each Region goes on with what it knows of the other: after about 20 seconds its sums are not fresh, and their time stands still."
    : "What waited is copied, and within some seconds both Regions answer the same sums.");
  const stopped = parts.some(({ name, state }) => /cache|redis/.test(name) && state === "down");
  byId("cache").form.dataset.action = stopped ? "start_cache" : "stop_cache";
  say(byId("cache"), stopped ? "Start the cache" : "Stop the cache");
  say(byId("a-cache"), stopped ? "It comes back empty, and fills from the table as posts are read." : "The API reads the table instead: the numbers stay right.");
  byId("load").form.dataset.paused = load.running;
  say(byId("load"), load.running ? "Pause the load" : "Let the load go on");
  say(byId("a-load"), load.running ? "Then your own likes alone move the counts." : "Likes and unlikes by many users, at the rate it was started with.");
}

/** What a form asks for. */
function asked(form) {
  const { action, part, paused } = form.dataset;
  if (action === "kill") return { action, part };
  if (action === "pause_load") return { action, paused: paused !== "false" };
  if (action === "inject_drift") return { action, post_id: form.elements.post_id.value, by: form.elements.by.valueAsNumber };
  return { action };
}

/** Makes the buttons act; every answer is said and kept for a while. */
export function actions() {
  const answers = byId("answers");
  byId("actions").addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target;
    const button = form.querySelector("button");
    if (button.getAttribute("aria-busy") === "true") return;
    const name = button.textContent;
    button.setAttribute("aria-busy", "true");
    // A recount takes as long as it takes.
    const answer = await post("/local/actions", asked(form), { patience: 600_000 }).then(
      ({ done }) => ({ text: done, bad: false }),
      (error) => ({ text: error.message, bad: true }),
    );
    button.removeAttribute("aria-busy");
    const line = el("li", answer.bad ? { class: "bad" } : {}, el("time", {}, clock(Date.now())), " ", el("b", {}, name), answer.bad ? ": not done, " : ": ", answer.text);
    answers.prepend(line);
    while (answers.children.length > ANSWERS) answers.lastElementChild.remove();
  });
}
